//! The lease store `single`: no `[redundancy]`, one node, always active.
//!
//! Nothing expires and nobody takes over. What remains to be seen to: that there is no second process (refused in one sentence), and
//! that every instance still has an epoch of its own, so that a COMMIT which an earlier one left in flight fails.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use rustix::fs::{FlockOperation, flock};
use sqlx::{Connection, PgConnection, SqliteConnection, SqlitePool};
use tokio::sync::Mutex;

use super::postgres::{Me, PostgresStore};
use super::session::{in_time, unavailable};
use super::{Acquired, Cause, Grant, LeaseError, LeaseStore, Renewal, Seen, apart};
use crate::clock::BootInstant;
use crate::config;
use crate::identity::{Epoch, RoleKey};
use crate::store::{Bounds, StoreError, session};

/// How long a statement may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// The node of a SQLite file.
pub struct SingleSqlite {
    me: Me,
    file: PathBuf,
    pool: SqlitePool,
    lock: Mutex<Option<File>>,
}

impl SingleSqlite {
    /// For the database in `file`, which `pool` is open on.
    #[must_use]
    pub fn new(me: Me, file: &Path, pool: SqlitePool) -> Self {
        Self { me, file: file.to_owned(), pool, lock: Mutex::new(None) }
    }

    /// Takes the lock beside the database. The kernel lets go of it when this process ends, however it ends.
    fn lock(&self) -> Result<File, LeaseError> {
        // By its real path: two names of one file are one database.
        let mut path = self.file.canonicalize().unwrap_or_else(|_| self.file.clone()).into_os_string();
        path.push(".lock");
        let beside = PathBuf::from(&path);
        let cannot = |error: std::io::Error| {
            LeaseError::Refused(format!(
                "cannot lock {}: {error}: see that this user may write there",
                beside.display()
            ))
        };
        let options = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&beside);
        let mut lock = options.map_err(cannot)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            // The number only helps to find the other one.
            let _ = lock.read_to_string(&mut pid);
            return Err(LeaseError::Refused(format!(
                "the database {} is in use by another host (process {}): end that one, or give this node a database of its own; \
                 two nodes need PostgreSQL and [redundancy]",
                self.file.display(),
                pid.trim()
            )));
        }
        lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id())).map_err(cannot)?;
        Ok(lock)
    }

    /// Raises the epoch; who had it before.
    async fn raise(&self, key: &RoleKey, cause: Cause) -> Result<(Epoch, BootInstant), LeaseError> {
        let sent = BootInstant::now();
        let raising = async {
            let mut connection = self.pool.acquire().await?;
            let mut transaction = Connection::begin_with(&mut *connection, "BEGIN IMMEDIATE").await?;
            let number = raise(&mut transaction, key, &self.me, cause).await?;
            transaction.commit().await?;
            Ok(number)
        };
        let number = on_file(raising).await?;
        Ok((Epoch { timeline: 0, number: u64::try_from(number).unwrap_or(0) }, sent))
    }

    async fn granted(&self, key: &RoleKey, cause: Cause) -> Result<Acquired, LeaseError> {
        let (epoch, sent) = self.raise(key, cause).await?;
        Ok(Acquired::Granted(Grant { key: key.clone(), epoch, sent, hold_back: Duration::ZERO, previous: None, cause }))
    }
}

