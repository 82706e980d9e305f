//! One node, put together: configuration, modules, database, leases, roles and the HTTP side; then its end, in order.
//!
//! Each part knows nothing of the others but a trait or a channel; this is the one place that knows them all.

mod alerting;
mod boots;
mod fitness;
mod http;
mod leases;
mod local;
mod machines;
mod metrics;
mod modules;
mod standing;
mod start;
mod vacancies;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::alert::Alerts;
use crate::lease::keeper::KeeperHandle;
use crate::role::supervisor::Supervisor;

pub use boots::Boots;
pub use http::Front;
pub use modules::{Modules, Places};
pub use start::{Ended, Settings, StartError, start};

/// What has happened is handed to the channels for alerts within so long, at the end.
const TELL: Duration = Duration::from_secs(1);

/// A running node.
pub struct Node {
    supervisor: Supervisor,
    keeper: Arc<KeeperHandle>,
    front: Front,
    /// Ends what this boot does beside.
    stop: CancellationToken,
    ends_when_demoted: bool,
    conflict: watch::Receiver<Option<String>>,
    /// Where the plant has channels for alerts: the way to them, and whoever uses it.
    alerting: Option<(Alerts, JoinHandle<()>)>,
}

impl Node {
    /// The way to the channels for alerts, which outlives the node: its last ones are still to be delivered when it has ended.
    #[must_use]
    pub fn alerts(&self) -> Option<Alerts> {
        self.alerting.as_ref().map(|(alerts, _)| alerts.clone())
    }

    /// Ends it cleanly: roles are drained and their leases released, and the node leaves the plant. The HTTP side goes on, so that it can
    /// be asked meanwhile how far that is: it is for another boot in this process, or to be ended last.
    pub async fn end(self) -> Front {
        tracing::info!("draining: roles end and their leases are released");
        self.keeper.withdraw().await;
        self.supervisor.drain().await;
        self.keeper.shutdown().await;
        self.stop.cancel();
        if let Some((_, telling)) = self.alerting {
            let _ = timeout(TELL, telling).await;
        }
        self.front
    }
}
