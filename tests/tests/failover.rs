//! Two nodes, one database, one line that goes on counting: whatever ends the holder, the books are what was made, and no two nodes
//! have an instance at one time.

use std::time::Duration;

use harness::plant::{books, total, wait_until_booked, wait_until_read, wait_until_reading};
use harness::process::wait_until;
use harness::takeover::{report, rounds};
use harness::{End, Node, Plant, Postgres, Simulator, Watch, take_over};
use serde_json::Value;

#[test]
fn a_killed_holder_is_succeeded_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    fail_over(End::Killed)
}

#[test]
fn a_stopped_holder_hands_over_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    fail_over(End::Stopped)
}

#[test]
fn a_frozen_holder_commits_nothing_after_it_wakes_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    fail_over(End::Frozen)
}

fn fail_over(end: End) -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    let plant = Plant::bottling(&database.url(), &line.url(), Some(2))?;
    let mut holder = plant.node("a")?;
    wait_until_reading(&holder, "a")?;
    let mut standby = plant.node("b")?;
    wait_until_read(&holder, 12)?;
    let mut watch = Watch::over("reader", &[&holder, &standby]);
    line.resume()?;

    let mut takeovers = Vec::new();
    for _ in 0..rounds(5) {
        let before = total(&books(&standby)?);
        wait_until("counts go on", Duration::from_secs(30), || Ok(total(&books(&standby)?) > before + 20))?;
        takeovers.push(take_over(&plant, end, &mut holder, &standby, &mut watch)?);
        std::mem::swap(&mut holder, &mut standby);
    }
    line.pause()?;
    wait_until_booked(&holder, &line.truth()?)?;
    epochs_only_grow(&holder, takeovers.len())?;
    report(end, &takeovers, watch.end()?);
    Ok(())
}

fn epochs_only_grow(node: &Node, at_least: usize) -> anyhow::Result<()> {
    let takeovers = node.get("/api/takeovers")?;
    let mut epochs: Vec<(u64, u64)> = Vec::new();
    for takeover in takeovers.as_array().into_iter().flatten().rev() {
        let epoch = |key: &str| takeover.get(key).and_then(Value::as_u64).unwrap_or(0);
        epochs.push((epoch("from_epoch"), epoch("to_epoch")));
    }
    assert!(epochs.len() > at_least, "each is recorded, and the start: {takeovers}");
    assert!(epochs.iter().all(|(from, to)| from < to), "{takeovers}");
    assert!(epochs.iter().zip(epochs.iter().skip(1)).all(|(one, next)| one.1 <= next.0), "{takeovers}");
    Ok(())
}
