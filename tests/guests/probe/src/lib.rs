//! A guest for tests: it behaves, or misbehaves, as its configuration says.
//!
//! The host can not tell a test's guest from a role that counts bottles, so whatever is proved with this one is proved for all of them. What
//! the probe sees of the host it shows in two ways that tests can read: its metrics, and the error that its `start` answers.

mod db;
mod misbehave;

use plant_role::opc::{self, Sample};
use plant_role::types::Instant;
use plant_role::{Change, Connections, Role, Samples, Timers, config, info, metrics};
use serde::Deserialize;

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
    /// The most samples that it takes at once; all, when it is left out.
    most: Option<usize>,
    #[serde(default)]
    connection: String,
    #[serde(default)]
    nodes: Vec<String>,
}

/// The guest.
struct Probe {
    config: Config,
    refused: u32,
    db: db::Held,
}

plant_role::export_role!(Probe: timers, samples, connections);

impl Role for Probe {
    fn start() -> Result<Self, String> {
        let config: Config = config::get()?;
        count("starts", 1);
        match config.mode {
            Mode::LoopInStart => misbehave::compute_for_ever()?,
            Mode::FailStart => return Err("it was asked to fail".to_owned()),
            Mode::LookAround => return Err(misbehave::look_around()),
            Mode::BeginTwice => return Err(db::begin_twice()),
            Mode::Subscribe => subscribe(&config)?,
            _ => {}
        }
        Ok(Self { config, refused: 0, db: db::Held::default() })
    }

    fn stop(&mut self) {
        info!("the probe stops"; "refused" => self.refused);
        count("stops", 1);
    }
}

impl Timers for Probe {
    fn on_timer(&mut self, _name: &str, _due: Instant, missed: u32) -> Result<(), String> {
        count("ticks", 1);
        count("missed", missed.into());
        match self.config.mode {
            Mode::LoopInTimer => misbehave::compute_for_ever(),
            Mode::SleepInTimer => misbehave::sleep_for_ever(),
            Mode::EatMemory => misbehave::eat_memory(),
            Mode::Panic => misbehave::panic(),
            Mode::FailTimer => Err("it was asked to fail".to_owned()),
            Mode::Write => db::write(),
            Mode::HoldTransaction => self.db.hold(),
            Mode::LoopInTransaction => db::open_and(misbehave::compute_for_ever),
            Mode::SleepInTransaction => db::open_and(misbehave::sleep_for_ever),
            _ => Ok(()),
        }
    }
}

impl Samples for Probe {
    fn on_samples(&mut self, batch: &[Sample]) -> Result<(), String> {
        self.refuse()?;
        if self.config.most.is_some_and(|most| batch.len() > most) {
            count("refusals", 1);
            return Err(format!("{} samples are too many", batch.len()));
        }
        count("batches", 1);
        count("samples", batch.len() as u64);
        Ok(())
    }
}

impl Connections for Probe {
    fn on_connection(&mut self, change: &Change) -> Result<(), String> {
        self.refuse()?;
        metrics::set("connected", f64::from(u8::from(change.connected)), &[]);
        count("changes", 1);
        Ok(())
    }
}

impl Probe {
    fn refuse(&mut self) -> Result<(), String> {
        if self.refused < self.config.refuse {
            self.refused += 1;
            count("refusals", 1);
            return Err("it was asked to refuse".to_owned());
        }
        Ok(())
    }
}

fn subscribe(config: &Config) -> Result<(), String> {
    let resolved = opc::resolve(&config.connection, &config.nodes).map_err(|error| format!("{error:?}"))?;
    let items: Vec<u32> = resolved.into_iter().collect::<Result<_, _>>().map_err(|error| format!("{error:?}"))?;
    let how = opc::Monitoring { publish_ms: 0, sampling_ms: 0, queue: 10, coalesce: false };
    opc::subscribe(&items, how).map_err(|error| format!("{error:?}"))
}

fn count(name: &str, by: u64) {
    metrics::add(name, by, &[]);
}
