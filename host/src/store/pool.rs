//! The host's own connections: for leases' rows, outbox, migrations and the API. Guests' transactions never wait for these.

use std::path::Path;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tokio::time::timeout;

use super::error::StoreError;
use super::session;
use super::{Bounds, Pool};
use crate::config;

/// How long a caller waits for one of the pool's connections.
const ACQUIRE: Duration = Duration::from_secs(5);
/// How long a probe of the database's health may take.
const PROBE: Duration = Duration::from_secs(2);
/// How often the servers of `urls` are asked which of them takes writes, while the present one does not answer.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

impl Pool {
    /// Opens the plant's database: the PostgreSQL server that takes writes, or the SQLite file, which is made if it is missing.
    ///
    /// # Errors
    /// [`StoreError`]; each a sentence that says what was seen and what to do.
    pub async fn connect(store: &config::Store) -> Result<Self, StoreError> {
        match store {
            config::Store::Postgres { urls, .. } => postgres(urls).await.map(Self::Postgres),
            config::Store::Sqlite { path } => sqlite(path).await.map(Self::Sqlite),
        }
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it does not, within two seconds.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let asking = async {
            match self {
                Self::Postgres(pool) => sqlx::query("SELECT 1").execute(pool).await.map(drop),
                Self::Sqlite(pool) => sqlx::query("SELECT 1").execute(pool).await.map(drop),
            }
        };
        self.in_time(asking).await
    }

    /// The database's clock, in nanoseconds since the Unix epoch. A SQLite file's is this box's.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the database does not answer within two seconds.
    pub async fn now(&self) -> Result<i64, StoreError> {
        match self {
            Self::Postgres(pool) => {
                let asking = sqlx::query_scalar("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint");
                let micros: i64 = self.in_time(asking.fetch_one(pool)).await?;
                Ok(micros.saturating_mul(1_000))
            }
            Self::Sqlite(_) => Ok(crate::clock::wall_nanos()),
        }
    }

    /// Closes every connection, and waits until they are.
    pub async fn close(&self) {
        match self {
            Self::Postgres(pool) => pool.close().await,
            Self::Sqlite(pool) => pool.close().await,
        }
    }

    async fn in_time<T>(&self, asking: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
        match timeout(PROBE, asking).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.explain(&error)),
            Err(_) => Err(StoreError::Unavailable(format!("the database did not answer within {} s", PROBE.as_secs()))),
        }
    }

    fn explain(&self, error: &sqlx::Error) -> StoreError {
        match self {
            Self::Postgres(pool) => session::explain(&pool.connect_options(), error),
            Self::Sqlite(_) => StoreError::Unavailable(format!("the SQLite file cannot be used: {error}")),
        }
    }
}

async fn postgres(urls: &[String]) -> Result<PgPool, StoreError> {
    let servers = session::options(urls, &Bounds::default())?;
    let (_, writer) = session::open(&servers).await?;
    let options =
        PgPoolOptions::new().max_connections(8).acquire_timeout(ACQUIRE).max_lifetime(Duration::from_mins(30));
    let pool = options.connect_lazy_with(writer);
    if servers.len() > 1 {
        tokio::spawn(follow_the_writer(pool.clone(), servers));
    }
    Ok(pool)
}

/// Points the pool's next connections at the server that takes writes, whenever the present one stops to. Ends with the pool.
async fn follow_the_writer(pool: PgPool, servers: Vec<PgConnectOptions>) {
    let following = async {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            let standby = sqlx::query_scalar::<_, bool>("SELECT pg_is_in_recovery()").fetch_one(&pool);
            let well = matches!(timeout(PROBE, standby).await, Ok(Ok(false)));
            if !well && let Ok((_, writer)) = session::open(&servers).await {
                tracing::warn!(server = session::place(&writer), "the database has moved");
                pool.set_connect_options(writer);
            }
        }
    };
    // An error here says only that the pool was closed.
    let _: Result<(), sqlx::Error> = pool.close_event().do_until(following).await;
}

/// How every connection to the plant's file is opened.
pub(super) fn sqlite_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(5))
        .foreign_keys(true)
}

async fn sqlite(path: &Path) -> Result<sqlx::SqlitePool, StoreError> {
    check_directory(path)?;
    let open = async || {
        let options = SqlitePoolOptions::new().max_connections(4).acquire_timeout(ACQUIRE);
        options.connect_with(sqlite_options(path)).await
    };
    let pool = once_unlocked(open).await.map_err(|e| explain_sqlite(path, &e))?;
    // Opening a file proves nothing about writing to it.
    let trying = sqlx::raw_sql("BEGIN IMMEDIATE; ROLLBACK").execute(&pool);
    let tried = timeout(ACQUIRE, trying).await;
    tried.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(|e| explain_sqlite(path, &e))?;
    Ok(pool)
}

fn check_directory(path: &Path) -> Result<(), StoreError> {
    let directory = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.is_dir() {
        return Err(StoreError::Configuration(format!(
            "the directory {} of the SQLite file does not exist: create it or correct [store] url",
            directory.display()
        )));
    }
    if path.is_dir() {
        return Err(StoreError::Configuration(format!(
            "{} is a directory: [store] url wants a file, as in sqlite://plant.db",
            path.display()
        )));
    }
    let writable = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(directory, writable).map_err(|e| {
        StoreError::Configuration(format!(
            "the directory {} is not writable ({e}): SQLite keeps its journal beside the file, so give this user the right to write there",
            directory.display()
        ))
    })
}

/// Opens a file as often as it takes until nobody else is just opening it, for as long as a caller waits for a connection.
///
/// While one process makes a new file a write-ahead log, or the last one closes it, SQLite tells others at once that it is busy: its busy
/// timeout does not cover these moments (3 of 60 runs of eight at once on a new file failed so).
pub(super) async fn once_unlocked<T>(mut open: impl AsyncFnMut() -> Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
    const PAUSE: Duration = Duration::from_millis(20);
    let give_up = tokio::time::Instant::now() + ACQUIRE;
    loop {
        match open().await {
            Err(error) if matches!(primary_code(&error), Some(5 | 6)) && tokio::time::Instant::now() < give_up => {
                tokio::time::sleep(PAUSE).await;
            }
            opened => return opened,
        }
    }
}

/// SQLite's result code, without what its extended codes add.
fn primary_code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.and_then(|code| code.parse::<u32>().ok()).map(|code| code & 0xff)
}

pub(super) fn explain_sqlite(path: &Path, error: &sqlx::Error) -> StoreError {
    let file = path.display();
    match primary_code(error) {
        Some(5 | 6) => StoreError::Unavailable(format!("{file} is locked by another process: stop it, or wait for it")),
        Some(8) => StoreError::Configuration(format!("{file} is read-only: give this user the right to write it")),
        Some(11 | 26) => StoreError::Configuration(format!(
            "{file} is not a sound SQLite database ({error}): restore it, or name another file in [store] url"
        )),
        Some(13) => StoreError::Unavailable(format!("the disk that holds {file} is full: free some space")),
        Some(14) => StoreError::Configuration(format!("{file} cannot be opened: check its path and who may read it")),
        _ => StoreError::Unavailable(format!("{file} cannot be used: {error}")),
    }
}
