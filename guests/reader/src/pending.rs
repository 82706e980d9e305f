//! Situations of a counter that a single reading cannot decide.
//!
//! They are kept in the baseline's row, as JSON, and change only with it: whoever takes the role over in the middle goes on from
//! exactly here.

use serde::{Deserialize, Serialize};

use crate::counter::Clock;

/// What is open about a counter; mostly nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pending {
    /// A fall to zero that may be a PLC's restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glitch: Option<Glitch>,
    /// A jump that nothing has confirmed yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jump: Option<Jump>,
    /// A jump that the counter went on from; a person decides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// The newest reset: its old value may still come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fell: Option<Fell>,
    /// A lower value with an old time: a repeat, or a PLC whose clock was set back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<Stale>,
    /// The last value was no count: the next one that is becomes the baseline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rebase: bool,
}

impl Pending {
    /// Whether nothing is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The row's text; `None` where nothing is open.
    #[must_use]
    pub fn to_text(&self) -> Option<String> {
        if self.is_empty() { None } else { serde_json::to_string(self).ok() }
    }
}

/// A fall to zero, held. Times are the database's, nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Glitch {
    /// When it was seen.
    pub since: i64,
    /// The newest value since.
    pub last: u64,
    /// Units counted from zero since.
    pub grown: u64,
    /// Growing readings in a row.
    pub growths: u8,
    /// The largest step of that growth.
    #[serde(default)]
    pub step: u64,
    /// Units by which it rose too far at once to be counted without a person.
    #[serde(default)]
    pub doubt: u64,
    /// Where it stood when it fell once more, and how much of that it has shown again: counted again, or come back.
    #[serde(default)]
    pub fell_from: u64,
    /// See `fell_from`.
    #[serde(default)]
    pub again: u64,
    /// When the newest reading was seen.
    #[serde(default)]
    pub seen_at: i64,
    /// Time of the newest reading.
    pub at: i64,
    /// Whose time that is.
    pub clock: Clock,
}

/// A jump, held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jump {
    /// Where it went.
    pub to: u64,
    /// Time of that reading.
    pub at: i64,
    /// Whose time that is.
    pub clock: Clock,
    /// When that reading was seen, by the database's clock.
    #[serde(alias = "before")]
    pub seen_at: i64,
    /// Since when there is a jump, by the database's clock; it may have gone further meanwhile.
    #[serde(default)]
    pub since: i64,
}

/// A jump that waits for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The anomaly's number.
    pub sequence: i64,
    /// The jump's size.
    pub size: u64,
}

/// A reset that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fell {
    /// The value before it.
    pub from: u64,
    /// Growing readings since, up to three: then the counter has plainly gone its own way.
    pub growths: u8,
    /// The largest step of that growth.
    #[serde(default)]
    pub step: u64,
}

/// A lower value with an old time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stale {
    /// The value.
    pub value: u64,
    /// Its time, by the baseline's clock.
    pub at: i64,
    /// When it was seen, by the database's clock.
    pub seen: i64,
    /// People were told that it has stayed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub told: bool,
}
