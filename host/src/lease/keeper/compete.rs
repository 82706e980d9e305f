//! The competition: this node looks at the leases that it does not hold, and takes those that are free.

use std::sync::Arc;
use std::time::Duration;

use super::placing::place;
use super::state::{Shared, Unchanged};
use crate::clock::BootInstant;
use crate::identity::RoleKey;
use crate::lease::decisions::{self, Chance, Holds, Mark};
use crate::lease::{Acquired, LeaseError, Seen};

/// The first pause after the store failed; it doubles up to the period.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// A lease is asked for so long after it has run out by the database's clock.
const AFTER_EXPIRY: Duration = Duration::from_millis(2);
/// Nodes that hear of the same release, or count to the same expiry, ask within so long of each other.
const SPREAD: Duration = Duration::from_millis(8);

/// Competes until this node withdraws or is refused. What it has begun to take by then is taken and handed on before this returns.
pub(super) async fn compete(shared: Arc<Shared>) {
    let withdrawn = shared.withdrawn.clone();
    let registered = shared.registered.clone();
    let _ = withdrawn.run_until_cancelled(registered.cancelled()).await;
    let mut pause_after_failure = SHORTEST_PAUSE;
    while !withdrawn.is_cancelled() {
        match look_and_take(&shared).await {
            Ok(pause) => {
                shared.answered();
                pause_after_failure = SHORTEST_PAUSE;
                let waiting = async {
                    tokio::select! {
                        () = shared.store.released(pause) => {}
                        () = shared.look_again.notified() => {}
                    }
                    tokio::time::sleep(SPREAD.mul_f64(fastrand::f64())).await;
                };
                withdrawn.run_until_cancelled(waiting).await;
            }
            Err(error) => {
                shared.failed(&error);
                let jitter = pause_after_failure.mul_f64(fastrand::f64() / 2.0);
                withdrawn.run_until_cancelled(tokio::time::sleep(pause_after_failure + jitter)).await;
                pause_after_failure = (pause_after_failure * 2).min(shared.period());
            }
        }
    }
}

/// Takes what can be taken, and gives up what people want elsewhere; answers when to look again at the latest.
async fn look_and_take(shared: &Arc<Shared>) -> Result<Duration, LeaseError> {
    let was_active = shared.is_active();
    let mut look_again = take(shared, wanted(shared)).await;
    // The pair's lease just came, and with it the roles.
    if !was_active && shared.is_active() {
        look_again = take(shared, wanted(shared)).await;
    }
    place(shared).await?;
    look_again
}

/// Looks at these roles, which are not held here, and takes what can be taken; answers when to look again at the latest.
async fn take(
    shared: &Arc<Shared>,
    (wanted, mut look_again): (Vec<RoleKey>, Duration),
) -> Result<Duration, LeaseError> {
    if wanted.is_empty() {
        return Ok(look_again);
    }
    let seen = shared.store.observe(&wanted).await?;
    let mut failed = None;
    for key in wanted {
        let now = seen.iter().find(|seen| seen.key == key);
        let unchanged = now.map(|seen| remember(shared, seen));
        let chance = chance(shared, unchanged.as_ref());
        if chance == Chance::None {
            look_again = look_again.min(until_expiry(now));
            continue;
        }
        if shared.withdrawn.is_cancelled() {
            break;
        }
        let as_seen = unchanged.as_ref().filter(|_| chance == Chance::IfUnchanged).map(|unchanged| &unchanged.seen);
        match shared.store.acquire(&key, as_seen).await {
            Ok(Acquired::Granted(grant)) => shared.grant(grant).await,
            Ok(Acquired::Taken(seen)) => {
                remember(shared, &seen);
            }
            // One role whose fence is stuck must not keep the others from being taken.
            Err(error) => failed = Some(error),
        }
    }
    shared.show();
    failed.map_or(Ok(look_again), Err)
}

/// The roles to compete for now, and when at the latest there may be more.
fn wanted(shared: &Shared) -> (Vec<RoleKey>, Duration) {
    let mut state = shared.state();
    state.cooling.retain(|_, until| !until.is_past());
    let cooled = state.cooling.values().map(|until| until.remaining()).min();
    let unfit = shared.unfit.borrow().clone();
    let free = |key: &&RoleKey| {
        let takes_part = !state.cooling.contains_key(*key) && !unfit.is_for(key);
        !state.held.contains_key(*key) && !state.busy.contains(*key) && takes_part
    };
    let wanted = match &shared.pair {
        Some(pair) if !state.held.contains_key(pair) => [pair].into_iter().filter(free).cloned().collect(),
        // What was drained for the pair's lease to go is not taken again.
        Some(pair) if shared.is_barred(pair) => Vec::new(),
        _ => shared.roles.iter().filter(free).cloned().collect(),
    };
    (wanted, cooled.map_or(shared.period(), |cooled| cooled.min(shared.period())))
}

fn chance(shared: &Shared, unchanged: Option<&Unchanged>) -> Chance {
    // Never held.
    let Some(Unchanged { seen, since }) = unchanged else { return Chance::Now };
    let holds = match &seen.holder {
        None => Holds::Nobody,
        Some(holder) if *holder == shared.me => Holds::Me,
        Some(_) if seen.is_dead => Holds::Dead,
        Some(_) => Holds::Another,
    };
    decisions::chance(shared.store.lease(), holds, seen.expires_in_ms, *since, BootInstant::now())
}

fn until_expiry(seen: Option<&Seen>) -> Duration {
    let left = seen.map_or(0, |seen| seen.expires_in_ms.max(0));
    Duration::from_millis(u64::try_from(left).unwrap_or(0)).saturating_add(AFTER_EXPIRY)
}

/// Notes what was seen, and since when it is so.
fn remember(shared: &Shared, seen: &Seen) -> Unchanged {
    let mark = |seen: &Seen| Mark { epoch: seen.epoch, renewed_at_us: seen.renewed_at_us };
    let mut state = shared.state();
    let before = state.seen.get(&seen.key).map(|before| (mark(&before.seen), before.since));
    let since = decisions::since(before, mark(seen), BootInstant::now());
    let unchanged = Unchanged { seen: seen.clone(), since };
    state.seen.insert(seen.key.clone(), unchanged.clone());
    unchanged
}
