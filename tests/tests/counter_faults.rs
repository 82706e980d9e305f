//! What counters and their server do wrong, against a running node: exact where a rule decides, and waiting for a person where none can.

use std::time::Duration;

use anyhow::Context;
use harness::plant::{Counts, books, head, line, text, total, wait_until_booked, wait_until_read, wait_until_reading};
use harness::process::wait_until;
use harness::{Node, Plant, Simulator};
use serde_json::{Value, json};

/// Short enough to wait for, and longer than the glitch of the test.
const KEYS: &str = "restart_glitch = \"4s\"\n";
/// Above what a machine makes in a second at this speed, far below a jump.
const WITH_RATE: &str = "restart_glitch = \"4s\"\nmax_rate = 400.0\n";

#[test]
fn a_glitch_bad_quality_a_stop_and_a_vanished_node_lose_nothing_and_add_nothing() -> anyhow::Result<()> {
    let (simulator, node, _plant) = running(KEYS, &[])?;
    simulator.resume()?;
    counts_go_on(&node)?;
    simulator.fault("LOAD01", "good", "glitch", 2_000, 0)?;
    simulator.fault("RINSE01", "good", "bad", 2_000, 0)?;
    simulator.fault("CAP01", "good", "stop", 2_000, 0)?;
    simulator.fault("LABEL01", "good", "vanish", 2_000, 0)?;
    for machine in ["LOAD01", "RINSE01", "CAP01", "LABEL01"] {
        goes_on_after(&node, &simulator, machine)?;
    }
    simulator.pause()?;
    wait_until_booked(&node, &simulator.truth()?)?;
    assert_eq!(anomalies(&node)?, Vec::<Value>::new());
    Ok(())
}

#[test]
fn a_server_that_is_away_for_three_seconds_costs_nothing() -> anyhow::Result<()> {
    let (simulator, node, _plant) = running(KEYS, &[])?;
    simulator.resume()?;
    counts_go_on(&node)?;
    let before = simulator.truth()?;
    simulator.server_down(3_000)?;
    wait_until("more is made meanwhile", Duration::from_secs(30), || {
        Ok(total(&simulator.truth()?) > total(&before) + 200)
    })?;
    counts_go_on(&node)?;
    simulator.pause()?;
    wait_until_booked(&node, &simulator.truth()?)?;
    assert_eq!(anomalies(&node)?, Vec::<Value>::new());
    Ok(())
}

#[test]
fn a_16_bit_counter_rolls_over_and_every_unit_is_booked() -> anyhow::Result<()> {
    let (simulator, node, _plant) = running(KEYS, &["--first", "65500"])?;
    simulator.resume()?;
    let filled = || node_total(&books(&node)?, "FILL01");
    wait_until("FILL01 has rolled over", Duration::from_secs(60), || Ok(filled()? > 100))?;
    assert!(baseline(&node, "FILL01")? < 65_500, "{:?}", node.get("/api/production"));
    simulator.pause()?;
    wait_until_booked(&node, &simulator.truth()?)?;
    assert_eq!(anomalies(&node)?, Vec::<Value>::new());
    Ok(())
}

#[test]
fn a_reset_counter_is_booked_from_zero_and_leaves_a_note() -> anyhow::Result<()> {
    let (simulator, node, _plant) = running(KEYS, &[])?;
    simulator.resume()?;
    counts_go_on(&node)?;
    // Paused, so that no unit is made between the last reading and the reset: nobody could know of that one.
    simulator.pause()?;
    wait_until_booked(&node, &simulator.truth()?)?;
    let before = last_reading(&node, "LOAD01")?;
    simulator.fault("LOAD01", "good", "reset", 0, 0)?;
    wait_until("the zero is read", Duration::from_secs(20), || Ok(last_reading(&node, "LOAD01")? != before))?;
    simulator.resume()?;
    goes_on_after(&node, &simulator, "LOAD01")?;
    simulator.pause()?;
    wait_until_booked(&node, &simulator.truth()?)?;
    let notes = anomalies(&node)?;
    let [note] = notes.as_slice() else { panic!("one note: {notes:?}") };
    assert_eq!((text(note, "kind"), text(note, "machine")), ("reset", "LOAD01"));
    assert_eq!(note.get("needs_decision"), Some(&Value::Bool(false)));
    Ok(())
}

