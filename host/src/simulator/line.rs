//! The line in motion: bottles that go from station to station, stops, scrap, and what was really made.
//!
//! It knows no clock. A tick is 50 ms of the line's own time, and the same seed and the same number of ticks make the same bottles,
//! whatever the speed, the machine it runs on or the faults that its counters suffer; only a fault of the kind `stop` makes a
//! machine make less. Every station draws from a generator of its own, so that one that is stopped changes no other's luck.

use std::time::Duration;

use fastrand::Rng;

use super::stations::{STATIONS, State, Station};

/// How much of the line's own time one tick is.
pub const TICK: Duration = Duration::from_millis(50);

/// Bottles that fit between two stations; half of them are there at the start, so that all stations work from the first tick.
const BETWEEN: u32 = 30;
/// One bottle's work. A tick does about 55,000 of it: 1.1 bottles a second.
const BOTTLE: u32 = 1_000_000;
const WORK_A_TICK: std::ops::RangeInclusive<u32> = 51_000..=59_000;
/// A station stops by itself every five minutes or so, for 4 to 10 s.
const STOPS_PER_MILLION_TICKS: u32 = 170;
const STOP_TICKS: std::ops::RangeInclusive<u32> = 80..=200;
/// An analogue value is measured anew every so many ticks.
const TICKS_A_MEASUREMENT: u64 = 10;

/// What a station has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Made {
    /// Good pieces.
    pub good: u64,
    /// Spoiled pieces.
    pub scrap: u64,
}

/// The line. `Line::new` and `tick` are all that its truth depends on.
pub struct Line {
    places: Vec<Place>,
    ticks: u64,
}

/// A station at its place in the line.
pub struct Place {
    station: &'static Station,
    rng: Rng,
    waiting: Option<u32>,
    work: u32,
    stopped: u32,
    state: State,
    value: f64,
    made: Made,
}

impl Line {
    /// A line before its first tick, idle.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut seeds = Rng::with_seed(seed);
        let places = STATIONS.iter().enumerate().map(|(i, station)| Place {
            station,
            rng: Rng::with_seed(seeds.u64(..)),
            // Nothing stands before the first station: it never runs out of bottles.
            waiting: (i > 0).then_some(BETWEEN / 2),
            work: 0,
            stopped: 0,
            state: State::Idle,
            value: station.value_around.0,
            made: Made::default(),
        });
        Self { places: places.collect(), ticks: 0 }
    }

    /// One tick; `held` says, in the line's order, which stations a fault keeps from working.
    pub fn tick(&mut self, held: impl DoubleEndedIterator<Item = bool> + ExactSizeIterator) {
        let measure = self.ticks.is_multiple_of(TICKS_A_MEASUREMENT);
        self.ticks += 1;
        let mut next: Option<&mut Place> = None;
        // From the end: a bottle passes one station a tick, and finds the room that was made.
        for (place, held) in self.places.iter_mut().zip(held).rev() {
            let room = next.as_ref().is_none_or(|next| next.waiting.is_none_or(|waiting| waiting < BETWEEN));
            let handed_on = place.tick(room, held);
            if let Some(waiting) = next.and_then(|next| next.waiting.as_mut()).filter(|_| handed_on) {
                *waiting += 1;
            }
            if measure {
                place.measure();
            }
            next = Some(place);
        }
    }

    /// The ticks so far.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// The stations, in the line's order.
    pub fn places(&self) -> impl ExactSizeIterator<Item = &Place> {
        self.places.iter()
    }
}

