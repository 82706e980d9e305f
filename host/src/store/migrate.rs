//! The schema: its migrations are in the binary, run once however many nodes start at once, and never run backwards.
//!
//! On PostgreSQL a session-level advisory lock keeps migrators apart; behind a pooler that hands one session's statements to
//! several backends that lock would be left behind on a stranger, so such a pooler is recognised and refused. SQLite has no such lock:
//! there the migrations run inside one transaction that holds the file's write lock.

use std::path::Path;
use std::time::Duration;

use sqlx::migrate::{Migrate, MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection, Row};
use tokio::time::timeout;

use super::error::StoreError;
use super::pool::{explain_sqlite, once_unlocked, sqlite_options};
use super::{Bounds, Pool, session};
use crate::config;

static POSTGRES: Migrator = sqlx::migrate!("../migrations/postgres");
static SQLITE: Migrator = sqlx::migrate!("../migrations/sqlite");

/// How long all migrations together may take, with the wait for another node that is migrating.
const ALL: Duration = Duration::from_mins(10);

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// The schema's version before, 0 for an empty database.
    pub from: i64,
    /// The schema's version now.
    pub to: i64,
}

/// Brings the plant's schema to the version of this binary.
///
/// # Errors
/// [`StoreError`]; [`StoreError::Schema`] when the database is ahead of this binary, or a migration was edited after it ran.
pub async fn migrate(store: &config::Store) -> Result<Migrated, StoreError> {
    let running = async {
        match store {
            config::Store::Postgres { urls, migrate_url } => postgres(urls, migrate_url.as_deref()).await,
            config::Store::Sqlite { path } => sqlite(path).await,
        }
    };
    timeout(ALL, running).await.unwrap_or_else(|_| {
        Err(StoreError::Unavailable(format!(
            "the migrations did not end within {} minutes: look for a node that is migrating, or for a transaction that holds a lock",
            ALL.as_secs() / 60
        )))
    })
}

/// Whether the schema is the one that this binary was built for; changes nothing.
///
/// # Errors
/// [`StoreError::Schema`] with what to do when it is not.
pub async fn check(pool: &Pool) -> Result<(), StoreError> {
    const APPLIED: &str = "SELECT coalesce(max(version), 0) FROM _sqlx_migrations WHERE success";
    let asked = match pool {
        Pool::Postgres(pool) => sqlx::query_scalar::<_, i64>(APPLIED).fetch_one(pool).await,
        Pool::Sqlite(pool) => sqlx::query_scalar::<_, i64>(APPLIED).fetch_one(pool).await,
    };
    let wanted = newest(match pool {
        Pool::Postgres(_) => &POSTGRES,
        Pool::Sqlite(_) => &SQLITE,
    });
    let found = match asked {
        Ok(found) => found,
        // No table yet: nothing was ever migrated.
        Err(sqlx::Error::Database(_)) => 0,
        Err(error) => return Err(StoreError::Unavailable(format!("the schema's version cannot be read: {error}"))),
    };
    if found > wanted {
        return Err(newer(found, wanted));
    }
    if found < wanted {
        return Err(StoreError::Schema(format!(
            "the schema is at version {found} and this host needs {wanted}: run `host migrate`"
        )));
    }
    Ok(())
}

async fn postgres(urls: &[String], migrate_url: Option<&str>) -> Result<Migrated, StoreError> {
    let bounds = Bounds { lock: Duration::from_secs(30), ..Bounds::default() };
    let servers = match migrate_url {
        Some(url) => session::options(&[url.to_owned()], &bounds)?,
        None => session::options(urls, &bounds)?,
    };
    // A migration takes as long as its table is large; the advisory lock is waited for as long as another node needs.
    let servers: Vec<_> =
        servers.into_iter().map(|o| o.options([("statement_timeout", "0"), ("lock_timeout", "0")])).collect();
    let (mut session, server) = session::open(&servers).await?;
    refuse_pooler(&mut session.connection, &server).await?;
    let explain = |error: &sqlx::Error| session::explain(&server, error);
    let done = run(&POSTGRES, &mut session.connection, explain).await;
    // The lock dies with the session, also where a failed migration left it taken.
    let _ = timeout(Duration::from_secs(2), session.connection.close()).await;
    done
}

