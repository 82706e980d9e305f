//! A fall to zero, held for a while: a PLC that restarts shows zero and then its old value, one that was reset counts on from zero.

use super::{Baseline, Ledger, Moment, OWN_WAY, Reading, SMALL, came_back, fall};
use crate::pace::From;
use crate::pending::{Fell, Glitch, Jump, Pending};
use crate::plan::Rules;
use crate::reading::Anomaly;

impl Glitch {
    pub(super) fn begin(r: Reading, now: i64) -> Self {
        Self {
            since: now,
            seen_at: now,
            last: 0,
            grown: 0,
            growths: 0,
            step: 0,
            doubt: 0,
            fell_from: 0,
            again: 0,
            at: r.at,
            clock: r.clock,
        }
    }

    /// Whether this step can be growth from zero: by `max_rate`, or else because it is small, or like the ones before it.
    fn is_growth(&self, rules: &Rules, step: u64, r: &Reading, when: Moment) -> bool {
        if rules.max_rate.is_none() {
            return step <= SMALL || step <= self.step.saturating_mul(2);
        }
        // A zero of this batch may have been there for as long as nothing arrived.
        let reach = if self.since == when.now { when.reach } else { self.since };
        From { at: self.at, clock: self.clock, seen_at: self.seen_at, reach, used: self.grown }
            .allows(rules, step, r, when.now)
    }

    /// Takes in a reading that is not the old value.
    fn grow(&mut self, rules: &Rules, r: &Reading, when: Moment) {
        let shown_before = self.fell_from.min(r.value).saturating_sub(self.last);
        self.again = self.again.saturating_add(shown_before);
        let step = r.value.saturating_sub(self.last + shown_before);
        // A fast counter's first step is doubtful for its size alone, and those that follow are like it.
        let like_the_first = rules.max_rate.is_none() && self.doubt > 0 && step <= self.doubt.saturating_mul(2);
        if r.value < self.last {
            // What it shows of that again was counted since, or is none of it.
            self.again = self.again.saturating_add(r.value);
            self.fell_from = self.fell_from.max(self.last);
            self.growths = 0;
        } else if like_the_first || self.is_growth(rules, step, r, when) {
            self.grown = self.grown.saturating_add(step);
            self.growths += 1;
            self.step = self.step.max(step);
        } else {
            self.doubt = self.doubt.saturating_add(step);
            self.growths = 0;
        }
        (self.last, self.at, self.clock, self.seen_at) = (r.value, r.at, r.clock, when.now);
    }

    /// What is certain and what is not: a first step like the others is growth as they are.
    fn settled(mut self, rules: &Rules) -> Self {
        if rules.max_rate.is_none() && self.doubt <= self.step.saturating_mul(2) {
            self.grown = self.grown.saturating_add(self.doubt);
            self.doubt = 0;
        }
        self
    }
}

impl Baseline {
    pub(super) fn close_glitch_when_over(&mut self, rules: &Rules, now: i64, out: &mut impl Ledger) {
        if let Some(glitch) = self.pending.glitch
            && now.saturating_sub(glitch.since) >= rules.restart_glitch_ns
        {
            self.close_glitch(rules, glitch, out);
        }
    }

    pub(super) fn read_in_glitch(
        &mut self,
        rules: &Rules,
        mut glitch: Glitch,
        r: Reading,
        when: Moment,
        out: &mut impl Ledger,
    ) {
        if r.value == glitch.last {
            return;
        }
        if r.value > glitch.last && came_back(self.value, r.value) {
            let growth = glitch.is_growth(rules, r.value - glitch.last, &r, when);
            // Growing up to the old value step by step is no return to it; straight from zero to it may be either.
            if !growth || glitch.growths == 0 {
                let unsure = growth || self.value <= SMALL;
                self.come_back(rules, glitch, r, unsure, when, out);
                return;
            }
        }
        glitch.grow(rules, &r, when);
        if glitch.growths >= OWN_WAY {
            self.close_glitch(rules, glitch, out);
        } else {
            self.touch();
            self.pending.glitch = Some(glitch);
        }
    }

    /// The old value is there again, or one from a little before the restart. `unsure`: or so many were counted from zero.
    fn come_back(
        &mut self,
        rules: &Rules,
        glitch: Glitch,
        r: Reading,
        unsure: bool,
        when: Moment,
        out: &mut impl Ledger,
    ) {
        let old = self.value;
        let more = r.value.saturating_sub(old);
        if r.value >= old && !self.since(when).allows(rules, more, &r, when.now) {
            self.touch();
            self.pending.glitch = None;
            self.pending.jump =
                Some(Jump { to: r.value, at: r.at, clock: r.clock, seen_at: when.now, since: when.now });
            return;
        }
        self.pending.glitch = None;
        // What was counted since the zero is part of the old value's growth, unless it is more than that.
        let since_doubt = if glitch.doubt > 0 || glitch.again > 0 { r.value.saturating_sub(glitch.last) } else { 0 };
        let may_hide = glitch.grown.saturating_add(since_doubt).saturating_sub(more);
        if unsure || may_hide > 0 || r.value < old {
            let counted = r.value - more;
            let books = if more > 0 { format!("{more} are booked, and ") } else { String::new() };
            let choice = if unsure {
                format!("if it counted on from zero, {counted} more were made: accept books them, reject books nothing")
            } else {
                "nothing else is booked".to_owned()
            };
            let detail = format!("the counter fell from {old} to 0 and came back to {}; {books}{choice}", r.value);
            let anomaly = self.anomaly("reset", Some(r.value), detail);
            let (quantity, may_hide) = if unsure { (Some(counted), 0) } else { (None, may_hide) };
            out.report(Anomaly { quantity, may_hide, needs_decision: unsure, ..anomaly });
        }
        self.move_by(more, r, when.now, out);
    }

    /// The fall to zero was a reset: what has grown from zero is booked.
    fn close_glitch(&mut self, rules: &Rules, glitch: Glitch, out: &mut impl Ledger) {
        let Glitch { last, grown, growths, at, clock, seen_at, step, doubt, again, .. } = glitch.settled(rules);
        let doubt = doubt.saturating_add(again);
        let r = Reading { value: last, value_type: self.value_type, at, clock };
        let from = self.value;
        let said = format!(
            "the counter fell from {from} to 0 and is taken for reset; the {grown} counted from zero are booked"
        );
        let (quantity, detail) = match doubt {
            0 => (None, said),
            _ => {
                let why = match (again, rules.max_rate) {
                    (1.., _) => "that it may have shown before",
                    (0, Some(_)) => "faster than max_rate",
                    (0, None) => "in one step",
                };
                (
                    Some(doubt),
                    format!("{said}. It grew by another {doubt} {why}: accept books them, reject books nothing"),
                )
            }
        };
        let may_hide = fall::rollover(rules, from, 0).unwrap_or(0);
        let anomaly = self.anomaly("reset", Some(0), detail);
        out.report(Anomaly { quantity, may_hide, needs_decision: doubt > 0, ..anomaly });
        self.move_by(grown, r, seen_at, out);
        self.pending = Pending { fell: Some(Fell { from, growths, step }), ..Pending::default() };
    }
}
