//! A value below the baseline: a stale repeat, a rollover, the end of a spike, a restart, or a reset.

use super::jump::HELD_FOR;
use super::{Baseline, Clock, Ledger, Moment, OWN_WAY, Reading, SMALL, came_back};
use crate::pace::SECOND;
use crate::pending::{Fell, Glitch, Pending, Stale};
use crate::plan::{OnFall, OnReset, Rules};
use crate::reading::Anomaly;

/// Values that are sent once more come in a burst, which is over by then.
const LONGEST_BURST: i64 = 10 * SECOND;

impl Baseline {
    pub(super) fn fall(&mut self, rules: &Rules, r: Reading, when: Moment, out: &mut impl Ledger) {
        let comparable = r.clock == self.clock && r.clock != Clock::Arrival;
        if let Some(stale) = self.pending.stale
            && comparable
            && r.value > stale.value
        {
            if r.at > self.at || is_live(stale, r, when) {
                self.reset_before(rules, stale, r, when, out);
            }
            return;
        }
        // An equal time is no older one: there are servers whose clock stands still.
        if comparable && r.at < self.at {
            if self.pending.stale.is_none_or(|s| r.value < s.value) {
                self.touch();
                self.pending.stale = Some(Stale { value: r.value, at: r.at, seen: when.now, told: false });
            }
            return;
        }
        self.pending.stale = None;
        self.descend(rules, r, when, out);
    }

    /// Repeats are followed by the present value: one that stays alone may be the present value.
    pub(super) fn tell_of_stale_when_over(&mut self, now: i64, out: &mut impl Ledger) {
        let Some(stale) = self.pending.stale.filter(|stale| !stale.told && stale.value > 0) else { return };
        if now.saturating_sub(stale.seen) < HELD_FOR {
            return;
        }
        let detail = format!(
            "the counter showed {} by an older time and nothing since: a repeat, or a reset by a clock that was set back",
            stale.value
        );
        let anomaly = self.anomaly("stale", Some(stale.value), detail);
        out.report(Anomaly { may_hide: stale.value, ..anomaly });
        self.touch();
        self.pending.stale = Some(Stale { told: true, ..stale });
    }

    /// A value that is not below the baseline follows a stale one.
    pub(super) fn leave_stale(&mut self, stale: Stale, r: Reading, when: Moment, out: &mut impl Ledger) {
        if r.clock == self.clock && r.at < self.at && is_live(stale, r, when) {
            let detail = format!(
                "the counter's clock was set back and it showed {}, then {}: it may have been reset and counted up again",
                stale.value, r.value
            );
            let anomaly = self.anomaly("reset", Some(r.value), detail);
            out.report(Anomaly { may_hide: self.value, ..anomaly });
            self.touch();
        } else if r.value == self.value {
            self.touch();
        }
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
        if let Some(more) = rollover(rules, self.value, r.value)
            && rules.max_delta.is_some_and(|most| more <= most)
        {
            self.pending.waiting = None;
            self.book(more, r, when.now, out);
            return;
        }
        if let Some(waiting) = self.pending.waiting {
            let line = self.value.saturating_sub(waiting.size);
            if r.value >= line {
                self.leave_jump(waiting, line, r, out);
                self.judge(rules, r, when, out);
                return;
            }
        }
        if r.value == 0 && rules.restart_glitch_ns > 0 {
            self.touch();
            self.pending.glitch = Some(Glitch::begin(r, when.now));
            return;
        }
        self.reset(rules, r, when.now, out);
    }

