//! The competition: this node makes itself known, looks at the leases that it does not hold, and takes those that are free.

use std::sync::Arc;
use std::time::Duration;

use super::state::{Shared, Unchanged};
use crate::clock::BootInstant;
use crate::identity::RoleKey;
use crate::lease::{Acquired, LeaseError, Seen};

/// The first pause after the store failed; it doubles up to the period.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// A lease is asked for so long after it has run out by the database's clock.
const AFTER_EXPIRY: Duration = Duration::from_millis(2);

/// Competes for ever, or until this node is refused.
pub(super) async fn compete(shared: Arc<Shared>) {
    if !register(&shared).await {
        return;
    }
    let mut pause_after_failure = SHORTEST_PAUSE;
    let mut beaten = BootInstant::now();
    loop {
        if BootInstant::now().since(beaten) >= shared.period() {
            match shared.store.heartbeat().await {
                Ok(()) => beaten = BootInstant::now(),
                Err(LeaseError::Refused(sentence)) => return shared.refuse(&sentence),
                Err(error) => shared.failed(&error),
            }
        }
        match look_and_take(&shared).await {
            Ok(pause) => {
                pause_after_failure = SHORTEST_PAUSE;
                shared.store.released(pause).await;
            }
            Err(error) => {
                shared.failed(&error);
                let jitter = pause_after_failure.mul_f64(fastrand::f64() / 2.0);
                tokio::time::sleep(pause_after_failure + jitter).await;
                pause_after_failure = (pause_after_failure * 2).min(shared.period());
            }
        }
    }
}

/// Makes this node known; whether it may take part.
///
/// The heartbeat of a process that has just died is fresh for another lease, so a refusal counts only when it outlasts that.
async fn register(shared: &Arc<Shared>) -> bool {
    let patience = shared.store.lease().map_or(Duration::from_secs(1), |lease| lease + lease / 4);
    let start = BootInstant::now();
    loop {
        match shared.store.register().await {
            Ok(()) => {
                shared.confirmed();
                return true;
            }
            Err(LeaseError::Refused(sentence)) if BootInstant::now().since(start) >= patience => {
                shared.refuse(&sentence);
                return false;
            }
            Err(error) => shared.failed(&error),
        }
        tokio::time::sleep(shared.period() / 8).await;
    }
}

/// Looks at every role that is not held here and takes what can be taken; answers when to look again at the latest.
async fn look_and_take(shared: &Arc<Shared>) -> Result<Duration, LeaseError> {
    let wanted: Vec<RoleKey> = {
        let state = shared.state();
        let now = BootInstant::now();
        let free = |key: &&RoleKey| {
            !state.closing
                && !state.held.contains_key(key)
                && !state.busy.contains(key)
                && state.cooling.get(key).is_none_or(|until| *until <= now)
        };
        shared.roles.iter().filter(free).cloned().collect()
    };
    if wanted.is_empty() {
        return Ok(shared.period());
    }
    let seen = shared.store.observe(&wanted).await?;
    let mut look_again = shared.period();
    for key in wanted {
        let now = seen.iter().find(|seen| seen.key == key);
        let unchanged = now.map(|seen| remember(shared, seen));
        if !can_be_taken(shared, unchanged.as_ref()) {
            look_again = look_again.min(until_expiry(now));
            continue;
        }
        // Only what has not changed for a whole lease, or never expires, is taken on the strength of that.
        let as_seen = unchanged.as_ref().filter(|unchanged| outlived(shared, unchanged)).map(|unchanged| &unchanged.seen);
        match shared.store.acquire(&key, as_seen).await? {
            Acquired::Granted(grant) => shared.grant(grant).await,
            Acquired::Taken(seen) => {
                remember(shared, &seen);
            }
        }
    }
    shared.show();
    Ok(look_again)
}

fn can_be_taken(shared: &Shared, unchanged: Option<&Unchanged>) -> bool {
    let Some(unchanged) = unchanged else { return true };
    let seen = &unchanged.seen;
    match &seen.holder {
        None => true,
        Some(holder) => *holder == shared.me || seen.expires_in_ms <= 0 || outlived(shared, unchanged),
    }
}

/// Nobody has renewed it for a whole lease of this process's own clock: the database's clock may be behind, after a fail-over. Where
/// leases never expire, being the single node is proof enough.
fn outlived(shared: &Shared, unchanged: &Unchanged) -> bool {
    shared.store.lease().is_none_or(|lease| BootInstant::now().since(unchanged.since) >= lease)
}

fn until_expiry(seen: Option<&Seen>) -> Duration {
    let left = seen.map_or(0, |seen| seen.expires_in_ms.max(0));
    Duration::from_millis(u64::try_from(left).unwrap_or(0)).saturating_add(AFTER_EXPIRY)
}

/// Notes what was seen, and since when it is so.
fn remember(shared: &Shared, seen: &Seen) -> Unchanged {
    let mut state = shared.state();
    let same = |unchanged: &&mut Unchanged| {
        unchanged.seen.epoch == seen.epoch && unchanged.seen.renewed_at_us == seen.renewed_at_us
    };
    if let Some(unchanged) = state.seen.get_mut(&seen.key).filter(same) {
        unchanged.seen = seen.clone();
        return unchanged.clone();
    }
    let unchanged = Unchanged { seen: seen.clone(), since: BootInstant::now() };
    state.seen.insert(seen.key.clone(), unchanged.clone());
    unchanged
}
