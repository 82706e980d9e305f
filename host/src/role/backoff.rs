//! How long a role pauses between two instances, and when it has failed often enough to let another node try.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::BootInstant;

/// The first pause.
const SHORTEST: Duration = Duration::from_millis(250);
/// No pause is longer.
pub const LONGEST: Duration = Duration::from_secs(30);

/// How many failures in which time are too many.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// So many.
    pub failures: usize,
    /// In so long.
    pub within: Duration,
    /// After which the role is left to another node for so long.
    pub cool_down: Duration,
    /// The first pause; it doubles from failure to failure, up to [`LONGEST`].
    pub pause: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self { failures: 5, within: Duration::from_secs(300), cool_down: Duration::from_secs(60), pause: SHORTEST }
    }
}

/// The failures of one role's instances in one tenure.
#[derive(Debug)]
pub struct Failures {
    budget: Budget,
    recent: VecDeque<BootInstant>,
}

impl Failures {
    /// None so far.
    #[must_use]
    pub fn none(budget: Budget) -> Self {
        Self { budget, recent: VecDeque::new() }
    }

    /// Counts one; the pause that follows it.
    pub fn count(&mut self, now: BootInstant) -> Duration {
        self.recent.retain(|then| now.since(*then) < self.budget.within);
        self.recent.push_back(now);
        let doublings = u32::try_from(self.recent.len() - 1).unwrap_or(u32::MAX);
        jittered(self.budget.pause.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST))
    }

    /// Whether there were too many.
    #[must_use]
    pub fn spent(&self) -> bool {
        self.recent.len() >= self.budget.failures
    }
}

/// Three quarters to the whole of it, so that roles that failed together do not come back together.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.75 + fastrand::f64() / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn pauses_double_and_stay_within_their_bounds() {
        let mut failures = Failures::none(Budget::default());
        let pauses: Vec<_> = (0..20).map(|n| failures.count(at(n))).collect();
        assert!(pauses[0] <= SHORTEST && pauses[0] >= SHORTEST.mul_f64(0.75));
        assert!(pauses[2] > pauses[0]);
        assert!(pauses.iter().all(|pause| *pause <= LONGEST));
        assert!(pauses[19] >= LONGEST.mul_f64(0.75));
    }

    #[test]
    fn the_budget_is_spent_by_the_fifth_failure_in_five_minutes_and_not_by_old_ones() {
        let mut failures = Failures::none(Budget::default());
        for n in 0..4 {
            failures.count(at(n));
        }
        assert!(!failures.spent());
        failures.count(at(4));
        assert!(failures.spent());
        failures.count(at(1000));
        assert!(!failures.spent());
    }
}
