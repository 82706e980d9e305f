//! `host drill`: a rehearsal of what this workspace's own failover tests do, which anybody can make on a plant of his own.

use std::time::Duration;

use anyhow::ensure;
use harness::node::{host, host_within};
use harness::plant::{head, line};
use harness::process::free_port;
use harness::{Plant, Postgres};

/// Five faults at 2 s a lease, each with its way back; most of it is waiting.
const DRILLED_WITHIN: Duration = Duration::from_secs(280);

/// Where nothing listens, so that the drill starts the line itself.
fn nowhere() -> anyhow::Result<String> {
    Ok(format!("opc.tcp://127.0.0.1:{}/plant", free_port()?))
}

#[test]
fn every_fault_is_survived_and_the_report_says_that_the_books_are_exact() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let plant = Plant::bottling(&database.url(), &nowhere()?, Some(2))?;
    let asked = ["drill", "--rounds", "1", "--faults", "kill,stop,freeze,cut,slow-store", "--report", "drill.md"];
    let said = host_within(plant.path(), &asked, DRILLED_WITHIN)?;
    ensure!(said.code == Some(0), "{}\n{}", said.output, said.errors);
    ensure!(said.output.contains("Survived: yes. Books exact: yes (booked "), "{}", said.output);
    for begins in ["kill | 1 | 1 | 1 | death |", "stop | 1 | 1 | 1 | release |", "freeze | 1 | 1 | 1 | expiry |"] {
        ensure!(said.output.contains(&format!("\n| {begins}")), "{begins}: {}", said.output);
    }
    for begins in ["cut | 1 | 1 | 1 |", "slow-store | 1 | 1 |"] {
        ensure!(said.output.contains(&format!("\n| {begins}")), "{begins}: {}", said.output);
    }
    ensure!(std::fs::read_to_string(plant.path().join("drill.md"))? == said.output, "the report is what was printed");
    let mut left = Vec::new();
    for entry in std::fs::read_dir(plant.path())? {
        left.push(entry?.file_name().to_string_lossy().into_owned());
    }
    ensure!(!left.iter().any(|name| name.contains("drill-")), "a node's copy of plant.toml is left: {left:?}");
    Ok(())
}

#[test]
fn beside_a_living_node_nothing_is_drilled() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let plant = Plant::bottling(&database.url(), &nowhere()?, Some(2))?;
    let node = plant.node("left")?;
    let said = host(plant.path(), &["drill", "--faults", "kill"])?;
    ensure!(said.code == Some(1), "{said:?}");
    ensure!(
        said.errors.contains("the node left of this plant said within the last lease (2 s) to be alive"),
        "{said:?}"
    );
    node.get("/api/health")?;
    Ok(())
}

#[test]
fn a_plant_that_counts_for_real_is_refused_before_anything_is_started() -> anyhow::Result<()> {
    let text = head("postgres://plant@127.0.0.1:9/bottling", &nowhere()?, "", Some(2)) + &line("");
    let plant = Plant::from_text(&text.replace("simulated = true", "simulated = false"), 2)?;
    let refusals: [(&[&str], &str); 3] = [
        (&["drill"], "the plant \"bottling\" counts for real ([plant] simulated is not true)"),
        (&["drill", "--on-a-real-plant"], "say --on-a-real-plant and --yes-count-real bottling"),
        (
            &["drill", "--on-a-real-plant", "--yes-count-real", "canning"],
            "--yes-count-real names \"canning\" and the plant is called \"bottling\"",
        ),
    ];
    for (arguments, sentence) in refusals {
        let said = host(plant.path(), arguments)?;
        ensure!(said.code == Some(1) && said.output.is_empty(), "{said:?}");
        ensure!(said.errors.contains(sentence) && said.errors.lines().count() == 1, "{said:?}");
    }
    Ok(())
}

#[test]
fn a_plant_without_redundancy_is_refused_with_what_it_needs() -> anyhow::Result<()> {
    let plant = Plant::bottling("sqlite://plant.db", &nowhere()?, None)?;
    let said = host(plant.path(), &["drill"])?;
    ensure!(said.code == Some(1), "{said:?}");
    ensure!(said.errors.contains("the plant \"bottling\" has no [redundancy]: its one node has nobody"), "{said:?}");
    Ok(())
}
