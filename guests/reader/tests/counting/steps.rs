//! What `max_rate` is compared with: the time since the reading that a step is measured from.

use plant_role::opc::{Sample, Value};
use reader::floor::{Counter, Floor};
use reader::plan::Rules;

use crate::line::{Line, SECOND, rules};

fn with_rate(rate: f64) -> Rules {
    Rules { max_rate: Some(rate), ..rules() }
}

/// A floor with one counter, whose batches commit, and which ticks each second.
struct Watched {
    floor: Floor,
    now: i64,
    booked: u64,
}

impl Watched {
    fn new(rate: f64, first: u64) -> Self {
        let mut watched = Self { floor: Floor::default(), now: 1_000 * SECOND, booked: 0 };
        watched.floor.counters.push(Counter::new("PACK01 good".to_owned(), 0, 1, 0, with_rate(rate)));
        watched.floor.bind_counter(0, 0);
        watched.reads(&[(first, 0)]);
        watched
    }

    /// Takes readings in one batch, each so many seconds old.
    fn reads(&mut self, values: &[(u64, i64)]) {
        let sample = |(value, age): &(u64, i64)| Sample {
            item: 0,
            value: Value::Uint(*value),
            status: 0,
            source: Some(self.now - age * SECOND),
            server: None,
        };
        let batch: Vec<Sample> = values.iter().map(sample).collect();
        self.floor.take(&batch, self.now);
        self.floor.accept(self.now, true);
        self.booked = self.floor.counters[0].committed.map_or(0, |b| u64::try_from(b.booked).expect("few"));
    }

    fn waits(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.now += SECOND;
            self.floor.tick(self.now, &[]);
            self.floor.accept(self.now, false);
        }
    }

    /// Another holder has what is in the database.
    fn is_taken_over(&mut self) {
        let mut counter = Counter::new("PACK01 good".to_owned(), 0, 1, 0, self.floor.counters[0].rules);
        counter.committed = self.floor.counters[0].committed;
        counter.working = counter.committed;
        self.floor = Floor::default();
        self.floor.counters.push(counter);
        self.floor.bind_counter(0, 0);
    }
}

#[test]
fn a_counter_that_steps_by_six_every_ten_seconds_is_booked_whole() {
    let mut carton = Watched::new(1.0, 0);
    for step in 1..=5 {
        carton.waits(10);
        carton.reads(&[(6 * step, 0)]);
    }
    assert_eq!((carton.booked, carton.floor.counters[0].owed()), (30, 0));
}

#[test]
fn a_step_that_comes_early_is_booked_with_the_next_one() {
    let mut carton = Watched::new(1.0, 0);
    carton.waits(3);
    carton.reads(&[(6, 0)]);
    assert_eq!((carton.booked, carton.floor.counters[0].owed()), (0, 6));
    carton.waits(10);
    carton.reads(&[(12, 0)]);
    assert_eq!((carton.booked, carton.floor.counters[0].owed()), (12, 0));
}

#[test]
fn what_was_made_while_the_server_was_silent_is_no_jump() {
    let mut line = Watched::new(10.0, 0);
    for second in 1..=3 {
        line.waits(1);
        line.reads(&[(8 * second, 0)]);
    }
    line.waits(8);
    line.reads(&[(88, 0)]);
    for second in 1..=4 {
        line.waits(1);
        line.reads(&[(88 + 8 * second, 0)]);
    }
    assert_eq!((line.booked, line.floor.counters[0].owed()), (120, 0));
}

#[test]
fn what_arrives_late_and_in_a_burst_is_no_jump() {
    let mut line = Watched::new(10.0, 0);
    line.waits(15);
    // Three publishes of five seconds each, within one instant.
    for (value, age) in [(40, 10), (80, 5), (120, 0)] {
        line.reads(&[(value, age)]);
        line.now += 1_000_000;
    }
    assert_eq!((line.booked, line.floor.counters[0].owed()), (120, 0));
}

#[test]
fn what_was_made_during_a_takeover_is_no_jump() {
    let mut line = Watched::new(10.0, 0);
    line.waits(2);
    line.reads(&[(16, 0)]);
    line.is_taken_over();
    line.waits(15);
    line.reads(&[(136, 0)]);
    assert_eq!((line.booked, line.floor.counters[0].owed()), (136, 0));
}

#[test]
fn a_clock_that_is_set_forward_lets_no_jump_pass() {
    let mut line = Watched::new(10.0, 0);
    line.waits(1);
    line.reads(&[(5, 0)]);
    line.waits(1);
    line.reads(&[(50_000, -86_400)]);
    assert_eq!((line.booked, line.floor.counters[0].owed()), (5, 49_995));
}

#[test]
fn a_jump_that_stays_is_shown_to_a_person_after_a_minute() {
    let mut line = Line::from(with_rate(20.0), 100);
    line.reads(&[5_100]).is_taken_over().waits(59);
    assert_eq!((line.kinds().len(), line.baseline.held()), (0, 5_000));
    line.waits(1);
    assert_eq!((line.kinds(), line.baseline.held()), (vec!["jump"], 0));
    let jump = &line.seen.anomalies[0];
    assert_eq!((jump.quantity, jump.needs_decision), (Some(5_000), true));
    line.reads(&[5_101]).reads(&[103]);
    assert_eq!((line.booked(), line.seen.withdrawn.len()), (3, 1), "it can still be taken back");
}
