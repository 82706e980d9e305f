//! Starts that can not be: each ends in one sentence that says what to do, and with the exit code that says whose fault it is.

use std::net::TcpListener;
use std::time::Duration;

use anyhow::Context;
use harness::node::{Said, host};
use harness::plant::{head, line, text, wait_until_reading};
use harness::process::{free_port, wait_until};
use harness::{Node, Plant, Postgres};
use rustix::process::Signal;

/// Nobody listens there; a reader goes on trying.
const NO_SERVER: &str = "opc.tcp://127.0.0.1:9";
const FAILED: i32 = 1;
const USAGE: i32 = 2;
const CONFIGURATION: i32 = 64;

#[test]
fn a_second_process_on_one_sqlite_file_is_refused_and_the_first_one_stays() -> anyhow::Result<()> {
    let plant = Plant::bottling("sqlite://plant.db", NO_SERVER, None)?;
    let first = plant.node("a")?;
    let second = run(&plant, &["--node", "b", "--api-port", &free_port()?.to_string()])?;
    refused(&second, FAILED, &["plant.db is in use by another host", "PostgreSQL and [redundancy]"]);
    assert_eq!(first.get("/api/health").map(drop).ok(), Some(()));
    Ok(())
}

#[test]
fn a_second_node_without_redundancy_on_one_postgresql_is_refused_and_the_first_one_stays() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let plant = Plant::bottling(&database.url(), NO_SERVER, None)?;
    let first = plant.node("a")?;
    wait_until_reading(&first, "a")?;
    let second = run(&plant, &["--node", "b", "--api-port", &free_port()?.to_string()])?;
    refused(&second, FAILED, &["[redundancy]"]);
    wait_until_reading(&first, "a")
}

#[test]
fn a_second_node_of_the_same_name_is_refused_and_the_first_one_stays() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let plant = Plant::bottling(&database.url(), NO_SERVER, Some(2))?;
    let first = plant.node("a")?;
    wait_until_reading(&first, "a")?;
    let second = run(&plant, &["--node", "a", "--api-port", &free_port()?.to_string()])?;
    refused(&second, FAILED, &["name"]);
    wait_until_reading(&first, "a")
}

// Its own box proves that the boot before it is gone: it need not wait for that one's lease to run out.
#[test]
fn a_node_that_was_killed_and_started_again_takes_its_own_lease_at_once() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let plant = Plant::bottling(&database.url(), NO_SERVER, Some(60))?;
    let mut killed = plant.node("a")?;
    wait_until_reading(&killed, "a")?;
    killed.signal(Signal::KILL)?;
    killed.wait(Duration::from_secs(10))?;
    let node = plant.node("a")?;
    // Before a minute has passed since the last renewal, nothing but proof gives it the lease.
    wait_until_reading(&node, "a")?;
    let takeovers = node.get("/api/takeovers")?;
    let newest = takeovers.get(0).context("no takeover")?;
    assert_eq!((text(newest, "from"), text(newest, "to"), text(newest, "cause")), ("a", "a", "death"), "{takeovers}");
    Ok(())
}

#[test]
fn redundancy_on_a_sqlite_file_is_refused() -> anyhow::Result<()> {
    let plant = Plant::bottling("sqlite://plant.db", NO_SERVER, Some(2))?;
    refused(&run(&plant, &["--node", "a"])?, CONFIGURATION, &["redundancy", "SQLite"]);
    let checked = host(plant.path(), &["check"])?;
    refused(&checked, CONFIGURATION, &["redundancy", "SQLite"]);
    Ok(())
}

#[test]
fn a_port_in_use_is_named() -> anyhow::Result<()> {
    let plant = Plant::bottling("sqlite://plant.db", NO_SERVER, None)?;
    let taken = TcpListener::bind(("127.0.0.1", 0))?;
    let port = taken.local_addr()?.port().to_string();
    let said = run(&plant, &["--node", "a", "--api-port", &port])?;
    refused(&said, FAILED, &[&format!("127.0.0.1:{port}"), "--api-port"]);
    Ok(())
}

