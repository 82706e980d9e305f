//! The line, its counters and their faults as one thing that moves on by the clock and can be told to stop, to go on and to fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use opcua::types::Variant;

use super::board::{Board, load_machine, load_value};
use super::counter::{Counter, Fault, Shown};
use super::line::{Line, Made, TICK};
use super::stations::{SCRAP, STATIONS};

/// After a standstill of the whole process, no more than this is made up for: the line stood still too.
const CATCH_UP: Duration = Duration::from_secs(1);

/// Which counter of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Which {
    /// Of good pieces.
    Good,
    /// Of scrap.
    Scrap,
}

/// What a fault is about: one of a machine's counters, or the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The counter lies or hides; production goes on.
    Counter(Which, Fault),
    /// The machine makes nothing for so long.
    Stop(Duration),
}

/// How a simulation begins.
#[derive(Debug, Clone, Copy)]
pub struct Beginning {
    /// Everything that looks like chance follows from it.
    pub seed: u64,
    /// How much faster than real time.
    pub speed: f64,
    /// Whether it waits to be told to go on.
    pub paused: bool,
    /// How many counters for load tests there are beside the line's.
    pub counters: usize,
    /// What the good counters show at first, where it is not what the machines have made in their lives.
    pub first: Option<u64>,
}

/// A running line. Times are those since it began.
pub struct Simulation {
    line: Line,
    speed: f64,
    paused: bool,
    machines: Vec<Machine>,
    counters: usize,
    steps: u64,
    /// The line's own time that is too short for a tick yet.
    rest: Duration,
    last: Duration,
    board: Arc<Board>,
}

struct Machine {
    good: Counter,
    scrap: Counter,
    stopped_until: Duration,
    counted: Made,
}

impl Simulation {
    /// A line that has made nothing yet, with its board.
    #[must_use]
    pub fn new(beginning: &Beginning) -> Self {
        let machines = STATIONS.iter().map(|station| Machine {
            good: Counter::new(station.good, beginning.first.unwrap_or(station.first.0)),
            scrap: Counter::new(SCRAP, station.first.1),
            stopped_until: Duration::ZERO,
            counted: Made::default(),
        });
        let simulation = Self {
            line: Line::new(beginning.seed),
            speed: beginning.speed,
            paused: beginning.paused,
            machines: machines.collect(),
            counters: beginning.counters,
            steps: 0,
            rest: Duration::ZERO,
            last: Duration::ZERO,
            board: Arc::new(Board::new(beginning.counters)),
        };
        simulation.show();
        simulation
    }

    /// What the nodes show.
    #[must_use]
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Whether it stands still.
    #[must_use]
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// The line's ticks so far.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.line.ticks()
    }

    /// Stands still or goes on, from `now` on.
    pub fn pause(&mut self, paused: bool, now: Duration) {
        self.last = now;
        self.paused = paused;
    }

    /// Moves on to `now`, and answers which nodes changed.
    pub fn step(&mut self, now: Duration) -> Vec<usize> {
        let elapsed = now.saturating_sub(self.last).min(CATCH_UP);
        self.last = now;
        if !self.paused {
            self.steps += 1;
            self.rest += elapsed.mul_f64(self.speed);
            while self.rest >= TICK {
                self.rest -= TICK;
                self.line.tick(self.machines.iter().map(|machine| machine.stopped_until > now));
            }
            for (machine, place) in self.machines.iter_mut().zip(self.line.places()) {
                machine.count(place.made());
            }
        }
        for machine in &mut self.machines {
            machine.good.recover(now);
            machine.scrap.recover(now);
        }
        self.show()
    }

    /// Lets a fault begin, and answers which nodes changed; `None` when there is no such machine.
    pub fn suffer(&mut self, code: &str, trouble: Trouble, now: Duration) -> Option<Vec<usize>> {
        let (machine, _) = self.machines.iter_mut().zip(&STATIONS).find(|(_, station)| station.code == code)?;
        match trouble {
            Trouble::Counter(Which::Good, fault) => machine.good.suffer(fault, now),
            Trouble::Counter(Which::Scrap, fault) => machine.scrap.suffer(fault, now),
            Trouble::Stop(for_) => machine.stopped_until = now.saturating_add(for_),
        }
        Some(self.show())
    }

    /// What was really made since the start, by machine.
    #[must_use]
    pub fn truth(&self) -> BTreeMap<String, Made> {
        let line = self.line.places().map(|place| (place.station().code.to_owned(), place.made()));
        let load = (1..=self.counters).map(|n| (load_machine(n), Made { good: self.steps, scrap: 0 }));
        line.chain(load).collect()
    }

    fn show(&self) -> Vec<usize> {
        let line = self.machines.iter().zip(self.line.places()).flat_map(|(machine, place)| {
            let state = place.station().numbers.number(place.state());
            [
                machine.good.shown(),
                machine.scrap.shown(),
                Shown::Value(Variant::Int32(state)),
                Shown::Value(Variant::Double(place.value())),
            ]
        });
        self.board.show(line.chain((0..self.counters).map(|_| load_value(self.steps))))
    }
}

