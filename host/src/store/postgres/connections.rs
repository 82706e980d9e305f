//! Connections for one role's transactions: a few that are kept, apart from the host's own.
//!
//! A connection comes back only when it is known to be outside a transaction. In doubt it is closed, and the server rolls back.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnectOptions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::error::StoreError;
use crate::store::session::{self, Session};

/// How long a connection is kept: long enough to pay, short enough that a server's memory for it is freed now and then.
const KEPT: Duration = Duration::from_mins(30);

#[derive(Debug)]
pub(super) struct Connections {
    servers: Vec<PgConnectOptions>,
    idle: Mutex<Vec<Lent>>,
    permits: Arc<Semaphore>,
}

/// A connection in use, or kept for the next.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) session: Session,
    /// What the server calls it.
    pub(super) name: String,
    opened: Instant,
}

impl Connections {
    pub(super) fn new(servers: Vec<PgConnectOptions>, most: usize) -> Self {
        Self { servers, idle: Mutex::new(Vec::new()), permits: Arc::new(Semaphore::new(most)) }
    }

    /// The right to have one connection.
    pub(super) async fn permit(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        let closed = |_| StoreError::Unavailable("the database's connections are closed".to_owned());
        self.permits.clone().acquire_owned().await.map_err(closed)
    }

    /// One that was used before, if there is any; rather one that has this name.
    pub(super) fn used(&self, name: &str) -> Option<Lent> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|lent| lent.opened.elapsed() < KEPT);
        match idle.iter().rposition(|lent| lent.name == name) {
            Some(at) => Some(idle.remove(at)),
            None => idle.pop(),
        }
    }

    /// A new one, on the server that takes writes.
    pub(super) async fn fresh(&self) -> Result<Lent, StoreError> {
        let (session, _) = session::open(&self.servers).await?;
        Ok(Lent { session, name: String::new(), opened: Instant::now() })
    }

    /// Takes back one that is outside any transaction.
    pub(super) fn give_back(&self, lent: Lent) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(lent);
    }

    /// Forgets what is kept: the server that it leads to has gone, or is not the one that takes writes any more.
    pub(super) fn forget(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
