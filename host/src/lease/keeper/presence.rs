//! This node's presence in the plant: it makes itself known, and goes on to say that it lives until it has left.

use std::sync::Arc;
use std::time::Duration;

use super::state::Shared;
use crate::clock::BootInstant;
use crate::lease::LeaseError;

/// Registers, then says so again and again; ends when this node is refused.
pub(super) async fn be_present(shared: Arc<Shared>) {
    if !register(&shared).await {
        return;
    }
    shared.registered.cancel();
    loop {
        // The first one at once: it tells who else is there.
        let pause = match shared.store.heartbeat().await {
            Ok(others) => {
                shared.beaten(others);
                shared.period()
            }
            // A database that failed over may show an old boot of ours for a while: as at the start, only what lasts counts.
            Err(LeaseError::Refused(_)) => {
                if !register(&shared).await {
                    return;
                }
                shared.period()
            }
            Err(LeaseError::Dead(sentence)) => return shared.die(&sentence),
            Err(error) => {
                shared.failed(&error);
                // Others may take this node for dead when it is not back soon.
                shared.period() / 8
            }
        };
        tokio::time::sleep(pause).await;
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
                shared.answered();
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