/// A statement on the file, with its deadline.
async fn on_file<T>(work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, LeaseError> {
    in_time(DEADLINE, async { work.await.map_err(|error| unavailable(&error)) }).await
}

/// Microseconds since the Unix epoch, by SQLite.
const NOW: &str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";

async fn raise(connection: &mut SqliteConnection, key: &RoleKey, me: &Me, cause: Cause) -> Result<i64, sqlx::Error> {
    const RAISE: &str = "
        INSERT INTO plant_fences (role, partition, timeline, epoch, node, boot_id, module_sha256) VALUES ($1, $2, 0, 1, $3, $4, $5)
        ON CONFLICT (role, partition) DO UPDATE SET epoch = epoch + 1, node = excluded.node, boot_id = excluded.boot_id,
               module_sha256 = excluded.module_sha256
        RETURNING epoch";
    let (role, partition) = (key.role.as_str(), key.partition.as_str());
    let raising = sqlx::query_scalar(RAISE).bind(role).bind(partition).bind(me.holder.node.as_str());
    let number: i64 =
        raising.bind(me.holder.boot.to_string()).bind(me.modules.get(&key.role)).fetch_one(&mut *connection).await?;
    if cause != Cause::Restart {
        let record = format!(
            "INSERT INTO plant_takeovers (role, partition, to_node, from_epoch, to_epoch, cause, taken_at)
             VALUES ($1, $2, $3, $4, $5, $6, {NOW})"
        );
        let record = sqlx::query(sqlx::AssertSqlSafe(record)).bind(role).bind(partition).bind(me.holder.node.as_str());
        record.bind(number - 1).bind(number).bind(cause.as_str()).execute(connection).await?;
    }
    Ok(number)
}

#[async_trait]
impl LeaseStore for SingleSqlite {
    fn name(&self) -> &'static str {
        "single"
    }

    fn lease(&self) -> Option<Duration> {
        None
    }

    async fn register(&self) -> Result<(), LeaseError> {
        let mut kept = self.lock.lock().await;
        if kept.is_none() {
            *kept = Some(self.lock()?);
        }
        let register = format!(
            "INSERT OR REPLACE INTO plant_nodes (node, boot_id, address, version, started_at, heartbeat_at)
             VALUES ($1, $2, $3, $4, {NOW}, {NOW})"
        );
        on_file(async {
            let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
            sqlx::query("DELETE FROM plant_nodes").execute(&mut *transaction).await?;
            let query = sqlx::query(sqlx::AssertSqlSafe(register)).bind(self.me.holder.node.as_str());
            let query = query.bind(self.me.holder.boot.to_string()).bind(&self.me.address);
            query.bind(env!("CARGO_PKG_VERSION")).execute(&mut *transaction).await?;
            transaction.commit().await
        })
        .await
    }

    async fn heartbeat(&self) -> Result<u64, LeaseError> {
        let beat = format!("UPDATE plant_nodes SET heartbeat_at = {NOW}");
        on_file(sqlx::query(sqlx::AssertSqlSafe(beat)).execute(&self.pool)).await.map(|_| 0)
    }

    async fn observe(&self, _: &[RoleKey]) -> Result<Vec<Seen>, LeaseError> {
        // Nobody else can hold anything.
        Ok(Vec::new())
    }

    async fn acquire(&self, key: &RoleKey, _: Option<&Seen>) -> Result<Acquired, LeaseError> {
        self.granted(key, Cause::Start).await
    }

    async fn restart(&self, key: &RoleKey, _: Epoch) -> Result<Acquired, LeaseError> {
        self.granted(key, Cause::Restart).await
    }

    async fn renew(&self, held: &[(RoleKey, Epoch)]) -> Result<Vec<Renewal>, LeaseError> {
        Ok(vec![Renewal::Confirmed; held.len()])
    }

    async fn release(&self, key: &RoleKey, epoch: Epoch, _: bool, _: Cause) -> Result<(), LeaseError> {
        const FREE: &str = "UPDATE plant_fences SET epoch = epoch + 1, node = NULL, boot_id = NULL
                             WHERE role = $1 AND partition = $2 AND epoch = $3 AND boot_id = $4";
        let query = sqlx::query(FREE).bind(key.role.as_str()).bind(&key.partition);
        let query = query.bind(i64::try_from(epoch.number).unwrap_or(i64::MAX)).bind(self.me.holder.boot.to_string());
        on_file(query.execute(&self.pool)).await.map(drop)
    }

    async fn released(&self, at_most: Duration) {
        tokio::time::sleep(at_most).await;
    }

    async fn leave(&self) -> Result<(), LeaseError> {
        on_file(sqlx::query("DELETE FROM plant_nodes").execute(&self.pool)).await.map(drop)
    }
}

/// The one node of a PostgreSQL database.
pub struct SinglePostgres {
    leases: PostgresStore,
    servers: Vec<sqlx::postgres::PgConnectOptions>,
    lock: Mutex<Option<PgConnection>>,
}

impl SinglePostgres {
    /// For the plant's database. Connects when it is used.
    ///
    /// # Errors
    /// [`StoreError::Configuration`] when a URL can not be read.
    pub fn new(store: &config::Store, me: Me) -> Result<Self, StoreError> {
        let servers = match store {
            config::Store::Postgres { urls, .. } => session::options(urls, &Bounds::default())?,
            config::Store::Sqlite { .. } => Vec::new(),
        };
        Ok(Self { leases: PostgresStore::new(store, me, None)?, servers, lock: Mutex::new(None) })
    }

    /// Sees that the session that holds the lock lives; takes the lock anew when it does not.
    async fn keep_lock(&self) -> Result<(), LeaseError> {
        let keeping = async {
            let mut kept = self.lock.lock().await;
            if let Some(mut connection) = kept.take()
                && sqlx::query("SELECT 1").execute(&mut connection).await.is_ok()
            {
                *kept = Some(connection);
                return Ok(());
            }
            let opened = session::open(&self.servers).await.map_err(|e| LeaseError::Unavailable(e.to_string()))?;
            let mut connection = opened.0.connection;
            let refused = apart::alone(&mut connection).await.map_err(|error| unavailable(&error))?;
            refused.map_or(Ok(()), |sentence| Err(LeaseError::Refused(sentence)))?;
            *kept = Some(connection);
            Ok(())
        };
        in_time(DEADLINE, keeping).await
    }
}

#[async_trait]
impl LeaseStore for SinglePostgres {
    fn name(&self) -> &'static str {
        "single"
    }

    fn lease(&self) -> Option<Duration> {
        None
    }

    async fn register(&self) -> Result<(), LeaseError> {
        self.keep_lock().await?;
        self.leases.register_alone().await
    }

    async fn heartbeat(&self) -> Result<u64, LeaseError> {
        self.keep_lock().await?;
        self.leases.heartbeat().await
    }

    async fn observe(&self, keys: &[RoleKey]) -> Result<Vec<Seen>, LeaseError> {
        self.leases.observe(keys).await
    }

    async fn acquire(&self, key: &RoleKey, unchanged: Option<&Seen>) -> Result<Acquired, LeaseError> {
        self.leases.acquire(key, unchanged).await
    }

    async fn restart(&self, key: &RoleKey, epoch: Epoch) -> Result<Acquired, LeaseError> {
        self.leases.restart(key, epoch).await
    }

    async fn renew(&self, held: &[(RoleKey, Epoch)]) -> Result<Vec<Renewal>, LeaseError> {
        self.leases.renew(held).await
    }

    async fn release(&self, key: &RoleKey, epoch: Epoch, clean: bool, cause: Cause) -> Result<(), LeaseError> {
        self.leases.release(key, epoch, clean, cause).await
    }

    async fn released(&self, at_most: Duration) {
        self.leases.released(at_most).await;
    }

    async fn leave(&self) -> Result<(), LeaseError> {
        self.leases.leave().await
    }
}
