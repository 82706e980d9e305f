//! How fast a counter may have counted: what `max_rate` is compared with.
//!
//! A step is judged against the time since the reading that it is measured from, never since a tick and never since a sign of life of the
//! connection: a counter of cartons steps by six every ten seconds, and one second before a step nothing has changed yet. Two clocks
//! say how long that was. The reading's own tells readings of one batch apart, but a person may set it; the database's cannot be set, but
//! sees readings when they arrive, and after a stall many arrive at once. So the first bounds each step, and the second bounds
//! their sum.

use crate::counter::{Baseline, Clock, Reading};
use crate::plan::Rules;

/// One second in nanoseconds: sampling jitter within it is no jump.
pub const SECOND: i64 = 1_000_000_000;
/// So much unused time is kept for readings that arrive late and in a burst; more would let a jump pass under a clock that was set.
const MOST_UNUSED: i64 = 600 * SECOND;

/// When a batch of readings is judged, by the database's clock, and what of the time before it is not used up.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Now.
    pub now: i64,
    /// When the baseline was read that this batch begins with.
    pub seen_at: i64,
    /// Units are accounted for up to this time: what `max_rate` allows since then may have been made.
    pub reach: i64,
    /// Units booked in all before this batch.
    pub booked: u128,
}

impl Moment {
    /// A batch that begins with this baseline, of which no more is known than itself; without one, no time has passed.
    #[must_use]
    pub fn of(baseline: Option<&Baseline>, now: i64) -> Self {
        let seen_at = baseline.map_or(now, |b| b.seen_at);
        Self { now, seen_at, reach: seen_at, booked: baseline.map_or(0, |b| b.booked) }
    }
}

/// A reading that a later one is measured from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct From {
    /// Its time.
    pub at: i64,
    /// Whose time that is.
    pub clock: Clock,
    /// When it was seen, by the database's clock.
    pub seen_at: i64,
    /// Up to when units are accounted for, by the database's clock.
    pub reach: i64,
    /// Units that have used up time since `reach`.
    pub used: u64,
}

impl From {
    /// A reading before which nothing is accounted for but itself.
    pub(crate) fn single(at: i64, clock: Clock, seen_at: i64) -> Self {
        Self { at, clock, seen_at, reach: seen_at, used: 0 }
    }

    /// Whether a machine can have made so many units until `r`.
    pub(crate) fn allows(&self, rules: &Rules, units: u64, r: &Reading, now: i64) -> bool {
        if rules.is_plausible(units, SECOND) {
            return true;
        }
        let by_clock = r.at.saturating_sub(self.at);
        if self.clock != r.clock || r.clock == Clock::Arrival || by_clock <= 0 {
            return rules.is_plausible(units, now.saturating_sub(self.seen_at));
        }
        rules.is_plausible(units, by_clock)
            && rules.is_plausible(units.saturating_add(self.used), now.saturating_sub(self.reach))
    }
}

/// Up to when units are accounted for once `used` more of them are.
#[must_use]
pub fn reach_after(rules: &Rules, reach: i64, used: u64, now: i64) -> i64 {
    let spent = rules.max_rate.map_or(0.0, |rate| used as f64 / rate * SECOND as f64);
    // Above the range of i64 the conversion saturates.
    reach.saturating_add(spent as i64).clamp(now.saturating_sub(MOST_UNUSED), now)
}
