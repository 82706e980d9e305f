//! Invariant 4: what a guest commits is fenced, and what it leaves open is rolled back.

use std::time::Duration;

use host::role::State;

use crate::plant::{Plant, Wishes};

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_writes_through_transactions() -> anyhow::Result<()> {
    let plant = Plant::start(&[("scribe", "{ mode = \"write\" }")]).await?;
    plant.leases.grant("scribe").await?;
    plant.until("it has ticked", |plant| plant.probe("scribe", "ticks") >= 4).await?;
    assert!(plant.leases.rows().await? >= 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_left_open_is_rolled_back_when_its_call_returns() -> anyhow::Result<()> {
    let plant = Plant::start(&[("scribe", "{ mode = \"hold-transaction\" }")]).await?;
    plant.leases.grant("scribe").await?;
    plant.until("a late commit is refused", |plant| plant.probe("scribe", "refused_commits") >= 2).await?;
    assert_eq!(
        (plant.leases.rows().await?, plant.probe("scribe", "commits"), plant.probe("scribe", "starts")),
        (0, 0, 1)
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_was_displaced_commits_nothing() -> anyhow::Result<()> {
    let plant = Plant::start(&[("scribe", "{ mode = \"write\" }")]).await?;
    plant.leases.grant("scribe").await?;
    plant.until("it has ticked", |plant| plant.probe("scribe", "ticks") >= 2).await?;
    plant.leases.usurp("scribe").await?;
    let committed = plant.leases.rows().await?;
    plant.until("the fence ends the instance", |plant| plant.is("scribe", State::Standby)).await?;
    assert_eq!((plant.instances("scribe"), plant.ended("scribe", "lost")), (0, 1));
    assert_eq!(plant.leases.rows().await?, committed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn losing_the_lease_while_the_guest_computes_in_a_transaction_commits_nothing() -> anyhow::Result<()> {
    loses_the_lease_in_a_transaction("{ mode = \"loop-in-transaction\" }").await
}

#[tokio::test(flavor = "multi_thread")]
async fn losing_the_lease_while_the_guest_waits_in_a_transaction_commits_nothing() -> anyhow::Result<()> {
    loses_the_lease_in_a_transaction("{ mode = \"sleep-in-transaction\" }").await
}

async fn loses_the_lease_in_a_transaction(config: &str) -> anyhow::Result<()> {
    let wishes = Wishes { at_most: Duration::from_secs(3600), ..Wishes::default() };
    let plant = Plant::start_with(&[("scribe", config), ("heir", "{ mode = \"write\" }")], wishes).await?;
    plant.leases.grant("scribe").await?;
    plant.until("it has a transaction open", |plant| plant.probe("scribe", "opened") > 0).await?;
    plant.leases.lose("scribe");
    plant.until("it is a standby", |plant| plant.is("scribe", State::Standby)).await?;
    assert_eq!((plant.instances("scribe"), plant.leases.rows().await?), (0, 0));
    // The file's one write lock is free again: the transaction is not only forgotten.
    plant.leases.grant("heir").await?;
    plant.until("another role writes", |plant| plant.probe("heir", "ticks") >= 2).await?;
    assert!(plant.leases.rows().await? >= 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_transaction_beside_an_open_one_is_refused() -> anyhow::Result<()> {
    let plant = Plant::start(&[("greedy", "{ mode = \"begin-twice\" }")]).await?;
    plant.leases.grant("greedy").await?;
    let refused = "this instance has a transaction open: commit it or drop it before the next";
    plant
        .until("it is refused", |plant| plant.report("greedy").is_some_and(|report| report.reason.contains(refused)))
        .await
}
