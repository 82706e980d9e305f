//! Whether a machine can be heard, as a history of its own beside its state.
//!
//! A change takes effect at the last evidence for what was before, not when it was noticed: what lies between is not known.

use crate::tables::Tables;

/// A time in which a machine could, or could not, be heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Which of the two.
    pub connected: bool,
    /// Why, for people.
    pub reason: String,
    /// The last evidence for what was before: whole microseconds, in nanoseconds since the Unix epoch.
    pub started_at: i64,
    /// When it was noticed.
    pub detected_at: i64,
}

/// A gap in which nobody watched is longer than this, in nanoseconds; a takeover is shorter.
pub const UNWATCHED: i64 = 30_000_000_000;

/// A change's place after the row that is open.
#[must_use]
pub fn follow(open: Option<&Link>, change: Link) -> Option<Link> {
    let Some(open) = open else { return Some(change) };
    if open.connected == change.connected {
        return None;
    }
    // Two rows of one machine do not start at one time.
    let started_at = change.started_at.max(open.started_at + 1_000);
    Some(Link { started_at, ..change })
}

/// Writes the end of the open row and the new one.
pub fn write(machine: i64, open: Option<&Link>, next: &Link, now: i64, tables: &mut Tables) {
    if let Some(open) = open {
        tables.connection(machine, open, now, Some(next.started_at));
    }
    tables.connection(machine, next, now, None);
}
