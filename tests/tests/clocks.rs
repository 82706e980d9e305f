//! A box whose clock is wrong: no lease depends on it, and nothing changes.

use std::process::Command;
use std::time::Duration;

use harness::plant::{takeovers, wait_until_booked, wait_until_read, wait_until_reading};
use harness::process::wait_until;
use harness::takeover::rounds;
use harness::{Node, Plant, Postgres, Simulator, skipped};
use rustix::process::Signal;
use serde_json::Value;

/// Times for the clock of one node, as `faketime` writes them: an hour ahead, an hour behind.
const WRONG: [&str; 2] = ["+3600s", "-3600s"];

fn has_faketime() -> bool {
    Command::new("faketime").args(["-f", "+1s", "true"]).status().is_ok_and(|status| status.success())
}

fn epoch(asked: &Node) -> anyhow::Result<u64> {
    let reader = harness::plant::role(asked, "reader")?;
    Ok(reader.get("epoch").and_then(Value::as_u64).unwrap_or(0))
}

#[test]
fn an_hour_on_one_nodes_clock_and_a_jump_of_two_in_the_middle_change_nothing() -> anyhow::Result<()> {
    if !has_faketime() {
        return skipped("the program faketime does not run here (Debian's package faketime)");
    }
    let database = Postgres::start()?;
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    let plant = Plant::bottling(&database.url(), &line.url(), Some(2))?;
    let a = plant.node("a")?;
    wait_until_reading(&a, "a")?;
    let clock = plant.path().join("clock");
    std::fs::write(&clock, WRONG[0])?;
    let mut b = Node::start_with_clock(&clock, plant.path(), "b", &[])?;
    b.wait_until_healthy()?;
    wait_until_read(&a, 12)?;
    line.resume()?;

    // The standby's clock jumps, again and again, and it takes nothing.
    let (held, before) = (epoch(&a)?, takeovers(&a, "reader")?.len());
    for round in 0..2 * rounds(2) {
        std::fs::write(&clock, WRONG[(round + 1) % 2])?;
        let booked = database.booked()?;
        wait_until("counts go on", Duration::from_secs(30), || Ok(database.booked()? > booked + 100))?;
    }
    assert_eq!((epoch(&a)?, takeovers(&a, "reader")?.len()), (held, before), "{}", b.log());

    // It takes over when it should, whatever its clock says, and goes on through another jump.
    let mut a = a;
    a.signal(Signal::KILL)?;
    a.wait(Duration::from_secs(10))?;
    wait_until_reading(&b, "b")?;
    let held = epoch(&b)?;
    std::fs::write(&clock, WRONG[0])?;
    let booked = database.booked()?;
    wait_until("counts go on", Duration::from_secs(30), || Ok(database.booked()? > booked + 100))?;
    assert_eq!(epoch(&b)?, held, "{}", b.log());
    line.pause()?;
    wait_until_booked(&b, &line.truth()?)
}
