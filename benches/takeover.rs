//! What a role costs to begin when everything is compiled: from the grant of the lease to the first samples in the guest; the start of a
//! whole node; and what a node with five roles weighs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use harness::{Node, Plant, Postgres, Simulator};
use host::capability::metrics::SharedRegistry;
use host::capability::opc::PlantOpc;
use host::lease::Unfit;
use host::lease::keeper::{self, RestartError};
use host::lease::postgres::Me;
use host::lease::single::SinglePostgres;
use host::role::backoff::Budget;
use host::role::reports::Reports;
use host::role::supervisor::{GRACE, Means, Supervisor};
use host::store::{self, Bounds};
use plant_benches::figures::{self, Bar};
use plant_benches::{conditions, ground, process};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc};

const TAKEOVERS: usize = 60;
const STARTS: usize = 10;
/// Counters of the plant, which change all the time.
const COUNTERS: usize = 20;
const PROBES: [&str; 4] = ["prob1", "prob2", "prob3", "prob4"];

fn main() -> anyhow::Result<()> {
    conditions::print("takeover: a role and a node from their start, modules compiled before");
    let server = Postgres::start_with(&conditions::POSTGRES)?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(conditions::print_postgres(&server.url()))?;
    let line = Simulator::start(&["--counters", &COUNTERS.to_string(), "--rate", "20"])?;
    runtime.block_on(takeovers(&server, &line))?;
    starts(&server, &line)
}

async fn takeovers(server: &Postgres, line: &Simulator) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let text = ground::plant(&server.url(), &line.url(), COUNTERS, "[roles.reader]");
    let config = ground::configuration(directory.path(), &text)?;
    store::migrate(&config.store).await?;
    let workshop = ground::Workshop::new(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"))?;
    let registry = SharedRegistry::default();
    let runnable = workshop.runnable(&config, "reader", &workshop.reader().await?, &registry)?;
    let means = Means {
        keeper: Arc::new(ground::Once),
        database: store::open(&config.store, Bounds::default())?,
        opc: Arc::new(PlantOpc::new(config.opc.clone(), Handle::current())),
        registry,
        reports: Reports::default(),
        budget: Budget::default(),
        grace: GRACE,
    };
    let (grant, granted) = mpsc::channel(1);
    let (me, key) = (ground::me()?, ground::key("reader")?);
    let supervisor = Supervisor::start(means, BTreeMap::from([(key.role.clone(), runnable)]), granted)?;
    let leases = SinglePostgres::new(
        &config.store,
        Me { holder: me.clone(), address: "http://127.0.0.1".to_owned(), modules: BTreeMap::new(), gone: Vec::new() },
    )?;
    let (events, _) = broadcast::channel(1);
    let settings = keeper::Settings {
        store: Arc::new(leases),
        me,
        roles: vec![key.clone()],
        pair: None,
        unfit: Unfit::never(),
        events,
    };
    let (keeper, mut leases) = keeper::start(settings)?;
    let mut held = leases.recv().await.context("the keeper has ended")?;
    let mut reports = supervisor.reports().watch();
    let mut took = Vec::new();
    for _ in 0..TAKEOVERS {
        let before = supervisor.reports().get(&key).and_then(|report| report.last_reading_at);
        let began = Instant::now();
        grant.send(held.clone()).await?;
        // The report says so after `on-samples` has returned, that is after its commit.
        let first = reports.wait_for(|all| all.values().any(|report| report.last_reading_at > before));
        tokio::time::timeout(Duration::from_secs(30), first).await??;
        took.push(began.elapsed().as_secs_f64() * 1e3);
        held = keeper.restart(&held).await.map_err(|error: RestartError| anyhow::anyhow!("{error:?}"))?;
        reports.wait_for(|all| all.values().all(|report| report.instances == 0)).await?;
        // Its sessions say goodbye to the server.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("   {TAKEOVERS} times, {COUNTERS} counters on PostgreSQL, security None, the server on this machine");
    println!("p99 {:.1} ms, longest {:.1} ms", figures::percentile(&took, 0.99), figures::percentile(&took, 1.0));
    let what = "lease granted to first samples committed, with the OPC UA connect, median";
    figures::report(what, figures::median(&took), "ms", Bar::Below(50.0));
    Ok(())
}

/// Whole nodes, with the reader and four other roles, each with a module of its own.
fn starts(server: &Postgres, line: &Simulator) -> anyhow::Result<()> {
    let mut roles = "[roles.reader]\n".to_owned();
    for probe in PROBES {
        roles.push_str(&format!("[roles.{probe}]\nconfig = {{ mode = \"count\" }}\n"));
    }
    let plant = Plant::from_text(&ground::plant(&server.url(), &line.url(), COUNTERS, &roles), 0)?;
    probes(&plant.path().join("guests"))?;
    let (mut took, mut resident, mut anonymous) = (Vec::new(), Vec::new(), Vec::new());
    for start in 0..=STARTS {
        let began = Instant::now();
        let node = Node::start(plant.path(), "a", &[])?;
        wait_until_ready(&node)?;
        // The first one compiles.
        if start > 0 {
            took.push(began.elapsed().as_secs_f64() * 1e3);
        }
        wait_until_all_run(&node)?;
        let (all, own) = process::resident_megabytes(u32::try_from(node.pid()?.as_raw_nonzero().get())?)?;
        resident.push(all);
        anonymous.push(own);
        node.signal(rustix::process::Signal::TERM)?;
        let mut node = node;
        node.wait(Duration::from_secs(20))?;
    }
    println!(
        "   {STARTS} nodes one after the other, five roles of five modules each; load after: {}",
        conditions::load()
    );
    figures::report("start of the process to /api/ready, median", figures::median(&took), "ms", Bar::Below(1000.0));
    println!("of its memory anonymous, median: {:.0} MB", figures::median(&anonymous));
    figures::report("resident with five roles, median", figures::median(&resident), "MB", Bar::Below(100.0));
    Ok(())
}

/// The probe under four names, which makes four modules of it.
fn probes(guests: &Path) -> anyhow::Result<()> {
    let path = std::env::var_os("PLANT_PROBE").context("PLANT_PROBE names no module: run `cargo xtask bench`")?;
    let wasm = std::fs::read(path)?;
    std::fs::create_dir_all(guests)?;
    let named = b"name = \"probe\"";
    let at = wasm.windows(named.len()).position(|bytes| bytes == named).context("the probe has no manifest")?;
    for probe in PROBES {
        let mut renamed = wasm.clone();
        let name = renamed.get_mut(at + 8..at + 13).context("a short module")?;
        name.copy_from_slice(probe.as_bytes());
        std::fs::write(guests.join(format!("{probe}.wasm")), renamed)?;
    }
    Ok(())
}

fn wait_until_ready(node: &Node) -> anyhow::Result<()> {
    let began = Instant::now();
    while node.get("/api/ready").is_err() {
        if began.elapsed() > Duration::from_secs(120) {
            bail!("the node is not ready:\n{}", node.log());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn wait_until_all_run(node: &Node) -> anyhow::Result<()> {
    let run = |role: &str| {
        harness::plant::role(node, role).is_ok_and(|role| harness::plant::text(&role, "state") == "running")
    };
    harness::process::wait_until("all the roles run", Duration::from_secs(60), || {
        Ok(run("reader") && PROBES.iter().all(|probe| run(probe)))
    })
    .with_context(|| format!("{:?}\n{}", node.get("/api/status"), node.log()))
}
