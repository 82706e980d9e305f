//! What others ask of the keeper: to release a lease, to raise its epoch, to end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::state::Shared;
use crate::clock::BootInstant;
use crate::identity::RoleKey;
use crate::lease::{Acquired, Cause, Held, HeldControl, RestartError};

pub(super) enum Command {
    Release { held: Held, clean: bool, cause: Cause, cool_down: Option<Duration>, answer: oneshot::Sender<()> },
    Restart { held: Held, answer: oneshot::Sender<Result<Held, RestartError>> },
    Withdraw { answer: oneshot::Sender<()> },
    Shutdown { answer: oneshot::Sender<()> },
}

/// Does as it is told until the end; answers whoever ordered the end.
pub(super) async fn obey(
    shared: &Arc<Shared>,
    mut orders: mpsc::Receiver<Command>,
    competing: JoinHandle<()>,
) -> Option<oneshot::Sender<()>> {
    let mut competing = Some(competing);
    while let Some(order) = orders.recv().await {
        match order {
            Command::Release { held, clean, cause, cool_down, answer } => {
                let shared = shared.clone();
                tokio::spawn(async move {
                    release(&shared, &held, clean, cause, cool_down).await;
                    let _ = answer.send(());
                });
            }
            Command::Restart { held, answer } => {
                tokio::spawn(restart_and_answer(shared.clone(), held, answer));
            }
            Command::Withdraw { answer } => {
                withdraw(shared, &mut competing).await;
                let _ = answer.send(());
            }
            Command::Shutdown { answer } => {
                withdraw(shared, &mut competing).await;
                give_back_all(shared).await;
                return Some(answer);
            }
        }
    }
    None
}

/// Ends the competition. What it has begun to take would otherwise be taken after the end, and be held by nobody until it runs out.
async fn withdraw(shared: &Shared, competing: &mut Option<JoinHandle<()>>) {
    shared.withdrawn.cancel();
    if let Some(competing) = competing.take() {
        let _ = competing.await;
    }
}

/// Keeps a role out of the competition while it is seen to.
struct Busy<'s>(&'s Shared, RoleKey);

impl<'s> Busy<'s> {
    fn with(shared: &'s Shared, key: &RoleKey) -> Self {
        shared.state().busy.insert(key.clone());
        Self(shared, key.clone())
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.state().busy.remove(&self.1);
    }
}

/// The control of exactly this lease, if it is still held.
fn control(shared: &Shared, held: &Held) -> Option<HeldControl> {
    let state = shared.state();
    state.held.get(held.key()).filter(|control| control.held().epoch() == held.epoch()).cloned()
}

pub(super) async fn release(shared: &Arc<Shared>, held: &Held, clean: bool, cause: Cause, cool_down: Option<Duration>) {
    let _busy = Busy::with(shared, held.key());
    if let Some(cool_down) = cool_down {
        shared.state().cooling.insert(held.key().clone(), BootInstant::now() + cool_down);
    }
    let Some(control) = control(shared, held) else { return };
    control.end();
    shared.state().held.remove(held.key());
    match shared.store.release(held.key(), held.epoch(), clean, cause).await {
        Ok(()) => {
            tracing::info!(role = %held.key(), epoch = %held.epoch(), cause = cause.as_str(), "the lease is released");
        }
        // It runs out by itself.
        Err(error) => shared.failed(&error),
    }
    shared.show();
    // Perhaps that was the last role under a pair's lease that is to be given up.
    shared.look_again.notify_one();
}

async fn restart_and_answer(shared: Arc<Shared>, held: Held, answer: oneshot::Sender<Result<Held, RestartError>>) {
    // Whoever asked may have gone: the new lease would be held by nobody.
    if let Err(Ok(unwanted)) = answer.send(restart(&shared, &held).await) {
        release(&shared, &unwanted, false, Cause::Release, None).await;
    }
}

async fn restart(shared: &Arc<Shared>, held: &Held) -> Result<Held, RestartError> {
    let _busy = Busy::with(shared, held.key());
    let control = control(shared, held).ok_or(RestartError::Lost)?;
    match shared.store.restart(held.key(), held.epoch()).await {
        Ok(Acquired::Granted(grant)) => Ok(shared.hold(&grant)),
        Ok(Acquired::Taken(_)) => {
            shared.lose(&control, "it is somebody else's");
            Err(RestartError::Lost)
        }
        Err(error) => {
            shared.failed(&error);
            Err(RestartError::Unavailable(error.to_string()))
        }
    }
}

/// Lets go of everything that nobody has let go of before, and leaves. A role's end is unclean: whoever ran it did not say how it ended.
async fn give_back_all(shared: &Arc<Shared>) {
    let mut rest: Vec<Held> = shared.state().held.values().map(HeldControl::held).collect();
    // The pair's lease goes last, and clean: nothing runs under it but the roles.
    rest.sort_by_key(|held| shared.is_pair(held.key()));
    for held in rest {
        release(shared, &held, shared.is_pair(held.key()), Cause::Release, None).await;
    }
    if let Err(error) = shared.store.leave().await {
        shared.failed(&error);
    }
}
