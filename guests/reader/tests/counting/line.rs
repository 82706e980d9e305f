//! One counter that is read, and what comes of it.

use plant_role::opc::{Sample, Value};
use reader::counter::{Anomaly, Baseline, Clock, Ledger, Moment, Reading, ValueType};
use reader::pending::Pending;
use reader::plan::{OnFall, OnReset, Rules, Uncertain};

pub const SECOND: i64 = 1_000_000_000;

pub fn rules() -> Rules {
    Rules {
        on_fall: OnFall::Reset,
        rollover: None,
        max_delta: None,
        on_reset: OnReset::Rebaseline,
        restart_glitch_ns: 60 * SECOND,
        max_rate: None,
        uncertain: Uncertain::Ignore,
    }
}

pub fn rollover(after_highest: u64, max_delta: u64) -> Rules {
    Rules { on_fall: OnFall::Rollover, rollover: Some(after_highest), max_delta: Some(max_delta), ..rules() }
}

#[derive(Default)]
pub struct Seen {
    pub booked: Vec<(i64, u64)>,
    pub anomalies: Vec<Anomaly>,
    pub withdrawn: Vec<i64>,
}

impl Ledger for Seen {
    fn book(&mut self, sequence: i64, quantity: u64, _: i64, _: Clock) {
        self.booked.push((sequence, quantity));
    }
    fn report(&mut self, anomaly: Anomaly) {
        self.anomalies.push(anomaly);
    }
    fn withdraw(&mut self, sequence: i64) {
        self.withdrawn.push(sequence);
    }
}

/// One counter that is read once a second, by a clock that runs with the database's.
pub struct Line {
    pub rules: Rules,
    pub baseline: Baseline,
    pub now: i64,
    pub seen: Seen,
}

impl Line {
    pub fn from(rules: Rules, first: u64) -> Self {
        let now = 1_000 * SECOND;
        Self { rules, baseline: Baseline::first(reading(first, now), now), now, seen: Seen::default() }
    }

    pub fn reads(&mut self, values: &[u64]) -> &mut Self {
        for value in values {
            let at = self.now + SECOND;
            self.reads_at(*value, at);
        }
        self
    }

    pub fn reads_at(&mut self, value: u64, at: i64) -> &mut Self {
        self.takes(reading(value, at))
    }

    pub fn takes(&mut self, r: Reading) -> &mut Self {
        self.now += SECOND;
        let when = Moment::of(Some(&self.baseline), self.now);
        self.baseline.read(&self.rules, r, when, &mut self.seen);
        self
    }

    pub fn waits(&mut self, seconds: i64) -> &mut Self {
        self.now += seconds * SECOND;
        self.baseline.close_when_over(&self.rules, self.now, &mut self.seen);
        self
    }

    /// Another holder goes on from what is in the database.
    pub fn is_taken_over(&mut self) -> &mut Self {
        let text = self.baseline.pending.to_text();
        self.baseline.pending = text.map_or_else(Pending::default, |t| serde_json::from_str(&t).expect("its own text"));
        self
    }

    pub fn booked(&self) -> u64 {
        let sum = self.seen.booked.iter().map(|(_, q)| q).sum();
        assert_eq!(u128::from(sum), self.baseline.booked);
        sum
    }

    pub fn kinds(&self) -> Vec<&str> {
        self.seen.anomalies.iter().map(|a| a.kind).collect()
    }
}

pub fn reading(value: u64, at: i64) -> Reading {
    Reading { value, value_type: ValueType::Unsigned, at, clock: Clock::Source }
}

pub fn sample(value: Value, status: u32, at: i64) -> Sample {
    Sample { item: 0, value, status, source: Some(at), server: None }
}
