//! A node that can not do a role leaves it to one that can; where nobody can, everything stays where it is.

use std::time::Duration;

use anyhow::Context;
use harness::plant::{node, takeovers, text, wait_until_booked, wait_until_read, wait_until_reading};
use harness::process::wait_until;
use harness::{Cable, Node, Plant, Postgres, Simulator};
use serde_json::Value;

/// What the reader's takeovers were, newest first.
fn causes(asked: &Node) -> anyhow::Result<Vec<String>> {
    Ok(takeovers(asked, "reader")?.iter().map(|takeover| text(takeover, "cause").to_owned()).collect())
}

fn could_take_over(asked: &Node, name: &str) -> anyhow::Result<Option<bool>> {
    Ok(node(asked, name).ok().and_then(|node| node.get("could_take_over").and_then(Value::as_bool)))
}

fn wait_until_it_could(asked: &Node, name: &str, could: bool) -> anyhow::Result<()> {
    wait_until(&format!("node {name} could take over: {could}"), Duration::from_secs(60), || {
        Ok(could_take_over(asked, name)? == Some(could))
    })
    .with_context(|| format!("{:?}\n{}", node(asked, name), asked.log()))
}

#[test]
fn a_reader_that_does_not_reach_its_plc_yields_to_a_node_that_does() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    let cable = Cable::to(&line.url())?;
    let plant = Plant::bottling(&database.url(), &cable.url(&line.url()), Some(2))?;
    let a = plant.node("a")?;
    wait_until_reading(&a, "a")?;
    // The second box has a way of its own.
    plant.edit(&cable.url(&line.url()), &line.url())?;
    let b = plant.node("b")?;
    wait_until_read(&a, 12)?;
    wait_until_it_could(&a, "b", true)?;
    line.resume()?;

    cable.cut();
    wait_until_reading(&b, "b")?;
    assert_eq!(causes(&b)?.first().map(String::as_str), Some("yield"));
    wait_until_it_could(&b, "a", false)?;
    assert!(text(&node(&b, "a")?, "why_not").starts_with("the OPC UA connection line: "), "{:?}", node(&b, "a")?);
    cable.mend();
    wait_until_it_could(&b, "a", true)?;
    line.pause()?;
    wait_until_booked(&b, &line.truth()?)?;
    assert_eq!(causes(&b)?, ["yield", "start"], "it stays where it is");
    Ok(())
}

#[test]
fn where_nobody_reaches_the_plc_the_reader_stays_where_it_is() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    let plant = Plant::bottling(&database.url(), &line.url(), Some(2))?;
    let a = plant.node("a")?;
    wait_until_reading(&a, "a")?;
    let b = plant.node("b")?;
    wait_until_read(&a, 12)?;
    wait_until_it_could(&a, "b", true)?;
    line.resume()?;

    line.server_down(30_000)?;
    wait_until_it_could(&a, "a", false)?;
    // It was asked to try at once, and can not either.
    wait_until_it_could(&a, "b", false)?;
    wait_until_it_could(&b, "b", true)?;
    wait_until_reading(&b, "a")?;
    line.pause()?;
    wait_until_booked(&a, &line.truth()?)?;
    assert_eq!(causes(&a)?, ["start"]);
    Ok(())
}
