//! How soon a guest that computes is gone when its lease is lost: from the keeper's `end` until its store is dropped.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use host::capability::metrics::SharedRegistry;
use host::role::backoff::Budget;
use host::role::reports::Reports;
use host::role::supervisor::{GRACE, Means, Supervisor};
use plant_benches::accepting::Accepting;
use plant_benches::feed::Unconnected;
use plant_benches::figures::{self, Bar};
use plant_benches::{conditions, ground};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

const TIMES: u64 = 600;
/// The guest is somewhere in its endless loop, and not always at the same place of a tick of the engine.
const BEFORE: [u64; 7] = [500, 1_700, 2_300, 3_100, 4_900, 6_100, 7_300];

fn main() -> anyhow::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> anyhow::Result<()> {
    conditions::print("interrupt: losing the lease while a guest computes");
    let directory = tempfile::tempdir()?;
    let role = "[roles.looping]\nmodule = \"probe\"\nconfig = { mode = \"loop-in-timer\" }\ntimers = { tick = { every = \"10ms\" } }";
    let text = ground::plant("sqlite://unused.db", ground::NOWHERE, 0, role);
    let config = ground::configuration(directory.path(), &text)?;
    let workshop = ground::Workshop::new(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"))?;
    let registry = SharedRegistry::default();
    let runnable = workshop.runnable(&config, "looping", &workshop.probe().await?, &registry)?;
    let means = Means {
        keeper: Arc::new(ground::Once),
        database: Arc::new(Accepting { machines: 0 }),
        opc: Arc::new(Unconnected::new(config.opc.clone(), Handle::current())),
        registry: registry.clone(),
        reports: Reports::default(),
        budget: Budget::default(),
        grace: GRACE,
    };
    let (grant, granted) = mpsc::channel(1);
    let role = ground::key("looping")?.role;
    let supervisor = Supervisor::start(means, BTreeMap::from([(role, runnable)]), granted)?;
    let mut reports = supervisor.reports().watch();
    let mut took = Vec::new();
    for (epoch, before) in (1..=TIMES).zip(BEFORE.into_iter().cycle()) {
        let (held, control) = ground::lease("looping", epoch)?;
        grant.send(held).await?;
        // It counts the tick and never returns from it.
        ground::until("the guest computes", || ticks(&registry) >= epoch).await?;
        tokio::time::sleep(Duration::from_micros(before)).await;
        let began = Instant::now();
        control.end();
        reports.wait_for(|all| all.values().all(|report| report.instances == 0)).await?;
        took.push(began.elapsed().as_secs_f64() * 1e3);
    }
    println!("   {TIMES} times, one guest computing; load after: {}", conditions::load());
    println!("p50: {:.3} ms, longest: {:.3} ms", figures::median(&took), figures::percentile(&took, 1.0));
    figures::report("p99", figures::percentile(&took, 0.99), "ms", Bar::Below(20.0));
    Ok(())
}

/// How many ticks the guests were given so far.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole number")]
fn ticks(registry: &SharedRegistry) -> u64 {
    let mut text = String::new();
    let registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
    if prometheus_client::encoding::text::encode(&mut text, &registry).is_err() {
        return 0;
    }
    let value = text.lines().find_map(|line| line.strip_prefix("role_looping_ticks_total "));
    value.and_then(|value| value.parse::<f64>().ok()).map_or(0, |value| value as u64)
}
