//! A machine's state: which of four it is in, from when to when.
//!
//! Unknown is the absence of a row: no state covers a time in which the machine could not be heard, sent a bad value, or a number that
//! nobody has explained. Rows of one machine never overlap.

use std::collections::BTreeMap;

use crate::counter::Clock;
use crate::plan::StateMap;
use crate::tables::{StateRow, Tables};

/// How a machine's numbers are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reader {
    /// PackML's 17.
    PackMl,
    /// The machine's own.
    Own(BTreeMap<i64, &'static str>),
}

impl Reader {
    /// From the plant's description.
    ///
    /// # Errors
    /// One sentence, where a number or a state is none.
    pub fn new(map: &StateMap) -> Result<Self, String> {
        match map {
            StateMap::Named(name) if name == "packml" => Ok(Self::PackMl),
            StateMap::Named(name) => Err(format!("the state map {name:?} is not known; give \"packml\" or numbers")),
            StateMap::Numbers(numbers) => numbers.iter().map(own).collect::<Result<_, _>>().map(Self::Own),
        }
    }

    /// The state that a number stands for; `None` is unknown.
    #[must_use]
    pub fn read(&self, number: i64) -> Option<&'static str> {
        match self {
            Self::PackMl => packml(number),
            Self::Own(numbers) => numbers.get(&number).copied(),
        }
    }
}

fn own((number, state): (&String, &String)) -> Result<(i64, &'static str), String> {
    let number = number.parse().map_err(|_| format!("the state map has {number:?}, which is not a whole number"))?;
    let state = name(state).ok_or_else(|| format!("the state map has {state:?}; give running, idle, down or setup"))?;
    Ok((number, state))
}

/// One of the four names.
#[must_use]
pub fn name(state: &str) -> Option<&'static str> {
    ["running", "idle", "down", "setup"].into_iter().find(|name| *name == state)
}

/// ISA-TR88.00.02: what the 17 states are to an availability. Held is the machine's own stop, Suspended one of its neighbours'.
#[must_use]
pub fn packml(number: i64) -> Option<&'static str> {
    match number {
        // Execute, Completing
        6 | 16 => Some("running"),
        // Idle, Suspended, Suspending, Unsuspending, Complete
        4 | 5 | 13 | 14 | 17 => Some("idle"),
        // Starting, Resetting
        3 | 15 => Some("setup"),
        // Clearing, Stopped, Stopping, Aborting, Aborted, Holding, Held, Unholding
        1 | 2 | 7..=12 => Some("down"),
        _ => None,
    }
}

/// What is known of a machine's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watch {
    /// The present state, where it is known.
    pub open: Option<StateRow>,
    /// Nothing may start before this time.
    pub not_before: i64,
}

/// The times that a sample carries.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// The data source's.
    pub source: Option<i64>,
    /// The OPC UA server's.
    pub server: Option<i64>,
    /// The database's, at arrival.
    pub now: i64,
}

/// A time so far beyond the database's is believed, in nanoseconds: clocks that are kept in step differ by less.
const AHEAD: i64 = 2_000_000_000;

impl Times {
    /// Whether the source dates its value into the future, by more than clocks differ: such a time would hold back all that follow.
    #[must_use]
    pub fn source_is_ahead(&self) -> bool {
        self.source.is_some_and(|at| is_ahead(at, self.now))
    }
}

/// Whether a time lies further beyond the database's now than clocks differ.
#[must_use]
pub fn is_ahead(at: i64, now: i64) -> bool {
    at.saturating_sub(now) > AHEAD
}

impl Watch {
    /// The machine is in a state, or in none that is known.
    pub fn enter(&mut self, machine: i64, to: Option<(&'static str, i64)>, times: Times, tables: &mut Tables) {
        let same = match (self.open, to) {
            (Some(open), Some((state, code))) => open.state == state && open.code == code,
            (None, None) => true,
            _ => false,
        };
        if same {
            return;
        }
        // A state that starts when another did would be no time at all.
        let earliest = self.open.map_or(self.not_before, |open| open.started_at + 1_000);
        let (at, by) = first_from(earliest, times);
        if let Some(open) = self.open.take() {
            tables.state(machine, &open, Some(at));
        }
        self.not_before = at;
        if let Some((state, code)) = to {
            let row = StateRow { state, code, started_at: at, started_by: by };
            tables.state(machine, &row, None);
            self.open = Some(row);
        }
    }

    /// The machine cannot be heard; `since` is the last evidence that it could.
    pub fn lose(&mut self, machine: i64, since: i64, tables: &mut Tables) {
        let times = Times { source: None, server: None, now: since };
        self.enter(machine, None, times, tables);
        self.not_before = self.not_before.max(whole_micros(since));
    }

    /// The machine can be heard again: what it says holds from now, not from before.
    pub fn find(&mut self, since: i64) {
        self.not_before = self.not_before.max(whole_micros(since));
    }
}

fn first_from(earliest: i64, times: Times) -> (i64, Clock) {
    let candidates = [(times.source, Clock::Source), (times.server, Clock::Server), (Some(times.now), Clock::Arrival)];
    let usable = |at: i64| at >= earliest && !is_ahead(at, times.now);
    let found = candidates.into_iter().find_map(|(at, by)| Some((whole_micros(at?), by)).filter(|(at, _)| usable(*at)));
    found.unwrap_or((earliest, Clock::Arrival))
}

/// Both databases keep microseconds, and a row is found again by its start.
#[must_use]
pub fn whole_micros(nanos: i64) -> i64 {
    nanos - nanos.rem_euclid(1_000)
}
