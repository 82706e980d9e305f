//! Two nodes, one database, one line that goes on counting: whatever ends the holder, the books are what was made, and no two nodes
//! have an instance at one time.

use std::time::Duration;

use harness::node::host;
use harness::plant::{self, text};
use harness::process::{probe, wait_until};
use harness::takeover::{rounds, succession_checked};
use harness::{End, Node, Plant, Postgres, Simulator};
use serde_json::Value;

#[test]
fn a_killed_holder_is_succeeded_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    fail_over(End::Killed, rounds(30))
}

#[test]
fn a_stopped_holder_hands_over_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    fail_over(End::Stopped, rounds(30))
}

#[test]
fn a_frozen_holder_commits_nothing_after_it_wakes_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    fail_over(End::Frozen, rounds(5))
}

/// The reader and four other roles, under leases of 4 s.
fn fail_over(end: End, rounds: usize) -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    let others: String = (1..=4)
        .map(|n| format!("\n[roles.other-{n}]\nmodule = \"probe\"\nconfig = {{ mode = \"count\" }}\n"))
        .collect();
    let text = plant::head(&database.url(), &line.url(), "", Some(4)) + &others + &plant::line("");
    let plant = Plant::from_text(&text, 4)?;
    plant.with_module("probe", &probe()?)?;
    succession_checked(&plant, &line, end, rounds, |from, to| recorded(end, &database, &plant, from, to))
}

/// The newest record of the reader is this takeover, with its figures.
fn recorded(end: End, database: &Postgres, plant: &Plant, from: &Node, to: &Node) -> anyhow::Result<()> {
    let newest =
        || -> anyhow::Result<Value> { Ok(plant::takeovers(to, "reader")?.into_iter().next().unwrap_or_default()) };
    wait_until("the takeover's figures are known", Duration::from_secs(20), || {
        let newest = newest()?;
        let gap = newest.get("gap_ms").is_some_and(Value::is_number);
        Ok(text(&newest, "to") == to.name() && !text(&newest, "owed_booked_at").is_empty() && gap)
    })?;
    let newest = newest()?;
    let causes: &[&str] = match end {
        End::Killed => &["death"],
        End::Stopped => &["release"],
        End::Frozen => &["expiry"],
    };
    assert!(causes.contains(&text(&newest, "cause")), "{newest}");
    assert_eq!(text(&newest, "from"), from.name(), "{newest}");
    let number = |key: &str| newest.get(key).and_then(Value::as_f64).unwrap_or(-1.0);
    let time = |key: &str| text(&newest, key).to_owned();
    assert!(number("to_epoch") > number("from_epoch"), "{newest}");
    assert!(time("last_commit_at") <= time("at") && time("at") <= time("first_commit_at"), "{newest}");
    assert!(time("first_commit_at") <= time("owed_booked_at"), "{newest}");
    assert!(number("gap_ms") >= 0.0 && number("owed") >= 1.0, "{newest}");
    let lease_ms = plant.lease().as_secs_f64() * 1000.0;
    assert!((number("gap_leases") - number("gap_ms") / lease_ms).abs() < 1e-6, "{newest}");
    assert_eq!(
        newest.get("owed").and_then(Value::as_i64),
        Some(first_booked(database)?),
        "what the books got in the first commit: {newest}"
    );
    let said = host(plant.path(), &["takeovers", "--role", "reader", "--limit", "1", "--url", &to.url()])?;
    assert_eq!(said.code, Some(0), "{said:?}");
    let figures =
        [format!("{:.1}", number("gap_ms")), format!("{:.3}", number("gap_leases")), number("owed").to_string()];
    let row = said.output.lines().nth(1).unwrap_or_default();
    assert!(figures.iter().all(|figure| row.split_whitespace().any(|cell| cell == figure)), "{newest}: {said:?}");
    println!("{end:?}: gap {:.1} ms, {:.3} leases, owed {}", number("gap_ms"), number("gap_leases"), number("owed"));
    Ok(())
}

/// Units in the first commit with bookings after the reader's newest takeover: all of one commit have its time.
fn first_booked(database: &Postgres) -> anyhow::Result<i64> {
    const FIRST: &str = "SELECT sum(quantity)::bigint FROM bookings
                          WHERE booked_at >= (SELECT max(taken_at) FROM plant_takeovers WHERE role = 'reader')
                          GROUP BY booked_at ORDER BY booked_at LIMIT 1";
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let pool = sqlx::PgPool::connect(&database.url()).await?;
        Ok(sqlx::query_scalar(FIRST).fetch_one(&pool).await?)
    })
}
