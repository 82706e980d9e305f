//! Renewals: all leases of this node in one statement, every third of a lease.

use std::sync::Arc;

use super::state::Shared;
use crate::clock::BootInstant;
use crate::identity::{Epoch, RoleKey};
use crate::lease::decisions::{Verdict, verdict};
use crate::lease::{HeldControl, Renewal};

/// Renews for ever. A renewal that failed, or was passed over, is tried again four times as often. Leases that never expire are only
/// looked at: the database may have become another one.
pub(super) async fn renew(shared: Arc<Shared>) {
    loop {
        let confirmed = renew_once(&shared).await;
        let pause = if confirmed { shared.period() } else { shared.period() / 4 };
        tokio::time::sleep(pause).await;
    }
}

async fn renew_once(shared: &Arc<Shared>) -> bool {
    let controls: Vec<HeldControl> = shared.state().held.values().cloned().collect();
    if controls.is_empty() {
        return true;
    }
    let asked: Vec<(RoleKey, Epoch)> =
        controls.iter().map(HeldControl::held).map(|h| (h.key().clone(), h.epoch())).collect();
    // The deadline counts from here: the answer may be late.
    let sent = BootInstant::now();
    match shared.store.renew(&asked).await {
        Ok(answers) => {
            for (control, answer) in controls.iter().zip(&answers) {
                let restarts = shared.state().busy.contains(control.held().key());
                match verdict(shared.store.lease(), sent, *answer, restarts) {
                    Verdict::Until(deadline) => control.prolong(deadline),
                    Verdict::Unknown => {}
                    Verdict::Over => shared.lose(control, "it has another holder or epoch, or had run out"),
                }
            }
            shared.renewed();
            !answers.contains(&Renewal::Skipped)
        }
        Err(error) => {
            shared.failed(&error);
            false
        }
    }
}
