//! Servers that die and come back under a running plant: every role is back, and the books are what was made.

use std::time::{Duration, Instant};

use harness::plant::{head, line, wait_until_booked, wait_until_read, wait_until_reading};
use harness::process::wait_until;
use harness::takeover::rounds;
use harness::{Nats, Node, Plant, Postgres, Simulator};

/// From a server's return until something was booked again, in leases.
fn report(what: &str, mut took: Vec<f64>) {
    took.sort_by(f64::total_cmp);
    let (middle, last) = (took.get(took.len() / 2), took.last());
    println!("{what}, from its return until the next booking, in leases: median {middle:.3?}, max {last:.3?}");
}

/// Waits until more is booked than now; how long that took, in leases.
fn until_booked_again(plant: &Plant, database: &Postgres, asked: &Node) -> anyhow::Result<f64> {
    let (back, before) = (Instant::now(), database.booked()?);
    wait_until("something is booked again", Duration::from_secs(60), || Ok(database.booked()? > before))
        .map_err(|error| error.context(asked.log()))?;
    Ok(back.elapsed().as_secs_f64() / plant.lease().as_secs_f64())
}

#[test]
fn after_a_restart_of_postgresql_every_role_is_back_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    let mut database = Postgres::start_with(&[])?;
    let simulator = Simulator::start(&["--speed", "20", "--paused"])?;
    let plant = Plant::bottling(&database.url(), &simulator.url(), Some(4))?;
    let a = plant.node("a")?;
    wait_until_reading(&a, "a")?;
    let b = plant.node("b")?;
    wait_until_read(&a, 12)?;
    simulator.resume()?;
    let mut took = Vec::new();
    for _ in 0..rounds(3) {
        let before = database.booked()?;
        wait_until("counts go on", Duration::from_secs(30), || Ok(database.booked()? > before + 20))?;
        database.kill()?;
        database.run()?;
        took.push(until_booked_again(&plant, &database, &b)?);
    }
    simulator.pause()?;
    wait_until_booked(&b, &simulator.truth()?)?;
    report("PostgreSQL", took);
    Ok(())
}

#[test]
fn after_a_restart_of_nats_every_role_is_back_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    let (database, mut nats) = (Postgres::start()?, Nats::start()?);
    let simulator = Simulator::start(&["--speed", "20", "--paused"])?;
    let text = head(&database.url(), &simulator.url(), "", Some(4)) + &nats.redundancy() + &line("");
    let plant = Plant::from_text(&text, 4)?;
    let a = plant.node("a")?;
    let b = plant.node("b")?;
    wait_until_read(&a, 12)?;
    simulator.resume()?;
    let mut took = Vec::new();
    for _ in 0..rounds(3) {
        let before = database.booked()?;
        wait_until("counts go on", Duration::from_secs(30), || Ok(database.booked()? > before + 20))?;
        nats.kill()?;
        nats.run()?;
        took.push(until_booked_again(&plant, &database, &b)?);
    }
    simulator.pause()?;
    wait_until_booked(&b, &simulator.truth()?)?;
    report("NATS", took);
    Ok(())
}
