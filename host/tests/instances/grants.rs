//! Invariant 10: deny by default.

use host::capability::Grants;

use crate::plant::{Plant, Wishes};

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_sees_nothing_of_the_box_it_runs_on() -> anyhow::Result<()> {
    let plant = Plant::start(&[("spy", "{ mode = \"look-around\" }")]).await?;
    plant.leases.grant("spy").await?;
    let said = |plant: &Plant| plant.report("spy").map(|report| report.reason).unwrap_or_default();
    plant.until("it has looked", |plant| said(plant).contains("variables")).await?;
    let seen = said(&plant);
    assert!(seen.contains("variables 0, arguments 0, root Err("), "{seen}");
    assert!(seen.contains("written Err("), "{seen}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_a_grant_is_denied_the_database() -> anyhow::Result<()> {
    denied("{ mode = \"begin-twice\" }", "this role has no grant for the database").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_a_grant_is_denied_a_connection_by_its_name() -> anyhow::Result<()> {
    let config = "{ mode = \"subscribe\", connection = \"line\", nodes = [\"nsu=urn:a;s=b\"] }";
    denied(config, "this role has no grant for the OPC UA connection").await
}

async fn denied(config: &str, sentence: &str) -> anyhow::Result<()> {
    let wishes = Wishes { grants: Grants::nothing(), ..Wishes::default() };
    let plant = Plant::start_with(&[("guest", config)], wishes).await?;
    plant.leases.grant("guest").await?;
    plant
        .until("it is told", |plant| plant.report("guest").is_some_and(|report| report.reason.contains(sentence)))
        .await
}
