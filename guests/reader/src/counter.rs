//! One counter: a reading goes in, bookings and anomalies come out.
//!
//! Nothing here knows a database or OPC UA. Every change raises the baseline's sequence by one, so that a change which was written once is
//! recognised when it is written again; what one reading cannot decide is in [`Pending`].

use crate::pending::{Fell, Glitch, Jump, Pending, Stale, Waiting};
use crate::plan::{OnFall, OnReset, Rules};
pub use crate::reading::{Anomaly, Clock, Ledger, Moment, Reading, ValueType};

/// One second in nanoseconds: sampling jitter within it is no jump.
const SECOND: i64 = 1_000_000_000;
/// After so many growing readings a counter has plainly gone its own way.
const OWN_WAY: u8 = 3;

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
    /// What is not decided yet.
    pub pending: Pending,
}

impl Baseline {
    /// The first reading ever: books nothing.
    #[must_use]
    pub fn first(r: Reading) -> Self {
        let Reading { value, value_type, at, clock } = r;
        Self { sequence: 1, value, value_type, booked: 0, at, clock, pending: Pending::default() }
    }

    /// Judges one reading.
    pub fn read(&mut self, rules: &Rules, r: Reading, when: Moment, out: &mut impl Ledger) {
        if r.value_type == self.value_type && r.value >= self.value && self.pending.is_empty() {
            let more = r.value - self.value;
            if more == 0 {
                return;
            }
            if rules.is_plausible(more, self.elapsed(&r, when)) {
                self.book(more, r, out);
                return;
            }
        }
        self.close_glitch_when_over(rules, when.now, out);
        if self.pending.rebase {
            self.rebase(r);
        } else if r.value_type != self.value_type {
            self.change_type(r, out);
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
        let sequence = self.touch();
        out.report(Anomaly {
            sequence,
            kind: "not-a-count",
            baseline: Some(self.value),
            reading: None,
            quantity: None,
            detail,
            needs_decision: false,
        });
        self.pending = Pending { rebase: true, ..Pending::default() };
    }

    /// Time has passed without a reading.
    pub fn close_glitch_when_over(&mut self, rules: &Rules, now: i64, out: &mut impl Ledger) {
        if let Some(glitch) = self.pending.glitch
            && now.saturating_sub(glitch.since) >= rules.restart_glitch_ns
        {
            self.close_glitch(rules, glitch, now, out);
        }
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
        self.pending.glitch.map_or(jump, |g| g.grown)
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

    fn stand_at(&mut self, r: Reading) {
        self.value = r.value;
        self.value_type = r.value_type;
        self.at = r.at;
        self.clock = r.clock;
    }

    fn book(&mut self, quantity: u64, r: Reading, out: &mut impl Ledger) {
        out.book(self.touch(), quantity, r.at, r.clock);
        self.booked += u128::from(quantity);
        self.stand_at(r);
    }

    /// How long the counter may have counted since its baseline. The reading's own clock tells readings of one batch apart, but may be
    /// set: it never says more than the time since the value was last known.
    fn elapsed(&self, r: &Reading, when: Moment) -> i64 {
        span(self.clock, self.at, r, when.now.saturating_sub(when.evidence))
    }

    fn judge(&mut self, rules: &Rules, r: Reading, when: Moment, out: &mut impl Ledger) {
        if r.value < self.value {
            self.fall(rules, r, when, out);
            return;
        }
        if self.pending.stale.take().is_some() && r.value == self.value {
            self.touch();
        }
        if r.value > self.value {
            self.rise(rules, r, when, out);
        }
    }

    fn rise(&mut self, rules: &Rules, r: Reading, when: Moment, out: &mut impl Ledger) {
        let more = r.value - self.value;
        let plausible = rules.is_plausible(more, self.elapsed(&r, when));
        if let Some(fell) = self.pending.fell {
            let own_way = fell.growths >= OWN_WAY && rules.max_rate.is_some() && plausible;
            if came_back(fell.from, r.value) && more >= fell.from / 2 && !own_way {
                self.return_late(fell.from, r, out);
                return;
            }
        }
        if plausible {
            self.note_growth(r.value);
            self.book(more, r, out);
        } else {
            self.touch();
            self.pending.jump = Some(Jump { to: r.value, at: r.at, clock: r.clock, before: when.evidence });
        }
    }

    fn note_growth(&mut self, value: u64) {
        if let Some(fell) = &mut self.pending.fell {
            fell.growths = fell.growths.saturating_add(1).min(OWN_WAY);
            if value >= fell.from {
                self.pending.fell = None;
            }
        }
    }

    /// The old value is back after the fall was taken for a reset: the lifetime total is booked by nobody.
    fn return_late(&mut self, from: u64, r: Reading, out: &mut impl Ledger) {
        let more = r.value.saturating_sub(from);
        let detail = format!(
            "the counter fell from {from}, was taken for reset, and came back to {}; accept books the {more} above the old value, reject books nothing",
            r.value
        );
        let quantity = (more > 0).then_some(more);
        self.restart_at(r, "late-return", quantity, detail, quantity.is_some(), out);
        self.pending.fell = None;
    }

    fn fall(&mut self, rules: &Rules, r: Reading, when: Moment, out: &mut impl Ledger) {
        let comparable = r.clock == self.clock && r.clock != Clock::Arrival;
        if let Some(stale) = self.pending.stale
            && comparable
            && r.at > stale.at
            && r.value > stale.value
        {
            if r.at > self.at || is_live(stale, r, when) {
                self.reset_before(rules, stale, r, when, out);
            }
            return;
        }
        if comparable && r.at <= self.at {
            if self.pending.stale.is_none_or(|s| r.value < s.value) {
                self.touch();
                self.pending.stale = Some(Stale { value: r.value, at: r.at, seen: when.now });
            }
            return;
        }
        self.pending.stale = None;
        self.descend(rules, r, when, out);
    }

    /// The counter goes on from the low value with growing times: it was a reset, and the PLC's clock was set back.
    fn reset_before(&mut self, rules: &Rules, stale: Stale, r: Reading, when: Moment, out: &mut impl Ledger) {
        self.pending.stale = None;
        let low = Reading { value: stale.value, at: stale.at, ..r };
        self.descend(rules, low, Moment { now: stale.seen, ..when }, out);
        self.read(rules, r, when, out);
    }

    /// A fall that is one.
    fn descend(&mut self, rules: &Rules, r: Reading, when: Moment, out: &mut impl Ledger) {
        if let Some(waiting) = self.pending.waiting {
            let line = self.value.saturating_sub(waiting.size);
            if r.value >= line && rules.is_plausible(r.value - line, self.elapsed(&r, when)) {
                self.end_spike(waiting, r.value - line, r, out);
                return;
            }
        }
        if let (OnFall::Rollover, Some(after_highest), Some(most)) = (rules.on_fall, rules.rollover, rules.max_delta)
            && self.value < after_highest
            && let Some(more) = (after_highest - self.value).checked_add(r.value)
            && more <= most
        {
            self.book(more, r, out);
            return;
        }
        if r.value == 0 && rules.restart_glitch_ns > 0 {
            self.touch();
            self.pending.glitch =
                Some(Glitch { since: when.now, last: 0, grown: 0, growths: 0, at: r.at, clock: r.clock });
            return;
        }
        self.reset(rules, r, out);
    }

    /// A jump that a person was asked about has gone again.
    fn end_spike(&mut self, waiting: Waiting, more: u64, r: Reading, out: &mut impl Ledger) {
        out.withdraw(waiting.sequence);
        self.pending.waiting = None;
        if more > 0 {
            self.book(more, r, out);
        } else {
            self.touch();
            self.stand_at(r);
        }
    }

    fn reset(&mut self, rules: &Rules, r: Reading, out: &mut impl Ledger) {
        let from = self.value;
        let why = if rules.on_fall == OnFall::Rollover { ", which is no rollover within max_delta" } else { "" };
        let said = format!("the counter fell from {from} to {}{why}", r.value);
        if rules.on_reset == OnReset::FromZero && r.value > 0 {
            if rules.max_delta.is_some_and(|most| r.value <= most) {
                let detail = format!("{said} and is taken for reset; the {} since zero are booked", r.value);
                out.report(self.reset_report(r, None, detail));
                self.book(r.value, r, out);
                self.pending = Pending { fell: Some(Fell { from, growths: 0 }), ..Pending::default() };
                return;
            }
            let detail = format!(
                "{said}; {} since zero is more than max_delta: accept books them, reject books nothing",
                r.value
            );
            self.restart_at(r, "reset", Some(r.value), detail, true, out);
        } else {
            let hidden = r.value;
            let detail = format!(
                "{said} and is taken for reset; nothing is booked, which may hide {hidden} units made since zero"
            );
            self.restart_at(r, "reset", None, detail, false, out);
        }
        self.pending = Pending { fell: Some(Fell { from, growths: 0 }), ..Pending::default() };
    }

    fn reset_report(&self, r: Reading, quantity: Option<u64>, detail: String) -> Anomaly {
        let (baseline, reading) = (Some(self.value), Some(r.value));
        Anomaly { sequence: self.sequence, kind: "reset", baseline, reading, quantity, detail, needs_decision: false }
    }

    /// A new baseline that books nothing, with an anomaly that says so.
    fn restart_at(
        &mut self,
        r: Reading,
        kind: &'static str,
        quantity: Option<u64>,
        detail: String,
        needs_decision: bool,
        out: &mut impl Ledger,
    ) {
        let (baseline, reading) = (Some(self.value), Some(r.value));
        out.report(Anomaly { sequence: self.touch(), kind, baseline, reading, quantity, detail, needs_decision });
        self.stand_at(r);
    }

    fn rebase(&mut self, r: Reading) {
        self.touch();
        self.stand_at(r);
        self.pending = Pending::default();
    }

    fn change_type(&mut self, r: Reading, out: &mut impl Ledger) {
        let detail = format!(
            "the counter's data type changed from {} to {}; {} is the new baseline and nothing is booked",
            self.value_type.name(),
            r.value_type.name(),
            r.value
        );
        self.restart_at(r, "type-changed", None, detail, false, out);
        self.pending = Pending::default();
    }

    fn read_in_glitch(&mut self, rules: &Rules, mut glitch: Glitch, r: Reading, when: Moment, out: &mut impl Ledger) {
        // Growing up to a low old value in small steps is no return to it.
        let one_step = r.value.saturating_sub(glitch.last) >= self.value / 2;
        if r.value >= self.value && one_step {
            self.pending.glitch = None;
            let more = r.value - self.value;
            if more == 0 {
                self.touch();
            } else if rules.is_plausible(more, when.now.saturating_sub(glitch.since).max(SECOND)) {
                self.book(more, r, out);
            } else {
                self.touch();
                self.pending.jump = Some(Jump { to: r.value, at: r.at, clock: r.clock, before: glitch.since });
            }
            return;
        }
        if r.value == glitch.last {
            return;
        }
        if r.value > glitch.last && r.value < self.value && one_step && came_back(self.value, r.value) {
            // Retained memory from a little before the restart: growth from zero it is not.
            let detail =
                format!("the counter fell from {} to 0 and came back to {}; nothing is booked", self.value, r.value);
            self.pending.glitch = None;
            self.restart_at(r, "reset", None, detail, false, out);
            return;
        }
        glitch.grown = glitch.grown.saturating_add(r.value.saturating_sub(glitch.last));
        glitch.growths = if r.value > glitch.last { glitch.growths + 1 } else { 0 };
        (glitch.last, glitch.at, glitch.clock) = (r.value, r.at, r.clock);
        if glitch.growths >= OWN_WAY {
            self.close_glitch(rules, glitch, when.now, out);
        } else {
            self.touch();
            self.pending.glitch = Some(glitch);
        }
    }

    /// The fall to zero was a reset: what has grown from zero is booked.
    fn close_glitch(&mut self, rules: &Rules, glitch: Glitch, now: i64, out: &mut impl Ledger) {
        let Glitch { last, grown, growths, at, clock, since } = glitch;
        let r = Reading { value: last, value_type: self.value_type, at, clock };
        let from = self.value;
        let certain = rules.is_plausible(grown, now.saturating_sub(since).max(SECOND));
        let zero = Reading { value: 0, ..r };
        if certain {
            let detail = format!(
                "the counter fell from {from} to 0 and is taken for reset; the {grown} counted from zero are booked"
            );
            out.report(self.reset_report(zero, None, detail));
        } else {
            let detail = format!(
                "the counter fell from {from} to 0 and grew by {grown}, faster than max_rate: accept books them, reject books nothing"
            );
            let needs_decision = true;
            out.report(Anomaly { needs_decision, ..self.reset_report(zero, Some(grown), detail) });
        }
        if certain && grown > 0 {
            self.book(grown, r, out);
        } else {
            self.touch();
            self.stand_at(r);
        }
        self.pending = Pending { fell: Some(Fell { from, growths }), ..Pending::default() };
    }

    fn read_after_jump(&mut self, rules: &Rules, jump: Jump, r: Reading, when: Moment, out: &mut impl Ledger) {
        if r.value == jump.to {
            return;
        }
        let since_jump = span(jump.clock, jump.at, &r, when.now.saturating_sub(when.evidence));
        if r.value > jump.to && rules.is_plausible(r.value - jump.to, since_jump) {
            self.go_on_from(jump, r, out);
            return;
        }
        if r.value >= self.value {
            let more = r.value - self.value;
            let since = span(self.clock, self.at, &r, when.now.saturating_sub(jump.before));
            if r.value > jump.to || !rules.is_plausible(more, since) {
                self.touch();
                self.pending.jump = Some(Jump { to: r.value, at: r.at, clock: r.clock, ..jump });
                return;
            }
        }
        self.drop_spike(jump, out);
        self.read(rules, r, Moment { evidence: jump.before, ..when }, out);
    }

    /// The counter counts on from where it jumped to: only the jump itself waits.
    fn go_on_from(&mut self, jump: Jump, r: Reading, out: &mut impl Ledger) {
        let size = jump.to - self.value;
        let detail = format!(
            "the counter jumped from {} to {}, faster than max_rate, and went on from there: accept books the {size}, reject books nothing",
            self.value, jump.to
        );
        let sequence = self.sequence;
        let to = Reading { value: jump.to, at: jump.at, clock: jump.clock, ..r };
        self.restart_at(to, "jump", Some(size), detail, true, out);
        self.pending.jump = None;
        self.pending.waiting = Some(Waiting { sequence, size });
        self.note_growth(r.value);
        self.book(r.value - jump.to, r, out);
    }

    fn drop_spike(&mut self, jump: Jump, out: &mut impl Ledger) {
        let detail = format!("the counter showed {} for a moment and came back; nothing of it is booked", jump.to);
        let (baseline, reading) = (Some(self.value), Some(jump.to));
        let sequence = self.touch();
        out.report(Anomaly {
            sequence,
            kind: "spike",
            baseline,
            reading,
            quantity: None,
            detail,
            needs_decision: false,
        });
        self.pending.jump = None;
    }
}

/// Whether a reading comes as late after the stale one as its own clock says. A machine that counts does; values that are sent once
/// more come in a burst.
fn is_live(stale: Stale, r: Reading, when: Moment) -> bool {
    let waited = when.now.saturating_sub(stale.seen);
    waited > 0 && waited.saturating_mul(2) >= r.at.saturating_sub(stale.at)
}

/// The old value, just above it, or less than a hundredth below it.
fn came_back(old: u64, value: u64) -> bool {
    value >= old || old - value <= old / 100
}

fn span(clock: Clock, at: i64, r: &Reading, window: i64) -> i64 {
    let by_clock = r.at.saturating_sub(at);
    let span = if clock == r.clock && by_clock > 0 { by_clock.min(window) } else { window };
    span.max(SECOND)
}
