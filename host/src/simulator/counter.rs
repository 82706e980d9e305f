//! A counter as a PLC shows it: a register of some width, and the faults that come between it and whoever reads it.
//!
//! Nothing here touches what was really made. Times are those since the simulator's start, as its caller measures them.

use std::time::Duration;

use opcua::types::Variant;

use super::stations::Width;

/// What a client sees of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Shown {
    /// A good value.
    Value(Variant),
    /// Bad quality and no value.
    Bad,
    /// There is no such node.
    Gone,
}

/// What can happen to a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It starts again from zero.
    Reset,
    /// It shows zero for so long, and then what it would show without the fault.
    Glitch(Duration),
    /// Its quality is Bad for so long.
    Bad(Duration),
    /// It has no node for so long.
    Vanish(Duration),
    /// It shows so many more than were made, from then on.
    Jump(u64),
    /// It shows so many more than were made, for so long.
    Spike(u64, Duration),
}

/// A counter.
pub struct Counter {
    width: Width,
    register: u64,
    cover: Option<(Cover, Duration)>,
    spikes: Vec<(u64, Duration)>,
}

#[derive(Clone, Copy)]
enum Cover {
    Zero,
    Bad,
    Gone,
}

impl Counter {
    /// A counter that shows `first`, modulo its width.
    #[must_use]
    pub fn new(width: Width, first: u64) -> Self {
        let mut counter = Self { width, register: 0, cover: None, spikes: Vec::new() };
        counter.count(first);
        counter
    }

    /// Counts so many more.
    pub fn count(&mut self, units: u64) {
        self.register = self.wrapped(u128::from(self.register) + u128::from(units));
    }

    /// Lets a fault begin. Of several that hide the register, the last one counts.
    pub fn suffer(&mut self, fault: Fault, now: Duration) {
        match fault {
            Fault::Reset => {
                self.register = 0;
                // What a spike added is gone with the rest.
                self.spikes.clear();
            }
            Fault::Glitch(for_) => self.cover = Some((Cover::Zero, now.saturating_add(for_))),
            Fault::Bad(for_) => self.cover = Some((Cover::Bad, now.saturating_add(for_))),
            Fault::Vanish(for_) => self.cover = Some((Cover::Gone, now.saturating_add(for_))),
            Fault::Jump(size) => self.count(size),
            Fault::Spike(size, for_) => {
                self.count(size);
                self.spikes.push((size, now.saturating_add(for_)));
            }
        }
    }

    /// Ends the faults whose time is over.
    pub fn recover(&mut self, now: Duration) {
        self.cover = self.cover.filter(|(_, until)| *until > now);
        let over: u128 = self.spikes.extract_if(.., |(_, until)| *until <= now).map(|(size, _)| u128::from(size)).sum();
        let modulus = self.width.modulus();
        self.register = self.wrapped(u128::from(self.register) + modulus - over % modulus);
    }

    /// What a client sees.
    #[must_use]
    pub fn shown(&self) -> Shown {
        match self.cover {
            None => Shown::Value(self.width.variant(self.register)),
            Some((Cover::Zero, _)) => Shown::Value(self.width.variant(0)),
            Some((Cover::Bad, _)) => Shown::Bad,
            Some((Cover::Gone, _)) => Shown::Gone,
        }
    }

    fn wrapped(&self, register: u128) -> u64 {
        u64::try_from(register % self.width.modulus()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn shows(counter: &Counter) -> u32 {
        match counter.shown() {
            Shown::Value(Variant::UInt32(n)) => n,
            other => panic!("{other:?} is no UInt32"),
        }
    }

    #[test]
    fn a_16_bit_counter_goes_on_from_zero_after_65535() {
        let mut counter = Counter::new(Width::Uint16, 65_530);
        counter.count(5);
        assert_eq!(counter.shown(), Shown::Value(Variant::UInt16(65_535)));
        counter.count(5);
        assert_eq!(counter.shown(), Shown::Value(Variant::UInt16(4)));
    }

    #[test]
    fn a_64_bit_counter_wraps_around_without_losing_a_unit() {
        let mut counter = Counter::new(Width::Uint64, u64::MAX);
        assert_eq!(counter.shown(), Shown::Value(Variant::UInt64(u64::MAX)));
        counter.count(3);
        assert_eq!(counter.shown(), Shown::Value(Variant::UInt64(2)));
    }

    #[test]
    fn a_reset_counter_counts_on_from_zero() {
        let mut counter = Counter::new(Width::Uint32, 1_000);
        counter.suffer(Fault::Reset, s(0));
        assert_eq!(shows(&counter), 0);
        counter.count(2);
        counter.recover(s(100));
        assert_eq!(shows(&counter), 2);
    }

    #[test]
    fn a_glitch_shows_zero_and_then_all_that_was_counted() {
        let mut counter = Counter::new(Width::Uint32, 412_905);
        counter.suffer(Fault::Glitch(s(2)), s(10));
        counter.count(1);
        counter.recover(s(11));
        assert_eq!(shows(&counter), 0);
        counter.recover(s(12));
        assert_eq!(shows(&counter), 412_906);
    }

    #[test]
    fn bad_and_vanished_counters_come_back_with_all_that_was_counted() {
        for (fault, shown) in [(Fault::Bad(s(2)), Shown::Bad), (Fault::Vanish(s(2)), Shown::Gone)] {
            let mut counter = Counter::new(Width::Uint32, 7);
            counter.suffer(fault, s(0));
            counter.count(1);
            assert_eq!(counter.shown(), shown);
            counter.recover(s(2));
            assert_eq!(shows(&counter), 8);
        }
    }

    #[test]
    fn a_jump_stays_and_a_spike_comes_back() {
        let mut counter = Counter::new(Width::Uint32, 10);
        counter.suffer(Fault::Jump(1_000), s(0));
        counter.suffer(Fault::Spike(500, s(2)), s(0));
        counter.count(1);
        assert_eq!(shows(&counter), 1_511);
        counter.recover(s(2));
        assert_eq!(shows(&counter), 1_011);
    }

    #[test]
    fn a_spike_over_the_highest_value_comes_back_below_it() {
        let mut counter = Counter::new(Width::Uint16, 65_000);
        counter.suffer(Fault::Spike(1_000, s(1)), s(0));
        assert_eq!(counter.shown(), Shown::Value(Variant::UInt16(464)));
        counter.recover(s(1));
        assert_eq!(counter.shown(), Shown::Value(Variant::UInt16(65_000)));
    }

    #[test]
    fn a_reset_during_a_spike_leaves_nothing_to_take_back() {
        let mut counter = Counter::new(Width::Uint32, 10);
        counter.suffer(Fault::Spike(500, s(2)), s(0));
        counter.suffer(Fault::Reset, s(1));
        counter.recover(s(2));
        assert_eq!(shows(&counter), 0);
    }
}
