//! What a sample is worth: its quality, its time, and whether it is a count.

use plant_role::opc::{Sample, Value};

use crate::counter::{Clock, Reading, ValueType};
use crate::plan::Uncertain;

/// Set when the server's own queue for the item was too short; the value is good all the same.
const OVERFLOW: u32 = 0x480;

/// A sample, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// A count.
    Count(Reading),
    /// No value, or not good enough: it says nothing.
    Unusable,
    /// A good value that is no count, in words.
    NotACount(String),
}

/// Quality by the two severity bits alone.
#[must_use]
pub fn is_usable(status: u32, uncertain: Uncertain) -> bool {
    match status >> 30 {
        0 => true,
        1 => uncertain == Uncertain::Book,
        _ => false,
    }
}

/// Whether the server says that it dropped values of this item.
#[must_use]
pub fn has_overflowed(status: u32) -> bool {
    status & OVERFLOW == OVERFLOW
}

/// The sample's time: the source's, else the server's, else now.
#[must_use]
pub fn time_of(sample: &Sample, now: i64) -> (i64, Clock) {
    match (sample.source, sample.server) {
        (Some(at), _) => (at, Clock::Source),
        (None, Some(at)) => (at, Clock::Server),
        (None, None) => (now, Clock::Arrival),
    }
}

/// Judges a counter's sample.
#[must_use]
pub fn judge(sample: &Sample, uncertain: Uncertain, now: i64) -> Judged {
    if !is_usable(sample.status, uncertain) {
        return Judged::Unusable;
    }
    let (value, value_type) = match sample.value {
        Value::Null => return Judged::Unusable,
        Value::Uint(value) => (value, ValueType::Unsigned),
        Value::Int(value) => match u64::try_from(value) {
            Ok(value) => (value, ValueType::Signed),
            Err(_) => return Judged::NotACount(value.to_string()),
        },
        // From 2^53 on a floating-point number does not tell neighbours apart, and adding 1 to it changes nothing.
        Value::Real(value) if value.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&value) => {
            (value as u64, ValueType::Floating)
        }
        Value::Real(value) => return Judged::NotACount(value.to_string()),
        _ => return Judged::NotACount("a value that is no number".to_owned()),
    };
    let (at, clock) = time_of(sample, now);
    Judged::Count(Reading { value, value_type, at, clock })
}

/// Whether the value is one that a 32-bit floating-point number cannot count on from: 2^24 or more.
#[must_use]
pub fn is_above_single(sample: &Sample) -> bool {
    matches!(sample.value, Value::Real(value) if value >= 16_777_216.0)
}

/// A state's number.
#[must_use]
pub fn state_number(sample: &Sample) -> Option<i64> {
    match sample.value {
        Value::Int(number) => Some(number),
        Value::Uint(number) => i64::try_from(number).ok(),
        Value::Real(number) if number.fract() == 0.0 && number.abs() < 1e15 => Some(number as i64),
        Value::Boolean(on) => Some(i64::from(on)),
        _ => None,
    }
}
