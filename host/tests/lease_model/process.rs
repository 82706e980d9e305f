//! What a process does: each step by itself, so that it can be frozen between any two. What it decides is decided by the code that decides
//! it in a node.

use std::time::Duration;

use host::lease::Renewal as Answer;
use host::lease::decisions::{self, Chance, Holds, Verdict};

use crate::database;
use crate::search::{Found, Step};
use crate::world::{
    Asking, Boot, Commit, Granted, LEASE_TIME, Message, Release, Renewal, Rule, Rules, Tenure, Violation, Why, World,
    at as time, mark, tick,
};

/// Everything that can happen next at or for this boot.
pub fn steps(world: &World, rules: Rules, boot: u8, found: &mut Found) {
    let state = &world.boots[usize::from(boot)];
    arrivals(world, rules, boot, state, found);
    land(world, boot, state, found);
    if state.alive {
        keep(world, rules, boot, state, found);
        take(world, rules, boot, state, found);
        mourn(world, boot, state, found);
        work(world, boot, state, found);
        give_back(world, rules, boot, state, found);
    }
}

/// Requests reach the database.
fn arrivals(world: &World, rules: Rules, boot: u8, state: &Boot, found: &mut Found) {
    if let Message::Sent(request) | Message::Abandoned(request) = state.renewal {
        found.then(world, Step("a renewal reaches the database", boot), |next| {
            let answer = database::renew(next, boot, request);
            next.boots[usize::from(boot)].renewal = answered(state.renewal, request, answer);
            None
        });
    }
    if let Message::Sent(request) | Message::Abandoned(request) = state.asking {
        found.then(world, Step("a request for the lease reaches the database", boot), |next| {
            let (answer, violation) = database::acquire(next, rules, boot, request);
            next.boots[usize::from(boot)].asking = answered(state.asking, request, answer);
            violation
        });
    }
    if let Message::Sent(request) | Message::Abandoned(request) = state.commit {
        found.then(world, Step("a COMMIT reaches the database", boot), |next| {
            let (answer, violation) = database::commit(next, rules, boot, request);
            next.boots[usize::from(boot)].commit = answered(state.commit, request, answer);
            violation
        });
    }
    if let Some(request) = state.release {
        found.then(world, Step("a release reaches the database", boot), |next| {
            database::release(next, rules, boot, request);
            next.boots[usize::from(boot)].release = None;
            None
        });
    }
}

fn answered<Q, A>(was: Message<Q, A>, request: Q, answer: A) -> Message<Q, A> {
    match was {
        Message::Abandoned(_) => Message::None,
        _ => Message::Answered(request, answer),
    }
}

/// An effect comes out, also of a process that has gone.
fn land(world: &World, boot: u8, state: &Boot, found: &mut Found) {
    if let Some(tenure) = state.effect {
        found.then(world, Step("an effect comes out", boot), |next| {
            next.boots[usize::from(boot)].effect = None;
            effect(next, tenure)
        });
    }
    if let Some(tenure) = state.late_effect {
        found.then(world, Step("an effect of an earlier tenure comes out", boot), |next| {
            next.boots[usize::from(boot)].late_effect = None;
            effect(next, tenure)
        });
    }
}

fn effect(world: &mut World, tenure: u8) -> Option<Violation> {
    let old = tenure < world.effect_of;
    world.effect_of = world.effect_of.max(tenure);
    old.then_some(Violation::OldEffect)
}

