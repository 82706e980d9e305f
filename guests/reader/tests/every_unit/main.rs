//! Random histories of counters of every kind: each unit that a counter has shown is booked, owed, or in an anomaly that says how many it
//! may hide; and none is booked that was not made.
//!
//! `PLANT_HISTORIES` says how many histories, `PLANT_SEED` which one to begin with.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "what tests share may fail as a test does"
)]

mod books;
mod plc;

use std::collections::VecDeque;

use plant_role::opc::Sample;
use reader::floor::{Counter, Floor};
use reader::plan::{OnFall, OnReset, Rules, Uncertain};

use crate::books::Books;
use crate::plc::{Kind, Plc, SECOND};

/// What continuous integration has time for.
const HISTORIES: u64 = 4_000;
/// How long each goes on, in seconds.
const LENGTH: i64 = 400;
/// The server keeps so many values of an item while nobody fetches them.
const QUEUE: usize = 10;

#[test]
fn every_unit_is_booked_owed_or_in_an_anomaly() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = number("PLANT_SEED").unwrap_or(0);
    for seed in first..first + number("PLANT_HISTORIES").unwrap_or(HISTORIES) {
        History::new(seed).run();
    }
}

struct History {
    seed: u64,
    random: fastrand::Rng,
    rules: Rules,
    plc: Plc,
    books: Books,
    floor: Floor,
    now: i64,
    /// Seconds between two publishes.
    publish: i64,
    /// Nothing is fetched until then: a stall, or a takeover whose connection takes a while.
    away_until: i64,
    /// In the server's queue.
    queued: VecDeque<Sample>,
    /// Delivered to the host, and not taken by the guest.
    waiting: Vec<Sample>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let plc = Plc::new(&mut random);
        let rules = rules(&mut random, &plc);
        let publish = if random.u32(0..4) == 0 { 5 } else { 1 };
        let mut history = Self {
            seed,
            random,
            rules,
            plc,
            books: Books::default(),
            floor: Floor::default(),
            now: 1_000_000 * SECOND,
            publish,
            away_until: 0,
            queued: VecDeque::new(),
            waiting: Vec::new(),
        };
        history.begin_instance();
        history
    }

    fn run(mut self) {
        let first = self.plc.sample(self.now);
        self.waiting.push(first);
        self.deliver();
        for _ in 0..LENGTH {
            self.second(true);
        }
        // A quiet end: everything fetched, and every window over.
        self.away_until = 0;
        for _ in 0..200 {
            self.second(false);
        }
        let (made, owed) = (self.plc.made, self.floor.counters[0].owed());
        let (booked, open) = (self.books.booked(), self.books.open());
        let told = format!(
            "seed {}: made {made}, booked {booked}, owed {owed}, in anomalies {open}\n{:?}\n{:#?}",
            self.seed, self.rules, self.books
        );
        assert!(booked <= made, "more is booked than was made: {told}");
        assert!(made <= booked + owed + open, "units are missing: {told}");
    }

    fn second(&mut self, alive: bool) {
        self.now += SECOND;
        let samples = if alive { self.plc.live(&mut self.random, self.now) } else { self.plc.settle(self.now) };
        self.queued.extend(samples);
        if alive {
            self.disturb();
        }
        if self.now >= self.away_until && (self.now / SECOND) % self.publish == 0 {
            self.waiting.extend(self.queued.drain(..));
            self.deliver();
        } else {
            self.overflow();
        }
        self.floor.tick(self.now, &[]);
        self.books.commit(&mut self.floor);
        self.floor.accept(self.now, false);
    }

    /// The server drops the oldest of too many values, but for those around a fall: what they hide nobody can know.
    fn overflow(&mut self) {
        while self.queued.len() > QUEUE {
            let drops = (1..self.queued.len() - 1).find(|at| {
                let [before, this, after] = [at - 1, *at, at + 1].map(|at| plc::count(&self.queued[at]));
                before.zip(this).zip(after).is_some_and(|((before, this), after)| before <= this && this <= after)
            });
            let Some(at) = drops else { return };
            self.queued.remove(at);
        }
    }

    fn disturb(&mut self) {
        match self.random.u32(0..200) {
            0 => self.away_until = self.now + self.random.i64(3..20) * SECOND,
            1 => {
                // Another holder, whose connection takes a while and begins with the present value.
                self.away_until = self.now + self.random.i64(0..15) * SECOND;
                self.begin_instance();
                let falls = self.queued.iter().any(|sample| plc::count(sample).is_none_or(|n| n < self.books.newest()));
                if !falls {
                    self.queued.clear();
                    self.waiting.clear();
                }
                self.queued.push_back(self.plc.sample(self.now));
            }
            _ => {}
        }
    }

    fn deliver(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        self.floor.take(&self.waiting, self.now);
        match self.random.u32(0..20) {
            // Refused: delivered again with what comes next.
            0 => self.floor.revert(),
            // Committed, and the answer was lost: another instance goes on, and begins with the present value.
            1 => {
                self.books.commit(&mut self.floor);
                self.begin_instance();
                let present = self.plc.sample(self.now);
                self.waiting = vec![present];
            }
            _ => {
                self.books.commit(&mut self.floor);
                self.floor.accept(self.now, true);
                self.waiting.clear();
            }
        }
    }

    /// A new instance knows what is stored and nothing else.
    fn begin_instance(&mut self) {
        self.floor = Floor::default();
        let mut counter = Counter::new("FILL01 good".to_owned(), 0, 1, 0, self.rules);
        counter.committed = self.books.baseline();
        counter.working = counter.committed;
        self.floor.counters.push(counter);
        self.floor.bind_counter(0, 0);
    }
}

fn rules(random: &mut fastrand::Rng, plc: &Plc) -> Rules {
    let peak = plc.kind.peak();
    let max_rate = match random.u32(0..4) {
        0 => None,
        1 => Some(peak / 2.0),
        _ => Some(peak * 1.5),
    };
    let plain = Rules {
        on_fall: OnFall::Reset,
        rollover: None,
        max_delta: None,
        on_reset: OnReset::Rebaseline,
        restart_glitch_ns: [0, 5, 60][random.usize(0..3)] * SECOND,
        max_rate: max_rate.or(plc.spikes.then_some(peak * 2.0)),
        uncertain: Uncertain::Ignore,
    };
    match plc.kind {
        Kind::Rolling => Rules {
            on_fall: OnFall::Rollover,
            rollover: Some(plc::AFTER_HIGHEST),
            max_delta: Some([50, 500][random.usize(0..2)]),
            ..plain
        },
        _ if random.bool() => Rules { on_reset: OnReset::FromZero, max_delta: Some(20), ..plain },
        _ => plain,
    }
}
