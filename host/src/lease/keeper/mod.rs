//! The keeper: asks for leases, renews them, and ends them in time.
//!
//! It has a thread and a runtime of its own, so that nothing a guest or a request does can make a renewal late. Four things go on
//! in it side by side and never wait for each other: heartbeats, renewals, the competition for roles that nobody holds, and for each
//! lease a watch that ends it at three quarters of its time whether the store answers or not.

mod commands;
mod compete;
mod placing;
mod presence;
mod renew;
mod state;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot, watch};

pub use super::RestartError;
use super::{Cause, Held, LeaseEvent, LeaseStore, Unfit};
use crate::identity::{Holder, RoleKey};

use commands::Command;
use state::Shared;
pub use state::Snapshot;

/// How long the end may take: releasing and leaving.
const END: Duration = Duration::from_secs(5);

/// What a keeper needs.
pub struct Settings {
    /// Where the leases are.
    pub store: Arc<dyn LeaseStore>,
    /// Who this process is.
    pub me: Holder,
    /// The roles that it can run.
    pub roles: Vec<RoleKey>,
    /// An active-standby pair: only the node that holds this lease takes any of the roles. `None`: each role for itself.
    pub pair: Option<RoleKey>,
    /// What this node does not compete for just now.
    pub unfit: watch::Receiver<Unfit>,
    /// What happens is told to whoever has subscribed there; nobody needs to.
    pub events: broadcast::Sender<LeaseEvent>,
}

/// The way to a running keeper. When it is dropped the keeper ends every lease without releasing it.
pub struct KeeperHandle {
    commands: mpsc::Sender<Command>,
    snapshot: watch::Receiver<Snapshot>,
}

/// Starts a keeper; every lease that it is granted comes out of the receiver.
///
/// # Errors
/// When the system gives no thread.
pub fn start(settings: Settings) -> io::Result<(KeeperHandle, mpsc::Receiver<Held>)> {
    let (granted, leases) = mpsc::channel(settings.roles.len().max(1));
    let (commands, orders) = mpsc::channel(16);
    let shared = Arc::new(Shared::new(settings, granted));
    let snapshot = shared.snapshot();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("lease-keeper".to_owned()).spawn(move || {
        runtime.block_on(keep(shared, orders));
    })?;
    Ok((KeeperHandle { commands, snapshot }, leases))
}

async fn keep(shared: Arc<Shared>, orders: mpsc::Receiver<Command>) {
    let present = tokio::spawn(presence::be_present(shared.clone()));
    let competing = tokio::spawn(compete::compete(shared.clone()));
    let renewing = tokio::spawn(renew::renew(shared.clone()));
    let left = commands::obey(&shared, orders, competing).await;
    present.abort();
    renewing.abort();
    // Nobody renews it any more, and one that never expires would be held by a keeper that is gone.
    shared.end_all("the keeper has ended");
    if let Some(answer) = left {
        // Whoever asked may have gone.
        let _ = answer.send(());
    }
}

impl KeeperHandle {
    /// What the keeper knows.
    #[must_use]
    pub fn snapshot(&self) -> watch::Receiver<Snapshot> {
        self.snapshot.clone()
    }

    /// Returns when this node may not take part, with the sentence that says why.
    pub async fn refused(&self) -> String {
        self.said(|now| now.refused.as_ref()).await
    }

    /// Returns when this boot is over, with the sentence that says why: the node goes on as another one.
    pub async fn dead(&self) -> String {
        self.said(|now| now.dead.as_ref()).await
    }

    /// Returns when this node has lost a lease, or has given the pair's lease up.
    pub async fn demoted(&self) -> String {
        let mut snapshot = self.snapshot.clone();
        match snapshot.wait_for(|now| now.demotions > 0).await {
            Ok(_) => "this node was active and is not any more".to_owned(),
            Err(_) => std::future::pending().await,
        }
    }

    async fn said(&self, what: fn(&Snapshot) -> Option<&String>) -> String {
        let mut snapshot = self.snapshot.clone();
        match snapshot.wait_for(|now| what(now).is_some()).await.map(|now| what(&now).cloned()) {
            Ok(Some(sentence)) => sentence,
            _ => std::future::pending().await,
        }
    }

    /// Gives a lease back, to be called when nothing of the instance is left. `clean`: and every unfenceable effect was answered.
    /// For `cool_down` this node does not compete for it.
    pub async fn release(&self, held: &Held, clean: bool, cause: Cause, cool_down: Option<Duration>) {
        let (answer, answered) = oneshot::channel();
        let order = Command::Release { held: held.clone(), clean, cause, cool_down, answer };
        if self.commands.send(order).await.is_ok() {
            let _ = answered.await;
        }
    }

    /// Raises the epoch of a lease that is held, for a new instance.
    ///
    /// # Errors
    /// [`RestartError::Lost`], and [`RestartError::Unavailable`] when nothing is known and it may be asked again.
    pub async fn restart(&self, held: &Held) -> Result<Held, RestartError> {
        let (answer, answered) = oneshot::channel();
        let order = Command::Restart { held: held.clone(), answer };
        let gone = |_| RestartError::Unavailable("the keeper has ended".to_owned());
        self.commands.send(order).await.map_err(|_| gone(()))?;
        answered.await.map_err(|_| gone(()))?
    }

    /// Competes for nothing more; everything that was granted by then has come out of the receiver. To be called before the roles are
    /// drained: what they give back would be taken again here.
    pub async fn withdraw(&self) {
        let (answer, answered) = oneshot::channel();
        if self.commands.send(Command::Withdraw { answer }).await.is_ok() {
            let _ = answered.await;
        }
    }

    /// Releases what is still held, takes this node out of the plant and ends the keeper; bounded.
    pub async fn shutdown(&self) {
        let (answer, answered) = oneshot::channel();
        if self.commands.send(Command::Shutdown { answer }).await.is_ok() {
            let _ = tokio::time::timeout(END, answered).await;
        }
    }
}
