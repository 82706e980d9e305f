//! A server that has no room for all the items: they are counted on, and every place where people look says so.

use std::time::Duration;

use anyhow::ensure;
use harness::asyncua::{Asyncua, Setup};
use harness::plant::{Plant, head, machine, role, text, wait_until_booked, wait_until_read, wait_until_reading};
use harness::postgres::Postgres;
use harness::process::wait_until;
use serde_json::json;

#[test]
fn items_that_are_not_monitored_are_counted_and_said_everywhere() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let mut server = Asyncua::start(Setup { faults: json!({"items_per_session": 1}), ..Setup::default() })?;
    let codes = ["M0", "M1", "M2"];
    let mut toml = head(&database.url(), &server.url(), "", Some(2));
    for code in codes {
        server.add(&format!("s={code}.Good"), "UInt32", json!(10))?;
        toml += &machine(code);
    }
    let plant = Plant::from_text(&toml, 2)?;
    let a = plant.node("a")?;
    wait_until_reading(&a, "a")?;
    wait_until_read(&a, 3)?;
    let b = plant.node("b")?;
    for code in codes {
        server.set(&format!("s={code}.Good"), "UInt32", json!(15))?;
    }
    let made = codes.map(|code| ((code.to_owned(), "good".to_owned()), 5)).into_iter().collect();
    wait_until_booked(&a, &made)?;

    let said = "OPC UA connection line: the server does not monitor 2 of 3 items (BadTooManyMonitoredItems)";
    for node in [&a, &b] {
        wait_until("the role says it", Duration::from_secs(30), || {
            Ok(text(&role(node, "reader")?, "reason").contains(said))
        })?;
    }
    let connections = a.get("/api/status")?["connections"].clone();
    let line = &connections[0];
    ensure!(
        (&line["not_monitored_items"], &line["bad_items"], &line["items"]) == (&json!(2), &json!(0), &json!(3)),
        "{line}"
    );
    ensure!(text(line, "reason").contains("does not monitor 2 of 3"), "{line}");
    ensure!(text(&line["not_monitored"][0], "status") == "BadTooManyMonitoredItems", "{line}");
    let metrics = a.text("/metrics")?;
    let figure = "host_opc_items_not_monitored{role=\"reader\",partition=\"\",connection=\"line\"} 2";
    ensure!(metrics.contains(figure), "{metrics}");
    ensure!(b.get("/api/status")?["connections"] == json!([]), "a standby reads nothing");
    Ok(())
}
