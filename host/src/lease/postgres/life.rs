//! The session that shows that this boot lives: it holds the boot's own advisory lock as long as the process has it open.
//!
//! When the process dies its server lets the lock go at once, and whoever waits for it knows. Renewals go over the same session, so that
//! what confirms a lease also shows that its holder can be seen.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;

use crate::clock::BootInstant;
use crate::lease::LeaseError;
use crate::lease::session::{in_time, unavailable};
use crate::store::session;

/// This boot's sign of life.
pub(super) struct Life {
    servers: Vec<PgConnectOptions>,
    deadline: Duration,
    key: i64,
    /// A boot that had no lock for so long is over.
    limit: Option<Duration>,
    session: tokio::sync::Mutex<Option<Locked>>,
    /// Since when the lock is not held; `None` while it is.
    lost: Mutex<Option<BootInstant>>,
    over: AtomicBool,
}

struct Locked {
    connection: PgConnection,
    locked: bool,
}

impl Life {
    /// With a lock of its own. `statement` is when the server gives a statement up; the session is given up a little later, so that a
    /// server that is slow for a moment does not end it. After `limit` without the lock the boot is over: others take it for dead.
    pub(super) fn new(servers: Vec<PgConnectOptions>, statement: Duration, limit: Option<Duration>) -> Self {
        Self {
            servers,
            deadline: statement * 3 / 2,
            key: fastrand::i64(1..),
            limit,
            session: tokio::sync::Mutex::new(None),
            lost: Mutex::new(None),
            over: AtomicBool::new(false),
        }
    }

    /// The lock's number.
    pub(super) fn key(&self) -> i64 {
        self.key
    }

    /// Whether the lock was held and is not.
    pub(super) fn is_lost(&self) -> bool {
        self.lost().is_some()
    }

    /// Whether the lock was gone for too long, once: it stays so.
    pub(super) fn is_over(&self) -> bool {
        let too_long = |since: BootInstant| self.limit.is_some_and(|limit| BootInstant::now().since(since) > limit);
        if (*self.lost()).is_some_and(too_long) {
            self.over.store(true, Ordering::SeqCst);
        }
        self.over.load(Ordering::SeqCst)
    }

    fn lost(&self) -> MutexGuard<'_, Option<BootInstant>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees that the session lives and has its lock.
    pub(super) async fn ping(&self) -> Result<(), LeaseError> {
        self.run(async |connection| sqlx::query("SELECT 1").execute(connection).await.map(drop)).await
    }

    /// Runs `work` on the session, which is opened and locked anew where it has ended. Work is done without the lock too: to know what
    /// has become of the leases is all the more urgent then.
    pub(super) async fn run<T>(
        &self,
        work: impl for<'c> AsyncFnOnce(&'c mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, LeaseError> {
        let using = async {
            let mut kept = self.session.lock().await;
            let mut session = match kept.take() {
                Some(session) => session,
                None => self.open().await?,
            };
            if !session.locked {
                let locking = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(self.key);
                session.locked = locking.fetch_one(&mut session.connection).await.map_err(|e| unavailable(&e))?;
            }
            if session.locked {
                // What came back too late does not count.
                self.is_over();
                *self.lost() = None;
            } else {
                self.lose();
            }
            let done = work(&mut session.connection).await;
            if done.as_ref().err().is_none_or(was_answered) {
                *kept = Some(session);
            } else {
                self.lose();
            }
            done.map_err(|error| unavailable(&error))
        };
        let done = in_time(self.deadline, using).await;
        if done.is_err() && self.session.try_lock().is_ok_and(|kept| kept.is_none()) {
            self.lose();
        }
        done
    }

    /// Lets the lock go.
    pub(super) async fn end(&self) {
        self.session.lock().await.take();
        self.lose();
    }

    fn lose(&self) {
        self.lost().get_or_insert(BootInstant::now());
    }

    async fn open(&self) -> Result<Locked, LeaseError> {
        let opened = session::open(&self.servers).await.map_err(|error| LeaseError::Unavailable(error.to_string()))?;
        // A node that is alone is watched by nobody.
        Ok(Locked { connection: opened.0.connection, locked: self.limit.is_none() })
    }
}

/// Whether the server gave the statement up itself, so that the session is as good as before.
fn was_answered(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|answer| answer.code().map(|code| code.into_owned()));
    matches!(code.as_deref(), Some("57014" | "55P03" | "40001" | "40P01"))
}