/// Renews, and fences itself.
fn keep(world: &World, rules: Rules, boot: u8, state: &Boot, found: &mut Found) {
    let at = usize::from(boot);
    if let Some(tenure) = state.tenure {
        if world.now >= tenure.deadline {
            found.then(world, Step("fences itself", boot), |next| {
                next.boots[at].tenure = None;
                None
            });
        } else if state.renewal == Message::None && !world.left.no_renewals {
            found.then(world, Step("sends a renewal", boot), |next| {
                next.boots[at].renewal = Message::Sent(Renewal { sent: world.now, epoch: tenure.epoch });
                None
            });
        }
    }
    if let Message::Answered(request, confirmed) = state.renewal {
        found.then(world, Step("learns what became of a renewal", boot), |next| {
            let from = if rules.on(Rule::CountFromSending) { request.sent } else { world.now };
            let boot = &mut next.boots[at];
            boot.renewal = Message::None;
            if let Some(tenure) = boot.tenure.as_mut().filter(|tenure| tenure.epoch == request.epoch) {
                let answer = if confirmed { Answer::Confirmed } else { Answer::Lost };
                match decisions::verdict(LEASE_TIME, time(from), answer, false) {
                    Verdict::Until(deadline) => tenure.deadline = tenure.deadline.max(tick(deadline)),
                    Verdict::Unknown => {}
                    Verdict::Over => boot.tenure = None,
                }
            }
            None
        });
    }
}

/// Looks at the lease, asks for it and gets it.
fn take(world: &World, rules: Rules, boot: u8, state: &Boot, found: &mut Found) {
    let at = usize::from(boot);
    let database = &world.database;
    if state.tenure.is_none()
        && state.asking == Message::None
        && let Some(why) = if database.row.is_some() { reason(world, rules, boot, state) } else { Some(Why::Free) }
    {
        found.then(world, Step("asks for the lease", boot), |next| {
            next.boots[at].asking = Message::Sent(Asking { sent: world.now, why, at_least: state.known });
            None
        });
    }
    if let Some(row) = database.row
        && state.tenure.is_none()
        && world.left.watched
        && state.seen.is_none_or(|(epoch, renewed, _)| (epoch, renewed) != (database.fence, row.renewed))
    {
        found.then(world, Step("looks at the lease", boot), |next| {
            let before = state.seen.map(|(epoch, renewed, since)| (mark((epoch, renewed)), time(since)));
            let since = decisions::since(before, mark((database.fence, row.renewed)), time(world.now));
            next.boots[at].seen = Some((database.fence, row.renewed, tick(since)));
            None
        });
    }
    if let Message::Answered(request, answer) = state.asking {
        found.then(world, Step("learns what became of its request", boot), |next| {
            let sent = if rules.on(Rule::CountFromSending) { request.sent } else { world.now };
            let hold_back = |granted: Granted| Duration::from_secs(u64::try_from(granted.hold_back).unwrap_or(0));
            let tenure = answer.map(|granted| Tenure {
                number: granted.tenure,
                epoch: granted.epoch,
                deadline: tick(decisions::deadline(LEASE_TIME, time(sent))),
                effects_from: tick(decisions::effects_from(time(world.now), hold_back(granted))),
                base: None,
            });
            next.boots[at].asking = Message::None;
            next.boots[at].tenure = tenure.or(state.tenure);
            next.boots[at].known = answer.map_or(state.known, |granted| granted.epoch.number);
            None
        });
    }
    if world.left.lost_answers
        && let Message::Sent(request) = state.asking
    {
        found.then(world, Step("stops waiting for the lease", boot), |next| {
            next.boots[at].asking = Message::Abandoned(request);
            None
        });
    }
}

/// Takes the holder for dead whose lock it saw held, and is granted.
fn mourn(world: &World, boot: u8, state: &Boot, found: &mut Found) {
    let Some(holder) = world.database.row.and_then(|row| row.holder).filter(|_| world.left.deaths) else { return };
    let other = &world.boots[usize::from(holder)];
    if state.alive && holder != boot && !world.is_dead(holder) && (other.unlocked || !other.alive) {
        found.then(world, Step("sees that the holder's lock is let go", boot), |next| {
            next.dead |= 1 << holder;
            // What the database says of the lease is not true of a process that only lost its session: it finds out by itself.
            next.tampered |= other.alive;
            None
        });
    }
}

