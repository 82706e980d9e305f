//! Invariant 10: a guest that does not return hurts only itself.

use std::thread::available_parallelism;
use std::time::Duration;

use crate::plant::{Plant, Wishes};

#[tokio::test(flavor = "multi_thread")]
async fn the_timers_of_others_go_on_while_more_guests_than_threads_compute_for_ever() -> anyhow::Result<()> {
    // One more than there are threads for guests: if a loop kept its thread, nobody else would get one.
    let loops = available_parallelism()?.get().max(2) + 1;
    let names: Vec<String> = (0..loops).map(|n| format!("loop{n}")).collect();
    let mut roles: Vec<_> = names.iter().map(|name| (name.as_str(), "{ mode = \"loop-in-timer\" }")).collect();
    roles.push(("tame", "{ mode = \"count\" }"));
    let plant = Plant::start_with(&roles, Wishes { at_most: Duration::from_secs(3600), ..Wishes::default() }).await?;
    for name in names.iter().map(String::as_str).chain(["tame"]) {
        plant.leases.grant(name).await?;
    }
    let all_loop = |plant: &Plant| names.iter().all(|name| plant.probe(name, "ticks") == 1);
    plant.until("all loops run", all_loop).await?;
    // Not how late they are: that is a matter of what else the machine does. A guest that is starved gets none at all.
    let ticks = plant.probe("tame", "ticks");
    plant.until("the tame role ticks among the loops", |plant| plant.probe("tame", "ticks") >= ticks + 20).await?;
    assert!(all_loop(&plant), "a loop has ended, so that less than all of them was in the way");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_loop_ends_at_its_deadline() -> anyhow::Result<()> {
    let wishes = Wishes { at_most: Duration::from_millis(300), ..Wishes::default() };
    let plant = Plant::start_with(&[("busy", "{ mode = \"loop-in-timer\" }")], wishes).await?;
    plant.leases.grant("busy").await?;
    plant.until("it is interrupted", |plant| plant.ended("busy", "overrun") > 0).await?;
    plant.until("a new instance starts", |plant| plant.probe("busy", "starts") > 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_waits_in_the_host_ends_at_its_deadline() -> anyhow::Result<()> {
    let wishes = Wishes { at_most: Duration::from_millis(300), ..Wishes::default() };
    let plant = Plant::start_with(&[("idle", "{ mode = \"sleep-in-timer\" }")], wishes).await?;
    plant.leases.grant("idle").await?;
    plant.until("it is interrupted", |plant| plant.ended("idle", "overrun") > 0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_start_ends_at_its_deadline() -> anyhow::Result<()> {
    let wishes = Wishes { at_most: Duration::from_millis(300), ..Wishes::default() };
    let plant = Plant::start_with(&[("slow", "{ mode = \"loop-in-start\" }")], wishes).await?;
    plant.leases.grant("slow").await?;
    plant.until("it is interrupted", |plant| plant.ended("slow", "overrun") > 0).await?;
    plant
        .until("it says so", |plant| plant.report("slow").is_some_and(|r| r.reason.contains("its start took longer")))
        .await
}
