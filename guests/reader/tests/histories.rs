//! Random histories of a counter, with every way in which a batch can end: what is booked is what was made.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "what tests share may fail as a test does"
)]

use std::collections::BTreeMap;

use plant_role::db::{Array, Params, Statement};
use plant_role::opc::{Sample, Value};
use reader::counter::Baseline;
use reader::floor::{Counter, Floor};
use reader::plan::{OnFall, OnReset, Rules, Uncertain};

const SECOND: i64 = 1_000_000_000;

fn rules() -> Rules {
    Rules {
        on_fall: OnFall::Reset,
        rollover: None,
        max_delta: None,
        on_reset: OnReset::Rebaseline,
        restart_glitch_ns: 60 * SECOND,
        max_rate: Some(50.0),
        uncertain: Uncertain::Ignore,
    }
}

/// What a database would hold: refuses a number twice.
#[derive(Default)]
struct Stored {
    baseline: Option<Baseline>,
    bookings: BTreeMap<i64, i64>,
}

impl Stored {
    fn commit(&mut self, floor: &mut Floor) {
        let sent =
            floor.tables.send(|statements| statements.iter().find(|s| s.sql.contains("INTO bookings")).map(bookings));
        for (sequence, quantity) in sent.unwrap_or_default() {
            assert!(self.bookings.insert(sequence, quantity).is_none(), "sequence {sequence} booked twice");
        }
        let (held, next) = (self.baseline.map_or(0, |b| b.sequence), floor.counters[0].working);
        assert!(floor.counters[0].committed.map_or(0, |b| b.sequence) == held, "written from a stale number");
        self.baseline = next;
    }

    fn booked(&self) -> u64 {
        self.bookings.values().map(|q| u64::try_from(*q).expect("positive")).sum()
    }
}

fn bookings(statement: &Statement) -> Vec<(i64, i64)> {
    let Params::Columns(columns) = &statement.params else { panic!("columns") };
    let (Array::Ints(sequences), Array::Ints(quantities)) = (&columns[2].values, &columns[3].values) else {
        panic!("integers")
    };
    sequences.iter().copied().zip(quantities.iter().copied()).collect()
}

/// A new instance knows what is stored and nothing else.
fn instance(stored: &Stored) -> Floor {
    let mut floor = Floor::default();
    let mut counter = Counter::new("FILL01 good".to_owned(), 0, 1, 0, rules());
    counter.committed = stored.baseline.map(|mut b| {
        b.pending =
            b.pending.to_text().map_or_else(Default::default, |t| serde_json::from_str(&t).expect("its own text"));
        b
    });
    counter.working = counter.committed;
    floor.counters.push(counter);
    floor.bind_counter(0, 0);
    floor
}

/// A counter on a floor: what it shows, and what was really made.
struct Plc {
    shows: u64,
    made: u64,
    at: i64,
}

impl Plc {
    fn sample(&self) -> Sample {
        Sample { item: 0, value: Value::Uint(self.shows), status: 0, source: Some(self.at), server: None }
    }

    /// One thing that happens, as the samples that it makes.
    fn live(&mut self, random: &mut fastrand::Rng) -> Vec<Sample> {
        self.at += SECOND;
        // A counter that has just begun looks the same after a reset as after a restart.
        let plain = self.shows < 100;
        match random.u32(if plain { 2..40 } else { 0..40 }) {
            0 => self.reset(random),
            1 => self.glitch(random),
            2 => self.spike(),
            3..6 => vec![self.sample(), self.sample()],
            6 => vec![Sample { status: 0x8034_0000, value: Value::Null, ..self.sample() }],
            _ => {
                self.make(random.u64(1..20));
                vec![self.sample()]
            }
        }
    }

    fn make(&mut self, units: u64) {
        self.shows += units;
        self.made += units;
    }

    /// The zero is seen, and the counter goes its own way.
    fn reset(&mut self, random: &mut fastrand::Rng) -> Vec<Sample> {
        self.shows = 0;
        let mut samples = vec![self.sample()];
        for _ in 0..4 {
            self.at += SECOND;
            self.make(random.u64(1..5));
            samples.push(self.sample());
        }
        samples
    }

    /// A restart: zero for a while, then the old value and a little more.
    fn glitch(&mut self, random: &mut fastrand::Rng) -> Vec<Sample> {
        let old = self.shows;
        self.shows = 0;
        let zero = self.sample();
        self.shows = old;
        self.at += random.i64(1..30) * SECOND;
        self.make(random.u64(0..10));
        vec![zero, self.sample()]
    }

    fn spike(&mut self) -> Vec<Sample> {
        let spike = Sample { value: Value::Uint(self.shows + 1_000_000), ..self.sample() };
        self.at += SECOND;
        vec![spike, self.sample()]
    }
}

#[test]
fn whatever_happens_to_batches_what_is_booked_is_what_was_made() {
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut stored = Stored::default();
        let mut floor = instance(&stored);
        let mut plc = Plc { shows: 1_000_000 + random.u64(0..1_000), made: 0, at: 1_000 * SECOND };
        let mut waiting = vec![plc.sample()];
        for _ in 0..120 {
            let now = plc.at + 1;
            floor.take(&waiting, now);
            match random.u32(0..10) {
                // Refused: the same batch is delivered again, to this instance or to the next one.
                0 => floor.revert(),
                1 => floor = instance(&stored),
                // Committed, and the answer was lost: a new instance is given the batch again.
                2 => {
                    stored.commit(&mut floor);
                    floor = instance(&stored);
                }
                3 => {
                    stored.commit(&mut floor);
                    floor.accept(now, true);
                    waiting.clear();
                    floor = instance(&stored);
                }
                _ => {
                    stored.commit(&mut floor);
                    floor.accept(now, true);
                    waiting.clear();
                }
            }
            for _ in 0..random.u32(0..4) {
                waiting.extend(plc.live(&mut random));
            }
        }
        // A quiet end: everything delivered, and every window over.
        plc.at += SECOND;
        plc.make(1);
        waiting.push(plc.sample());
        floor.take(&waiting, plc.at + 1);
        stored.commit(&mut floor);
        floor.accept(plc.at + 1, true);
        floor.tick(plc.at + 120 * SECOND, &[]);
        stored.commit(&mut floor);
        assert_eq!(stored.booked(), plc.made, "seed {seed}");
        assert_eq!(stored.baseline.map(|b| b.booked), Some(u128::from(plc.made)), "seed {seed}");
    }
}
