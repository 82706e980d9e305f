//! Everything that one instance watches, and what a batch makes of it.
//!
//! A batch works on copies; they become the truth when its transaction has committed, and are dropped when it has not. Items are
//! looked up by their number in a list: nothing is searched, hashed or allocated for a sample that books.

use plant_role::opc::Sample;

use crate::connection::Link;
use crate::counter::{Baseline, Moment, Reading};
use crate::pace::reach_after;
use crate::plan::Rules;
use crate::sample::{Judged, has_overflowed, is_above_single, is_usable, judge, state_number};
use crate::state::{self, Times, Watch};
use crate::tables::{BaselineRow, Tables};

/// What an item is read for: mostly one thing, but machines of a line may share a node.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Nothing,
    Counter(usize),
    State(usize),
    Several(Vec<Target>),
}

/// A counter that is watched.
#[derive(Debug)]
pub struct Counter {
    /// For people: `FILL01 good`.
    pub name: String,
    /// The machine's place in `machines`.
    pub place: usize,
    /// The machine's row.
    pub machine: i64,
    /// 0 good, 1 scrap.
    pub number: i64,
    /// Its rules.
    pub rules: Rules,
    /// As the database has it.
    pub committed: Option<Baseline>,
    /// As this batch has it.
    pub working: Option<Baseline>,
    /// Up to when units are accounted for, by the database's clock; `None` before there is a baseline.
    pub reach: Option<i64>,
    /// The newest good reading's time.
    pub last_reading_at: Option<i64>,
    /// The newest good value of a batch that did not commit.
    pub unbooked: Option<u64>,
    /// What the row says of `owed` and `last_reading_at`.
    pub written: (u64, Option<i64>),
    /// Whether the newest sample was unusable.
    pub bad: bool,
    recent: [(u64, i64); 8],
    newest: usize,
    in_batch: bool,
    /// Until its first batch has committed. That batch may be one that an earlier instance has committed, without knowing it.
    fresh: bool,
    /// Whether its floating-point numbers have 32 bits, once that was asked.
    single: Option<bool>,
}

impl Counter {
    /// A counter that nothing is known of.
    #[must_use]
    pub fn new(name: String, place: usize, machine: i64, number: i64, rules: Rules) -> Self {
        Self {
            name,
            place,
            machine,
            number,
            rules,
            committed: None,
            working: None,
            reach: None,
            last_reading_at: None,
            unbooked: None,
            written: (0, None),
            bad: false,
            recent: [(0, i64::MIN); 8],
            newest: 0,
            in_batch: false,
            fresh: true,
            single: None,
        }
    }

    /// Counted and not booked, as far as it is known.
    #[must_use]
    pub fn owed(&self) -> u64 {
        self.working.as_ref().map_or(0, |b| {
            let unbooked = self.unbooked.map_or(0, |value| value.saturating_sub(b.value));
            b.held().max(unbooked)
        })
    }

    /// Readings that are sent once more are known by value and time; those of a PLC whose clock was set back are not among them.
    fn remember(&mut self, r: &Reading) {
        if let Some(place) = self.recent.get_mut(self.newest) {
            *place = (r.value, r.at);
            self.newest = (self.newest + 1) % self.recent.len();
        }
    }

    fn read(&mut self, r: Reading, now: i64, tables: &mut Tables) {
        self.last_reading_at = Some(r.at);
        self.unbooked = Some(r.value);
        if self.working.is_none() {
            self.remember(&r);
        }
        let Some(baseline) = &mut self.working else {
            self.working = Some(Baseline::first(r, now));
            return;
        };
        // Skipping loses nothing: these were judged already.
        let earlier = r.clock == baseline.clock && r.at < baseline.newest();
        if earlier && (self.fresh || (r.value < baseline.value && self.recent.contains(&(r.value, r.at)))) {
            return;
        }
        let begun = Moment::of(self.committed.as_ref(), now);
        let moment = Moment { reach: self.reach.unwrap_or(begun.reach), ..begun };
        baseline.read(&self.rules, r, moment, &mut tables.of(self.machine, self.number, now));
        self.remember(&r);
    }

