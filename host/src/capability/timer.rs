//! `plant:timer`: when a guest's timers are due.
//!
//! Ticks lie on a grid from the instance's start, so they do not drift, however long a call takes. A tick that was missed is not made up
//! for: it is counted, and the guest is told how many there were.

use std::time::Duration;

use crate::clock::BootInstant;

/// What people are told of this capability.
pub const ABOUT: super::kind::About = super::kind::About {
    package: "plant:timer",
    kind: super::kind::Kind::Harmless,
    what: "has the role called again later",
};

/// A timer faster than this is one that never lets anything else run.
const FASTEST: Duration = Duration::from_millis(10);

/// A tick that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tick {
    /// The timer's name.
    pub name: String,
    /// When it was due.
    pub due: BootInstant,
    /// How many before it were never given to the guest.
    pub missed: u32,
}

#[derive(Debug)]
struct Timer {
    name: String,
    every: Duration,
    next: BootInstant,
}

/// The timers of one instance.
#[derive(Debug, Default)]
pub struct Schedule(Vec<Timer>);

impl Schedule {
    /// Timers by name, the first tick of each one period after `start`.
    #[must_use]
    pub fn new(timers: impl IntoIterator<Item = (String, Duration)>, start: BootInstant) -> Self {
        let timer = |(name, every): (String, Duration)| {
            let every = every.max(FASTEST);
            Timer { name, every, next: start + every }
        };
        Self(timers.into_iter().map(timer).collect())
    }

    /// When the next tick is due; never, when there are no timers.
    #[must_use]
    pub fn next_due(&self) -> BootInstant {
        self.0.iter().map(|timer| timer.next).min().unwrap_or(BootInstant::NEVER)
    }

    /// The tick that has been due the longest, if any is; the timer then waits for the next point of its grid after `now`.
    pub fn take_due(&mut self, now: BootInstant) -> Option<Tick> {
        let timer = self.0.iter_mut().filter(|timer| timer.next <= now).min_by_key(|timer| timer.next)?;
        let period = timer.every.as_nanos().max(1);
        let late = u32::try_from(now.since(timer.next).as_nanos() / period).unwrap_or(u32::MAX);
        // The newest point of the grid that is past is the tick; those before it were missed.
        let due = timer.next + timer.every.saturating_mul(late);
        timer.next = due + timer.every;
        Some(Tick { name: timer.name.clone(), due, missed: late })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    fn every(seconds: u64) -> Schedule {
        Schedule::new([("tick".to_owned(), Duration::from_secs(seconds))], at(0))
    }

    #[test]
    fn ticks_stay_on_their_grid_when_they_are_taken_late() {
        let mut schedule = every(10);
        assert_eq!(schedule.take_due(at(9)), None);
        assert_eq!(schedule.take_due(at(13)).map(|tick| (tick.due, tick.missed)), Some((at(10), 0)));
        assert_eq!(schedule.next_due(), at(20));
    }

    #[test]
    fn missed_ticks_are_counted_and_not_made_up_for() {
        let mut schedule = every(10);
        assert_eq!(schedule.take_due(at(45)).map(|tick| (tick.due, tick.missed)), Some((at(40), 3)));
        assert_eq!(schedule.take_due(at(45)), None);
    }

    #[test]
    fn a_fast_timer_does_not_keep_a_slow_one_from_its_turn() {
        let timers = [("fast".to_owned(), Duration::from_secs(1)), ("slow".to_owned(), Duration::from_secs(3))];
        let mut schedule = Schedule::new(timers, at(0));
        assert_eq!(schedule.take_due(at(4)).map(|tick| tick.name), Some("fast".to_owned()));
        assert_eq!(schedule.take_due(at(4)).map(|tick| tick.name), Some("slow".to_owned()));
    }
}
