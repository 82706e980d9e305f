//! The active-standby pair: all roles in one place, the standby refuses writes and says where to send them, and a node that was active
//! and is not any more ends where the plant wants it so.

use std::time::Duration;

use harness::node::host;
use harness::plant::{text, wait_until_booked, wait_until_read, wait_until_reading};
use harness::process::wait_until;
use harness::{Node, Plant, Postgres, Simulator};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Status and document of `/api/ready`.
fn ready(node: &Node) -> anyhow::Result<(u16, Value)> {
    node.answer("/api/ready")
}

fn wait_until_active(node: &Node) -> anyhow::Result<()> {
    let active = (200, json!({ "ready": true, "role": "active" }));
    wait_until(&format!("node {} is active", node.name()), Duration::from_secs(60), || Ok(ready(node)? == active))
        .map_err(|error| error.context(node.log()))
}

#[test]
fn a_pair_has_one_active_node_and_the_other_takes_over_whole() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    let plant = Plant::pair(&database.url(), &line.url(), 2, "")?;
    let mut a = plant.node("a")?;
    wait_until_active(&a)?;
    let b = plant.node("b")?;
    wait_until_read(&a, 12)?;
    line.resume()?;

    let standby = (503, json!({ "ready": false, "role": "standby" }));
    wait_until("the second is a standby", Duration::from_secs(20), || Ok(ready(&b)? == standby))?;
    assert_eq!(b.answer("/api/health")?.0, 200);
    let correction = json!({ "machine": "FILL01", "counter": "good", "quantity": 1, "who": "a test", "why": "a test" });
    wait_until("the standby knows who is active", Duration::from_secs(20), || {
        Ok(text(&b.get("/api/status")?["ha"], "leader") == "a")
    })?;
    let (status, problem) = b.post("/api/corrections", &correction)?;
    assert_eq!((status, text(&problem, "code"), text(&problem, "leader")), (503, "not_leader", "a"), "{problem}");
    assert_eq!(text(&problem, "address"), a.url());
    assert_eq!(b.location("/api/corrections", &correction)?, Some(format!("{}/api/corrections", a.url())));
    assert_eq!(a.post("/api/corrections", &correction)?.0, 201);

    let alone = host(plant.path(), &["role", "move", "reader", "--to", "b"])?;
    assert!(alone.errors.contains("all roles are in one place"), "{alone:?}");
    let moved = host(plant.path(), &["role", "move", "node", "--to", "b"])?;
    assert_eq!(moved.code, Some(0), "{moved:?}");
    wait_until_active(&b)?;
    wait_until("the first is a standby", Duration::from_secs(20), || Ok(ready(&a)? == standby))?;
    host(plant.path(), &["role", "move", "node", "--to", "a"])?;
    wait_until_active(&a)?;

    a.signal(Signal::KILL)?;
    a.wait(Duration::from_secs(10))?;
    wait_until_active(&b)?;
    wait_until_reading(&b, "b")?;
    line.pause()?;
    wait_until_booked(&b, &line.truth()?)?;
    Ok(())
}

#[test]
fn a_node_that_was_active_and_is_not_any_more_ends_with_75_where_the_plant_wants_it_so() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    let plant = Plant::pair(&database.url(), &line.url(), 2, "on_demotion = \"exit\"\n")?;
    let mut a = plant.node("a")?;
    wait_until_active(&a)?;
    let b = plant.node("b")?;
    wait_until("the second is a standby", Duration::from_secs(20), || Ok(ready(&b)?.0 == 503))?;
    a.signal(Signal::STOP)?;
    wait_until_active(&b)?;
    a.signal(Signal::CONT)?;
    assert_eq!(a.wait(Duration::from_secs(30))?, Some(75), "{}", a.log());
    assert_eq!(ready(&b)?.0, 200);
    Ok(())
}
