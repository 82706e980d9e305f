//! Changes booked each second from an OPC UA server into PostgreSQL: a whole node against a small Python reader of the same nodes.
//!
//! One after the other in one run: the same server with the same load, the same PostgreSQL with fsync, each with an own table.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use harness::process::{bound_to_this_thread, python, root};
use harness::{Plant, Postgres, Simulator};
use plant_benches::figures::{self, Bar};
use plant_benches::{conditions, ground, process};
use sqlx::{Connection, PgConnection};

const COUNTERS: usize = 5_000;
const STEADY: Duration = Duration::from_secs(20);
/// What changes faster than this cannot all be sampled every 50 ms.
const RATE: u32 = 13;

/// What a reader came to.
struct Figures {
    rate: f64,
    cpu_micros: f64,
    memory: f64,
    anonymous: f64,
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    conditions::print("end to end: `host run`, then the Python reader");
    let server = Postgres::start_with(&conditions::POSTGRES)?;
    runtime.block_on(conditions::print_postgres(&server.url()))?;
    println!(
        "   {COUNTERS} counters of `host simulate`, each changing {RATE} times a second, {STEADY:?} for each reader"
    );
    let line = Simulator::start(&["--counters", &COUNTERS.to_string(), "--rate", &RATE.to_string()])?;

    let ours = {
        let text = ground::plant(&server.url(), &line.url(), COUNTERS, "[roles.reader]");
        let plant = Plant::from_text(&text, 0)?;
        let node = plant.node("a")?;
        let pid = u32::try_from(node.pid()?.as_raw_nonzero().get())?;
        runtime.block_on(measure(&server.url(), "bookings", pid)).with_context(|| node.log())?
    };
    print("host run", &ours);
    let theirs = {
        let mut peer = Peer::start(&line.url(), &server.url())?;
        let pid = peer.0.id();
        let measured = runtime.block_on(measure(&server.url(), "peer_bookings", pid));
        if let Some(status) = peer.0.try_wait()? {
            bail!("the Python reader ended by itself: {status}");
        }
        measured?
    };
    print("python", &theirs);
    println!("load after: {}", conditions::load());
    figures::report("host run : python", ours.rate / theirs.rate, "times", Bar::AtLeast(2.5));
    figures::report("host run, CPU of the process a change", ours.cpu_micros, "µs", Bar::Below(6.0));
    Ok(())
}

fn print(who: &str, figures: &Figures) {
    println!(
        "{who}: {:.0} booked changes/s, {:.2} µs CPU a change, {:.0} MB resident ({:.0} MB of it anonymous)",
        figures.rate, figures.cpu_micros, figures.memory, figures.anonymous
    );
}

/// Waits until a reader books all the counters, lets it run in, and measures.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2⁵³")]
async fn measure(url: &str, table: &str, pid: u32) -> anyhow::Result<Figures> {
    let mut connection = PgConnection::connect(url).await?;
    let began = Instant::now();
    while count(&mut connection, table).await.unwrap_or(0) < 10 * COUNTERS as u64 {
        if began.elapsed() > Duration::from_secs(120) {
            bail!("the reader that writes {table} did not begin to book");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (rows, cpu, began) = (count(&mut connection, table).await?, process::cpu_seconds(pid)?, Instant::now());
    tokio::time::sleep(STEADY).await;
    let (took, cpu) = (began.elapsed().as_secs_f64(), process::cpu_seconds(pid)? - cpu);
    let (memory, anonymous) = process::resident_megabytes(pid)?;
    let rows = (count(&mut connection, table).await? - rows) as f64;
    Ok(Figures { rate: rows / took, cpu_micros: cpu * 1e6 / rows, memory, anonymous })
}

async fn count(connection: &mut PgConnection, table: &str) -> anyhow::Result<u64> {
    // Reading a million rows would cost what is measured: the server counts them by itself.
    let count = "SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = $1";
    let count: Option<i64> = sqlx::query_scalar(count).bind(table).fetch_optional(&mut *connection).await?;
    Ok(u64::try_from(count.unwrap_or(0))?)
}

/// The Python reader; killed when dropped.
struct Peer(Child);

impl Peer {
    fn start(endpoint: &str, database: &str) -> anyhow::Result<Self> {
        let mut command = bound_to_this_thread("KILL", python()?);
        command.arg(root().join("benches/peers/python_reader.py")).args([endpoint, database, &COUNTERS.to_string()]);
        Ok(Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("cannot start the Python reader")?))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
