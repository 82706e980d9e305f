//! The case that fencing is for: a holder that is frozen in the middle of its lease, and wakes when another has counted on.

use std::time::{Duration, Instant};

use harness::asyncua::Setup;
use harness::plant::{books, head, machine, role, text, total, wait_until_read, wait_until_reading};
use harness::process::wait_until;
use harness::{Asyncua, Node, Plant, Postgres};
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::Connection;

const GOOD: &str = "s=FILL01.Good";

#[test]
fn a_holder_frozen_at_100_and_thawed_after_another_booked_110_adds_nothing() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let mut server = Asyncua::start(Setup::default())?;
    server.add(GOOD, "UInt32", json!(0))?;
    let text = head(&database.url(), &server.url(), "", Some(2)) + &machine("FILL01");
    let plant = Plant::from_text(&text, 2)?;
    let a = plant.node("a")?;
    wait_until_reading(&a, "a")?;
    wait_until_read(&a, 1)?;
    let b = plant.node("b")?;
    server.set(GOOD, "UInt32", json!(100))?;
    wait_until_total(&a, 100)?;

    a.signal(Signal::STOP)?;
    server.set(GOOD, "UInt32", json!(110))?;
    wait_until_reading(&b, "b")?;
    wait_until_total(&b, 110)?;
    a.signal(Signal::CONT)?;
    wait_until("the thawed node is a standby", plant.lease() * 10, || Ok(is_standby(&a).unwrap_or(false)))?;

    // What must not happen has no moment at which it has not happened: three leases are enough for any timer of either node.
    let until = Instant::now() + plant.lease() * 3;
    while Instant::now() < until {
        assert_eq!((total(&books(&a)?), total(&books(&b)?)), (110, 110));
        assert!(is_standby(&a)?, "{:?}", a.get("/api/status"));
        assert_eq!(b.instances("reader")?, 1);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(rows(&database)?, vec![100, 110 - 100], "one booking of each, and no other");

    server.set(GOOD, "UInt32", json!(115))?;
    wait_until_total(&b, 115)?;
    assert_eq!(rows(&database)?.iter().sum::<i64>(), 115);
    Ok(())
}

fn wait_until_total(node: &Node, units: u64) -> anyhow::Result<()> {
    let booked = || books(node).map(|books| total(&books));
    wait_until(&format!("{units} are booked"), Duration::from_secs(30), || Ok(booked().is_ok_and(|n| n == units)))
        .map_err(|error| error.context(format!("{:?} {}", booked(), node.log())))
}

/// It has no instance, and says so of itself.
fn is_standby(node: &Node) -> anyhow::Result<bool> {
    let ha = node.get("/api/status")?.get("ha").cloned().unwrap_or_default();
    let reader = role(node, "reader")?;
    let here = reader.get("here").and_then(Value::as_bool);
    Ok(node.instances("reader")? == 0 && text(&ha, "role") == "standby" && here == Some(false))
}

/// The quantities of all bookings, in their order.
fn rows(database: &Postgres) -> anyhow::Result<Vec<i64>> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut connection = sqlx::PgConnection::connect(&database.url()).await?;
        let query = sqlx::query_scalar("SELECT quantity::bigint FROM bookings ORDER BY sequence");
        Ok(query.fetch_all(&mut connection).await?)
    })
}
