//! What one sample costs from the queue through the guest into a database that only accepts, by the size of the batch; and what an
//! instance costs to begin.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use criterion::{BenchmarkId, Criterion, Throughput};
use host::capability::metrics::SharedRegistry;
use host::lease::Held;
use host::role::State;
use host::role::backoff::Budget;
use host::role::reports::Reports;
use host::role::supervisor::{GRACE, Means, Supervisor};
use plant_benches::accepting::Accepting;
use plant_benches::feed::{Fed, Feed, Tally, Unconnected};
use plant_benches::{conditions, ground};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc;

const COUNTERS: usize = 5_000;
const BATCHES: [usize; 5] = [1, 10, 100, 1_000, 10_000];

/// A reader under a supervisor, over a database that only accepts.
struct Plant {
    supervisor: Supervisor,
    grant: mpsc::Sender<Held>,
    opener: Arc<Unconnected>,
    tally: Arc<Tally>,
    _directory: tempfile::TempDir,
}

impl Plant {
    async fn start(counters: usize) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let text = ground::plant("sqlite://unused.db", ground::NOWHERE, counters, "[roles.reader]");
        let config = ground::configuration(directory.path(), &text)?;
        let workshop = ground::Workshop::new(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"))?;
        let registry = SharedRegistry::default();
        let runnable = workshop.runnable(&config, "reader", &workshop.reader().await?, &registry)?;
        let database = Fed::new(Arc::new(Accepting { machines: counters }));
        let tally = database.tally();
        let opener = Arc::new(Unconnected::new(config.opc.clone(), Handle::current()));
        let means = Means {
            keeper: Arc::new(ground::Once),
            database: Arc::new(database),
            opc: opener.clone(),
            registry,
            reports: Reports::default(),
            budget: Budget::default(),
            grace: GRACE,
        };
        let (grant, granted) = mpsc::channel(1);
        let role = ground::key("reader")?.role;
        let supervisor = Supervisor::start(means, BTreeMap::from([(role, runnable)]), granted)?;
        Ok(Self { supervisor, grant, opener, tally, _directory: directory })
    }

    fn is(&self, state: State) -> bool {
        self.supervisor.reports().all().values().any(|report| report.state == state)
    }

    async fn feed(&self, counters: usize) -> anyhow::Result<Arc<Feed>> {
        let sessions = self.opener.opened().context("the reader has no connections")?;
        let nodes = (1..=counters).map(ground::node).collect();
        let items = sessions.connections.resolve("line", nodes)?.into_iter().collect::<Result<Vec<u32>, _>>()?;
        let feed = Arc::new(Feed::new(sessions.queue, items, counters));
        self.tally.feed(feed.clone());
        // The first reading of each counter becomes its baseline.
        let committed = self.tally.committed();
        feed.once();
        ground::until("the baselines are there", || self.tally.committed() > committed).await?;
        Ok(feed)
    }
}

/// So many batches, one after the other; without the time that making their samples took.
async fn batches(tally: &Tally, feed: &Feed, size: usize, count: u64) -> anyhow::Result<Duration> {
    let ((_, pushing), committed) = (feed.pushed(), tally.committed());
    let began = Instant::now();
    feed.go(size);
    // A timer's tick may commit as well, once a second; that is one batch of thousands.
    while tally.committed() - committed < count {
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    feed.stop();
    let done = tally.committed() - committed;
    let took = tally.last().context("nothing was committed")?.duration_since(began);
    let took = took.saturating_sub(feed.pushed().1.saturating_sub(pushing));
    // What came on top of the count is taken off again.
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2⁵³")]
    let took = took.mul_f64(count as f64 / done as f64);
    Ok(took)
}

fn samples(criterion: &mut Criterion, runtime: &Runtime) -> anyhow::Result<()> {
    let plant = runtime.block_on(Plant::start(COUNTERS))?;
    let (held, _control) = ground::lease("reader", 1)?;
    let feed = runtime.block_on(async {
        plant.grant.send(held).await?;
        ground::until("the reader runs", || plant.is(State::Running)).await?;
        plant.feed(COUNTERS).await
    })?;
    let mut group = criterion.benchmark_group("sample");
    for size in BATCHES {
        group.throughput(Throughput::Elements(size as u64));
        group.bench_with_input(BenchmarkId::new("batch of", size), &size, |bencher, size| {
            bencher.iter_custom(|count| {
                let measured = runtime.block_on(batches(&plant.tally, &feed, *size, count));
                measured.unwrap_or_else(|error| {
                    eprintln!("{error:#}");
                    Duration::MAX
                })
            });
        });
    }
    group.finish();
    Ok(())
}

/// From the grant of the lease until `start` has returned, with so many counters.
fn instances(criterion: &mut Criterion, runtime: &Runtime) -> anyhow::Result<()> {
    let mut group = criterion.benchmark_group("instantiate and start");
    group.sample_size(20);
    for counters in [10, COUNTERS] {
        let plant = runtime.block_on(Plant::start(counters))?;
        let mut epoch = 0;
        group.bench_with_input(BenchmarkId::new("counters", counters), &counters, |bencher, _| {
            bencher.iter_custom(|count| {
                let mut took = Duration::ZERO;
                for _ in 0..count {
                    epoch += 1;
                    match runtime.block_on(one_instance(&plant, epoch)) {
                        Ok(one) => took += one,
                        Err(error) => eprintln!("{error:#}"),
                    }
                }
                took
            });
        });
    }
    group.finish();
    Ok(())
}

async fn one_instance(plant: &Plant, epoch: u64) -> anyhow::Result<Duration> {
    let (held, control) = ground::lease("reader", epoch)?;
    let mut reports = plant.supervisor.reports().watch();
    let began = Instant::now();
    plant.grant.send(held).await?;
    reports.wait_for(|all| all.values().any(|report| report.state == State::Running)).await?;
    let took = began.elapsed();
    control.end();
    reports.wait_for(|all| all.values().all(|r| r.instances == 0 && r.state == State::Standby)).await?;
    Ok(took)
}

fn main() -> anyhow::Result<()> {
    conditions::print("guest: a sample through the reader, a database that only accepts");
    let runtime = Runtime::new()?;
    let mut criterion = Criterion::default().configure_from_args().sample_size(30);
    samples(&mut criterion, &runtime)?;
    instances(&mut criterion, &runtime)?;
    criterion.final_summary();
    Ok(())
}
