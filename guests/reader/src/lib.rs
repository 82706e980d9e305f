//! The role `reader`: counts production and watches machine states.
//!
//! A counter is absolute, production is its difference to the baseline, and the baseline moves in the booking's own transaction. The rules
//! are in `counter`; what a batch makes of them in `floor`; the rows in `tables`. Here is only the way in and out: memory changes
//! when a commit has succeeded, and an error hands the batch back to the host.

pub mod connection;
pub mod counter;
pub mod floor;
pub mod pace;
pub mod pending;
pub mod plan;
pub mod reading;
pub mod sample;
mod start;
pub mod state;
pub mod tables;

use plant_role::db::{self, Error, Options, Transaction};
use plant_role::opc::Sample;
use plant_role::types::Instant;
use plant_role::{Change, Connections, Role, Samples, Timers, config, metrics};
use serde::Deserialize;

use crate::connection::Link;
use crate::floor::{Decision, Floor, Heard};

/// What people have decided and nobody has applied.
const DECISIONS: &str = "SELECT id, machine_id, counter, sequence, quantity, decision FROM counter_anomalies \
     WHERE decision IS NOT NULL AND applied_at IS NULL ORDER BY id LIMIT 100";

/// The role's own configuration.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default)]
struct Settings {
    /// The server's queue for each item.
    queue: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { queue: 10 }
    }
}

/// One instance.
#[derive(Debug)]
struct Reader {
    floor: Floor,
    now: Instant,
}

impl Role for Reader {
    fn start() -> Result<Self, String> {
        let settings: Settings = config::get()?;
        let plan: plan::Plan = config::plant()?;
        let mut floor = start::floor(&plan).map_err(String::from)?;
        for line in start::subscribe(&mut floor, &plan, settings.queue)? {
            plant_role::error!("not read: {line}");
        }
        plant_role::info!("counting {} counters of {} machines", floor.counters.len(), floor.machines.len());
        Ok(Self { floor, now: 0 })
    }
}

impl Samples for Reader {
    fn on_samples(&mut self, batch: &[Sample]) -> Result<(), String> {
        let tx = match Transaction::begin(Options::empty()) {
            Ok(tx) => tx,
            Err(e) => {
                // What the machines have counted is known all the same, and owed.
                self.floor.take(batch, self.now);
                return Err(self.fail(&e));
            }
        };
        self.now = tx.now();
        let heard = self.floor.take(batch, self.now);
        self.commit(tx, true)?;
        tell(&heard);
        Ok(())
    }
}

impl Connections for Reader {
    fn on_connection(&mut self, change: &Change) -> Result<(), String> {
        let tx = Transaction::begin(Options::empty()).map_err(|e| self.fail(&e))?;
        self.now = tx.now();
        let link = Link {
            connected: change.connected,
            reason: change.reason.clone(),
            started_at: change.since,
            detected_at: change.detected,
        };
        self.floor.change(&change.connection, &link, self.now);
        self.commit(tx, false)
    }
}

impl Timers for Reader {
    fn on_timer(&mut self, name: &str, _due: Instant, _missed: u32) -> Result<(), String> {
        if name != "tick" {
            return Err(format!("there is no timer {name:?}; the manifest declares \"tick\""));
        }
        let tx = Transaction::begin(Options::empty()).map_err(|e| self.fail(&e))?;
        self.now = tx.now();
        let decisions = decisions(&tx).map_err(|e| self.fail(&e))?;
        self.floor.tick(self.now, &decisions);
        self.commit(tx, false)?;
        self.report_owed();
        Ok(())
    }
}

impl Reader {
    /// Writes what is in the tables; memory follows only when the database has it.
    fn commit(&mut self, tx: Transaction, from_samples: bool) -> Result<(), String> {
        if self.floor.tables.is_empty() {
            drop(tx);
        } else {
            let affected = match self.floor.tables.send(|statements| tx.execute(statements)) {
                Ok(affected) => affected,
                Err(e) => {
                    drop(tx);
                    return Err(self.fail_and_read_again(&e));
                }
            };
            if !self.floor.tables.all_written(&affected) {
                drop(tx);
                self.floor.revert();
                self.read_again()?;
                return Err(
                    "a baseline had moved meanwhile; nothing was booked, and the baselines were read again".to_owned()
                );
            }
            Transaction::commit(tx).map_err(|e| self.fail(&e))?;
        }
        self.floor.accept(self.now, from_samples);
        Ok(())
    }

    fn fail(&mut self, error: &Error) -> String {
        self.floor.revert();
        self.report_owed();
        db::explain(error)
    }

    /// A booking that is there already says that the baselines are not what they were taken for.
    fn fail_and_read_again(&mut self, error: &Error) -> String {
        let said = self.fail(error);
        match error {
            Error::Database(e) if e.code.starts_with("23") => self.read_again().err().unwrap_or(said),
            _ => said,
        }
    }

    fn read_again(&mut self) -> Result<(), String> {
        let floor = &mut self.floor;
        db::reading(|tx| start::read_baselines(floor, tx)).map_err(String::from)
    }

    fn report_owed(&self) {
        let owed: u64 = self.floor.counters.iter().map(floor::Counter::owed).fold(0, u64::saturating_add);
        metrics::set("owed", owed as f64, &[]);
    }
}

fn decisions(tx: &Transaction) -> Result<Vec<Decision>, Error> {
    let rows = tx.query(DECISIONS, &[])?.rows;
    let read = |row: &Vec<db::Value>| {
        let quantity = start::whole(row, 4).and_then(|q| u64::try_from(q).ok());
        Some(Decision {
            id: start::int(row, 0)?,
            machine: start::int(row, 1)?,
            counter: start::int(row, 2)?,
            sequence: start::int(row, 3)?,
            accepted: quantity.filter(|_| start::text(row, 5).as_deref() == Some("accept")),
        })
    };
    Ok(rows.iter().filter_map(read).collect())
}

fn tell(heard: &Heard) {
    for line in &heard.lines {
        plant_role::warn!("{line}");
    }
    if heard.bad > 0 {
        metrics::add("unusable_samples", heard.bad, &[]);
    }
    if heard.overflows > 0 {
        metrics::add("overflows", heard.overflows, &[]);
    }
    if heard.future > 0 {
        metrics::add("future_times", heard.future, &[]);
    }
}

plant_role::export_role!(Reader: timers, samples, connections);
