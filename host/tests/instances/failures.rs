//! What follows when an instance fails.

use std::time::Duration;

use host::lease::Cause;
use host::role::State;
use host::role::backoff::Budget;

use crate::plant::{Plant, Wishes, key};

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_hog_is_stopped_and_the_limit_is_named() -> anyhow::Result<()> {
    let plant = Plant::start(&[("hog", "{ mode = \"eat-memory\" }")]).await?;
    plant.leases.grant("hog").await?;
    plant.until("it is stopped", |plant| plant.ended("hog", "trapped") > 0).await?;
    plant.until("it says so", |plant| plant.report("hog").is_some_and(|r| r.reason.contains("`limits.memory`"))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_followed_by_a_pause_and_an_instance_with_a_higher_epoch() -> anyhow::Result<()> {
    let plant = Plant::start(&[("wild", "{ mode = \"panic\" }")]).await?;
    let first = plant.leases.grant("wild").await?.epoch();
    let paused = |plant: &Plant| plant.is("wild", State::Backoff) && plant.instances("wild") == 0;
    plant.until("it pauses without an instance", paused).await?;
    plant.until("a second instance starts", |plant| plant.probe("wild", "starts") >= 2).await?;
    let later = |plant: &Plant| plant.report("wild").and_then(|report| report.epoch).is_some_and(|epoch| epoch > first);
    plant.until("its epoch is higher", later).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_fails_too_often_is_left_to_another_node() -> anyhow::Result<()> {
    let wishes = Wishes { budget: budget(3), others: true, ..Wishes::default() };
    let plant = Plant::start_with(&[("wild", "{ mode = \"panic\" }")], wishes).await?;
    plant.leases.grant("wild").await?;
    plant.until("it is given up", |plant| !plant.leases.released().is_empty()).await?;
    let [(released, release)] = &plant.leases.released()[..] else { anyhow::bail!("released more than once") };
    assert_eq!((released, release.cause, release.cool_down), (&key("wild"), Cause::Yield, Some(budget(3).cool_down)));
    assert_eq!((plant.probe("wild", "starts"), plant.instances("wild")), (3, 0));
    assert!(plant.is("wild", State::Standby));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_no_other_node_can_run_is_not_given_up() -> anyhow::Result<()> {
    let wishes = Wishes { budget: budget(2), others: false, ..Wishes::default() };
    let plant = Plant::start_with(&[("wild", "{ mode = \"panic\" }")], wishes).await?;
    plant.leases.grant("wild").await?;
    let goes_on = |plant: &Plant| plant.report("wild").is_some_and(|r| r.reason.contains("no other node could run it"));
    plant.until("it goes on, slowly", goes_on).await?;
    assert_eq!((plant.leases.released(), plant.is("wild", State::Backoff)), (vec![], true));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_start_says_why() -> anyhow::Result<()> {
    let plant = Plant::start(&[("sad", "{ mode = \"fail-start\" }")]).await?;
    plant.leases.grant("sad").await?;
    plant.until("it failed", |plant| plant.ended("sad", "failed-start") > 0).await?;
    let why = "probe 1.0.0: its start failed: it was asked to fail";
    plant.until("it says why", |plant| plant.report("sad").is_some_and(|report| report.reason.contains(why))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_that_answers_an_error_comes_again_to_the_same_instance() -> anyhow::Result<()> {
    let plant = Plant::start(&[("sad", "{ mode = \"fail-timer\" }")]).await?;
    plant.leases.grant("sad").await?;
    plant.until("it ticks on", |plant| plant.probe("sad", "ticks") >= 3).await?;
    assert_eq!(plant.probe("sad", "starts"), 1);
    Ok(())
}

fn budget(failures: usize) -> Budget {
    Budget { failures, pause: Duration::from_millis(10), ..Budget::default() }
}
