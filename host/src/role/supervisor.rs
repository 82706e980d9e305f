//! Starts an instance for each lease that the keeper grants, and none otherwise.
//!
//! The supervisor lives on the host's own runtime and only waits; guests run on threads apart. A role's tenure (from the grant of its
//! lease to its release or loss) is one task, and two tenures of one role never overlap: the later one waits until nothing of the
//! earlier is left.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::backoff::Budget;
use super::figures::Figures;
use super::reports::Reports;
use super::runnable::Runnable;
use super::tenure::Tenure;
use super::threads::Threads;
use crate::capability::metrics::SharedRegistry;
use crate::capability::opc::Opener;
use crate::identity::{RoleKey, RoleName};
pub use crate::lease::RestartError;
use crate::lease::{Cause, Held};
use crate::store::Database;

/// How a lease is given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// Why.
    pub cause: Cause,
    /// A sentence for people.
    pub reason: String,
    /// The instance is gone and every unfenceable effect was answered.
    pub clean: bool,
    /// For how long this node does not compete for it, so that another one can try.
    pub cool_down: Option<Duration>,
}

/// What the supervisor asks of the keeper of the leases.
#[async_trait]
pub trait Keeper: Send + Sync {
    /// Raises the epoch, for a new instance of the same tenure. The old proof is ended, the answer is the new one.
    ///
    /// # Errors
    /// Every [`RestartError`].
    async fn restart(&self, held: &Held) -> Result<Held, RestartError>;

    /// Gives the lease back. To be called when nothing of the instance is left.
    async fn release(&self, held: &Held, release: Release);

    /// Whether another node could take the role over if this one gave it up.
    fn has_others(&self, key: &RoleKey) -> bool;
}

/// What the supervisor drives.
#[derive(Clone)]
pub struct Means {
    /// The leases.
    pub keeper: Arc<dyn Keeper>,
    /// The plant's database, for guests.
    pub database: Arc<dyn Database>,
    /// The OPC UA connections.
    pub opc: Arc<dyn Opener>,
    /// Where the host's and the roles' metrics are.
    pub registry: SharedRegistry,
    /// What this node says of its roles.
    pub reports: Reports,
    /// How often a role may fail before another node may try.
    pub budget: Budget,
    /// How long `stop`, and a call in hand when a drain begins, may take.
    pub grace: Duration,
}

/// How long `stop` may take by default.
pub const GRACE: Duration = Duration::from_secs(5);

/// The running supervisor. Dropping it ends all instances at once and releases nothing: their leases then run out.
pub struct Supervisor {
    drain: CancellationToken,
    reports: Reports,
    task: AbortOnDropHandle<()>,
}

impl Supervisor {
    /// Starts it on the runtime it is called from. Every lease that arrives in `granted` is served by the role's runnable in `roles`, until
    /// it is lost or released; when the sender is dropped, what runs goes on.
    ///
    /// # Errors
    /// When the system gives no threads for the guests.
    pub fn start(
        means: Means,
        roles: BTreeMap<RoleName, Arc<Runnable>>,
        granted: mpsc::Receiver<Held>,
    ) -> io::Result<Self> {
        let drain = CancellationToken::new();
        let reports = means.reports.clone();
        let figures = Figures::register(&means.registry);
        let serving = Serving {
            means,
            roles,
            figures,
            threads: Arc::new(Threads::start()?),
            drain: drain.clone(),
            tenures: BTreeMap::new(),
        };
        let task = AbortOnDropHandle::new(tokio::spawn(serving.serve(granted)));
        Ok(Self { drain, reports, task })
    }

    /// What this node says of its roles.
    #[must_use]
    pub fn reports(&self) -> &Reports {
        &self.reports
    }

    /// Drains every role: `stop`, drop, close, release. Returns when all leases are given back; bounded by the graces.
    pub async fn drain(self) {
        self.drain.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the supervisor ended early");
        }
    }
}

struct Serving {
    means: Means,
    roles: BTreeMap<RoleName, Arc<Runnable>>,
    figures: Figures,
    threads: Arc<Threads>,
    drain: CancellationToken,
    tenures: BTreeMap<RoleKey, AbortOnDropHandle<()>>,
}

impl Serving {
    async fn serve(mut self, mut granted: mpsc::Receiver<Held>) {
        loop {
            let held = tokio::select! {
                biased;
                () = self.drain.cancelled() => break,
                held = granted.recv() => held,
            };
            match held {
                Some(held) => self.begin(held),
                None => break,
            }
        }
        granted.close();
        while let Some(held) = granted.recv().await {
            self.refuse(&held, "this node is being stopped").await;
        }
        // Tenures end by themselves: each watches the drain and its own lease.
        for (_, tenure) in std::mem::take(&mut self.tenures) {
            let _ = tenure.await;
        }
    }

    fn begin(&mut self, held: Held) {
        let key = held.key().clone();
        let earlier = self.tenures.remove(&key);
        let Some(runnable) = self.roles.get(&key.role) else {
            let keeper = self.means.keeper.clone();
            let reason = format!("this node has no module for the role {}", key.role);
            let refusing = async move { keeper.release(&held, given_back(reason)).await };
            self.tenures.insert(key, AbortOnDropHandle::new(tokio::spawn(refusing)));
            return;
        };
        let tenure = Tenure::new(
            self.means.clone(),
            runnable.clone(),
            self.threads.clone(),
            self.figures.of(&key),
            self.drain.clone(),
            held,
        );
        let task: JoinHandle<()> = tokio::spawn(async move {
            if let Some(earlier) = earlier {
                let _ = earlier.await;
            }
            tenure.run().await;
        });
        self.tenures.insert(key, AbortOnDropHandle::new(task));
    }

    async fn refuse(&self, held: &Held, reason: &str) {
        self.means.keeper.release(held, given_back(reason.to_owned())).await;
    }
}

fn given_back(reason: String) -> Release {
    Release { cause: Cause::Release, reason, clean: true, cool_down: None }
}