/// Two live sessions never share a backend, and a session never changes its own: if they do, something between hands them round.
async fn refuse_pooler(mine: &mut PgConnection, server: &PgConnectOptions) -> Result<(), StoreError> {
    let explain = |error: sqlx::Error| session::explain(server, &error);
    let before = backend(mine).await.map_err(explain)?;
    let mut other = server.connect().await.map_err(explain)?;
    sqlx::raw_sql("BEGIN").execute(&mut other).await.map_err(explain)?;
    let others = backend(&mut other).await.map_err(explain)?;
    // Behind a pooler that has but one backend the question would wait for the other session's transaction: it is not asked.
    let shared = others == before || backend(mine).await.map_err(explain)? != before;
    let _ = timeout(Duration::from_secs(2), other.close()).await;
    if !shared {
        return Ok(());
    }
    Err(StoreError::Refused(format!(
        "a connection pooler in transaction mode stands before PostgreSQL at {}: migrations need a session of their own, so point \
         [store] migrate_url at the server itself, or set the pooler to session mode",
        session::place(server)
    )))
}

async fn backend(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(connection).await?.try_get(0)
}

async fn sqlite(path: &Path) -> Result<Migrated, StoreError> {
    // Opening the pool checks the directory and the file, with a sentence for each thing that can be wrong.
    Pool::connect(&config::Store::Sqlite { path: path.to_owned() }).await?.close().await;
    let explain = |error: &sqlx::Error| explain_sqlite(path, error);
    let options = sqlite_options(path).busy_timeout(Duration::from_mins(5));
    let mut connection = once_unlocked(async || options.connect().await).await.map_err(|e| explain(&e))?;
    // Each migration is a savepoint inside this transaction, and nobody else can write meanwhile.
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(|e| explain(&e))?;
    let done = run(&SQLITE, &mut *transaction, explain).await?;
    transaction.commit().await.map_err(|e| explain(&e))?;
    connection.close().await.map_err(|e| explain(&e))?;
    Ok(done)
}

async fn run<C: Migrate>(
    migrations: &Migrator,
    connection: &mut C,
    explain: impl Fn(&sqlx::Error) -> StoreError,
) -> Result<Migrated, StoreError> {
    let wanted = newest(migrations);
    // `run_direct` takes the lock once more; what is read before it must be under the lock too.
    connection.lock().await.map_err(|e| sentence(e, wanted, &explain))?;
    let from = version(connection).await.map_err(|e| sentence(e, wanted, &explain))?;
    if from > wanted {
        return Err(newer(from, wanted));
    }
    migrations.run_direct(None, connection, false).await.map_err(|e| sentence(e, wanted, &explain))?;
    let to = version(connection).await.map_err(|e| sentence(e, wanted, &explain))?;
    connection.unlock().await.map_err(|e| sentence(e, wanted, &explain))?;
    Ok(Migrated { from, to })
}

async fn version<C: Migrate>(connection: &mut C) -> Result<i64, MigrateError> {
    connection.ensure_migrations_table("_sqlx_migrations").await?;
    let applied = connection.list_applied_migrations("_sqlx_migrations").await?;
    Ok(applied.iter().map(|m| m.version).max().unwrap_or(0))
}

fn newest(migrations: &Migrator) -> i64 {
    migrations.iter().map(|m| m.version).max().unwrap_or(0)
}

fn newer(found: i64, wanted: i64) -> StoreError {
    StoreError::Schema(format!(
        "the schema is at version {found} and this host knows only {wanted}: install the newer host, or restore the database from before"
    ))
}

fn sentence(error: MigrateError, wanted: i64, explain: &impl Fn(&sqlx::Error) -> StoreError) -> StoreError {
    match error {
        MigrateError::Execute(error) => explain(&error),
        MigrateError::ExecuteMigration(error, version) => {
            StoreError::Schema(format!("migration {version} failed and changed nothing: {error}"))
        }
        MigrateError::VersionMissing(version) if version > wanted => newer(version, wanted),
        MigrateError::VersionMissing(version) => StoreError::Schema(format!(
            "the database has a migration {version} that this host does not know: use the host that made it"
        )),
        MigrateError::VersionMismatch(version) => StoreError::Schema(format!(
            "migration {version} is not the one that was applied to this database: use the host that made it, or restore the database"
        )),
        other => StoreError::Schema(format!("the migrations cannot run: {other}")),
    }
}