#[test]
fn a_jump_waits_for_a_person_who_accepts_one_and_rejects_another() -> anyhow::Result<()> {
    let (simulator, node, _plant) = running(WITH_RATE, &[])?;
    simulator.resume()?;
    counts_go_on(&node)?;
    // Paused, so that the jumps have no units in them that were made in the same moment.
    simulator.pause()?;
    wait_until_booked(&node, &simulator.truth()?)?;
    simulator.fault("LOAD01", "good", "jump", 0, 100_000)?;
    simulator.fault("PACK01", "good", "jump", 0, 200_000)?;
    wait_until("both jumps are owed", Duration::from_secs(20), || {
        Ok(production(&node, "LOAD01", "owed")? == 100_000 && production(&node, "PACK01", "owed")? == 200_000)
    })?;
    simulator.resume()?;
    let waiting = || -> anyhow::Result<Vec<Value>> {
        Ok(anomalies(&node)?.into_iter().filter(|anomaly| text(anomaly, "kind") == "jump").collect())
    };
    wait_until("both jumps wait for a person", Duration::from_secs(60), || Ok(waiting()?.len() == 2))
        .with_context(|| format!("{:?}\n{:?}", anomalies(&node), node.get("/api/production")))?;
    simulator.pause()?;
    let truth = simulator.truth()?;
    wait_until_booked(&node, &truth)?;

    let mut accepted = truth;
    for jump in waiting()? {
        let number = |key: &str| jump.get(key).and_then(Value::as_u64).unwrap_or(0);
        let accept = text(&jump, "machine") == "LOAD01";
        let path = format!("/api/anomalies/{}", number("id"));
        let decision = json!({"decision": if accept { "accept" } else { "reject" }, "why": "the shift's own tally"});
        assert_eq!(node.post(&path, &decision)?.0, 200);
        assert_eq!(node.post(&path, &decision)?.0, 409, "decided once");
        if accept {
            let load = ("LOAD01".to_owned(), "good".to_owned());
            assert_eq!(number("quantity"), 100_000, "{jump}");
            *accepted.entry(load).or_default() += 100_000;
        }
    }
    let applied = || Ok(waiting()?.iter().all(|jump| jump.get("applied_at").is_some_and(|at| !at.is_null())));
    wait_until("both decisions are applied", Duration::from_secs(30), applied)?;
    wait_until_booked(&node, &accepted)
}

#[test]
fn a_spike_that_comes_back_is_dropped() -> anyhow::Result<()> {
    let (simulator, node, _plant) = running(WITH_RATE, &[])?;
    simulator.resume()?;
    counts_go_on(&node)?;
    // Paused, so that the counter stands where it jumped to: one that counts on from there has jumped for good.
    simulator.pause()?;
    wait_until_booked(&node, &simulator.truth()?)?;
    simulator.fault("CAP01", "good", "spike", 1_500, 100_000)?;
    wait_until("the jump is seen and held", Duration::from_secs(20), || {
        Ok(production(&node, "CAP01", "owed")? == 100_000)
    })?;
    wait_until("the spike is noted", Duration::from_secs(30), || {
        Ok(anomalies(&node)?.iter().any(|anomaly| text(anomaly, "kind") == "spike"))
    })?;
    simulator.resume()?;
    counts_go_on(&node)?;
    simulator.pause()?;
    wait_until_booked(&node, &simulator.truth()?)
}

fn running(keys: &str, arguments: &[&str]) -> anyhow::Result<(Simulator, Node, Plant)> {
    let mut all = vec!["--speed", "20", "--paused"];
    all.extend(arguments);
    let simulator = Simulator::start(&all)?;
    let plant = Plant::from_text(&(head("sqlite://plant.db", &simulator.url(), "", None) + &line(keys)), 0)?;
    let node = plant.node("a")?;
    wait_until_reading(&node, "a")?;
    wait_until_read(&node, 12)?;
    Ok((simulator, node, plant))
}

fn counts_go_on(node: &Node) -> anyhow::Result<()> {
    let before = total(&books(node)?);
    wait_until("counts go on", Duration::from_secs(60), || Ok(total(&books(node)?) > before + 100))
        .with_context(|| node.log())
}

/// Waits until a machine has made more, and all that it had made by now is booked.
fn goes_on_after(node: &Node, simulator: &Simulator, machine: &str) -> anyhow::Result<()> {
    let made = node_total(&simulator.truth()?, machine)?;
    wait_until(&format!("{machine} is booked on"), Duration::from_secs(60), || {
        Ok(node_total(&books(node)?, machine)? > made)
    })
    .with_context(|| format!("{made} made, {:?}\n{}", node.get("/api/production"), node.log()))
}

fn node_total(counts: &Counts, machine: &str) -> anyhow::Result<u64> {
    counts.get(&(machine.to_owned(), "good".to_owned())).copied().with_context(|| format!("no {machine}"))
}

fn good(node: &Node, machine: &str) -> anyhow::Result<Value> {
    let production = node.get("/api/production")?;
    let mut lines = production.get("machines").and_then(Value::as_array).into_iter().flatten();
    let line = lines.find(|line| text(line, "machine") == machine && text(line, "counter") == "good");
    line.cloned().with_context(|| format!("no {machine} in {production}"))
}

fn production(node: &Node, machine: &str, key: &str) -> anyhow::Result<u64> {
    good(node, machine)?.get(key).and_then(Value::as_u64).with_context(|| format!("no {key} of {machine}"))
}

fn last_reading(node: &Node, machine: &str) -> anyhow::Result<String> {
    Ok(text(&good(node, machine)?, "last_reading_at").to_owned())
}

fn baseline(node: &Node, machine: &str) -> anyhow::Result<u64> {
    production(node, machine, "baseline")
}

fn anomalies(node: &Node) -> anyhow::Result<Vec<Value>> {
    Ok(node.get("/api/anomalies")?.as_array().cloned().unwrap_or_default())
}
