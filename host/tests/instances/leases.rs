//! Invariants 1, 3 and 8: an instance exists while its lease does.

use std::time::Duration;

use anyhow::Context;
use host::clock::BootInstant;
use host::lease::Cause;
use host::role::State;

use crate::plant::{Plant, Wishes, key};

#[tokio::test(flavor = "multi_thread")]
async fn no_instance_exists_without_a_lease() -> anyhow::Result<()> {
    let plant = Plant::start(&[("held", "{ mode = \"count\" }"), ("other", "{ mode = \"count\" }")]).await?;
    plant.leases.grant("held").await?;
    plant.until("it works", |plant| plant.is("held", State::Running) && plant.probe("held", "ticks") > 0).await?;
    assert_eq!((plant.instances("held"), plant.instances("other"), plant.probe("other", "starts")), (1, 0, 0));
    plant.leases.lose("held");
    plant.until("it is a standby", |plant| plant.is("held", State::Standby)).await?;
    assert_eq!((plant.instances("held"), plant.probe("held", "stops")), (0, 0));
    let ticks = plant.probe("held", "ticks");
    plant.leases.grant("other").await?;
    plant.until("the other works", |plant| plant.probe("other", "ticks") >= 3).await?;
    assert_eq!(plant.probe("held", "ticks"), ticks);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_leases_leave_the_memory_as_it_was() -> anyhow::Result<()> {
    let plant = Plant::start(&[("tame", "{ mode = \"count\" }")]).await?;
    let mut after_a_hundred = 0;
    for cycle in 1..=500 {
        plant.leases.grant("tame").await?;
        plant.until("it works", |plant| plant.is("tame", State::Running)).await?;
        plant.leases.lose("tame");
        plant.until("it is a standby", |plant| plant.is("tame", State::Standby)).await?;
        if cycle == 100 {
            after_a_hundred = resident_kib()?;
        }
    }
    assert_eq!((plant.probe("tame", "starts"), plant.instances("tame")), (500, 0));
    let grown = resident_kib()?.saturating_sub(after_a_hundred);
    // An instance has a memory of a MiB at least: one in twenty-five that stayed would be seen.
    assert!(grown < 16 << 10, "{grown} KiB more after 400 further leases");
    Ok(())
}

fn resident_kib() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn losing_the_lease_while_the_guest_computes_drops_its_store() -> anyhow::Result<()> {
    let wishes = Wishes { at_most: Duration::from_secs(3600), ..Wishes::default() };
    let plant = Plant::start_with(&[("busy", "{ mode = \"loop-in-timer\" }")], wishes).await?;
    plant.leases.grant("busy").await?;
    plant.until("it computes", |plant| plant.probe("busy", "ticks") > 0).await?;
    assert_eq!(plant.instances("busy"), 1);
    plant.leases.lose("busy");
    plant.until("its store is gone", |plant| plant.instances("busy") == 0).await?;
    plant.until("it is counted", |plant| plant.ended("busy", "lost") == 1).await?;
    assert_eq!(plant.leases.released(), vec![]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn losing_the_lease_while_the_guest_waits_in_the_host_drops_its_store() -> anyhow::Result<()> {
    let wishes = Wishes { at_most: Duration::from_secs(3600), ..Wishes::default() };
    let plant = Plant::start_with(&[("idle", "{ mode = \"sleep-in-timer\" }")], wishes).await?;
    plant.leases.grant("idle").await?;
    plant.until("it waits", |plant| plant.probe("idle", "ticks") > 0).await?;
    plant.leases.lose("idle");
    plant.until("its store is gone", |plant| plant.instances("idle") == 0 && plant.is("idle", State::Standby)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_ends_at_the_deadline_of_its_lease_though_the_keeper_says_nothing() -> anyhow::Result<()> {
    let wishes = Wishes { at_most: Duration::from_secs(3600), ..Wishes::default() };
    let plant = Plant::start_with(&[("busy", "{ mode = \"loop-in-timer\" }")], wishes).await?;
    let deadline = BootInstant::now() + Duration::from_secs(2);
    plant.leases.grant_until("busy", deadline).await?;
    plant.until("it is a standby", |plant| plant.is("busy", State::Standby)).await?;
    assert!(deadline.is_past());
    assert_eq!((plant.instances("busy"), plant.ended("busy", "lost")), (0, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_stops_its_roles_and_releases_their_leases_clean() -> anyhow::Result<()> {
    let mut plant = Plant::start(&[("tame", "{ mode = \"count\" }"), ("wild", "{ mode = \"fail-start\" }")]).await?;
    plant.leases.grant("tame").await?;
    plant.leases.grant("wild").await?;
    plant.until("one works", |plant| plant.is("tame", State::Running)).await?;
    plant.until("one pauses", |plant| plant.is("wild", State::Backoff)).await?;
    plant.drain().await?;
    assert_eq!((plant.probe("tame", "stops"), plant.instances("tame"), plant.instances("wild")), (1, 0, 0));
    let mut released = plant.leases.released();
    released.sort_by(|a, b| a.0.cmp(&b.0));
    let released: Vec<_> = released.into_iter().map(|(key, r)| (key, r.cause, r.clean, r.cool_down)).collect();
    let clean = |role| (key(role), Cause::Release, true, None);
    assert_eq!(released, [clean("tame"), clean("wild")]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_role_can_be_drained_by_its_lease_and_granted_again() -> anyhow::Result<()> {
    let plant = Plant::start(&[("tame", "{ mode = \"count\" }")]).await?;
    let held = plant.leases.grant("tame").await?;
    plant.until("it works", |plant| plant.is("tame", State::Running)).await?;
    held.drain(Cause::Move);
    plant.until("it is released", |plant| plant.leases.released().len() == 1).await?;
    assert_eq!((plant.instances("tame"), plant.probe("tame", "stops")), (0, 1));
    let again = plant.leases.grant("tame").await?;
    assert!(again.epoch() > held.epoch());
    plant.until("it works again", |plant| plant.is("tame", State::Running)).await?;
    assert_eq!((plant.instances("tame"), plant.probe("tame", "starts")), (1, 2));
    Ok(())
}
