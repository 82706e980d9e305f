//! What people want of the roles: this node gives up what it is not to run.

use std::sync::Arc;

use super::commands::release;
use super::state::Shared;
use crate::lease::placement::Bar;
use crate::lease::{Cause, Held, HeldControl, LeaseError};

/// Asks what people want, and begins to drain what runs here against it. A drained role is released by whoever runs it.
pub(super) async fn place(shared: &Arc<Shared>) -> Result<(), LeaseError> {
    let placed = shared.store.placements(&shared.all_keys()).await?;
    shared.placed(&placed);
    let held: Vec<Held> = shared.state().held.values().map(HeldControl::held).collect();
    for held in held {
        let barred = placed.iter().find(|placed| placed.key == *held.key()).and_then(|placed| placed.barred);
        if let Some(bar) = barred {
            give_up(shared, &held, bar).await;
        }
    }
    Ok(())
}

async fn give_up(shared: &Arc<Shared>, held: &Held, bar: Bar) {
    if !shared.is_pair(held.key()) {
        return drain(held, bar);
    }
    // The pair's lease goes last: whoever has it may run every role.
    let under: Vec<Held> =
        shared.state().held.values().map(HeldControl::held).filter(|h| h.key() != held.key()).collect();
    under.iter().for_each(|role| drain(role, bar));
    if under.is_empty() && shared.state().busy.is_empty() {
        tracing::info!(lease = %held.key(), "the pair's lease is given up: {bar}");
        release(shared, held, true, Cause::Move, None).await;
        shared.given_up();
    }
}

fn drain(held: &Held, bar: Bar) {
    if !held.draining() {
        tracing::info!(role = %held.key(), epoch = %held.epoch(), "the role is given up: {bar}");
        held.drain(Cause::Move);
    }
}
