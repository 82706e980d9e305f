//! What goes into a counter's rules and what comes out of them.

use serde::{Deserialize, Serialize};

/// Whose time a reading carries; the number is what the tables hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clock {
    /// The data source's.
    Source = 0,
    /// The OPC UA server's.
    Server = 1,
    /// The database's, at arrival: nobody else sent one.
    Arrival = 2,
}

impl Clock {
    /// From the tables' number.
    #[must_use]
    pub fn from_number(number: i64) -> Self {
        match number {
            0 => Self::Source,
            1 => Self::Server,
            _ => Self::Arrival,
        }
    }
}

/// How a server sends a counter; the number is what the tables hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// A signed whole number.
    Signed = 0,
    /// An unsigned whole number.
    Unsigned = 1,
    /// A floating-point number that is whole.
    Floating = 2,
}

impl ValueType {
    /// From the tables' number.
    #[must_use]
    pub fn from_number(number: i64) -> Self {
        match number {
            0 => Self::Signed,
            1 => Self::Unsigned,
            _ => Self::Floating,
        }
    }
}

/// A reading that is a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The counter's value.
    pub value: u64,
    /// How it was sent.
    pub value_type: ValueType,
    /// Its time, nanoseconds since the Unix epoch.
    pub at: i64,
    /// Whose time that is.
    pub clock: Clock,
}

/// What is strange about a counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    /// The baseline's number when it was seen.
    pub sequence: i64,
    /// `reset`, `jump`, `spike`, `late-return`, `type-changed`, `not-a-count`, `rebaseline`, `stale`.
    pub kind: &'static str,
    /// The baseline then, where there was one.
    pub baseline: Option<u64>,
    /// The reading, where it was a count.
    pub reading: Option<u64>,
    /// What accepting it books.
    pub quantity: Option<u64>,
    /// Units that may have been made beside that, and that nobody can book from it.
    pub may_hide: u64,
    /// A sentence for people.
    pub detail: String,
    /// Whether a person must decide.
    pub needs_decision: bool,
}

/// Takes what counting brings forth.
pub trait Ledger {
    /// A counted difference, by the number that it started from.
    fn book(&mut self, sequence: i64, quantity: u64, at: i64, clock: Clock);
    /// Something for a person to see.
    fn report(&mut self, anomaly: Anomaly);
    /// The undecided jump with this number was a spike after all.
    fn withdraw(&mut self, sequence: i64);
}

impl ValueType {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Signed => "signed whole numbers",
            Self::Unsigned => "unsigned whole numbers",
            Self::Floating => "floating-point numbers",
        }
    }
}
