//! The same line and the same two nodes on the other lease stores: whatever ends the holder, the books are what was made.

use std::time::Duration;

use anyhow::ensure;
use harness::plant::{head, line, role, text, wait_until_reading};
use harness::process::wait_until;
use harness::takeover::{rounds, succession};
use harness::{End, Nats, Node, Plant, Postgres, Simulator};
use serde_json::Value;

const LOCK: &str = "store = \"postgres-lock\"\nlock_key = 4711\n";

#[test]
fn under_one_lock_a_killed_holder_is_succeeded_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    under_a_lock(End::Killed)
}

#[test]
fn under_one_lock_a_stopped_holder_hands_over_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    under_a_lock(End::Stopped)
}

#[test]
fn under_one_lock_a_frozen_holder_commits_nothing_after_it_wakes_and_the_books_are_what_was_made() -> anyhow::Result<()>
{
    under_a_lock(End::Frozen)
}

#[test]
fn a_pair_under_one_lock_survives_the_death_of_its_active_node() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    let pair = format!("{LOCK}scope = \"node\"\n");
    succession(&plant(&database, &line, &pair)?, &line, End::Killed, rounds(2))
}

#[test]
fn a_pair_with_its_lease_in_nats_survives_the_death_of_its_active_node() -> anyhow::Result<()> {
    let (database, nats) = (Postgres::start()?, Nats::start()?);
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    let pair = format!("scope = \"node\"\n{}", nats.redundancy());
    succession(&plant(&database, &line, &pair)?, &line, End::Killed, rounds(2))
}

#[test]
fn with_leases_in_nats_a_killed_holder_is_succeeded_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    with_nats(End::Killed)
}

#[test]
fn with_leases_in_nats_a_stopped_holder_hands_over_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    with_nats(End::Stopped)
}

#[test]
fn with_leases_in_nats_a_frozen_holder_commits_nothing_after_it_wakes_and_the_books_are_what_was_made()
-> anyhow::Result<()> {
    with_nats(End::Frozen)
}

fn under_a_lock(end: End) -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    succession(&plant(&database, &line, LOCK)?, &line, end, rounds(3))
}

fn with_nats(end: End) -> anyhow::Result<()> {
    let (database, nats) = (Postgres::start()?, Nats::start()?);
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    succession(&plant(&database, &line, &nats.redundancy())?, &line, end, rounds(3))
}

#[test]
fn a_role_is_moved_under_one_lock_and_with_leases_in_nats() -> anyhow::Result<()> {
    let (database, nats) = (Postgres::start()?, Nats::start()?);
    let line = Simulator::start(&["--paused"])?;
    for redundancy in [LOCK.to_owned(), nats.redundancy()] {
        let plant = plant(&database, &line, &redundancy)?;
        let (a, b) = (plant.node("a")?, plant.node("b")?);
        wait_until("somebody reads", Duration::from_secs(60), || {
            Ok(a.instances("reader")? + b.instances("reader")? == 1)
        })?;
        // Twice, so that each has had it.
        for _ in 0..2 {
            let (from, to) = if a.instances("reader")? == 1 { (&a, &b) } else { (&b, &a) };
            wait_until("both know of each other", Duration::from_secs(20), || both_live(from))?;
            let moved = harness::node::host(plant.path(), &["role", "move", "reader", "--to", to.name()])?;
            ensure!(moved.code == Some(0), "{moved:?} {}", to.log());
            wait_until_reading(to, to.name())?;
            wait_until("the other has stopped", Duration::from_secs(20), || Ok(from.instances("reader")? == 0))?;
        }
    }
    Ok(())
}

fn both_live(node: &Node) -> anyhow::Result<bool> {
    let status = node.get("/api/status")?;
    let nodes = status.get("nodes").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok(nodes.iter().filter(|node| node.get("live") == Some(&Value::Bool(true))).count() == 2)
}

#[test]
fn while_nats_is_away_nobody_reads_and_when_it_is_back_somebody_does() -> anyhow::Result<()> {
    let (database, mut nats) = (Postgres::start()?, Nats::start()?);
    let line = Simulator::start(&["--paused"])?;
    let plant = plant(&database, &line, &nats.redundancy())?;
    let (a, b) = (plant.node("a")?, plant.node("b")?);
    wait_until("somebody reads", Duration::from_secs(60), || Ok(a.instances("reader")? + b.instances("reader")? == 1))?;
    nats.kill()?;
    wait_until("the holder has stopped", plant.lease() * 10, || {
        Ok(a.instances("reader")? + b.instances("reader")? == 0)
    })?;
    wait_until("it says why", Duration::from_secs(30), || {
        Ok(last_error(&a)?.contains(NATS) || last_error(&b)?.contains(NATS))
    })?;
    nats.run()?;
    wait_until("somebody reads again", Duration::from_secs(60), || {
        Ok(a.instances("reader")? + b.instances("reader")? == 1)
    })?;
    let holder = text(&role(&a, "reader")?, "holder").to_owned();
    wait_until_reading(&a, &holder)
}

#[test]
fn a_node_whose_lease_is_not_the_buckets_ends_and_says_both() -> anyhow::Result<()> {
    let (database, nats) = (Postgres::start()?, Nats::start()?);
    let line = Simulator::start(&["--paused"])?;
    let first = plant(&database, &line, &nats.redundancy())?;
    let a = first.node("a")?;
    wait_until_reading(&a, "a")?;
    let other = head(&database.url(), &line.url(), "", Some(3)) + &nats.redundancy() + &harness::plant::line("");
    let other = Plant::from_text(&other, 3)?;
    let mut b = Node::start(other.path(), "b", &[])?;
    let code = b.wait(Duration::from_secs(60))?;
    ensure!(code.is_some_and(|code| code != 0), "{code:?} {}", b.log());
    ensure!(b.log().contains("keeps its keys for 2s and a lease lasts 3s"), "{}", b.log());
    wait_until_reading(&a, "a")
}

#[test]
fn a_check_says_where_leases_are_kept_and_that_nats_needs_the_database_as_well() -> anyhow::Result<()> {
    let head = |keys: &str| head("postgres://plant@127.0.0.1/bottling", "opc.tcp://127.0.0.1:9", "", Some(2)) + keys;
    for (keys, said) in [
        ("", "leases of 2 s in PostgreSQL, "),
        (LOCK, "leases of 2 s in PostgreSQL under the one lock 4711, "),
        (
            "store = \"nats\"\n[bus.main]\nurl = \"nats://plant:secret@127.0.0.1:4222\"\n",
            "leases of 2 s in the bucket plant_leases of NATS at nats://plant:…@127.0.0.1:4222 and their fences in PostgreSQL, \
             so that both are needed, ",
        ),
    ] {
        let plant = Plant::from_text(&(head(keys) + &line("")), 2)?;
        let checked = harness::node::host(plant.path(), &["check"])?;
        ensure!(checked.code == Some(0) && checked.output.contains(said), "{checked:?}");
    }
    Ok(())
}

const NATS: &str = "NATS at nats://127.0.0.1:";

/// What went wrong last with a node's leases.
fn last_error(node: &Node) -> anyhow::Result<String> {
    let status = node.get("/api/status")?;
    Ok(status.pointer("/ha/last_error").and_then(Value::as_str).unwrap_or_default().to_owned())
}

fn plant(database: &Postgres, at: &Simulator, redundancy: &str) -> anyhow::Result<Plant> {
    Plant::from_text(&(head(&database.url(), &at.url(), "", Some(2)) + redundancy + &line("")), 2)
}