    /// Looks at the newest reading of a first batch. A batch that was committed before ends with the baseline, or with what is pending; one that
    /// ends before it is none of those: its machine's clock was set back.
    fn begins(&mut self, r: &Reading) {
        if let Some(baseline) = self.committed.filter(|_| self.fresh) {
            self.fresh = !(r.clock == baseline.clock && r.at < baseline.newest());
        }
    }

    /// What has been booked is accounted for.
    fn account(&mut self, now: i64) {
        let (Some(before), Some(after)) = (self.committed, self.working) else {
            self.reach = self.working.map(|b| b.seen_at);
            return;
        };
        if (before.value, before.seen_at) == (after.value, after.seen_at) {
            return;
        }
        let used = u64::try_from(after.booked.saturating_sub(before.booked)).unwrap_or(u64::MAX);
        let reach = self.reach.unwrap_or(before.seen_at);
        self.reach = Some(if used > 0 { reach_after(&self.rules, reach, used, now) } else { after.seen_at });
    }

    fn row(&self) -> BaselineRow {
        BaselineRow {
            machine: self.machine,
            counter: self.number,
            moved_from: self.committed.map_or(0, |b| b.sequence),
            owed: self.owed(),
            last_reading_at: self.last_reading_at,
        }
    }

    fn write(&self, tables: &mut Tables) {
        if let Some(baseline) = &self.working {
            tables.baseline(&self.row(), baseline);
        }
    }
}

/// A machine that is watched.
#[derive(Debug)]
pub struct Machine {
    /// Its code.
    pub code: String,
    /// The connection that it is read through.
    pub connection: String,
    /// Its row.
    pub id: i64,
    /// How its state's numbers are read.
    pub reader: Option<state::Reader>,
    /// Its state.
    pub watch: Watch,
    /// Its state as the database has it.
    pub committed: Watch,
    /// Whether it can be heard.
    pub link: Option<Link>,
    /// The same, as the database has it.
    pub committed_link: Option<Link>,
    /// Whether the newest state was unusable or unexplained.
    pub bad: bool,
    /// When an earlier reader last said that it was watching.
    pub seen_at: Option<i64>,
}

impl Machine {
    /// A machine that nothing is known of.
    #[must_use]
    pub fn new(code: String, connection: String, id: i64, reader: Option<state::Reader>) -> Self {
        let watch = Watch { open: None, not_before: i64::MIN };
        Self {
            code,
            connection,
            id,
            reader,
            watch,
            committed: watch,
            link: None,
            committed_link: None,
            bad: false,
            seen_at: None,
        }
    }
}

/// What a 32-bit floating-point number sends from 2^24 on: a PLC that adds 1 to it stays where it is.
const SINGLE_IS_FULL: &str = "16777216 or more as a 32-bit floating-point number, which cannot count further: have the PLC count in a DINT, UDINT or LREAL";

/// What a batch had in it that people should hear of.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Samples that were unusable.
    pub bad: u64,
    /// Samples at which the server had dropped values.
    pub overflows: u64,
    /// States whose source dated them into the future.
    pub future: u64,
    /// Sentences, at most twenty.
    pub lines: Vec<String>,
}

impl Heard {
    fn say(&mut self, line: String) {
        if self.lines.len() < 20 {
            self.lines.push(line);
        }
    }
}

/// The whole.
#[derive(Debug)]
pub struct Floor {
    /// Its counters.
    pub counters: Vec<Counter>,
    /// Its machines.
    pub machines: Vec<Machine>,
    /// What the next transaction writes.
    pub tables: Tables,
    items: Vec<Target>,
    touched: Vec<usize>,
    /// Machines whose state this batch has changed; all of them, where connections have changed.
    entered: Vec<usize>,
    relinked: bool,
    order: Vec<usize>,
    last_watch: i64,
    /// Whether an item's floating-point numbers have 32 bits; asked only where that matters.
    is_single: fn(u32) -> bool,
}

