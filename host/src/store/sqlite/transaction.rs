//! One open transaction on SQLite: its statements, its fenced COMMIT, and the rollback of one that was dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures::TryStreamExt;
use sqlparser::dialect::SQLiteDialect;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteError};
use sqlx::{AssertSqlSafe, Executor, Row, SqlSafeStr, Statement as _};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::values::{add, columns, values};
use super::{Connection, Shared};
use crate::clock::BootInstant;
use crate::lease::Held;
use crate::store::columns::{at, runs, value_size};
use crate::store::error::{DATATYPE_MISMATCH, FAILED_TRANSACTION, NOT_SUPPORTED, UNDEFINED_PARAMETER, mistake};
use crate::store::value::{Params, Rowset, Statement, Value};
use crate::store::{Bounds, DbError, Options, Transaction, sql};

/// How long a rollback may take before its connection is closed instead.
const ROLLBACK: Duration = Duration::from_secs(1);

/// What the connection is known to be doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In a transaction, waiting for the next statement.
    Open,
    /// A statement failed, and only a rollback helps.
    Failed,
    /// A call is running, or was cancelled.
    Busy,
}

pub(super) struct SqliteTransaction {
    shared: Arc<Shared>,
    held: Held,
    options: Options,
    now: i64,
    state: State,
    // `None` only after its end.
    lent: Option<(Connection, OwnedSemaphorePermit)>,
}

impl SqliteTransaction {
    pub(super) fn new(
        shared: Arc<Shared>,
        held: Held,
        options: Options,
        connection: Connection,
        permit: OwnedSemaphorePermit,
        now: i64,
    ) -> Self {
        Self { shared, held, options, now, state: State::Open, lent: Some((connection, permit)) }
    }

    /// The way in for every call: the lease holds, nothing has failed before, and the statement stops in time.
    fn enter(&mut self) -> Result<(Duration, &mut SqliteConnection), DbError> {
        self.held.check().map_err(|_| DbError::LeaseLost)?;
        let ended = || mistake(FAILED_TRANSACTION, "the transaction has failed: only dropping it is of use");
        if self.state != State::Open {
            return Err(ended());
        }
        let (connection, _) = self.lent.as_mut().ok_or_else(ended)?;
        self.state = State::Busy;
        let limit = self.shared.bounds.statement.min(self.held.remaining());
        connection.stop_at(BootInstant::now() + limit);
        // SQLite stops by itself at the deadline, and then answers; a little later nobody waits for it any more.
        Ok((limit + limit / 4, &mut connection.sqlite))
    }

    fn leave<T>(&mut self, answer: Result<Result<T, DbError>, tokio::time::error::Elapsed>) -> Result<T, DbError> {
        match answer {
            Ok(Ok(value)) => {
                self.state = State::Open;
                Ok(value)
            }
            Ok(Err(error)) => {
                self.state = State::Failed;
                if self.held.check().is_err() { Err(DbError::LeaseLost) } else { Err(error) }
            }
            Err(_) if self.held.check().is_err() => Err(DbError::LeaseLost),
            Err(_) => Err(DbError::Timeout),
        }
    }
}

/// An error of the driver in the shape that guests see.
pub(super) fn failure(error: &sqlx::Error) -> DbError {
    let Some(answer) = error.as_database_error().and_then(|e| e.try_downcast_ref::<SqliteError>()) else {
        return DbError::Unavailable(error.to_string());
    };
    let message = sqlx::error::DatabaseError::message(answer).to_owned();
    let code: u32 = sqlx::error::DatabaseError::code(answer).and_then(|code| code.parse().ok()).unwrap_or(0);
    let sqlstate = match (code & 0xff, code) {
        // BUSY, LOCKED, and INTERRUPT from the deadline.
        (5 | 6 | 9, _) => return DbError::Timeout,
        // READONLY: a statement that changes something, in a read-only transaction.
        (8, _) => "25006",
        // IOERR, CORRUPT, FULL, CANTOPEN, NOTADB.
        (10 | 11 | 13 | 14 | 26, _) => return DbError::Unavailable(message),
        (_, 1_555 | 2_067 | 2_579) => "23505",
        (_, 787) => "23503",
        (_, 1_299) => "23502",
        (_, 275) => "23514",
        (19, _) => "23000",
        (20, _) => DATATYPE_MISMATCH,
        _ => "42000",
    };
    let constraint = message.split_once("constraint failed: ").map(|(_, named)| named.to_owned());
    DbError::Database { code: sqlstate.to_owned(), message, detail: None, constraint }
}

fn arguments(given: Vec<Value>, wanted: usize, bounds: &Bounds) -> Result<SqliteArguments, DbError> {
    if given.len() != wanted {
        let message = format!("the statement has {wanted} parameters and {} came", given.len());
        return Err(mistake(UNDEFINED_PARAMETER, message));
    }
    if given.iter().map(value_size).sum::<usize>() > bounds.bytes {
        return Err(DbError::TooLarge(bounds.bytes as u64));
    }
    let mut arguments = SqliteArguments::default();
    for (n, value) in given.into_iter().enumerate() {
        add(&mut arguments, value).map_err(|why| mistake(DATATYPE_MISMATCH, format!("${}: {why}", n + 1)))?;
    }
    Ok(arguments)
}