/// Why this boot would ask for the lease, as it looks to it now.
fn reason(world: &World, rules: Rules, boot: u8, state: &Boot) -> Option<Why> {
    let row = world.database.row?;
    let mine = |holder| if rules.on(Rule::BootIsIdentity) { holder == boot } else { world.same_name(holder, boot) };
    let holds = match row.holder {
        None => Holds::Nobody,
        Some(holder) if mine(holder) => Holds::Me,
        Some(holder) if world.is_dead(holder) => Holds::Dead,
        Some(_) => Holds::Another,
    };
    let expires_in_ms = (i64::from(row.expires) - i64::from(world.database_now())) * 1_000;
    let seen = state.seen.filter(|_| rules.on(Rule::UnchangedIsExpired));
    let since = seen.map_or(world.now, |(_, _, since)| since);
    match decisions::chance(LEASE_TIME, holds, expires_in_ms, time(since), time(world.now)) {
        Chance::None => None,
        Chance::Now => Some(Why::Free),
        Chance::IfUnchanged => seen.map(|(epoch, renewed, _)| Why::Unchanged(epoch, renewed)),
    }
}

/// Reads state, books what was made, and has effects.
fn work(world: &World, boot: u8, state: &Boot, found: &mut Found) {
    let at = usize::from(boot);
    let Some(tenure) = state.tenure.filter(|tenure| world.now < tenure.deadline) else { return };
    let earlier = state.effect.is_some_and(|effect| effect != tenure.number) && state.late_effect.is_none();
    if world.left.effects && world.now >= tenure.effects_from && (state.effect.is_none() || earlier) {
        if world.left.effects_take_time {
            found.then(world, Step("checks its lease for an effect", boot), |next| {
                let boot = &mut next.boots[at];
                boot.late_effect = state.effect.or(state.late_effect);
                boot.effect = Some(tenure.number);
                None
            });
        } else if world.effect_of != tenure.number {
            found.then(world, Step("has an effect", boot), |next| {
                let past = !world.is_holder(boot) && !world.tampered;
                effect(next, tenure.number).or(past.then_some(Violation::EffectPastLease))
            });
        }
    }
    if world.left.pieces == 0 && world.made == 0 {
        return;
    }
    match tenure.base {
        None => found.then(world, Step("reads its state", boot), |next| {
            next.boots[at].tenure = Some(Tenure { base: Some(world.database.base), ..tenure });
            None
        }),
        Some(base) if base < world.made && state.commit == Message::None => {
            found.then(world, Step("sends COMMIT", boot), |next| {
                let commit = Commit { epoch: tenure.epoch, tenure: tenure.number, from: base, to: world.made };
                next.boots[at].commit = Message::Sent(commit);
                None
            });
        }
        Some(_) => {}
    }
    if let Message::Answered(request, done) = state.commit {
        found.then(world, Step("learns what became of its COMMIT", boot), |next| {
            let base = (done && request.tenure == tenure.number).then_some(request.to);
            next.boots[at].commit = Message::None;
            next.boots[at].tenure = Some(Tenure { base, ..tenure });
            None
        });
    }
}

/// Traps, and lets go.
fn give_back(world: &World, rules: Rules, boot: u8, state: &Boot, found: &mut Found) {
    let at = usize::from(boot);
    let Some(tenure) = state.tenure else { return };
    let abandoned = match state.commit {
        Message::Sent(request) => Message::Abandoned(request),
        _ => Message::None,
    };
    if world.left.traps > 0 && state.asking == Message::None {
        found.then(world, Step("its guest traps, a new instance is started", boot), |next| {
            next.left.traps -= 1;
            let boot = &mut next.boots[at];
            boot.commit = abandoned;
            if rules.on(Rule::StartRaisesEpoch) {
                boot.tenure = None;
                boot.asking =
                    Message::Sent(Asking { sent: world.now, why: Why::Restart(tenure.epoch), at_least: state.known });
            } else {
                boot.tenure = Some(Tenure { base: None, ..tenure });
            }
            None
        });
    }
    if world.left.releases > 0 && state.release.is_none() {
        found.then(world, Step("drops its instance and releases the lease", boot), |next| {
            next.left.releases -= 1;
            let clean = (state.effect.is_none() && state.late_effect.is_none()) || !rules.on(Rule::UnansweredIsUnclean);
            let boot = &mut next.boots[at];
            boot.commit = abandoned;
            boot.tenure = None;
            boot.release = Some(Release { epoch: tenure.epoch, clean });
            None
        });
    }
}
