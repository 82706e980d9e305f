//! The database dies under load and comes back: nothing that was made is lost or counted twice, and the nodes stay up and say what is
//! the matter.

#![expect(clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::time::{Duration, Instant};

use harness::plant::{books, total, wait_until_booked, wait_until_read, wait_until_reading};
use harness::process::wait_until;
use harness::{Node, Plant, Postgres, Simulator};
use serde_json::Value;

/// How long the database is at least away.
const AWAY: Duration = Duration::from_secs(4);

#[test]
fn a_single_node_outlives_a_killed_database_and_its_books_are_what_was_made() -> anyhow::Result<()> {
    outlive(None)
}

#[test]
fn two_nodes_outlive_a_killed_database_and_their_books_are_what_was_made() -> anyhow::Result<()> {
    outlive(Some(2))
}

fn outlive(lease_seconds: Option<u32>) -> anyhow::Result<()> {
    let mut database = Postgres::start_with(&[])?;
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    let plant = Plant::bottling(&database.url(), &line.url(), lease_seconds)?;
    let mut nodes = vec![plant.node("a")?];
    wait_until_reading(&nodes[0], "a")?;
    if lease_seconds.is_some() {
        nodes.push(plant.node("b")?);
    }
    wait_until_read(&nodes[0], 12)?;
    line.resume()?;

    for _ in 0..2 {
        counts_go_on(&nodes)?;
        database.kill()?;
        let since = Instant::now();
        wait_until("each node says that the database is away", Duration::from_secs(20), || {
            let reachable: Vec<Value> = nodes.iter().map(reachable).collect::<Result<_, _>>()?;
            Ok(since.elapsed() > AWAY && reachable.iter().all(|reachable| *reachable == Value::Bool(false)))
        })?;
        database.run()?;
        counts_go_on(&nodes)?;
    }
    line.pause()?;
    let truth = line.truth()?;
    for node in &mut nodes {
        node.wait_until_healthy()?;
        wait_until_booked(node, &truth)?;
    }
    Ok(())
}

fn counts_go_on(nodes: &[Node]) -> anyhow::Result<()> {
    let booked = || nodes.iter().try_fold(0, |most, node| books(node).map(|books| total(&books).max(most)));
    let before = booked()?;
    wait_until("counts go on", Duration::from_secs(60), || Ok(booked()? > before + 50))
        .map_err(|error| nodes.iter().fold(error, |error, node| error.context(node.log())))
}

/// What a node says of its database; and it is up to say it, in every moment that it is asked.
fn reachable(node: &Node) -> anyhow::Result<Value> {
    node.get("/api/health")?;
    let status = node.get("/api/status")?;
    Ok(status.pointer("/database/reachable").cloned().unwrap_or_default())
}
