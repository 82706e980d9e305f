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

/// Restarts a server again and again while counts go on; how long each took until something was booked, in leases.
fn restarted<S>(
    plant: &Plant,
    asked: &Node,
    servers: &mut S,
    database: impl Fn(&S) -> &Postgres,
    restart: impl Fn(&mut S) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<f64>> {
    let mut took = Vec::new();
    for _ in 0..rounds(3) {
        let before = database(servers).booked()?;
        wait_until("counts go on", Duration::from_secs(30), || Ok(database(servers).booked()? > before + 20))?;
        restart(servers)?;
        took.push(until_booked_again(plant, database(servers), asked)?);
    }
    Ok(took)
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
    let took = restarted(
        &plant,
        &b,
        &mut database,
        |database| database,
        |database| {
            database.kill()?;
            database.run()
        },
    )?;
    simulator.pause()?;
    wait_until_booked(&b, &simulator.truth()?)?;
    report("PostgreSQL", took);
    Ok(())
}

#[test]
fn after_a_restart_of_nats_every_role_is_back_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    let (database, nats) = (Postgres::start()?, Nats::start()?);
    let simulator = Simulator::start(&["--speed", "20", "--paused"])?;
    let text = head(&database.url(), &simulator.url(), "", Some(4)) + &nats.redundancy() + &line("");
    let plant = Plant::from_text(&text, 4)?;
    let a = plant.node("a")?;
    let b = plant.node("b")?;
    wait_until_read(&a, 12)?;
    simulator.resume()?;
    let mut servers = (database, nats);
    let took = restarted(
        &plant,
        &b,
        &mut servers,
        |(database, _)| database,
        |(_, nats)| {
            nats.kill()?;
            nats.run()
        },
    )?;
    simulator.pause()?;
    wait_until_booked(&b, &simulator.truth()?)?;
    report("NATS", took);
    Ok(())
}
