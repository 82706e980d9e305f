//! Roles' transactions on a SQLite file: one writer at a time, and readers that see the file as it was when they began.
//!
//! The writer begins with `BEGIN IMMEDIATE`, so that it holds the file's write lock from its first statement: between the check of
//! the fence and its COMMIT nobody can change the fence. What SQLite has no type for is stored as: timestamps INTEGER microseconds
//! in columns declared `TIMESTAMP`, booleans INTEGER in columns declared `BOOLEAN`, UUIDs and JSON as TEXT, exact numbers INTEGER where they
//! fit 64 bits and otherwise TEXT in columns declared `BLOB`.

mod transaction;
mod values;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::pool::{explain_sqlite, sqlite_options};
use super::{Bounds, Database, DbError, Options, Transaction};
use crate::clock::{BootInstant, wall_nanos};
use crate::lease::Held;
use transaction::SqliteTransaction;

/// How many virtual-machine instructions run between two looks at the deadline.
const LOOK_EVERY: i32 = 1_000;

/// Opens transactions on a SQLite file, on connections that belong to this object alone.
#[derive(Debug, Clone)]
pub struct SqliteDatabase(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    bounds: Bounds,
    writer: Side,
    readers: Side,
    fence_refusals: AtomicU64,
}

/// The connections for one way of opening.
#[derive(Debug)]
struct Side {
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
    read_only: bool,
}

/// A connection whose statements stop at a deadline.
#[derive(Debug)]
struct Connection {
    sqlite: SqliteConnection,
    deadline: Arc<AtomicU64>,
}

impl Connection {
    /// What runs on it from now on is interrupted at `deadline`.
    fn stop_at(&self, deadline: BootInstant) {
        self.deadline.store(deadline.as_nanos(), Ordering::Release);
    }
}

impl Side {
    fn new(most: usize, read_only: bool) -> Self {
        Self { permits: Arc::new(Semaphore::new(most)), idle: Mutex::default(), read_only }
    }

    async fn take(&self, shared: &Shared) -> Result<(Connection, OwnedSemaphorePermit), DbError> {
        let closed = |_| DbError::Unavailable("the database is closed".to_owned());
        let permit = self.permits.clone().acquire_owned().await.map_err(closed)?;
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match kept {
            Some(connection) => connection,
            None => self.open(shared).await.map_err(|e| explain_sqlite(&shared.path, &e))?,
        };
        Ok((connection, permit))
    }

    async fn open(&self, shared: &Shared) -> Result<Connection, sqlx::Error> {
        let options = sqlite_options(&shared.path).create_if_missing(false).busy_timeout(shared.bounds.lock);
        let options = options.pragma("query_only", if self.read_only { "ON" } else { "OFF" });
        let mut sqlite = options.disable_statement_logging().connect().await?;
        let deadline = Arc::new(AtomicU64::new(BootInstant::NEVER.as_nanos()));
        let looked_at = deadline.clone();
        let in_time = move || !BootInstant::from_nanos(looked_at.load(Ordering::Acquire)).is_past();
        sqlite.lock_handle().await?.set_progress_handler(LOOK_EVERY, in_time);
        Ok(Connection { sqlite, deadline })
    }

    fn give_back(&self, connection: Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }
}

impl SqliteDatabase {
    /// A database by its file, which `host migrate` has made. Opens it when the first transaction begins.
    #[must_use]
    pub fn new(path: &Path, bounds: Bounds) -> Self {
        let readers = Side::new(bounds.transactions, true);
        let (path, writer) = (path.to_owned(), Side::new(1, false));
        Self(Arc::new(Shared { path, bounds, writer, readers, fence_refusals: AtomicU64::new(0) }))
    }
}

impl Shared {
    fn side(&self, options: Options) -> &Side {
        if options.read_only { &self.readers } else { &self.writer }
    }
}

#[async_trait]
impl Database for SqliteDatabase {
    async fn begin(&self, held: &Held, options: Options) -> Result<Box<dyn Transaction>, DbError> {
        held.check().map_err(|_| DbError::LeaseLost)?;
        let shared = &self.0;
        let opening = async {
            let (mut connection, permit) = shared.side(options).take(shared).await?;
            connection.stop_at(BootInstant::NEVER);
            let begin = if options.read_only { "BEGIN" } else { "BEGIN IMMEDIATE" };
            let begun = sqlx::raw_sql(begin).execute(&mut connection.sqlite).await;
            begun.map_err(|e| transaction::failure(&e))?;
            Ok::<_, DbError>((connection, permit))
        };
        let limit = shared.bounds.acquire.min(held.remaining());
        let (connection, permit) = match timeout(limit, opening).await {
            Ok(opened) => opened?,
            Err(_) if held.check().is_err() => return Err(DbError::LeaseLost),
            Err(_) => return Err(DbError::Unavailable("another transaction held the file for too long".to_owned())),
        };
        // SQLite's clock is this box's; microseconds are what its columns hold.
        let now = wall_nanos().div_euclid(1_000) * 1_000;
        Ok(Box::new(SqliteTransaction::new(self.0.clone(), held.clone(), options, connection, permit, now)))
    }

    fn fence_refusals(&self) -> u64 {
        self.0.fence_refusals.load(Ordering::Relaxed)
    }
}