async fn run_query(
    connection: &mut SqliteConnection,
    bounds: &Bounds,
    text: &str,
    given: Vec<Value>,
) -> Result<Rowset, DbError> {
    let parsed = sql::parse(&SQLiteDialect {}, text, bounds)?;
    let arguments = arguments(given, parsed.parameters, bounds)?;
    let mut answer = Rowset::default();
    let mut size = 0;
    let mut rows = sqlx::query_with(AssertSqlSafe(text.to_owned()), arguments).fetch(&mut *connection);
    while let Some(row) = rows.try_next().await.map_err(|e| failure(&e))? {
        if answer.rows.is_empty() {
            answer.columns = columns(row.columns());
        }
        let (values, bytes) = values(&row).map_err(|why| mistake(NOT_SUPPORTED, why))?;
        size += bytes;
        if size > bounds.bytes {
            return Err(DbError::TooLarge(bounds.bytes as u64));
        }
        if answer.rows.len() >= bounds.rows {
            return Err(DbError::TooLarge(bounds.rows as u64));
        }
        answer.rows.push(values);
    }
    drop(rows);
    if answer.rows.is_empty() {
        let prepared = connection.prepare(AssertSqlSafe(text.to_owned()).into_sql_str()).await;
        answer.columns = columns(prepared.map_err(|e| failure(&e))?.columns());
    }
    Ok(answer)
}

async fn run_statement(connection: &mut SqliteConnection, bounds: &Bounds, work: Statement) -> Result<u64, DbError> {
    let parsed = sql::parse(&SQLiteDialect {}, &work.sql, bounds)?;
    // One allocation for all the runs.
    let text: Arc<str> = work.sql.into();
    match work.params {
        Params::Row(given) => run_once(connection, &text, arguments(given, parsed.parameters, bounds)?).await,
        Params::Columns(columns) => {
            let mut affected = 0;
            for position in 0..runs(&columns, bounds)? {
                let given = columns.iter().map(|column| at(column, position)).collect();
                affected += run_once(connection, &text, arguments(given, parsed.parameters, bounds)?).await?;
            }
            Ok(affected)
        }
    }
}

async fn run_once(connection: &mut SqliteConnection, text: &Arc<str>, given: SqliteArguments) -> Result<u64, DbError> {
    let done = sqlx::query_with(AssertSqlSafe(text.clone()), given).execute(connection).await;
    Ok(done.map_err(|e| failure(&e))?.rows_affected())
}

#[async_trait]
impl Transaction for SqliteTransaction {
    fn now(&self) -> i64 {
        self.now
    }

    async fn query(&mut self, sql: &str, params: Vec<Value>) -> Result<Rowset, DbError> {
        let bounds = self.shared.bounds.clone();
        let (limit, connection) = self.enter()?;
        let answer = timeout(limit, run_query(connection, &bounds, sql, params)).await;
        self.leave(answer)
    }

    async fn execute(&mut self, work: Vec<Statement>) -> Result<Vec<u64>, DbError> {
        let bounds = self.shared.bounds.clone();
        if work.len() > bounds.statements {
            return Err(DbError::TooLarge(bounds.statements as u64));
        }
        let mut affected = Vec::with_capacity(work.len());
        for statement in work {
            let (limit, connection) = self.enter()?;
            let answer = timeout(limit, run_statement(connection, &bounds, statement)).await;
            affected.push(self.leave(answer)?);
        }
        Ok(affected)
    }

    async fn commit(mut self: Box<Self>) -> Result<(), DbError> {
        if !self.options.read_only {
            let held = self.held.clone();
            let (limit, connection) = self.enter()?;
            let checked = timeout(limit, fence_holds(connection, &held)).await;
            if !self.leave(checked)? {
                self.shared.fence_refusals.fetch_add(1, Ordering::Relaxed);
                return Err(DbError::LeaseLost);
            }
        }
        let (limit, connection) = self.enter()?;
        let answer = timeout(limit, sqlx::raw_sql("COMMIT").execute(connection)).await;
        match answer {
            Ok(Ok(_)) => {
                if let Some((connection, _permit)) = self.lent.take() {
                    self.shared.side(self.options).give_back(connection);
                }
                Ok(())
            }
            Ok(Err(error)) => match failure(&error) {
                // Whether the disk has it is not known. The connection stays `Busy`, and is closed.
                DbError::Unavailable(_) => Err(DbError::OutcomeUnknown),
                refused => {
                    self.state = State::Failed;
                    Err(refused)
                }
            },
            Err(_) => Err(DbError::OutcomeUnknown),
        }
    }
}

/// Whether the role is still at this epoch and with this boot. The transaction holds the file's write lock: the answer cannot change before
/// its COMMIT.
async fn fence_holds(connection: &mut SqliteConnection, held: &Held) -> Result<bool, DbError> {
    let asked = sqlx::query(
        "SELECT 1 FROM plant_fences WHERE role = $1 AND partition = $2 AND timeline = $3 AND epoch = $4 AND boot_id = $5",
    );
    let number = i64::try_from(held.epoch().number).map_err(|_| DbError::LeaseLost)?;
    let asked = asked.bind(held.key().role.as_str()).bind(held.key().partition.as_str());
    let asked = asked.bind(held.epoch().timeline).bind(number).bind(held.holder().boot.to_string());
    let found = asked.fetch_optional(connection).await.map_err(|e| failure(&e))?;
    Ok(found.is_some())
}

impl Drop for SqliteTransaction {
    fn drop(&mut self) {
        let Some((mut connection, permit)) = self.lent.take() else { return };
        if self.state == State::Busy {
            // Stops what still runs; the connection then closes itself, which rolls back.
            connection.stop_at(BootInstant::from_nanos(0));
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (shared, options) = (self.shared.clone(), self.options);
        runtime.spawn(async move {
            connection.stop_at(BootInstant::NEVER);
            let rolling = sqlx::raw_sql("ROLLBACK").execute(&mut connection.sqlite);
            if matches!(timeout(ROLLBACK, rolling).await, Ok(Ok(_))) {
                shared.side(options).give_back(connection);
            }
            drop(permit);
        });
    }
}
