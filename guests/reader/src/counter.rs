//! One counter: a reading goes in, bookings and anomalies come out.
//!
//! Nothing here knows a database or OPC UA. Every change raises the baseline's sequence by one, so that a change which was written once is
//! recognised when it is written again; what one reading cannot decide is in [`Pending`]. Whatever a counter does, each unit that it
//! has shown is booked, owed, or in an anomaly that says how many there may be.

mod fall;
mod glitch;
mod jump;

use crate::pace::From;
pub use crate::pace::Moment;
use crate::pending::{Jump, Pending, Waiting};
use crate::plan::Rules;
pub use crate::reading::{Anomaly, Clock, Ledger, Reading, ValueType};

/// After so many growing readings a counter has plainly gone its own way.
const OWN_WAY: u8 = 3;
/// Where nothing says how fast a counter may be, a step up to this is nothing strange, and a value up to this no lifetime total.
const SMALL: u64 = 100;

/// The value up to which a counter is booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Baseline {
    /// Raised by each change.
    pub sequence: i64,
    /// The counter's value.
    pub value: u64,
    /// How it was sent.
    pub value_type: ValueType,
    /// Units booked in all.
    pub booked: u128,
    /// The value's time.
    pub at: i64,
    /// Whose time that is.
    pub clock: Clock,
    /// When the value was first seen, by the database's clock.
    pub seen_at: i64,
    /// What is not decided yet.
    pub pending: Pending,
}

impl Baseline {
    /// The first reading ever, seen at `now`: books nothing.
    #[must_use]
    pub fn first(r: Reading, now: i64) -> Self {
        let Reading { value, value_type, at, clock } = r;
        Self { sequence: 1, value, value_type, booked: 0, at, clock, seen_at: now, pending: Pending::default() }
    }

    /// Judges one reading.
    pub fn read(&mut self, rules: &Rules, r: Reading, when: Moment, out: &mut impl Ledger) {
        if r.value_type == self.value_type && r.value >= self.value && self.pending.is_empty() {
            let more = r.value - self.value;
            if more == 0 {
                return;
            }
            if self.since(when).allows(rules, more, &r, when.now) {
                self.book(more, r, when.now, out);
                return;
            }
        }
        self.close_when_over(rules, when.now, out);
        if self.pending.rebase {
            self.rebase(r, when.now, out);
        } else if r.value_type != self.value_type {
            self.change_type(r, when.now, out);
        } else if let Some(glitch) = self.pending.glitch {
            self.read_in_glitch(rules, glitch, r, when, out);
        } else if let Some(jump) = self.pending.jump {
            self.read_after_jump(rules, jump, r, when, out);
        } else {
            self.judge(rules, r, when, out);
        }
    }

    /// A value that is no count, said in words: reported once, and the next count becomes the baseline.
    pub fn spoil(&mut self, seen: &str, out: &mut impl Ledger) {
        if self.pending.rebase {
            return;
        }
        let detail = format!(
            "the counter sent {seen}, which is not a whole number of units; nothing is booked, and the next whole number becomes the baseline instead of {}",
            self.value
        );
        out.report(Anomaly { may_hide: self.held(), ..self.anomaly("not-a-count", None, detail) });
        self.touch();
        self.pending = Pending { rebase: true, ..Pending::default() };
    }

    /// Time has passed without a reading: what was held for a while is decided.
    pub fn close_when_over(&mut self, rules: &Rules, now: i64, out: &mut impl Ledger) {
        self.close_glitch_when_over(rules, now, out);
        self.close_jump_when_over(rules, now, out);
        self.tell_of_stale_when_over(now, out);
    }

    /// A person has decided the anomaly with this number; accepting it books `quantity`.
    pub fn decide(&mut self, anomaly: i64, accepted: Option<u64>, now: i64, out: &mut impl Ledger) {
        let settles = self.pending.waiting.is_some_and(|w| w.sequence == anomaly);
        if settles {
            self.pending.waiting = None;
        }
        if let Some(quantity) = accepted.filter(|q| *q > 0) {
            out.book(self.touch(), quantity, now, Clock::Arrival);
            self.booked += u128::from(quantity);
        } else if settles {
            self.touch();
        }
    }

    /// Units that the counter has shown and that are not booked, as far as this knows.
    #[must_use]
    pub fn held(&self) -> u64 {
        let jump = self.pending.jump.map_or(0, |j| j.to.saturating_sub(self.value));
        self.pending.glitch.map_or(jump, |g| g.grown.saturating_add(g.doubt).saturating_add(g.again))
    }

    /// The newest time of a reading that is part of this.
    #[must_use]
    pub fn newest(&self) -> i64 {
        let jump = self.pending.jump.map_or(self.at, |j| j.at);
        self.pending.glitch.map_or(self.at, |g| g.at).max(jump)
    }

    /// The number before a change that is about to be made.
    fn touch(&mut self) -> i64 {
        let before = self.sequence;
        self.sequence += 1;
        before
    }

