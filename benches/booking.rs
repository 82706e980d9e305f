//! Counter changes booked each second: the WebAssembly reader against a native loop that sends the same SQL, in turns.
//!
//! One booked change is one row in `bookings`, committed with its baseline and under the fence. Both sides take the same samples in the same
//! batches from a queue of the host, through the same store, into one PostgreSQL with fsync.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use harness::Postgres;
use host::capability::metrics::SharedRegistry;
use host::config::Config;
use host::lease::keeper::{self, KeeperHandle};
use host::lease::postgres::Me;
use host::lease::single::SinglePostgres;
use host::lease::{Held, Unfit};
use host::opc::EventQueue;
use host::role::State;
use host::role::backoff::Budget;
use host::role::reports::Reports;
use host::role::supervisor::{GRACE, Means, Supervisor};
use host::store::{self, Bounds, Database};
use plant_benches::feed::{Fed, Feed, Tally, Unconnected};
use plant_benches::figures::{self, Bar};
use plant_benches::native::Native;
use plant_benches::{conditions, ground, process};
use sqlx::{Connection, PgConnection};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc};

const COUNTERS: usize = 5_000;
/// What waits for the reader at its full speed: the most that one call may bring, here two changes of each counter.
const BATCH: usize = 10_000;
const ROUNDS: usize = 6;
const PHASE: Duration = Duration::from_secs(5);

fn main() -> anyhow::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> anyhow::Result<()> {
    conditions::print("booking: reader (wasm) and native loop in turns");
    let server = Postgres::start_with(&conditions::POSTGRES)?;
    conditions::print_postgres(&server.url()).await?;
    let directory = tempfile::tempdir()?;
    let text = ground::plant(&server.url(), ground::NOWHERE, COUNTERS, "[roles.reader]");
    let config = ground::configuration(directory.path(), &text)?;
    store::migrate(&config.store).await?;
    let (_keeper, mut leases) = leases(&config).await?;
    let lease = leases.remove("reader").context("the reader's lease was not granted")?;
    let (reader, _supervisor) = reader(&config, lease).await?;
    let lease = leases.remove("native").context("the native loop's lease was not granted")?;
    let native = native(&config, &server.url(), lease, &reader.tally.texts()).await?;
    println!("   {COUNTERS} counters, batches of {BATCH} samples, {ROUNDS} turns of {PHASE:?} for each side");

    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 1..=ROUNDS {
        let (a, b) = (reader.measure().await?, native.measure().await?);
        println!(
            "   turn {turn}: reader {:.0}/s, {:.2} µs CPU each; native {:.0}/s, {:.2} µs CPU each; ratio {:.3}",
            a.rate,
            a.cpu_micros,
            b.rate,
            b.cpu_micros,
            a.rate / b.rate
        );
        ratios.push(a.rate / b.rate);
        ours.push(a.rate);
        theirs.push(b.rate);
    }
    check_books(&server.url(), &reader, &native).await?;
    println!(
        "native loop, median: {:.0} booked changes/s; load after: {}",
        figures::median(&theirs),
        conditions::load()
    );
    figures::report("reader, median", figures::median(&ours), "booked changes/s", Bar::AtLeast(60_000.0));
    figures::report(
        "reader : native, medians",
        figures::median(&ours) / figures::median(&theirs),
        "",
        Bar::AtLeast(0.95),
    );
    println!("reader : native, median of the turns: {:.3}", figures::median(&ratios));
    Ok(())
}

/// The real leases of a plant with one node, by role.
async fn leases(config: &Config) -> anyhow::Result<(KeeperHandle, BTreeMap<String, Held>)> {
    let me = ground::me()?;
    let store = SinglePostgres::new(
        &config.store,
        Me { holder: me.clone(), address: "http://127.0.0.1".to_owned(), modules: BTreeMap::new(), gone: Vec::new() },
    )?;
    let roles = vec![ground::key("reader")?, ground::key("native")?];
    let (events, _) = broadcast::channel(1);
    let settings = keeper::Settings { store: Arc::new(store), me, roles, pair: None, unfit: Unfit::never(), events };
    let (keeper, mut granted) = keeper::start(settings)?;
    let mut leases = BTreeMap::new();
    while leases.len() < 2 {
        let held = granted.recv().await.context("the keeper has ended")?;
        leases.insert(held.key().role.to_string(), held);
    }
    Ok((keeper, leases))
}

/// One side of the comparison.
struct Side {
    feed: Arc<Feed>,
    tally: Arc<Tally>,
}

/// What one turn came to.
struct Turn {
    /// Booked changes a second.
    rate: f64,
    /// CPU of this process for each, in microseconds.
    cpu_micros: f64,
}