impl Place {
    /// What it is.
    #[must_use]
    pub fn station(&self) -> &'static Station {
        self.station
    }

    /// What it has really made.
    #[must_use]
    pub fn made(&self) -> Made {
        self.made
    }

    /// What it does.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Its analogue value, to two decimals.
    #[must_use]
    pub fn value(&self) -> f64 {
        (self.value * 100.0).round() / 100.0
    }

    /// Whether a good bottle goes on to the next station.
    fn tick(&mut self, room: bool, held: bool) -> bool {
        if held {
            self.state = State::Down;
            return false;
        }
        let work = self.rng.u32(WORK_A_TICK);
        if self.stopped > 0 {
            self.stopped -= 1;
            self.state = State::Down;
            return false;
        }
        if self.rng.u32(0..1_000_000) < STOPS_PER_MILLION_TICKS {
            self.stopped = self.rng.u32(STOP_TICKS);
            self.state = State::Down;
            return false;
        }
        if !room || self.waiting == Some(0) {
            self.state = State::Idle;
            return false;
        }
        self.state = State::Running;
        self.work += work;
        self.work >= BOTTLE && self.finish()
    }

    fn finish(&mut self) -> bool {
        self.work -= BOTTLE;
        if let Some(waiting) = &mut self.waiting {
            *waiting = waiting.saturating_sub(1);
        }
        let spoiled = self.rng.u32(0..1_000_000) < self.station.scrap_per_million;
        if spoiled {
            self.made.scrap += 1;
        } else {
            self.made.good += 1;
        }
        !spoiled
    }

    fn measure(&mut self) {
        let (around, spread) = self.station.value_around;
        let noise = self.rng.f64() + self.rng.f64() - 1.0;
        self.value += 0.2 * (around - self.value) + spread * noise;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &mut Line, ticks: u64) {
        for _ in 0..ticks {
            line.tick([false; STATIONS.len()].into_iter());
        }
    }

    fn made(line: &Line) -> Vec<Made> {
        line.places().map(Place::made).collect()
    }

    fn total(line: &Line) -> u64 {
        made(line).iter().map(|made| made.good + made.scrap).sum()
    }

    #[test]
    fn the_same_seed_and_ticks_make_the_same_bottles_and_another_seed_makes_others() {
        let (mut one, mut two, mut other) = (Line::new(7), Line::new(7), Line::new(8));
        for line in [&mut one, &mut other] {
            run(line, 50_000);
        }
        for _ in 0..50 {
            run(&mut two, 1_000);
        }
        assert_eq!(made(&one), made(&two));
        assert_ne!(made(&one), made(&other));
        let values = |line: &Line| line.places().map(Place::value).collect::<Vec<_>>();
        assert_eq!(values(&one), values(&two));
    }

    #[test]
    fn speed_20_makes_at_least_100_units_a_second_in_all() {
        // At speed 20 a second is 20 s of the line's own time.
        let ticks_a_second = 20 * 20;
        for seed in 1..=20 {
            let mut line = Line::new(seed);
            run(&mut line, 300 * ticks_a_second);
            assert!(total(&line) >= 300 * 100, "seed {seed} made {} in 300 s", total(&line));
        }
    }

    #[test]
    fn speed_1_is_calm() {
        let mut line = Line::new(1);
        run(&mut line, 600 * 20);
        assert!((5 * 600..=7 * 600).contains(&total(&line)), "{} in 600 s", total(&line));
    }

    #[test]
    fn every_station_spoils_some_and_stops_at_times() {
        let mut line = Line::new(3);
        let mut seen_down = [false; STATIONS.len()];
        for _ in 0..200_000 {
            run(&mut line, 1);
            for (seen, place) in seen_down.iter_mut().zip(line.places()) {
                *seen |= place.state() == State::Down;
            }
        }
        assert_eq!(seen_down, [true; STATIONS.len()]);
        assert!(made(&line).iter().all(|made| made.scrap > 0), "{:?}", made(&line));
    }

    #[test]
    fn a_bottle_that_one_station_made_is_one_that_the_next_can_make() {
        let mut line = Line::new(5);
        run(&mut line, 100_000);
        let made = made(&line);
        for (before, after) in made.iter().zip(made.iter().skip(1)) {
            let (in_, out) = (before.good + u64::from(BETWEEN / 2), after.good + after.scrap);
            assert!(out <= in_ && in_ - out <= u64::from(BETWEEN), "{made:?}");
        }
    }

    #[test]
    fn a_held_station_makes_nothing_and_the_line_stands_when_the_buffers_are_through() {
        let mut line = Line::new(2);
        let held = || STATIONS.iter().map(|station| station.code == "FILL01").collect::<Vec<_>>().into_iter();
        for _ in 0..2_000 {
            line.tick(held());
        }
        let before = made(&line);
        assert_eq!(before[2], Made::default());
        assert_eq!(line.places().nth(2).unwrap().state(), State::Down);
        for _ in 0..2_000 {
            line.tick(held());
        }
        assert_eq!(made(&line), before);
        run(&mut line, 2_000);
        assert!(made(&line)[2].good > 0);
    }
}
