//! The wait for a release, on a connection that does nothing else.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::Mutex;

use crate::lease::LeaseError;
use crate::lease::session::unavailable;
use crate::store::session;

/// Listens for releases.
pub(super) struct Hearing {
    servers: Vec<PgConnectOptions>,
    connect: Duration,
    listener: Mutex<Option<PgListener>>,
}

impl Hearing {
    /// Connects by its first use, in `connect` at most.
    pub(super) fn new(servers: Vec<PgConnectOptions>, connect: Duration) -> Self {
        Self { servers, connect, listener: Mutex::new(None) }
    }

    /// Returns when a release was heard of, or after `at_most`. A wait that fails is a wait: whoever called looks at the leases in any case.
    pub(super) async fn wait(&self, at_most: Duration) {
        let waiting = async {
            if self.hear().await.is_err() {
                *self.listener.lock().await = None;
                std::future::pending::<()>().await;
            }
        };
        let _ = tokio::time::timeout(at_most, waiting).await;
    }

    async fn hear(&self) -> Result<(), LeaseError> {
        let mut kept = self.listener.lock().await;
        let Some(listener) = kept.as_mut() else {
            // What was said before it listened was not heard: whoever called looks once more.
            *kept = Some(self.open().await?);
            return Ok(());
        };
        // `None`: the connection was lost, and with it perhaps a release. It is looked for where writes are taken now.
        if listener.try_recv().await.map_err(|error| unavailable(&error))?.is_none() {
            *kept = None;
        }
        Ok(())
    }

    async fn open(&self) -> Result<PgListener, LeaseError> {
        let (_, server) = session::open(&self.servers).await.map_err(|e| LeaseError::Unavailable(e.to_string()))?;
        // A listener takes its one connection from a pool.
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(self.connect);
        let pool = pool.connect_with(server).await.map_err(|error| unavailable(&error))?;
        let mut listener = PgListener::connect_with(&pool).await.map_err(|error| unavailable(&error))?;
        listener.eager_reconnect(false);
        listener.listen("plant_released").await.map_err(|error| unavailable(&error))?;
        Ok(listener)
    }
}
