//! A connection of a lease store: apart from every pool, opened when it is needed, thrown away when anything went wrong on it.
//!
//! Nothing here is retried: whoever calls has a deadline, and what did not answer in time is not known.

use std::future::Future;
use std::time::Duration;

use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{LeaseError, apart};
use crate::store::session;

/// One connection, used by one caller at a time.
pub(super) struct Session {
    servers: Vec<PgConnectOptions>,
    deadline: Duration,
    shares: bool,
    connection: Mutex<Option<PgConnection>>,
}

impl Session {
    /// A session that is opened by its first use. `deadline` bounds everything on it, the opening included.
    pub(super) fn new(servers: Vec<PgConnectOptions>, deadline: Duration) -> Self {
        Self { servers, deadline, shares: false, connection: Mutex::new(None) }
    }

    /// The same, and it shows while it lives that a node with `[redundancy]` is there; refused where one without is.
    pub(super) fn sharing(servers: Vec<PgConnectOptions>, deadline: Duration) -> Self {
        Self { shares: true, ..Self::new(servers, deadline) }
    }

    /// Runs `work` on the connection. After an error, or when the deadline passes or the caller gives up, the connection is dropped
    /// with it: what it may still be doing can confuse nobody.
    pub(super) async fn run<T>(
        &self,
        work: impl for<'c> AsyncFnOnce(&'c mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, LeaseError> {
        let using = async {
            let mut kept = self.connection.lock().await;
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => self.open().await?,
            };
            let done = work(&mut connection).await.map_err(|error| unavailable(&error))?;
            *kept = Some(connection);
            Ok(done)
        };
        in_time(self.deadline, using).await
    }

    /// A session on the server that takes writes.
    async fn open(&self) -> Result<PgConnection, LeaseError> {
        let opened = session::open(&self.servers).await.map_err(|error| LeaseError::Unavailable(error.to_string()))?;
        let mut connection = opened.0.connection;
        if self.shares {
            let refused = apart::share(&mut connection).await.map_err(|error| unavailable(&error))?;
            refused.map_or(Ok(()), |sentence| Err(LeaseError::Refused(sentence)))?;
        }
        Ok(connection)
    }
}

pub(super) fn unavailable(error: &sqlx::Error) -> LeaseError {
    LeaseError::Unavailable(error.to_string())
}

/// Bounds `work`, the driver's own waits included.
pub(super) async fn in_time<T>(
    deadline: Duration,
    work: impl Future<Output = Result<T, LeaseError>>,
) -> Result<T, LeaseError> {
    timeout(deadline, work)
        .await
        .unwrap_or_else(|_| Err(LeaseError::Unavailable(format!("no answer within {} ms", deadline.as_millis()))))
}