impl Default for Floor {
    fn default() -> Self {
        Self::new(|_| false)
    }
}

impl Floor {
    /// Nothing yet; `is_single` says whether an item's floating-point numbers have 32 bits.
    #[must_use]
    pub fn new(is_single: fn(u32) -> bool) -> Self {
        Self {
            counters: Vec::new(),
            machines: Vec::new(),
            tables: Tables::default(),
            items: Vec::new(),
            touched: Vec::new(),
            entered: Vec::new(),
            relinked: false,
            order: Vec::new(),
            last_watch: 0,
            is_single,
        }
    }

    /// An item is a counter, by its place in `counters`; it may be other things as well.
    pub fn bind_counter(&mut self, item: u32, counter: usize) {
        self.bind(item, Target::Counter(counter));
    }

    /// An item is a machine's state, by its place in `machines`; it may be other things as well.
    pub fn bind_state(&mut self, item: u32, machine: usize) {
        self.bind(item, Target::State(machine));
    }

    fn bind(&mut self, item: u32, target: Target) {
        let place = item as usize;
        if self.items.len() <= place {
            self.items.resize(place + 1, Target::Nothing);
        }
        let Some(slot) = self.items.get_mut(place) else { return };
        *slot = match std::mem::replace(slot, Target::Nothing) {
            Target::Nothing => target,
            Target::Several(mut targets) => {
                targets.push(target);
                Target::Several(targets)
            }
            one => Target::Several(vec![one, target]),
        };
    }

    /// Takes a batch in: what it makes is in `tables`.
    pub fn take(&mut self, batch: &[Sample], now: i64) -> Heard {
        self.tables.clear();
        let mut heard = Heard::default();
        // Item after item, each in its order: rows of one counter then lie together, here and in the database.
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(0..batch.len());
        order.sort_by_key(|place| batch.get(*place).map(|sample| sample.item));
        let items = std::mem::take(&mut self.items);
        let item = |place: &usize| batch.get(*place).map(|sample| sample.item);
        for run in order.chunk_by(|one, next| item(one) == item(next)) {
            let target = run.first().and_then(item).and_then(|item| items.get(item as usize));
            let targets = match target {
                Some(Target::Several(targets)) => targets.as_slice(),
                Some(one) => std::slice::from_ref(one),
                None => &[],
            };
            for target in targets {
                self.take_run(target, batch, run, now, &mut heard);
            }
        }
        (self.items, self.order) = (items, order);
        for place in &self.touched {
            let Some(counter) = self.counters.get_mut(*place) else { continue };
            let moved = counter.working.map(|b| b.sequence) != counter.committed.map(|b| b.sequence);
            if moved {
                let failed = counter.unbooked.take();
                counter.write(&mut self.tables);
                counter.unbooked = failed;
            }
        }
        heard
    }

    /// Takes the samples of one item, in their order.
    fn take_run(&mut self, target: &Target, batch: &[Sample], run: &[usize], now: i64, heard: &mut Heard) {
        let samples = || run.iter().filter_map(|place| batch.get(*place));
        match target {
            Target::Counter(place) => {
                if let Some(counter) = self.counters.get_mut(*place).filter(|counter| counter.fresh)
                    && let Some(last) = samples().next_back()
                    && let Judged::Count(reading) = judge(last, counter.rules.uncertain, now)
                {
                    counter.begins(&reading);
                }
                samples().for_each(|sample| self.take_count(*place, sample, now, heard));
            }
            Target::State(place) => samples().for_each(|sample| self.take_state(*place, sample, now, heard)),
            Target::Several(_) | Target::Nothing => {}
        }
    }