#[test]
fn a_role_is_inspected_without_running_anything() -> anyhow::Result<()> {
    let plant = Plant::bottling("sqlite://plant.db", NO_SERVER, None)?;
    let said = host(plant.path(), &["role", "inspect", "reader"])?;
    assert_eq!(said.code, Some(0), "{said:?}");
    let kind = |package: &str| {
        let line = said.output.lines().find(|line| line.starts_with(package)).unwrap_or_default();
        line.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(
        [kind("plant:db"), kind("plant:opc"), kind("plant:log")],
        ["fenced", "harmless", "harmless"],
        "{said:?}"
    );
    let unknown = host(plant.path(), &["role", "inspect", "label"])?;
    refused(&unknown, FAILED, &["the plant has no role label: it has reader"]);
    Ok(())
}

#[test]
fn what_was_typed_wrong_is_named() -> anyhow::Result<()> {
    let plant = Plant::bottling("sqlite://plant.db", NO_SERVER, None)?;
    refused(&run(&plant, &["--node", "plant a"])?, CONFIGURATION, &["node name \"plant a\"", "--node"]);
    refused(&run(&plant, &["--nod", "a"])?, USAGE, &["--nod"]);
    refused(&run(&plant, &["--config", "nowhere.toml"])?, CONFIGURATION, &["nowhere.toml"]);
    Ok(())
}

#[test]
fn a_wrong_password_of_the_database_is_named_and_not_shown() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    // The cluster trusts everybody; from here on this server wants passwords.
    let rules = database.path().join("data/pg_hba.conf");
    std::fs::write(&rules, "host all all 127.0.0.1/32 scram-sha-256\n")?;
    let mut database = database;
    database.kill()?;
    database.run()?;
    let url = database.url().replace("postgres@", "postgres:not-the-one@");
    let plant = Plant::bottling(&url, NO_SERVER, None)?;
    let said = run(&plant, &["--node", "a", "--api-port", "0"])?;
    refused(&said, FAILED, &["password"]);
    assert!(!said.errors.contains("not-the-one"), "{}", said.errors);
    let migrated = host(plant.path(), &["migrate"])?;
    refused(&migrated, FAILED, &["password"]);
    Ok(())
}

#[test]
fn a_node_waits_for_its_database_and_comes_up_with_it() -> anyhow::Result<()> {
    let mut database = Postgres::start()?;
    let plant = Plant::bottling(&database.url(), NO_SERVER, Some(2))?;
    database.kill()?;
    let mut node = Node::start(plant.path(), "a", &[])?;
    wait_until("it says what it waits for", Duration::from_secs(30), || Ok(node.log().contains("trying again")))?;
    database.run()?;
    node.wait_until_healthy()?;
    wait_until_reading(&node, "a")
}

#[test]
fn a_node_that_waits_for_its_database_ends_cleanly_when_it_is_told() -> anyhow::Result<()> {
    let plant = Plant::bottling(&format!("postgres://nobody@127.0.0.1:{}/no", free_port()?), NO_SERVER, None)?;
    let mut node = Node::start(plant.path(), "a", &[])?;
    wait_until("it says what it waits for", Duration::from_secs(30), || Ok(node.log().contains("trying again")))?;
    node.signal(Signal::TERM)?;
    assert_eq!(node.wait(Duration::from_secs(10))?, Some(0), "{}", node.log());
    Ok(())
}

#[test]
fn every_mistake_of_a_configuration_is_named_at_once() -> anyhow::Result<()> {
    let text = head("sqlite://plant.db", "http://127.0.0.1:4840", "publsh = \"1s\"\n", None) + &line("max_rate = -1\n");
    let plant = Plant::from_text(&text, 0)?;
    for said in [run(&plant, &["--node", "a"])?, host(plant.path(), &["check"])?] {
        refused(&said, CONFIGURATION, &["publsh", "opc.line.endpoint", "max_rate"]);
    }
    Ok(())
}

fn run(plant: &Plant, arguments: &[&str]) -> anyhow::Result<Said> {
    let all: Vec<&str> = std::iter::once("run").chain(arguments.iter().copied()).collect();
    host(plant.path(), &all)
}

/// It ended with this code, and its last words have all of these in them.
fn refused(said: &Said, code: i32, words: &[&str]) {
    assert_eq!(said.code, Some(code), "{said:?}");
    for word in words {
        assert!(said.errors.contains(word), "no {word:?} in {}", said.errors);
    }
    assert!(!said.errors.contains("panicked") && !said.errors.contains("Error("), "{}", said.errors);
}
