//! What the database does with a request, in one step, however late it arrives.

use crate::search::Outcome;
use crate::world::{
    Asking, Commit, Epoch, Granted, LEASE, PAST, Release, Renewal, Row, Rule, Rules, Violation, Why, World,
};

pub fn renew(world: &mut World, boot: u8, renewal: Renewal) -> bool {
    let now = world.database_now();
    // Whoever was taken for dead is confirmed nothing and granted nothing.
    if world.is_dead(boot) {
        return false;
    }
    let timeline = world.database.timeline;
    let Some(row) = world.database.row.as_mut() else { return false };
    let mine = row.holder == Some(boot) && row.epoch == renewal.epoch.number && row.expires > now;
    let confirmed = mine && timeline == renewal.epoch.timeline;
    if confirmed {
        row.renewed = now;
        row.expires = now + LEASE;
    }
    confirmed
}

/// `plant_acquire`.
pub fn acquire(world: &mut World, rules: Rules, boot: u8, asking: Asking) -> (Option<Granted>, Outcome) {
    let now = world.database_now();
    let database = world.database;
    let history = if rules.on(Rule::TimelineInEpoch) { database.timeline } else { 0 };
    if world.is_dead(boot) {
        return (None, None);
    }
    let mine = |holder: u8| if rules.on(Rule::BootIsIdentity) { holder == boot } else { world.same_name(holder, boot) };
    // Whether it may be taken, and whether effects of an earlier holder may still be on their way.
    let (free, unclean) = match (asking.why, database.row) {
        (Why::Restart(epoch), Some(row)) => {
            (row.holder == Some(boot) && database.fence == epoch && row.expires > now, false)
        }
        (Why::Restart(_), None) => (false, false),
        (_, None) => (true, rules.on(Rule::MissingIsUnknown)),
        (_, Some(Row { holder: None, .. })) => (true, false),
        (why, Some(row @ Row { holder: Some(holder), .. })) => {
            let seen = match why {
                Why::Unchanged(epoch, renewed) => {
                    (epoch, renewed) == (database.fence, row.renewed) || !rules.on(Rule::ComparedUnderLock)
                }
                _ => false,
            };
            let dead = world.is_dead(holder);
            let own = holder == boot && !rules.on(Rule::OwnIsHeldBack);
            let clean = own || (dead && !rules.on(Rule::DeathIsUnclean));
            (row.expires <= now || mine(holder) || seen || dead, !clean)
        }
    };
    let floor = database.row.map_or(0, |row| row.epoch);
    let floor = if rules.on(Rule::EpochOutlivesRow) { database.fence.number.max(floor) } else { floor };
    let floor = if rules.on(Rule::AboveAllSeen) { floor.max(asking.at_least) } else { floor };
    let epoch = Epoch { timeline: history, number: floor + 1 };
    if !free || epoch.number > world.left.highest_epoch {
        return (None, None);
    }
    let unclean = unclean || (rules.on(Rule::HoldBackOnNewHistory) && database.fence.timeline != history);
    let from = if rules.on(Rule::HoldBackFromTakeover) { now } else { database.row.map_or(now, |row| row.renewed) };
    let from = if unclean { from + LEASE } else { PAST };
    let inherited = if rules.on(Rule::HoldBackInherited) { database.effects_from } else { PAST };
    world.database.effects_from = inherited.max(from);
    world.database.fence = epoch;
    world.database.boot = Some(boot);
    world.database.row = Some(Row { holder: Some(boot), epoch: epoch.number, renewed: now, expires: now + LEASE });
    world.tenures += 1;
    let bit = 1 << epoch.number;
    let issued = &mut world.issued[usize::from(epoch.timeline)];
    let twice = *issued & bit != 0;
    *issued |= bit;
    let hold_back = (world.database.effects_from - now).max(0);
    (Some(Granted { epoch, tenure: world.tenures, hold_back }), twice.then_some(Violation::EpochTwice))
}

/// The fence and COMMIT, in one message.
pub fn commit(world: &mut World, rules: Rules, boot: u8, commit: Commit) -> (bool, Outcome) {
    let holds = world.is_holder(boot);
    let history = !rules.on(Rule::TimelineInEpoch) || world.database.timeline == commit.epoch.timeline;
    let database = &mut world.database;
    let passes = history
        && database.fence == commit.epoch
        && database.boot == Some(boot)
        && (holds || !rules.on(Rule::FenceAsksLease));
    if !passes {
        return (false, None);
    }
    let old = commit.tenure < database.committed_by;
    database.committed_by = commit.tenure;
    database.booked += commit.to - commit.from;
    database.base = commit.to;
    let violation = match (old, holds, database.booked > world.made) {
        (true, ..) => Some(Violation::OldCommit),
        (_, false, _) => Some(Violation::CommitPastLease),
        (.., true) => Some(Violation::CountedTwice),
        _ => None,
    };
    (true, violation)
}

pub fn release(world: &mut World, rules: Rules, boot: u8, release: Release) {
    let now = world.database_now();
    let Some(row) = world.database.row.as_mut() else { return };
    let same = world.database.fence == release.epoch || !rules.on(Rule::ReleaseMatchesEpoch);
    if row.holder != Some(boot) || !same {
        return;
    }
    world.database.fence.number += 1;
    row.holder = None;
    row.epoch = world.database.fence.number;
    row.expires = now;
    if !release.clean {
        world.database.effects_from = world.database.effects_from.max(now + LEASE);
    }
}
