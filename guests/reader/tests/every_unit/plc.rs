//! A counter in a PLC: what it shows, by which clock, and what was really made.

use plant_role::opc::{Sample, Value};

/// In nanoseconds.
pub const SECOND: i64 = 1_000_000_000;
/// Where a rolling counter begins again.
pub const AFTER_HIGHEST: u64 = 1_000;

/// How a machine makes units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One in a minute or so.
    Slow,
    /// Six at once, every ten seconds.
    Cartons,
    /// Nothing for half a minute, then ten a second.
    Bursts,
    /// Some a second.
    Steady,
    /// A few pieces of scrap, and begun again with each order.
    Small,
    /// Some a second, in a counter that wraps around.
    Rolling,
}

impl Kind {
    /// Units a second that it makes at most, on average over a step.
    pub fn peak(self) -> f64 {
        match self {
            Self::Slow => 0.1,
            Self::Cartons => 0.8,
            Self::Bursts => 12.0,
            Self::Steady | Self::Rolling => 10.0,
            Self::Small => 1.0,
        }
    }
}

/// Whose times the samples carry.
#[derive(Debug, Clone, Copy)]
enum Clock {
    /// The PLC's, so far ahead of the database's.
    Source(i64),
    /// One that stands still.
    Stopped,
    /// The server's alone.
    Server,
    /// None at all.
    Missing,
}

#[derive(Debug)]
pub struct Plc {
    pub kind: Kind,
    /// Whether it shows wrong values now and then.
    pub spikes: bool,
    pub made: u64,
    /// The counter itself, and what it shows instead for a while.
    value: u64,
    cover: Option<(Cover, i64)>,
    clock: Clock,
    shown: Option<u64>,
    /// Until then it neither restarts nor begins again: of two such faults within the time that a restart may take, nobody can tell
    /// the second from the end of the first.
    calm_until: i64,
}

#[derive(Debug, Clone, Copy)]
enum Cover {
    Zero,
    Spike,
    Bad,
}

impl Plc {
    pub fn new(random: &mut fastrand::Rng) -> Self {
        let kinds = [Kind::Slow, Kind::Cartons, Kind::Bursts, Kind::Steady, Kind::Small, Kind::Rolling];
        let kind = kinds[random.usize(0..kinds.len())];
        let value = match kind {
            Kind::Small => random.u64(0..3),
            Kind::Rolling => random.u64(0..AFTER_HIGHEST),
            _ if random.bool() => random.u64(0..300),
            _ => random.u64(10_000..1_000_000),
        };
        let clock = match random.u32(0..6) {
            0 => Clock::Stopped,
            1 => Clock::Server,
            2 => Clock::Missing,
            _ => Clock::Source(random.i64(-600..600) * SECOND),
        };
        let spikes = kind != Kind::Rolling && random.u32(0..4) == 0;
        Self { kind, spikes, made: 0, value, cover: None, clock, shown: None, calm_until: 0 }
    }

    /// What it shows now.
    pub fn sample(&mut self, now: i64) -> Sample {
        let value = match self.cover {
            Some((Cover::Zero, _)) => Value::Uint(0),
            Some((Cover::Spike, _)) => Value::Uint(self.value + 1_000_000),
            Some((Cover::Bad, _)) => Value::Null,
            None => Value::Uint(self.value),
        };
        let (source, server) = match self.clock {
            Clock::Source(ahead) => (Some(now + ahead), Some(now)),
            Clock::Stopped => (Some(1_000 * SECOND), Some(now)),
            Clock::Server => (None, Some(now)),
            Clock::Missing => (None, None),
        };
        let status = if matches!(value, Value::Null) { 0x8000_0000 } else { 0 };
        let sample = Sample { item: 0, value, status, source, server };
        self.shown = count(&sample);
        sample
    }

    /// One second of its life, as the samples that come of it.
    pub fn live(&mut self, random: &mut fastrand::Rng, now: i64) -> Vec<Sample> {
        if self.cover.is_some_and(|(_, until)| now >= until) {
            self.cover = None;
        }
        let mut samples = Vec::new();
        self.make(random, now);
        samples.extend(self.news(now));
        let order_is_over = self.kind == Kind::Small && self.value >= 3;
        match random.u32(0..300) {
            _ if self.cover.is_some() => {}
            0..=2 if now < self.calm_until => {}
            0 if self.kind != Kind::Rolling => samples.extend(self.reset(random, now)),
            _ if order_is_over && now >= self.calm_until && random.u32(0..10) == 0 => {
                samples.extend(self.reset(random, now))
            }
            // A rolling counter that falls to zero has rolled over, as far as its rule says.
            1 if self.kind != Kind::Rolling => {
                samples.extend(self.hide(Cover::Zero, now + random.i64(1..40) * SECOND, now))
            }
            2 if self.spikes => samples.extend(self.hide(Cover::Spike, now + random.i64(1..90) * SECOND, now)),
            3 => samples.extend(self.hide(Cover::Bad, now + random.i64(1..10) * SECOND, now)),
            4 => {
                if let Clock::Source(ahead) = &mut self.clock {
                    *ahead += random.i64(-3_600..3_600) * SECOND;
                }
            }
            _ => {}
        }
        samples
    }

    /// A second in which nothing is made, and nothing wrong is shown.
    pub fn settle(&mut self, now: i64) -> Vec<Sample> {
        self.cover = None;
        self.news(now).into_iter().collect()
    }

    fn news(&mut self, now: i64) -> Option<Sample> {
        let shown = self.shown;
        let sample = self.sample(now);
        (self.shown != shown).then_some(sample)
    }

    fn make(&mut self, random: &mut fastrand::Rng, now: i64) {
        let second = now / SECOND;
        let units = match self.kind {
            Kind::Slow => u64::from(random.u32(0..40) == 0),
            Kind::Cartons if second % 10 == 0 => 6,
            Kind::Bursts if second % 40 >= 30 => random.u64(5..=10),
            Kind::Steady | Kind::Rolling => random.u64(6..=9),
            Kind::Small => u64::from(random.u32(0..20) == 0),
            _ => 0,
        };
        self.value += units;
        self.made += units;
        if self.kind == Kind::Rolling {
            self.value %= AFTER_HIGHEST;
        }
    }

    /// Begins again: its zero is seen, or only what it has counted since.
    fn reset(&mut self, random: &mut fastrand::Rng, now: i64) -> Vec<Sample> {
        // One that was back at its old value before anybody looked was never seen.
        self.value = if self.value == 0 || random.bool() { 0 } else { random.u64(0..self.value.min(3)) };
        self.made += self.value;
        self.calm_until = now + 120 * SECOND;
        self.news(now).into_iter().collect()
    }

    fn hide(&mut self, cover: Cover, until: i64, now: i64) -> Option<Sample> {
        self.cover = Some((cover, until));
        if !matches!(cover, Cover::Bad) {
            self.calm_until = until + 120 * SECOND;
        }
        self.news(now)
    }
}

/// The count that a sample carries.
pub fn count(sample: &Sample) -> Option<u64> {
    match sample.value {
        Value::Uint(count) => Some(count),
        _ => None,
    }
}