impl Side {
    /// The first readings, which book nothing, and one change of each counter.
    async fn warm_up(&self, queue: &EventQueue) -> anyhow::Result<()> {
        for booked in [0, COUNTERS as u64] {
            let committed = self.tally.committed();
            self.feed.once();
            let done = || queue.waiting() == 0 && self.tally.committed() > committed && self.tally.booked() >= booked;
            ground::until("the first changes are booked", done).await?;
        }
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "counts far below 2⁵³")]
    async fn measure(&self) -> anyhow::Result<Turn> {
        let ((pushed, _), booked) = (self.feed.pushed(), self.tally.booked());
        let cpu = process::cpu_seconds(std::process::id())?;
        let began = Instant::now();
        self.feed.go(BATCH);
        tokio::time::sleep(PHASE).await;
        self.feed.stop();
        let fed = || self.feed.pushed().0 - pushed;
        ground::until("all that was fed is booked", || self.tally.booked() - booked == fed()).await?;
        let ended = self.tally.last().context("nothing was committed")?;
        let cpu = process::cpu_seconds(std::process::id())? - cpu;
        let fed = fed() as f64;
        Ok(Turn { rate: fed / ended.duration_since(began).as_secs_f64(), cpu_micros: cpu * 1e6 / fed })
    }
}

async fn reader(config: &Config, lease: Held) -> anyhow::Result<(Side, Supervisor)> {
    let workshop = ground::Workshop::new(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"))?;
    let registry = SharedRegistry::default();
    let runnable = workshop.runnable(config, "reader", &workshop.reader().await?, &registry)?;
    let database = Fed::new(store::open(&config.store, Bounds::default())?);
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
    let key = lease.key().clone();
    let supervisor = Supervisor::start(means, BTreeMap::from([(key.role.clone(), runnable)]), granted)?;
    grant.send(lease).await?;
    let running = || supervisor.reports().get(&key).is_some_and(|report| report.state == State::Running);
    ground::until("the reader runs", running).await?;
    let sessions = opener.opened().context("the reader has no connections")?;
    let nodes = (1..=COUNTERS).map(ground::node).collect();
    let items = sessions.connections.resolve("line", nodes)?.into_iter().collect::<Result<Vec<u32>, _>>()?;
    let feed = Arc::new(Feed::new(sessions.queue.clone(), items, COUNTERS));
    tally.feed(feed.clone());
    let side = Side { feed, tally };
    side.warm_up(&sessions.queue).await?;
    Ok((side, supervisor))
}

async fn native(config: &Config, url: &str, lease: Held, texts: &[String]) -> anyhow::Result<Side> {
    let database = Fed::new(store::open(&config.store, Bounds::default())?);
    let tally = database.tally();
    let queue = Arc::new(EventQueue::default());
    let items: Vec<u32> = (0..u32::try_from(COUNTERS)?).collect();
    queue.declare("line", &items, true);
    let feed = Arc::new(Feed::new(queue.clone(), items, COUNTERS));
    tally.feed(feed.clone());
    let database: Arc<dyn Database> = Arc::new(database);
    let native = Native::new(lease, database, queue.clone(), &machines(url).await?, texts)?;
    tokio::spawn(async move {
        if let Err(error) = native.run().await {
            eprintln!("the native loop ended: {error:#}");
        }
    });
    let side = Side { feed, tally };
    side.warm_up(&queue).await?;
    Ok(side)
}

/// As many machines again, for the native loop's rows in the same tables.
async fn machines(url: &str) -> anyhow::Result<Vec<i64>> {
    let mut connection = PgConnection::connect(url).await?;
    let insert = "INSERT INTO machines (code, line, connection) SELECT 'NATIVE' || n, 'native', 'line' \
                  FROM generate_series(1, $1) AS n RETURNING id::bigint";
    let count = i32::try_from(COUNTERS)?;
    Ok(sqlx::query_scalar(insert).bind(count).fetch_all(&mut connection).await?)
}

/// What was counted here is what the tables hold: for each side as many bookings as it says, and no unit more or less than its counters.
async fn check_books(url: &str, reader: &Side, native: &Side) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    let count = "SELECT count(*), sum(b.quantity)::bigint FROM bookings b JOIN machines m ON m.id = b.machine_id WHERE m.line = $1";
    for (line, side) in [("load", reader), ("native", native)] {
        let (rows, units): (i64, i64) = sqlx::query_as(count).bind(line).fetch_one(&mut connection).await?;
        let (said, fed) = (i64::try_from(side.tally.booked())?, i64::try_from(side.feed.pushed().0)?);
        if rows != said || units != fed - i64::try_from(COUNTERS)? {
            bail!("{line}: {rows} bookings of {units} units are there, {said} were committed, {fed} samples were fed");
        }
    }
    Ok(())
}
