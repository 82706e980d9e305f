//! Two nodes, one database, one line that goes on counting: whatever ends the holder, the books are what was made, and no two nodes
//! have an instance at one time.

use harness::takeover::{rounds, succession};
use harness::{End, Plant, Postgres, Simulator};

#[test]
fn a_killed_holder_is_succeeded_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    fail_over(End::Killed)
}

#[test]
fn a_stopped_holder_hands_over_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    fail_over(End::Stopped)
}

#[test]
fn a_frozen_holder_commits_nothing_after_it_wakes_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    fail_over(End::Frozen)
}

fn fail_over(end: End) -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    let plant = Plant::bottling(&database.url(), &line.url(), Some(2))?;
    succession(&plant, &line, end, rounds(5))
}
