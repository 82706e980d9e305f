//! The plant's database: PostgreSQL or SQLite behind one trait.
//!
//! Guests' statements and the host's own go through here. A transaction that changes something carries a fence, and the commit
//! and the check of the fence are one message: nothing can come between them.

mod batch;
mod bounds;
mod columns;
mod error;
mod migrate;
mod numeric;
pub mod placements;
mod pool;
pub mod postgres;
pub mod queries;
pub mod reports;
pub(crate) mod session;
mod sql;
pub mod sqlite;
pub mod standing;
pub mod vacancy;
pub mod value;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::config;
use crate::lease::Held;

pub use bounds::Bounds;
pub use error::StoreError;
pub use migrate::{Migrated, check as check_schema, migrate};
pub use value::{Array, Column, ColumnData, Params, Rowset, Statement, Value};

/// What can go wrong with a statement or a transaction; the shape that guests see.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DbError {
    /// Not allowed; the text says what and why.
    #[error("{0}")]
    Denied(String),
    /// The lease is gone; nothing was committed.
    #[error("the lease is lost; nothing was committed")]
    LeaseLost,
    /// The answer to COMMIT was lost: it may have happened.
    #[error("the answer to COMMIT was lost: it may or may not have happened")]
    OutcomeUnknown,
    /// It took longer than it may.
    #[error("the statement took longer than it may")]
    Timeout,
    /// A bound on rows, bytes or length; the bound.
    #[error("over the bound of {0}")]
    TooLarge(u64),
    /// The database refused it.
    #[error("{message} (SQLSTATE {code})")]
    Database {
        /// SQLSTATE, five characters.
        code: String,
        /// The database's message.
        message: String,
        /// The database's detail.
        detail: Option<String>,
        /// The constraint that was violated.
        constraint: Option<String>,
    },
    /// The database cannot be reached.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
}

/// How a transaction is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Nothing may be changed; there is no fence.
    pub read_only: bool,
    /// SERIALIZABLE instead of READ COMMITTED.
    pub serializable: bool,
}

/// Opens transactions for roles.
#[async_trait]
pub trait Database: Send + Sync {
    /// Opens a transaction under a lease. Its commit is fenced with the lease's epoch and holder.
    ///
    /// # Errors
    /// [`DbError::LeaseLost`] at once when the lease does not hold any more; [`DbError::Unavailable`].
    async fn begin(&self, held: &Held, options: Options) -> Result<Box<dyn Transaction>, DbError>;

    /// Sees that the next transaction need not wait for a connection. What goes wrong is for that transaction to say.
    async fn keep_warm(&self) {}

    /// How many commits its fence has refused since it was opened.
    fn fence_refusals(&self) -> u64;
}

/// An open transaction. Dropping it rolls back.
#[async_trait]
pub trait Transaction: Send {
    /// The database's clock at the start, in nanoseconds since the Unix epoch.
    fn now(&self) -> i64;

    /// One statement that answers rows.
    ///
    /// # Errors
    /// Every [`DbError`]; after one, only dropping it is of use.
    async fn query(&mut self, sql: &str, params: Vec<Value>) -> Result<Rowset, DbError>;

    /// Statements in order; the affected rows of each.
    ///
    /// # Errors
    /// Every [`DbError`]; after one, only dropping it is of use.
    async fn execute(&mut self, work: Vec<Statement>) -> Result<Vec<u64>, DbError>;

    /// Checks the fence and commits, in one message.
    ///
    /// # Errors
    /// [`DbError::LeaseLost`] when the role has moved on (nothing was committed); [`DbError::OutcomeUnknown`] when no answer came.
    async fn commit(self: Box<Self>) -> Result<(), DbError>;
}

/// A duration as statements take it.
fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The host's own connections, for its own statements; guests' transactions have connections apart from these.
#[derive(Debug, Clone)]
pub enum Pool {
    /// PostgreSQL.
    Postgres(sqlx::PgPool),
    /// SQLite.
    Sqlite(sqlx::SqlitePool),
}

/// The database that a plant's transactions run on, by `plant.toml`; connects when the first one begins.
///
/// # Errors
/// [`StoreError::Configuration`] when a URL cannot be read.
pub fn open(store: &config::Store, bounds: Bounds) -> Result<Arc<dyn Database>, StoreError> {
    match store {
        config::Store::Postgres { urls, .. } => Ok(Arc::new(postgres::PostgresDatabase::new(urls, bounds)?)),
        config::Store::Sqlite { path } => Ok(Arc::new(sqlite::SqliteDatabase::new(path, bounds))),
    }
}