    fn take_count(&mut self, place: usize, sample: &Sample, now: i64, heard: &mut Heard) {
        let Some(counter) = self.counters.get_mut(place) else { return };
        heard.overflows += u64::from(has_overflowed(sample.status));
        let mut judged = judge(sample, counter.rules.uncertain, now);
        if is_above_single(sample) && *counter.single.get_or_insert_with(|| (self.is_single)(sample.item)) {
            judged = Judged::NotACount(SINGLE_IS_FULL.to_owned());
        }
        let bad = judged == Judged::Unusable;
        if bad != counter.bad {
            counter.bad = bad;
            let is = if bad { "has no usable value" } else { "has a usable value again" };
            heard.say(format!("the counter {} {is} (status {:#010x})", counter.name, sample.status));
        }
        if bad {
            heard.bad += 1;
            return;
        }
        if !counter.in_batch {
            counter.in_batch = true;
            self.touched.push(place);
        }
        match judged {
            Judged::Count(reading) => counter.read(reading, now, &mut self.tables),
            Judged::NotACount(seen) => match &mut counter.working {
                Some(baseline) => baseline.spoil(&seen, &mut self.tables.of(counter.machine, counter.number, now)),
                None => {
                    heard.say(format!("the counter {} sent {seen}: it cannot start counting from that", counter.name))
                }
            },
            Judged::Unusable => {}
        }
    }

    fn take_state(&mut self, place: usize, sample: &Sample, now: i64, heard: &mut Heard) {
        let Some(machine) = self.machines.get_mut(place) else { return };
        let Some(reader) = &machine.reader else { return };
        let number = state_number(sample).filter(|_| is_usable(sample.status, crate::plan::Uncertain::Ignore));
        let state = number.and_then(|number| reader.read(number).map(|state| (state, number)));
        if state.is_none() != machine.bad {
            machine.bad = state.is_none();
            heard.say(match (state, number) {
                (Some(_), _) => format!("the state of {} is known again", machine.code),
                (None, Some(number)) => {
                    format!("the state of {} is {number}, which its map does not explain: unknown", machine.code)
                }
                (None, None) => format!(
                    "the state of {} has no usable value (status {:#010x}): unknown",
                    machine.code, sample.status
                ),
            });
        }
        heard.bad += u64::from(number.is_none());
        let times = Times { source: sample.source, server: sample.server, now };
        heard.future += u64::from(times.source_is_ahead());
        machine.watch.enter(machine.id, state, times, &mut self.tables);
        self.entered.push(place);
    }

    /// A connection has changed.
    ///
    /// A PLC that was loaded anew may send another data type.
    pub fn change(&mut self, connection: &str, next: &Link, now: i64) {
        self.tables.clear();
        self.relinked = true;
        self.counters.iter_mut().for_each(|counter| counter.single = None);
        let since = state::whole_micros(next.started_at);
        for machine in self.machines.iter_mut().filter(|m| m.connection == connection) {
            let next = Link { started_at: since, ..next.clone() };
            let Some(next) = crate::connection::follow(machine.link.as_ref(), next) else { continue };
            if next.connected {
                machine.watch.find(next.started_at);
            } else {
                machine.watch.lose(machine.id, next.started_at, &mut self.tables);
            }
            crate::connection::write(machine.id, machine.link.as_ref(), &next, now, &mut self.tables);
            machine.link = Some(next);
        }
    }

    /// Nobody watched for longer than a takeover takes: from the last evidence on, everything is unknown.
    pub fn lose_unwatched(&mut self, now: i64) {
        self.tables.clear();
        self.relinked = true;
        for machine in &mut self.machines {
            let Some(seen_at) = machine.seen_at.take() else { continue };
            if now.saturating_sub(seen_at) <= crate::connection::UNWATCHED {
                continue;
            }
            let reason = "nobody was reading".to_owned();
            let lost = Link { connected: false, reason, started_at: state::whole_micros(seen_at), detected_at: now };
            machine.watch.lose(machine.id, lost.started_at, &mut self.tables);
            if let Some(next) = crate::connection::follow(machine.link.as_ref(), lost) {
                crate::connection::write(machine.id, machine.link.as_ref(), &next, now, &mut self.tables);
                machine.link = Some(next);
            }
        }
    }

