//! What is written for Prometheus and Grafana: the rules are right by Prometheus' own tool, and every metric that is asked for is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use harness::plant::wait_until_reading;
use harness::process::wait_until;
use harness::{Plant, Postgres, Simulator};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/observability")
}

/// Prometheus' tool, as `cargo xtask test` found it, else the one on the path.
fn promtool(arguments: &[&str]) -> anyhow::Result<()> {
    let program = std::env::var_os("PLANT_PROMTOOL").unwrap_or_else(|| "promtool".into());
    let ran = Command::new(&program).args(arguments).current_dir(examples()).output();
    let ran = ran.with_context(|| format!("cannot start {}", program.display()))?;
    let said = [ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(ran.status.success(), "promtool {arguments:?}: {said}");
    Ok(())
}

/// The host's metrics in a text, as families: without what Prometheus adds to a counter's or a histogram's name.
fn families(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("host_"));
    let family = |word: &str| {
        let added = ["_total", "_bucket", "_sum", "_count"].into_iter().find_map(|end| word.strip_suffix(end));
        added.unwrap_or(word).to_owned()
    };
    words.map(family).collect()
}

#[test]
fn the_rules_fire_and_are_silent_as_they_should() -> anyhow::Result<()> {
    promtool(&["check", "config", "prometheus.yml"])?;
    promtool(&["test", "rules", "rules.test.yml"])
}

#[test]
fn every_metric_that_the_rules_and_the_dashboard_ask_for_is_there() -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let line = Simulator::start(&["--paused"])?;
    let plant = Plant::bottling(&database.url(), &line.url(), Some(2))?;
    let a = plant.node("a")?;
    wait_until_reading(&a, "a")?;
    let mut wanted = families(&std::fs::read_to_string(examples().join("rules.yml"))?);
    wanted.append(&mut families(&std::fs::read_to_string(examples().join("dashboard.json"))?));
    assert!(wanted.len() > 8, "{wanted:?}");
    wait_until("all of them are answered", Duration::from_secs(30), || {
        Ok(wanted.is_subset(&families(&a.text("/metrics")?)))
    })
    .with_context(|| format!("{wanted:?}\n{:?}", a.text("/metrics")))?;
    let metrics = a.text("/metrics")?;
    for line in ["host_lease_held{role=\"reader\",partition=\"\"} 1", "host_lease_transitions_total{cause=\"start\"} 1"]
    {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    Ok(())
}
