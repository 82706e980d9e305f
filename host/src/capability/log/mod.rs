//! `plant:log`: a guest's lines in the node's log, bounded so that a guest can not drown the others'.
//!
//! Role, partition, node and epoch are the host's word, never the guest's. A line that is too long is cut and counted, lines above the
//! rate are dropped and counted, and control characters are written out, so that no guest can forge a line of somebody else.

mod host;
pub mod stdio;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::BootInstant;
use crate::lease::Held;

/// What people are told of this capability.
pub const ABOUT: super::kind::About =
    super::kind::About { package: "plant:log", kind: super::kind::Kind::Harmless, what: "writes to the node's log" };

/// The longest message, in bytes.
const MESSAGE_BYTES: usize = 4096;
/// The longest name or value of a field, in bytes.
const FIELD_BYTES: usize = 512;
/// The most fields of a line.
const FIELDS: usize = 16;
/// How many lines an instance may write a second, and at once.
const LINES_PER_SECOND: u32 = 100;
const BURST: u32 = 500;

/// How loud a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Every step.
    Trace,
    /// For whoever looks for a fault.
    Debug,
    /// What happens.
    Info,
    /// What should be looked at.
    Warn,
    /// What went wrong.
    Error,
}

/// One instance's way into the node's log.
#[derive(Debug)]
pub struct Log {
    role: String,
    partition: String,
    node: String,
    epoch: u64,
    allowance: Mutex<Allowance>,
}

/// A token bucket, and what did not fit.
#[derive(Debug)]
struct Allowance {
    lines: f64,
    filled: BootInstant,
    dropped: u64,
    cut: u64,
}

impl Allowance {
    fn new(now: BootInstant) -> Self {
        Self { lines: f64::from(BURST), filled: now, dropped: 0, cut: 0 }
    }

    /// Whether a line may be written now; `Some` is how many were dropped and cut since the last one that might.
    fn take(&mut self, now: BootInstant) -> Option<(u64, u64)> {
        let since: Duration = now.since(self.filled);
        self.filled = now;
        self.lines = (self.lines + since.as_secs_f64() * f64::from(LINES_PER_SECOND)).min(f64::from(BURST));
        if self.lines < 1.0 {
            self.dropped += 1;
            return None;
        }
        self.lines -= 1.0;
        Some((std::mem::take(&mut self.dropped), std::mem::take(&mut self.cut)))
    }
}

impl Log {
    /// The log of the instance that exists under this lease.
    #[must_use]
    pub fn new(held: &Held) -> Self {
        let key = held.key();
        Self {
            role: key.role.to_string(),
            partition: key.partition.clone(),
            node: held.holder().node.to_string(),
            epoch: held.epoch().number,
            allowance: Mutex::new(Allowance::new(BootInstant::now())),
        }
    }

    /// Writes one line, if the rate allows it.
    pub fn line(&self, level: Level, message: &str, fields: &[(String, String)]) {
        let (message, was_cut) = printable(message, MESSAGE_BYTES);
        let Some((dropped, cut)) = self.account(was_cut) else { return };
        if dropped > 0 || cut > 0 {
            let text = format!("the role's own log was bounded: {dropped} lines dropped, {cut} cut");
            self.write(Level::Warn, &text, "");
        }
        self.write(level, &message, &joined(fields));
    }

    fn account(&self, was_cut: bool) -> Option<(u64, u64)> {
        let mut allowance = self.allowance.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = allowance.take(BootInstant::now());
        allowance.cut += u64::from(was_cut);
        taken
    }

    fn write(&self, level: Level, message: &str, fields: &str) {
        let Self { role, partition, node, epoch, .. } = self;
        // A line without fields has none, instead of an empty one.
        let fields = (!fields.is_empty()).then_some(fields);
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(target: "guest", role, partition, node, epoch, fields, "{message}")
            };
        }
        match level {
            Level::Trace => line!(trace),
            Level::Debug => line!(debug),
            Level::Info => line!(info),
            Level::Warn => line!(warn),
            Level::Error => line!(error),
        }
    }
}

/// The guest's fields as `name=value`, one after the other.
fn joined(fields: &[(String, String)]) -> String {
    let mut text = String::new();
    for (name, value) in fields.iter().take(FIELDS) {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&printable(name, FIELD_BYTES).0);
        text.push('=');
        text.push_str(&printable(value, FIELD_BYTES).0);
    }
    if fields.len() > FIELDS {
        text.push_str(" …");
    }
    text
}

/// The text without control characters and not longer than `bytes` before they were written out; whether it was cut.
fn printable(text: &str, bytes: usize) -> (String, bool) {
    let end = text.floor_char_boundary(bytes);
    let (kept, rest) = text.split_at(end);
    let mut printed = String::with_capacity(kept.len());
    for c in kept.chars() {
        if c.is_control() && c != '\t' { printed.extend(c.escape_default()) } else { printed.push(c) }
    }
    if !rest.is_empty() {
        printed.push('…');
    }
    (printed, !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_cannot_forge_a_line_of_somebody_else() {
        assert_eq!(printable("a\n2026 INFO host: \u{1b}[2J", 100).0, "a\\n2026 INFO host: \\u{1b}[2J");
    }

    #[test]
    fn a_long_line_is_cut_between_two_characters() {
        let (text, cut) = printable("éé", 3);
        assert_eq!((text.as_str(), cut), ("é…", true));
    }

    #[test]
    fn lines_above_the_rate_are_dropped_and_counted() {
        let start = BootInstant::from_nanos(0);
        let mut allowance = Allowance::new(start);
        for _ in 0..BURST {
            assert_eq!(allowance.take(start), Some((0, 0)));
        }
        assert_eq!(allowance.take(start), None);
        assert_eq!(allowance.take(start), None);
        assert_eq!(allowance.take(start + Duration::from_secs(1)), Some((2, 0)));
    }
}
