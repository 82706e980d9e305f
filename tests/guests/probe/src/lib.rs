//! A guest for tests: it behaves, or misbehaves, as its configuration says.
//!
//! The host can not tell a test's guest from a role that counts bottles, so whatever is proved with this one is proved for all of them. What
//! the probe sees of the host it shows in two ways that tests can read: its metrics, and the error that its `start` answers.

mod db;
mod misbehave;

#[expect(missing_docs, unsafe_code, reason = "made from the WIT packages")]
#[rustfmt::skip]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "plant:role/reader" });
    use super::Probe;
    export!(Probe);
}

use std::sync::{Mutex, PoisonError};

use serde::Deserialize;

use bindings::exports::plant::opc::connections::{Change, Guest as Connections};
use bindings::exports::plant::opc::samples::{Guest as Samples, Sample};
use bindings::exports::plant::role::lifecycle::Guest as Lifecycle;
use bindings::exports::plant::timer::timers::Guest as Timers;
use bindings::plant::config::config;
use bindings::plant::log::log::{Level, log};
use bindings::plant::metrics::metrics;
use bindings::plant::opc::opc;

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    /// Counts its ticks.
    Count,
    /// Computes for ever in `start`.
    LoopInStart,
    /// Computes for ever at its first tick.
    LoopInTimer,
    /// Waits for ever in the host, at its first tick.
    SleepInTimer,
    /// Allocates for ever at its first tick.
    EatMemory,
    /// Panics at its first tick.
    Panic,
    /// Answers an error from `start`.
    FailStart,
    /// Answers an error at each tick.
    FailTimer,
    /// Says in the error of `start` what it can reach of the box it runs on.
    LookAround,
    /// Writes a row at each tick.
    Write,
    /// Opens a transaction, writes a row and returns; tries to commit at the next tick.
    HoldTransaction,
    /// Opens a transaction, writes a row and computes for ever.
    LoopInTransaction,
    /// Opens a transaction, writes a row and waits for ever in the host.
    SleepInTransaction,
    /// Opens a second transaction beside the first, and says in the error of `start` what came of it.
    BeginTwice,
    /// Subscribes to `nodes` of `connection` and counts what comes.
    Subscribe,
}

/// Its configuration.
#[derive(Debug, Deserialize)]
struct Config {
    mode: Mode,
    /// How often `on-samples` and `on-connection` answer an error before they take what they are given.
    #[serde(default)]
    refuse: u32,
    #[serde(default)]
    connection: String,
    #[serde(default)]
    nodes: Vec<String>,
}

impl Config {
    fn read() -> Result<Self, String> {
        serde_json::from_str(&config::get()).map_err(|error| format!("the probe's configuration is not usable: {error}"))
    }
}

/// How often it has refused so far.
static REFUSED: Mutex<u32> = Mutex::new(0);

/// The guest.
struct Probe;

impl Lifecycle for Probe {
    fn start() -> Result<(), String> {
        let config = Config::read()?;
        count("starts", 1);
        match config.mode {
            Mode::LoopInStart => misbehave::compute_for_ever(),
            Mode::FailStart => Err("it was asked to fail".to_owned()),
            Mode::LookAround => Err(misbehave::look_around()),
            Mode::BeginTwice => Err(db::begin_twice()),
            Mode::Subscribe => subscribe(&config),
            _ => Ok(()),
        }
    }

    fn stop() {
        log(Level::Info, "the probe stops", &[("mode".to_owned(), config::get())]);
        count("stops", 1);
    }
}

impl Timers for Probe {
    fn on_timer(_name: String, _due: i64, missed: u32) -> Result<(), String> {
        count("ticks", 1);
        count("missed", missed.into());
        match Config::read()?.mode {
            Mode::LoopInTimer => misbehave::compute_for_ever(),
            Mode::SleepInTimer => misbehave::sleep_for_ever(),
            Mode::EatMemory => misbehave::eat_memory(),
            Mode::Panic => misbehave::panic(),
            Mode::FailTimer => Err("it was asked to fail".to_owned()),
            Mode::Write => db::write(),
            Mode::HoldTransaction => db::hold(),
            Mode::LoopInTransaction => db::open_and(misbehave::compute_for_ever),
            Mode::SleepInTransaction => db::open_and(misbehave::sleep_for_ever),
            _ => Ok(()),
        }
    }
}

impl Samples for Probe {
    fn on_samples(batch: Vec<Sample>) -> Result<(), String> {
        refuse()?;
        count("batches", 1);
        count("samples", batch.len() as u64);
        Ok(())
    }
}

impl Connections for Probe {
    fn on_connection(change: Change) -> Result<(), String> {
        refuse()?;
        metrics::set("connected", f64::from(u8::from(change.connected)), &[]);
        count("changes", 1);
        Ok(())
    }
}

fn subscribe(config: &Config) -> Result<(), String> {
    let resolved = opc::resolve(&config.connection, &config.nodes).map_err(|error| format!("{error:?}"))?;
    let items: Vec<u32> = resolved.into_iter().collect::<Result<_, _>>().map_err(|error| format!("{error:?}"))?;
    let how = opc::Monitoring { publish_ms: 0, sampling_ms: 0, queue: 10, coalesce: false };
    opc::subscribe(&items, how).map_err(|error| format!("{error:?}"))
}

fn refuse() -> Result<(), String> {
    let mut refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    if *refused < Config::read()?.refuse {
        *refused += 1;
        count("refusals", 1);
        return Err("it was asked to refuse".to_owned());
    }
    Ok(())
}

fn count(name: &str, by: u64) {
    metrics::add(name, by, &[]);
}