    fn reset(&mut self, rules: &Rules, r: Reading, now: i64, out: &mut impl Ledger) {
        let from = self.value;
        let rolled = rollover(rules, from, r.value);
        let why = rolled.map_or_else(String::new, |more| {
            format!(", which as a rollover would be {more} units and more than max_delta")
        });
        let said = format!("the counter fell from {from} to {}{why}", r.value);
        if rules.on_reset == OnReset::FromZero && r.value > 0 {
            if rules.max_delta.is_some_and(|most| r.value <= most) {
                let detail = format!("{said} and is taken for reset; the {} since zero are booked", r.value);
                let may_hide = rolled.map_or(0, |more| more.saturating_sub(r.value));
                out.report(Anomaly { may_hide, ..self.anomaly("reset", Some(r.value), detail) });
                self.book(r.value, r, now, out);
            } else {
                let detail = format!(
                    "{said}; {} since zero is more than max_delta: accept books them, reject books nothing",
                    r.value
                );
                let (quantity, may_hide) = (Some(r.value), rolled.map_or(0, |more| more.saturating_sub(r.value)));
                let asked = self.anomaly("reset", Some(r.value), detail);
                self.restart_at(r, now, Anomaly { quantity, may_hide, needs_decision: true, ..asked }, out);
            }
        } else {
            let detail = format!("{said} and is taken for reset; nothing is booked");
            let may_hide = rolled.unwrap_or(r.value);
            let anomaly = Anomaly { may_hide, ..self.anomaly("reset", Some(r.value), detail) };
            self.restart_at(r, now, anomaly, out);
        }
        self.pending = Pending { fell: Some(Fell { from, growths: 0, step: 0 }), ..Pending::default() };
    }

    /// Whether a rise after a reset is the old value coming back, and not what was counted since.
    pub(super) fn is_late_return(&self, rules: &Rules, value: u64, plausible: bool) -> bool {
        let Some(fell) = self.pending.fell else { return false };
        let more = value.saturating_sub(self.value);
        // Steps like those before it are growth, also past the old value.
        let steady = fell.growths > 0 && more <= fell.step.saturating_mul(2);
        if steady || more < fell.from / 2 {
            return false;
        }
        if came_back(fell.from, value) {
            return !(fell.growths >= OWN_WAY && rules.max_rate.is_some() && plausible);
        }
        // Nothing says how fast this counter is: memory that was saved long ago looks the same.
        rules.max_rate.is_none() && more > SMALL
    }

    /// The old value, or one that was saved a while before, is back after the fall was taken for a reset: the lifetime total is booked by
    /// nobody.
    pub(super) fn late_return(&mut self, value: u64) -> Anomaly {
        let from = self.pending.fell.take().map_or(0, |fell| fell.from);
        let grown = value.saturating_sub(self.value);
        let said = format!("the counter fell from {from}, was taken for reset, and came back to {value}");
        let (quantity, what) = match value.checked_sub(from) {
            Some(above) if from > SMALL => (above, format!("the {above} above the old value")),
            _ => (grown, format!("the {grown} above {}, if they were counted since", self.value)),
        };
        let asks = quantity > 0;
        let choice =
            if asks { format!("accept books {what}, reject books nothing") } else { "nothing is booked".to_owned() };
        let anomaly = self.anomaly("late-return", Some(value), format!("{said}; {choice}"));
        let quantity = asks.then_some(quantity);
        // The counter may have counted all the way up again, however unlikely that is.
        let may_hide = grown.saturating_sub(quantity.unwrap_or(0));
        Anomaly { quantity, may_hide, needs_decision: asks, ..anomaly }
    }

    pub(super) fn note_growth(&mut self, value: u64, step: u64) {
        if let Some(fell) = &mut self.pending.fell {
            fell.growths = fell.growths.saturating_add(1).min(OWN_WAY);
            fell.step = fell.step.max(step);
            if value >= fell.from {
                self.pending.fell = None;
            }
        }
    }
}

/// What a fall means where the counter is declared to wrap around.
pub(super) fn rollover(rules: &Rules, from: u64, to: u64) -> Option<u64> {
    let after_highest = rules.rollover.filter(|after| rules.on_fall == OnFall::Rollover && from < *after)?;
    (after_highest - from).checked_add(to)
}

/// Whether a reading comes as late after the stale one as its own clock says. A machine that counts does; values that are sent once
/// more come in a burst. A clock that does not move on says nothing.
fn is_live(stale: Stale, r: Reading, when: Moment) -> bool {
    let waited = when.now.saturating_sub(stale.seen);
    if r.at > stale.at {
        return waited > 0 && waited.saturating_mul(2) >= r.at.saturating_sub(stale.at);
    }
    waited >= LONGEST_BURST
}