impl Machine {
    fn count(&mut self, made: Made) {
        self.good.count(made.good - self.counted.good);
        self.scrap.count(made.scrap - self.counted.scrap);
        self.counted = made;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(10);

    fn beginning() -> Beginning {
        Beginning { seed: 1, speed: 20.0, paused: false, counters: 0, first: None }
    }

    /// Steps from one time to another, and the last time.
    fn run(simulation: &mut Simulation, from: Duration, steps: u32) -> Duration {
        let mut now = from;
        for _ in 0..steps {
            now += STEP;
            simulation.step(now);
        }
        now
    }

    fn shown(simulation: &Simulation, identifier: &str) -> Shown {
        let board = simulation.board();
        board.readings()[board.position(identifier).unwrap()].shown.clone()
    }

    #[test]
    fn the_truth_is_the_same_at_every_speed_after_the_same_ticks() {
        let (mut slow, mut fast) =
            (Simulation::new(&Beginning { speed: 1.0, ..beginning() }), Simulation::new(&beginning()));
        run(&mut slow, Duration::ZERO, 8_000);
        run(&mut fast, Duration::ZERO, 400);
        assert_eq!((slow.ticks(), slow.truth()), (fast.ticks(), fast.truth()));
        assert_eq!(slow.ticks(), 8_000);
    }

    #[test]
    fn no_fault_of_a_counter_changes_the_truth() {
        let mut untouched = Simulation::new(&beginning());
        run(&mut untouched, Duration::ZERO, 400);
        let faults = [
            Fault::Reset,
            Fault::Glitch(LONG),
            Fault::Bad(LONG),
            Fault::Vanish(LONG),
            Fault::Jump(1_000),
            Fault::Spike(1_000, LONG),
        ];
        for fault in faults {
            let mut simulation = Simulation::new(&beginning());
            let now = run(&mut simulation, Duration::ZERO, 100);
            for which in [Which::Good, Which::Scrap] {
                assert!(simulation.suffer("FILL01", Trouble::Counter(which, fault), now).is_some());
            }
            run(&mut simulation, now, 300);
            assert_eq!(simulation.truth(), untouched.truth(), "{fault:?}");
        }
    }

    #[test]
    fn a_counter_that_suffers_nothing_shows_what_was_made_since_the_start() {
        let mut simulation = Simulation::new(&Beginning { first: Some(0), ..beginning() });
        run(&mut simulation, Duration::ZERO, 1_000);
        let made = simulation.truth()["CAP01"].good;
        assert!(made > 0);
        assert_eq!(shown(&simulation, "CAP01.GoodCount"), Shown::Value(Variant::Int32(i32::try_from(made).unwrap())));
    }

    #[test]
    fn the_16_bit_counter_rolls_over_while_the_truth_goes_on() {
        let mut simulation = Simulation::new(&Beginning { first: Some(65_530), ..beginning() });
        run(&mut simulation, Duration::ZERO, 400);
        let made = simulation.truth()["FILL01"].good;
        let expected = u16::try_from(65_530 + made - 65_536).unwrap();
        assert_eq!(shown(&simulation, "FILL01.GoodCount"), Shown::Value(Variant::UInt16(expected)));
    }

    #[test]
    fn a_stopped_machine_makes_nothing_and_says_that_it_is_down() {
        let mut simulation = Simulation::new(&beginning());
        let now = run(&mut simulation, Duration::ZERO, 100);
        let before = simulation.truth()["FILL01"];
        assert!(simulation.suffer("FILL01", Trouble::Stop(LONG), now).is_some());
        let now = run(&mut simulation, now, 199);
        assert_eq!(simulation.truth()["FILL01"], before);
        assert_eq!(shown(&simulation, "FILL01.State"), Shown::Value(Variant::Int32(4)));
        run(&mut simulation, now, 100);
        assert!(simulation.truth()["FILL01"].good > before.good);
    }

    #[test]
    fn a_paused_line_makes_nothing_and_does_not_catch_up() {
        let mut simulation = Simulation::new(&Beginning { paused: true, counters: 1, ..beginning() });
        let now = run(&mut simulation, Duration::ZERO, 100);
        assert_eq!((simulation.ticks(), simulation.truth()["LOAD0001"].good), (0, 0));
        simulation.pause(false, now);
        let now = run(&mut simulation, now, 1);
        assert_eq!(simulation.ticks(), 20);
        simulation.pause(true, now);
        let (now, truth) = (run(&mut simulation, now, 100), simulation.truth());
        simulation.pause(false, now);
        assert_eq!(simulation.truth(), truth);
    }

    #[test]
    fn a_process_that_was_asleep_makes_up_for_a_second_at_most() {
        let mut simulation = Simulation::new(&Beginning { speed: 1.0, ..beginning() });
        simulation.step(Duration::from_secs(3_600));
        assert_eq!(simulation.ticks(), 20);
    }

    #[test]
    fn only_what_changed_is_told_and_every_load_counter_changes_at_each_step() {
        let mut simulation = Simulation::new(&Beginning { counters: 3, ..beginning() });
        let load: Vec<usize> = (24..27).collect();
        assert!(simulation.step(STEP).ends_with(&load));
        simulation.pause(true, STEP);
        assert_eq!(simulation.step(STEP * 2), Vec::<usize>::new());
        let changed = simulation.suffer("LOAD01", Trouble::Counter(Which::Good, Fault::Bad(LONG)), STEP * 2);
        assert_eq!(changed, Some(vec![0]));
        assert_eq!(simulation.suffer("LOAD99", Trouble::Stop(LONG), STEP), None);
    }
}
