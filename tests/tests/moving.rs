//! Roles that people move, hold, pin and drain while the line goes on counting: the books are what was made.

use std::time::Duration;

use anyhow::Context;
use harness::node::{Said, host};
use harness::plant::{role, text, wait_until_booked, wait_until_read, wait_until_reading};
use harness::process::wait_until;
use harness::{Node, Plant, Postgres, Simulator, Watch};
use serde_json::Value;

struct Ordered<'p> {
    plant: &'p Plant,
}

impl Ordered<'_> {
    fn said(&self, arguments: &[&str]) -> anyhow::Result<Said> {
        host(self.plant.path(), arguments)
    }

    fn good(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let said = self.said(arguments)?;
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
        println!("{}", said.output.trim_end());
        Ok(said.output)
    }
}

#[test]
fn a_role_goes_where_people_want_it_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    let plant = Plant::bottling(&database.url(), &line.url(), Some(2))?;
    let order = Ordered { plant: &plant };
    let a = plant.node("a")?;
    wait_until_reading(&a, "a")?;
    let b = plant.node("b")?;
    wait_until_read(&a, 12)?;
    wait_until_both_live(&a)?;
    let watch = Watch::over("reader", &[&a, &b]);
    line.resume()?;

    let moved = order.good(&["role", "move", "reader", "--to", "b", "--why", "a test"])?;
    assert!(moved.starts_with("node b has reader since epoch "), "{moved}");
    wait_until_reading(&a, "b")?;
    let newest = newest_takeover(&a)?;
    assert_eq!((text(&newest, "from"), text(&newest, "to"), text(&newest, "cause")), ("a", "b", "move"));
    let again = order.said(&["role", "move", "reader", "--to", "b"])?;
    assert_eq!((again.code, again.errors.trim()), (Some(1), "node b runs reader already"));

    let drained = order.good(&["node", "drain", "b", "--why", "a test"])?;
    assert!(drained.contains("node b runs nothing until `host node undrain b`"), "{drained}");
    wait_until_reading(&b, "a")?;
    let refused = order.said(&["role", "move", "reader", "--to", "b"])?;
    assert!(refused.errors.contains("node b is drained"), "{refused:?}");
    // What a node says of another it has heard at most one renewal ago.
    wait_until("it is told that b is drained", Duration::from_secs(10), || {
        Ok(a.get("/api/status")?.to_string().contains("it is drained"))
    })?;
    order.good(&["node", "undrain", "b"])?;
    let audited = order.good(&["audit"])?;
    let actions: Vec<&str> = audited.lines().skip(1).filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert_eq!(actions, ["undrain", "drain", "move"], "{audited}");
    assert!(audited.contains("a test"), "{audited}");

    order.good(&["role", "pin", "reader", "b"])?;
    wait_until_reading(&a, "b")?;
    order.good(&["role", "unpin", "reader"])?;

    let held = order.good(&["role", "hold", "reader", "--for", "2h", "--why", "a test"])?;
    assert!(held.starts_with("nobody runs reader for"), "{held}");
    wait_until("both say that it is held", Duration::from_secs(20), || Ok(is_held(&a)? && is_held(&b)?))?;
    assert_eq!((a.instances("reader")?, b.instances("reader")?), (0, 0));
    order.good(&["role", "resume", "reader"])?;
    line.pause()?;
    wait_until_booked(&a, &line.truth()?)?;
    assert!(watch.end()? > 0, "and at no time two instances of it");
    Ok(())
}

fn is_held(node: &Node) -> anyhow::Result<bool> {
    let reader = role(node, "reader")?;
    let why = reader.pointer("/placement/held_why").and_then(Value::as_str);
    Ok(text(&reader, "state") == "held" && why == Some("a test"))
}

fn newest_takeover(node: &Node) -> anyhow::Result<Value> {
    let takeovers = node.get("/api/takeovers")?;
    takeovers.get(0).cloned().context("no takeover is recorded")
}

fn wait_until_both_live(node: &Node) -> anyhow::Result<()> {
    wait_until("both nodes have said what they can run", Duration::from_secs(20), || {
        let reader = role(node, "reader")?;
        Ok(reader.get("nodes").and_then(Value::as_array).is_some_and(|nodes| nodes.len() == 2))
    })
}
