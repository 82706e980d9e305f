//! The same takeovers against an OPC UA server that is not this project's own, over an encrypted connection, with a server that dies in
//! the middle and a node that comes back late: the books are what its counters really advanced.

#![expect(clippy::panic, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use harness::asyncua::Setup;
use harness::node::host;
use harness::plant::{Counts, books, head, machine, total, wait_until_booked, wait_until_read, wait_until_reading};
use harness::process::{host_binary, wait_until};
use harness::takeover::{report, rounds};
use harness::{Asyncua, End, Node, Plant, Postgres, Watch, take_over};
use serde_json::{Value, json};

const MACHINES: [&str; 3] = ["FILL01", "CAP01", "PACK01"];
/// The one whose node is not there yet when its server is back.
const LATE: &str = "CAP01";
const LATE_BY: Duration = Duration::from_secs(10);
/// Where the counters begin: what was made before anybody counted is booked by nobody.
const FIRST: u64 = 1_000;
const ENCRYPTED: &str = "security = \"basic256sha256\"\nuser = \"reader\"\npassword_env = \"LINE_PASSWORD\"\n";

#[test]
fn a_killed_holder_of_encrypted_sessions_is_succeeded_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    fail_over(End::Killed)
}

#[test]
fn a_stopped_holder_of_encrypted_sessions_hands_over_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    fail_over(End::Stopped)
}

#[test]
fn a_frozen_holder_of_encrypted_sessions_commits_nothing_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    fail_over(End::Frozen)
}

fn fail_over(end: End) -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let line = Line::start()?;
    let machines: String = MACHINES.into_iter().map(machine).collect();
    let text = head(&database.url(), &line.url, ENCRYPTED, Some(2)) + &machines;
    let plant = Plant::from_text(&text, 2)?;
    trust_the_server(&plant)?;

    let mut holder = plant.node("a")?;
    wait_until_reading(&holder, "a")?;
    let mut standby = plant.node("b")?;
    wait_until_read(&holder, MACHINES.len())?;
    let mut watch = Watch::over("reader", &[&holder, &standby]);
    line.run(true);

    let rounds = rounds(2);
    let mut takeovers = Vec::new();
    for round in 0..rounds {
        counts_go_on(&standby)?;
        if round == rounds / 2 {
            line.server().kill()?;
        }
        takeovers.push(take_over(&plant, end, &mut holder, &standby, &mut watch)?);
        if round == rounds / 2 {
            line.come_back()?;
        }
        std::mem::swap(&mut holder, &mut standby);
    }
    line.wait_until_complete()?;
    counts_go_on(&standby)?;
    line.run(false);
    wait_until_booked(&holder, &line.truth())?;
    report(&format!("{end:?}"), &takeovers, watch.end()?);
    Ok(())
}

fn counts_go_on(node: &Node) -> anyhow::Result<()> {
    let before = total(&books(node)?);
    wait_until("counts go on", Duration::from_secs(60), || Ok(total(&books(node)?) > before + 20))
        .with_context(|| format!("{:?}\n{}", books(node), node.log()))
}

/// As a person does it: the first try is refused and says which file to move where.
fn trust_the_server(plant: &Plant) -> anyhow::Result<()> {
    let node = format!("nsu={};s=FILL01.Good", harness::asyncua::NAMESPACE);
    let (own, kept) = (plant.path().join("pki/own"), kept_pair()?);
    if kept.join("host.pem").exists() {
        copy_pair(&kept, &own)?;
    }
    let refused = host(plant.path(), &["opc", "browse", "line"])?;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let quoted: Vec<&str> = refused.errors.split('"').collect();
    let [_, from, _, to, ..] = quoted.as_slice() else { panic!("no files are named: {refused:?}") };
    assert!(from.contains("rejected") && refused.errors.contains("is not trusted"), "{refused:?}");
    let [from, to] = [from, to].map(|path| plant.path().join(path));
    std::fs::create_dir_all(&to)?;
    std::fs::rename(&from, to.join(Path::new(&from).file_name().context("no file")?))?;
    copy_pair(&own, &kept)?;
    // An unoptimised host on a busy machine may not make it within its own deadlines at once.
    wait_until("the server is trusted", Duration::from_secs(60), || {
        let seen = host(plant.path(), &["opc", "browse", "line"])?;
        Ok(seen.code == Some(0) && seen.output.contains(&node) && seen.output.contains(&format!("= {FIRST}")))
    })?;
    Ok(())
}

