//! The subcommands as a person uses them, one after the other, on a plant that is new and then runs.

use harness::node::host;
use harness::plant::{text, wait_until_read, wait_until_reading};
use harness::{Plant, Simulator};
use serde_json::Value;

const GOOD: &str = "nsu=urn:plant:simulator;s=FILL01.GoodCount";

#[test]
fn a_plant_is_checked_migrated_looked_into_and_asked_how_it_is() -> anyhow::Result<()> {
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    let plant = Plant::bottling("sqlite://plant.db", &line.url(), None)?;
    let good = |arguments: &[&str]| -> anyhow::Result<String> {
        let said = host(plant.path(), arguments)?;
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
        Ok(said.output)
    };
    let checked = good(&["check"])?;
    assert!(checked.contains("plant \"bottling\" is good: 1 role") && checked.contains("6 machines"), "{checked}");
    assert!(good(&["migrate"])?.contains("the schema went from version 0 to "));
    assert!(good(&["migrate"])?.contains("already"));
    let roles = good(&["role", "list"])?;
    assert!(roles.lines().any(|line| line.starts_with("reader") && line.ends_with("runnable")), "{roles}");

    let tree = good(&["opc", "browse", "line"])?;
    assert!(tree.contains(GOOD), "{tree}");
    let read = good(&["opc", "read", "line", GOOD])?;
    assert!(read.contains(&format!("{GOOD} = 12480")), "{read}");
    let unknown = host(plant.path(), &["opc", "read", "lin", GOOD])?;
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.errors.contains("no OPC UA connection \"lin\": it has line"), "{unknown:?}");

    let node = plant.node("a")?;
    wait_until_reading(&node, "a")?;
    wait_until_read(&node, 12)?;
    let status: Value = serde_json::from_str(&good(&["status", "--url", &node.url(), "--json"])?)?;
    assert_eq!((text(&status, "plant"), text(&status, "node")), ("bottling", "a"));
    let shown = good(&["status", "--url", &node.url()])?;
    assert!(shown.contains("reader") && shown.contains("running") && shown.contains("FILL01"), "{shown}");
    let takeovers: Value =
        serde_json::from_str(&good(&["takeovers", "--url", &node.url(), "--role", "reader", "--json"])?)?;
    let start = &takeovers[0];
    assert_eq!((text(start, "cause"), text(start, "to")), ("start", "a"), "{takeovers}");
    assert!(start["from"].is_null() && start["gap_ms"].is_null() && start["owed"].is_null(), "{takeovers}");
    let shown = good(&["takeovers", "--url", &node.url()])?;
    assert!(shown.contains("nobody") && shown.contains("start") && shown.contains("unknown"), "{shown}");
    drop(node);
    let gone = host(plant.path(), &["status", "--url", "http://127.0.0.1:9"])?;
    assert_eq!(gone.code, Some(1));
    assert!(gone.errors.contains("no node answers at http://127.0.0.1:9"), "{gone:?}");
    Ok(())
}
