//! Nodes that could not stand in for each other say so before it is needed: files that differ, keys that differ, one address for two, a
//! PLC out of reach.

use std::time::Duration;

use anyhow::Context;
use harness::node::host;
use harness::plant::{node, text, wait_until_read, wait_until_reading};
use harness::process::wait_until;
use harness::{Node, Plant, Postgres, Simulator};
use serde_json::{Value, json};

#[test]
fn a_file_that_differs_is_named_on_every_node() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let line = Simulator::start(&["--paused"])?;
    let plant = Plant::bottling(&database.url(), &line.url(), Some(2))?;
    let a = plant.node("a")?;
    wait_until_reading(&a, "a")?;
    assert_eq!(a.get("/api/status")?["drift"], json!([]));
    // Another comment is no difference, another line is.
    plant.edit("[serve]", "# the second box\n[serve]")?;
    plant.edit("code = \"PACK01\"\nline = \"line-1\"", "code = \"PACK01\"\nline = \"line-2\"")?;
    let b = plant.node("b")?;
    let names = |asked: &Node, other: &str| -> anyhow::Result<bool> {
        Ok(asked.get("/api/status")?["drift"] == json!([{ "section": "machines", "nodes": [other] }]))
    };
    wait_until("both name the section and the other node", Duration::from_secs(30), || {
        Ok(names(&a, "b")? && names(&b, "a")?)
    })
    .with_context(|| format!("{:?}", a.get("/api/status")))?;
    let said = host(plant.path(), &["status", "--url", &a.url()])?;
    assert!(said.output.contains("[machines] of plant.toml is another one on b"), "{said:?}");
    Ok(())
}

#[test]
fn a_standby_says_that_it_could_take_over_or_why_not() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let line = Simulator::start(&["--paused"])?;
    let plant = Plant::bottling(&database.url(), &line.url(), Some(2))?;
    let a = plant.node("a")?;
    wait_until_read(&a, 12)?;
    // The second box has a wrong address for the PLC, and lacks a role's section.
    plant.edit(&line.url(), "opc.tcp://127.0.0.1:9/plant")?;
    let b = plant.node("b")?;
    wait_until("both nodes say why the second could not take over", Duration::from_secs(60), || {
        let (Ok(by_a), Ok(by_b)) = (node(&a, "b"), node(&b, "b")) else { return Ok(false) };
        let is_said =
            |of: &Value| text(of, "why_not").starts_with("the OPC UA connection line: opc.tcp://127.0.0.1:9/plant");
        Ok(by_a["could_take_over"] == json!(false) && is_said(&by_a) && is_said(&by_b))
    })
    .with_context(|| format!("{:?}", node(&a, "b")))?;
    assert_eq!(node(&a, "a")?["could_take_over"], json!(true));
    drop(b);

    plant.edit("opc.tcp://127.0.0.1:9/plant", &line.url())?;
    let b = plant.node("b")?;
    wait_until("the second could take over", Duration::from_secs(60), || {
        Ok(node(&a, "b").is_ok_and(|node| node["could_take_over"] == json!(true)))
    })
    .with_context(|| format!("{:?}\n{}", node(&a, "b"), b.log()))?;
    Ok(())
}

#[test]
fn nodes_with_other_keys_or_one_address_are_refused_by_name() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let line = Simulator::start(&["--paused"])?;
    let plant = Plant::bottling(&database.url(), &line.url(), Some(2))?;
    let mut a = Node::start(plant.path(), "a", &["--advertise", "http://plant-a:8080"])?;
    a.wait_until_healthy()?;
    wait_until_reading(&a, "a")?;
    wait_until("the first has said how it is reached", Duration::from_secs(30), || {
        Ok(!node(&a, "a")?["could_take_over"].is_null())
    })?;

    let ends = |name: &str, arguments: &[&str], sentence: &str| -> anyhow::Result<()> {
        let mut refused = Node::start(plant.path(), name, arguments)?;
        assert_eq!(refused.wait(Duration::from_secs(60))?, Some(1), "{}", refused.log());
        assert!(refused.log().contains(sentence), "{}", refused.log());
        Ok(())
    };
    let address = "node a says that it is reached at http://plant-a:8080, and so does this node b";
    ends("b", &["--advertise", "http://plant-a:8080"], address)?;
    plant.edit("secret_key_env = \"PLANT_SECRET\"", "secret_key_env = \"OTHER_SECRET\"")?;
    ends(
        "c",
        &[],
        "node a has another key than this node c: give both the same in the variable that serve.secret_key_env names",
    )?;
    // The first goes on.
    wait_until_reading(&a, "a")?;
    Ok(())
}