/// Where the host's key pair is kept from one test to the next: an unoptimised host needs long to make one.
fn kept_pair() -> anyhow::Result<PathBuf> {
    Ok(host_binary()?.parent().context("the host binary is nowhere")?.join("test-key-pair"))
}

fn copy_pair(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    // The key last: a pair with a key is whole.
    for file in ["host.der", "host.pem"] {
        std::fs::copy(from.join(file), to.join(file))?;
    }
    Ok(())
}

/// A line of machines whose PLC keeps its counters while its OPC UA server is away, and goes on counting.
struct Line {
    shared: Arc<Shared>,
    url: String,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    server: Mutex<Asyncua>,
    counters: Mutex<BTreeMap<&'static str, u64>>,
    running: AtomicBool,
    ended: AtomicBool,
    /// The late node is there.
    complete: AtomicBool,
}

impl Line {
    fn start() -> anyhow::Result<Self> {
        let users = vec![("reader".to_owned(), "for tests".to_owned())];
        let mut server = Asyncua::start(Setup { users, no_anonymous: true, secure: true, ..Setup::default() })?;
        for code in MACHINES {
            server.add(&format!("s={code}.Good"), "UInt32", json!(FIRST))?;
        }
        let url = server.url();
        let shared = Arc::new(Shared {
            server: Mutex::new(server),
            counters: Mutex::new(MACHINES.map(|code| (code, FIRST)).into()),
            running: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            complete: AtomicBool::new(true),
        });
        let counting = shared.clone();
        let thread = Some(std::thread::spawn(move || counting.count()));
        Ok(Self { shared, url, thread })
    }

    fn run(&self, running: bool) {
        self.shared.running.store(running, Ordering::SeqCst);
        // Whatever was being counted is counted when the server can be had.
        drop(self.server());
    }

    fn server(&self) -> MutexGuard<'_, Asyncua> {
        lock(&self.shared.server)
    }

    /// The server is started again, and a moment later has its nodes; one of them much later.
    fn come_back(&self) -> anyhow::Result<()> {
        self.shared.complete.store(false, Ordering::SeqCst);
        let mut server = self.server();
        server.run()?;
        for code in MACHINES.into_iter().filter(|code| *code != LATE) {
            let value =
                lock(&self.shared.counters).get(code).copied().with_context(|| format!("no counter of {code}"))?;
            server.add(&format!("s={code}.Good"), "UInt32", json!(value))?;
        }
        let shared = self.shared.clone();
        std::thread::spawn(move || {
            std::thread::sleep(LATE_BY);
            let mut server = lock(&shared.server);
            let value = lock(&shared.counters).get(LATE).copied().expect("the late counter");
            server.add(&format!("s={LATE}.Good"), "UInt32", json!(value)).expect("the late node");
            shared.complete.store(true, Ordering::SeqCst);
        });
        Ok(())
    }

    fn wait_until_complete(&self) -> anyhow::Result<()> {
        let complete = || Ok(self.shared.complete.load(Ordering::SeqCst));
        wait_until("every node is there", Duration::from_secs(30), complete)
    }

    fn truth(&self) -> Counts {
        let counters = lock(&self.shared.counters);
        counters.iter().map(|(code, value)| (((*code).to_owned(), "good".to_owned()), value - FIRST)).collect()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // It has nothing to say that a test could still hear.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    /// Every machine makes a few units each 50 ms, whether or not anybody can read that.
    fn count(&self) {
        while !self.ended.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(50));
            let mut server = lock(&self.server);
            if !self.running.load(Ordering::SeqCst) {
                continue;
            }
            let mut counters = lock(&self.counters);
            counters.values_mut().zip([1, 3, 2]).for_each(|(value, made)| *value += made);
            let there = counters.iter().filter(|(code, _)| **code != LATE || self.complete.load(Ordering::SeqCst));
            let set = |(code, value)| json!({"node": format!("s={code}.Good"), "type": "UInt32", "value": value});
            let sets: Vec<Value> = there.map(set).collect();
            // A server that is away is told nothing; it learns the values when it is back.
            let _ = server.command(&json!({"do": "set-many", "sets": sets}));
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
