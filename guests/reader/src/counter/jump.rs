//! A step that is too large for `max_rate`: held until what follows says whether it was a spike, a jump, or no more than was made.

use super::fall::rollover;
use super::{Baseline, Ledger, Moment, Reading, SMALL};
use crate::pace::{From, SECOND};
use crate::pending::{Jump, Waiting};
use crate::plan::Rules;
use crate::reading::Anomaly;

/// What nothing has taken back for so long is shown to a person. It can still be taken back.
pub(super) const HELD_FOR: i64 = 60 * SECOND;

impl Baseline {
    pub(super) fn read_after_jump(
        &mut self,
        rules: &Rules,
        jump: Jump,
        r: Reading,
        when: Moment,
        out: &mut impl Ledger,
    ) {
        if r.value == jump.to {
            return;
        }
        let all = r.value.checked_sub(self.value).filter(|all| self.since(when).allows(rules, *all, &r, when.now));
        if let Some(all) = all.filter(|_| r.value > jump.to) {
            // No more than can have been made since the baseline: two steps of which the first came early.
            self.pending.jump = None;
            self.grow(rules, all, r, when.now, out);
            return;
        }
        let since_jump = From::single(jump.at, jump.clock, jump.seen_at);
        if r.value > jump.to && since_jump.allows(rules, r.value - jump.to, &r, when.now) {
            self.go_on_from(rules, jump, r, when.now, out);
            return;
        }
        if r.value > jump.to || (r.value >= self.value && all.is_none()) {
            self.touch();
            self.pending.jump = Some(Jump { to: r.value, at: r.at, clock: r.clock, seen_at: when.now, ..jump });
            return;
        }
        self.drop_spike(rules, jump, r.value, out);
        self.read(rules, r, when, out);
    }

    /// The counter counts on from where it jumped to: only the jump itself waits.
    fn go_on_from(&mut self, rules: &Rules, jump: Jump, r: Reading, now: i64, out: &mut impl Ledger) {
        self.keep_jump(rules, jump, "went on from there", out);
        let more = r.value - jump.to;
        self.note_growth(r.value, more);
        self.book(more, r, now, out);
    }

    /// The counter stays where it jumped to.
    pub(super) fn close_jump_when_over(&mut self, rules: &Rules, now: i64, out: &mut impl Ledger) {
        if let Some(jump) = self.pending.jump
            && now.saturating_sub(jump.since) >= HELD_FOR
        {
            self.keep_jump(rules, jump, "stayed there", out);
        }
    }

    /// The jump becomes the baseline, and its units wait for a person.
    fn keep_jump(&mut self, rules: &Rules, jump: Jump, how: &str, out: &mut impl Ledger) {
        self.pending.jump = None;
        let to = Reading { value: jump.to, value_type: self.value_type, at: jump.at, clock: jump.clock };
        let anomaly = if self.is_late_return(rules, jump.to, false) {
            self.late_return(jump.to)
        } else {
            let size = jump.to.saturating_sub(self.value);
            let detail = format!(
                "the counter jumped from {} to {}, faster than max_rate, and {how}: accept books the {size}, reject books nothing",
                self.value, jump.to
            );
            let anomaly = self.anomaly("jump", Some(jump.to), detail);
            Anomaly { quantity: Some(size), needs_decision: true, ..anomaly }
        };
        self.wait_at(to, jump.seen_at, anomaly, out);
    }

    fn drop_spike(&mut self, rules: &Rules, jump: Jump, now_at: u64, out: &mut impl Ledger) {
        let detail = format!("the counter showed {} for a moment and came back; nothing of it is booked", jump.to);
        // One that goes below the baseline was reset, one that is declared to may have rolled over: both may have counted before that.
        let jumped = jump.to.saturating_sub(self.value);
        let may_hide = match (now_at.checked_sub(self.value), rollover(rules, jump.to, now_at)) {
            (None, _) => jumped,
            (Some(booked), Some(rolled)) => (jumped + rolled).saturating_sub(booked),
            (Some(_), None) => 0,
        };
        let anomaly = self.anomaly("spike", Some(jump.to), detail);
        out.report(Anomaly { may_hide, ..anomaly });
        self.touch();
        self.pending.jump = None;
    }

    /// A jump that a person was asked about has gone again: the baseline is where it would be without.
    pub(super) fn leave_jump(&mut self, waiting: Waiting, line: u64, r: Reading, out: &mut impl Ledger) {
        self.pending.waiting = None;
        if r.value > SMALL {
            out.withdraw(waiting.sequence);
        } else {
            // So low a value may as well have been counted since a reset; then the jump may have been real.
            let detail = format!(
                "the counter fell from {} to {}: the jump of {} before it is over, or it was reset",
                self.value, r.value, waiting.size
            );
            let anomaly = self.anomaly("reset", Some(r.value), detail);
            out.report(Anomaly { may_hide: line, ..anomaly });
        }
        self.touch();
        self.value = line;
    }
}
