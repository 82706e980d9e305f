//! One node, put together: configuration, modules, database, leases, roles and the HTTP side; then its end, in order.
//!
//! Each part knows nothing of the others but a trait or a channel; this is the one place that knows them all.

mod boots;
mod http;
mod leases;
mod local;
mod metrics;
mod modules;
mod standing;
mod start;

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::lease::keeper::KeeperHandle;
use crate::role::supervisor::Supervisor;

pub use boots::Boots;
pub use http::Front;
pub use modules::{Modules, Places};
pub use start::{Ended, Settings, StartError, start};

/// A running node.
pub struct Node {
    supervisor: Supervisor,
    keeper: Arc<KeeperHandle>,
    front: Front,
    /// Ends what this boot does beside.
    stop: CancellationToken,
    ends_when_demoted: bool,
    conflict: watch::Receiver<Option<String>>,
}

impl Node {
    /// Ends it cleanly: roles are drained and their leases released, and the node leaves the plant. The HTTP side goes on, so that it can
    /// be asked meanwhile how far that is: it is for another boot in this process, or to be ended last.
    pub async fn end(self) -> Front {
        tracing::info!("draining: roles end and their leases are released");
        self.keeper.withdraw().await;
        self.supervisor.drain().await;
        self.keeper.shutdown().await;
        self.stop.cancel();
        self.front
    }
}