    fn stand_at(&mut self, r: Reading, seen_at: i64) {
        self.value = r.value;
        self.value_type = r.value_type;
        self.at = r.at;
        self.clock = r.clock;
        self.seen_at = seen_at;
    }

    fn book(&mut self, quantity: u64, r: Reading, seen_at: i64, out: &mut impl Ledger) {
        out.book(self.touch(), quantity, r.at, r.clock);
        self.booked += u128::from(quantity);
        self.stand_at(r, seen_at);
    }

    /// Books what there is, and stands at the reading in any case.
    fn move_by(&mut self, quantity: u64, r: Reading, seen_at: i64, out: &mut impl Ledger) {
        if quantity > 0 {
            self.book(quantity, r, seen_at, out);
        } else {
            self.touch();
            self.stand_at(r, seen_at);
        }
    }

    /// The baseline as what later readings are measured from.
    fn since(&self, when: Moment) -> From {
        let used = u64::try_from(self.booked.saturating_sub(when.booked)).unwrap_or(u64::MAX);
        From { at: self.at, clock: self.clock, seen_at: when.seen_at, reach: when.reach, used }
    }

    fn judge(&mut self, rules: &Rules, r: Reading, when: Moment, out: &mut impl Ledger) {
        if r.value < self.value {
            self.fall(rules, r, when, out);
            return;
        }
        if let Some(stale) = self.pending.stale.take() {
            self.leave_stale(stale, r, when, out);
        }
        if r.value > self.value {
            self.rise(rules, r, when, out);
        }
    }

    fn rise(&mut self, rules: &Rules, r: Reading, when: Moment, out: &mut impl Ledger) {
        let more = r.value - self.value;
        let plausible = self.since(when).allows(rules, more, &r, when.now);
        if !plausible {
            self.touch();
            self.pending.jump =
                Some(Jump { to: r.value, at: r.at, clock: r.clock, seen_at: when.now, since: when.now });
        } else {
            self.grow(rules, more, r, when.now, out);
        }
    }

    /// Books a rise that can have been made, unless it is the old value coming back.
    fn grow(&mut self, rules: &Rules, more: u64, r: Reading, now: i64, out: &mut impl Ledger) {
        if self.is_late_return(rules, r.value, true) {
            let anomaly = self.late_return(r.value);
            self.restart_at(r, now, anomaly, out);
        } else {
            self.note_growth(r.value, more);
            self.book(more, r, now, out);
        }
    }

    /// An anomaly of this moment, about the baseline and perhaps a reading; nobody is asked anything.
    fn anomaly(&self, kind: &'static str, reading: Option<u64>, detail: String) -> Anomaly {
        Anomaly {
            sequence: self.sequence,
            kind,
            baseline: Some(self.value),
            reading,
            quantity: None,
            may_hide: 0,
            detail,
            needs_decision: false,
        }
    }

    /// A new baseline whose units wait for a person; where it goes back, they never were.
    fn wait_at(&mut self, r: Reading, seen_at: i64, anomaly: Anomaly, out: &mut impl Ledger) {
        self.pending.waiting = Some(Waiting { sequence: self.sequence, size: r.value.saturating_sub(self.value) });
        self.restart_at(r, seen_at, anomaly, out);
    }

    /// A new baseline that books nothing, with the anomaly that says so.
    fn restart_at(&mut self, r: Reading, seen_at: i64, anomaly: Anomaly, out: &mut impl Ledger) {
        out.report(anomaly);
        self.touch();
        self.stand_at(r, seen_at);
    }

    /// The first count after a value that was none.
    fn rebase(&mut self, r: Reading, now: i64, out: &mut impl Ledger) {
        self.pending = Pending::default();
        if r.value == self.value {
            self.touch();
            self.stand_at(r, now);
            return;
        }
        let said = format!("the counter sends whole numbers again and stands at {}", r.value);
        let anomaly = match r.value.checked_sub(self.value) {
            Some(more) => {
                let detail = format!("{said}, {more} above the last one: accept books them, reject books nothing");
                let asked = self.anomaly("rebaseline", Some(r.value), detail);
                Anomaly { quantity: Some(more), needs_decision: true, ..asked }
            }
            None => {
                let detail = format!("{said}, below the last one, {}; nothing is booked", self.value);
                Anomaly { may_hide: r.value, ..self.anomaly("rebaseline", Some(r.value), detail) }
            }
        };
        self.restart_at(r, now, anomaly, out);
    }

    fn change_type(&mut self, r: Reading, now: i64, out: &mut impl Ledger) {
        let detail = format!(
            "the counter's data type changed from {} to {}; {} is the new baseline and nothing is booked",
            self.value_type.name(),
            r.value_type.name(),
            r.value
        );
        let may_hide = r.value.checked_sub(self.value).unwrap_or(r.value).max(self.held());
        let anomaly = Anomaly { may_hide, ..self.anomaly("type-changed", Some(r.value), detail) };
        self.restart_at(r, now, anomaly, out);
        self.pending = Pending::default();
    }
}

/// The old value, just above it, or less than a hundredth below it.
fn came_back(old: u64, value: u64) -> bool {
    value >= old || old - value <= old / 100
}