    /// A second has passed: holds end, and what people read is brought up to date where it changed.
    pub fn tick(&mut self, now: i64, decisions: &[Decision]) {
        self.tables.clear();
        self.mark_watched(now);
        for (place, counter) in self.counters.iter_mut().enumerate() {
            let Some(baseline) = &mut counter.working else { continue };
            let mut out = self.tables.of(counter.machine, counter.number, now);
            baseline.close_when_over(&counter.rules, now, &mut out);
            for d in decisions.iter().filter(|d| (d.machine, d.counter) == (counter.machine, counter.number)) {
                baseline.decide(d.sequence, d.accepted, now, &mut out);
            }
            let moved = counter.committed.is_none_or(|b| b.sequence != baseline.sequence);
            if moved || counter.written != (counter.owed(), counter.last_reading_at) {
                counter.write(&mut self.tables);
                self.touched.push(place);
            }
        }
        for d in decisions.iter().filter(|d| {
            self.counters.iter().any(|c| (c.machine, c.number) == (d.machine, d.counter) && c.working.is_some())
        }) {
            self.tables.applied(d.id, now);
        }
    }

    /// Every ten seconds the rows say that somebody is watching: what an outage hides is then known to be unknown.
    fn mark_watched(&mut self, now: i64) {
        if now.saturating_sub(self.last_watch) < crate::connection::UNWATCHED / 3 {
            return;
        }
        self.last_watch = now;
        for machine in &self.machines {
            if let Some(link) = machine.link.as_ref().filter(|l| l.connected) {
                self.tables.connection(machine.id, link, now, None);
            }
        }
    }

    /// The transaction has committed, or there was nothing to write.
    pub fn accept(&mut self, now: i64, from_samples: bool) {
        for place in self.touched.drain(..) {
            let Some(counter) = self.counters.get_mut(place) else { continue };
            let moved = counter.working.map(|b| b.sequence) != counter.committed.map(|b| b.sequence);
            counter.in_batch = false;
            if from_samples {
                counter.unbooked = None;
                counter.fresh = false;
            }
            counter.account(now);
            if moved || !from_samples {
                counter.written = (counter.owed(), counter.last_reading_at);
            }
            counter.committed = counter.working;
        }
        // A plant has thousands of machines, and a batch changes few of their states.
        for place in self.entered.drain(..) {
            let Some(machine) = self.machines.get_mut(place) else { continue };
            machine.committed = machine.watch;
        }
        if std::mem::take(&mut self.relinked) {
            for machine in &mut self.machines {
                machine.committed = machine.watch;
                machine.committed_link.clone_from(&machine.link);
            }
        }
    }

    /// The transaction has failed: nothing has moved.
    pub fn revert(&mut self) {
        self.last_watch = 0;
        self.touched.clear();
        self.entered.clear();
        self.relinked = false;
        for counter in &mut self.counters {
            counter.in_batch = false;
            counter.working = counter.committed;
        }
        for machine in &mut self.machines {
            machine.watch = machine.committed;
            machine.bad = false;
            machine.link.clone_from(&machine.committed_link);
        }
    }
}

/// A person's decision that is not applied yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The anomaly's row.
    pub id: i64,
    /// The machine.
    pub machine: i64,
    /// 0 good, 1 scrap.
    pub counter: i64,
    /// The anomaly's number.
    pub sequence: i64,
    /// What to book; `None` where it is rejected.
    pub accepted: Option<u64>,
}
