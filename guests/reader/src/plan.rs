//! What `config.plant()` says of the machines: which nodes to read, and by which rules.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The part of the plant's description that this role reads.
#[derive(Debug, Clone, Deserialize)]
pub struct Plan {
    /// The machines of this partition.
    #[serde(default)]
    pub machines: Vec<Machine>,
}

/// One machine.
#[derive(Debug, Clone, Deserialize)]
pub struct Machine {
    /// Unique in the plant.
    pub code: String,
    /// The line it stands in.
    pub line: String,
    /// The OPC UA connection it is read through.
    pub connection: String,
    /// Its state's node.
    pub state: Option<State>,
    /// Its counter of good pieces.
    pub good: Option<Counter>,
    /// Its counter of scrap.
    pub scrap: Option<Counter>,
}

/// Where and how a state is read.
#[derive(Debug, Clone, Deserialize)]
pub struct State {
    /// The node.
    pub node: String,
    /// How its numbers are read.
    pub map: StateMap,
}

/// How a state's numbers are read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum StateMap {
    /// `packml`.
    Named(String),
    /// From number to `running | idle | down | setup`.
    Numbers(BTreeMap<String, String>),
}

/// Where and how a counter is read.
#[derive(Debug, Clone, Deserialize)]
pub struct Counter {
    /// The node.
    pub node: String,
    /// What a fall means.
    #[serde(default)]
    pub on_fall: OnFall,
    /// The value after the highest.
    pub rollover: Option<u64>,
    /// The most that one rollover or reset may book.
    pub max_delta: Option<u64>,
    /// What the first reading after a reset means.
    #[serde(default)]
    pub on_reset: OnReset,
    /// How long a fall to zero may last and still be a restart, in milliseconds.
    #[serde(default = "a_minute")]
    pub restart_glitch_ms: u64,
    /// Units a second above which a jump waits.
    pub max_rate: Option<f64>,
    /// What Uncertain quality is worth.
    #[serde(default)]
    pub uncertain: Uncertain,
}

fn a_minute() -> u64 {
    60_000
}

/// What a fall means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFall {
    /// The counter was reset.
    #[default]
    Reset,
    /// The counter wrapped around.
    Rollover,
}

/// What the first reading after a reset means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnReset {
    /// A new baseline.
    #[default]
    Rebaseline,
    /// So many units since zero.
    FromZero,
}

/// What a reading of Uncertain quality is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uncertain {
    /// As much as a Bad one.
    #[default]
    Ignore,
    /// As much as a Good one.
    Book,
}

/// A counter's rules, ready to judge by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// What a fall means.
    pub on_fall: OnFall,
    /// The value after the highest.
    pub rollover: Option<u64>,
    /// The most that one rollover or reset may book.
    pub max_delta: Option<u64>,
    /// What the first reading after a reset means.
    pub on_reset: OnReset,
    /// How long a fall to zero may last and still be a restart, in nanoseconds.
    pub restart_glitch_ns: i64,
    /// Units a second above which a jump waits.
    pub max_rate: Option<f64>,
    /// What Uncertain quality is worth.
    pub uncertain: Uncertain,
}

impl Rules {
    /// Whether a machine can have made so many units in so many nanoseconds.
    #[must_use]
    pub fn is_plausible(&self, units: u64, elapsed_ns: i64) -> bool {
        self.max_rate.is_none_or(|rate| units as f64 <= (rate * elapsed_ns as f64 / 1e9).ceil())
    }
}

impl From<&Counter> for Rules {
    fn from(c: &Counter) -> Self {
        Self {
            on_fall: c.on_fall,
            rollover: c.rollover,
            max_delta: c.max_delta,
            on_reset: c.on_reset,
            restart_glitch_ns: i64::try_from(c.restart_glitch_ms.saturating_mul(1_000_000)).unwrap_or(i64::MAX),
            max_rate: c.max_rate,
            uncertain: c.uncertain,
        }
    }
}
