//! One open transaction, and its two ends: the fenced COMMIT, and the rollback of one that was dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::TryStreamExt;
use sqlx::postgres::{PgArguments, PgConnection, PgDatabaseError};
use sqlx::{Arguments, AssertSqlSafe, Either, Executor, Row, SqlSafeStr, Statement as _};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::Shared;
use super::connections::Lent;
use super::decode;
use super::encode::{ArrayOf, Raw, put};
use super::kind::Target;
use super::plan::Plan;
use crate::lease::Held;
use crate::store::columns::{at, runs};
use crate::store::error::{DATATYPE_MISMATCH, FAILED_TRANSACTION, NOT_SUPPORTED, UNDEFINED_PARAMETER, mistake};
use crate::store::value::{ColumnData, Params, Rowset, Statement, Value};
use crate::store::{Bounds, DbError, Options, Transaction};

/// How long a rollback may take before its connection is closed instead.
const ROLLBACK: Duration = Duration::from_secs(1);

/// What the connection is known to be doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In a transaction, waiting for the next statement.
    Open,
    /// A statement failed; the server answered, and only a rollback helps.
    Failed,
    /// A statement was sent and its answer is not read: a call is running, or was cancelled.
    Busy,
}

pub(super) struct PostgresTransaction {
    shared: Arc<Shared>,
    held: Held,
    options: Options,
    micros: i64,
    state: State,
    changed: bool,
    books: bool,
    // `None` only after its end.
    lent: Option<(Lent, OwnedSemaphorePermit)>,
}

impl PostgresTransaction {
    pub(super) fn new(
        shared: Arc<Shared>,
        held: Held,
        options: Options,
        lent: Lent,
        permit: OwnedSemaphorePermit,
        micros: i64,
    ) -> Self {
        Self {
            shared,
            held,
            options,
            micros,
            state: State::Open,
            changed: false,
            books: false,
            lent: Some((lent, permit)),
        }
    }

    /// The way in for every call: the lease holds, and nothing has failed before.
    fn enter(&mut self) -> Result<Duration, DbError> {
        self.held.check().map_err(|_| DbError::LeaseLost)?;
        if self.state != State::Open {
            return Err(mistake(FAILED_TRANSACTION, "the transaction has failed: only dropping it is of use"));
        }
        self.state = State::Busy;
        Ok(limit(&self.shared.bounds, &self.held))
    }

    /// The way out: an answer that was read to its end leaves the connection usable.
    fn leave<T>(&mut self, answer: Result<Result<T, Failed>, tokio::time::error::Elapsed>) -> Result<T, DbError> {
        match answer {
            Ok(Ok(value)) => {
                self.state = State::Open;
                Ok(value)
            }
            Ok(Err(Failed::Answered(error))) => {
                self.state = State::Failed;
                Err(error)
            }
            // The connection stays `Busy`, and is closed when this is dropped.
            Ok(Err(Failed::Unread(error))) => {
                if matches!(&error, DbError::Database { .. }) {
                    // The others have prepared the same statements for the same tables.
                    self.shared.connections.forget();
                }
                Err(error)
            }
            Err(_) if self.held.check().is_err() => Err(DbError::LeaseLost),
            Err(_) => Err(DbError::Timeout),
        }
    }

    fn connection(lent: &mut Option<(Lent, OwnedSemaphorePermit)>) -> Result<&mut PgConnection, DbError> {
        let open = lent.as_mut().map(|(lent, _)| &mut lent.session.connection);
        open.ok_or_else(|| mistake(FAILED_TRANSACTION, "the transaction has ended"))
    }
}

/// The server gives up first, so that its answer still comes and the connection can be used again.
fn limit(bounds: &Bounds, held: &Held) -> Duration {
    (bounds.statement + bounds.statement / 4).min(held.remaining())
}

/// A call that failed: did the server answer it to the end?
enum Failed {
    Answered(DbError),
    Unread(DbError),
}

impl From<DbError> for Failed {
    fn from(error: DbError) -> Self {
        Self::Answered(error)
    }
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            // This connection's prepared statement fits its tables no more, and never will again.
            sqlx::Error::Database(answer) if matches!(answer.code().as_deref(), Some("0A000" | "26000")) => {
                Self::Unread(failure(&error))
            }
            sqlx::Error::Database(_) => Self::Answered(failure(&error)),
            _ => Self::Unread(failure(&error)),
        }
    }
}

/// An error of the driver in the shape that guests see.
pub(super) fn failure(error: &sqlx::Error) -> DbError {
    let Some(answer) = error.as_database_error().and_then(|e| e.try_downcast_ref::<PgDatabaseError>()) else {
        return DbError::Unavailable(error.to_string());
    };
    match answer.code() {
        // query_canceled by statement_timeout, lock_not_available by lock_timeout, idle_in_transaction_session_timeout.
        "57014" | "55P03" | "25P03" => DbError::Timeout,
        // insufficient_privilege: the login's own wall.
        "42501" => DbError::Denied(answer.message().to_owned()),
        code if code.starts_with("57P") || code.starts_with("08") => DbError::Unavailable(answer.message().to_owned()),
        code => DbError::Database {
            code: code.to_owned(),
            message: answer.message().to_owned(),
            detail: answer.detail().map(str::to_owned),
            constraint: answer.constraint().map(str::to_owned),
        },
    }
}

/// The parameters of a statement; asks the server only for a text that no connection of ours has sent yet.
async fn describe<'p>(connection: &mut PgConnection, text: &str, plan: &'p Plan) -> Result<&'p [Target], Failed> {
    if let Some(targets) = plan.targets() {
        return Ok(targets);
    }
    let prepared = connection.prepare(AssertSqlSafe(text.to_owned()).into_sql_str()).await?;
    let targets = match prepared.parameters() {
        Some(Either::Left(infos)) => infos.iter().map(Target::of).collect(),
        _ => Vec::new(),
    };
    Ok(plan.describe(targets))
}

fn count_matches(wanted: usize, came: usize) -> Result<(), DbError> {
    let message = || format!("the statement has {wanted} parameters and {came} came");
    if wanted == came { Ok(()) } else { Err(mistake(UNDEFINED_PARAMETER, message())) }
}

fn row_arguments(values: &[Value], targets: &[Target], bounds: &Bounds) -> Result<PgArguments, DbError> {
    count_matches(targets.len(), values.len())?;
    let mut arguments = PgArguments::default();
    let (mut bytes, mut total) = (Vec::new(), 0);
    for (n, (value, target)) in values.iter().zip(targets).enumerate() {
        bytes.clear();
        let wrong = |why: String| mistake(DATATYPE_MISMATCH, format!("${}: {why}", n + 1));
        let some = put(value, target, &mut bytes).map_err(wrong)?;
        total += bytes.len();
        if total > bounds.bytes {
            return Err(DbError::TooLarge(bounds.bytes as u64));
        }
        let raw = Raw { bytes: &bytes, null: !some, info: target.info.clone() };
        arguments.add(raw).map_err(|e| wrong(e.to_string()))?;
    }
    Ok(arguments)
}

async fn run_query(
    connection: &mut PgConnection,
    shared: &Shared,
    text: &str,
    values: Vec<Value>,
) -> Result<Rowset, Failed> {
    let bounds = &shared.bounds;
    let plan = shared.plans.get(text, bounds)?;
    let targets = describe(connection, text, &plan).await?;
    let arguments = row_arguments(&values, targets, bounds)?;
    let mut answer = Rowset::default();
    let mut rows = sqlx::query_with(AssertSqlSafe(text.to_owned()), arguments).fetch(&mut *connection);
    let mut size = 0;
    while let Some(row) = rows.try_next().await? {
        if answer.rows.is_empty() {
            answer.columns = decode::columns(row.columns());
        }
        let (values, bytes) = decode::values(&row).map_err(|why| Failed::Unread(mistake(NOT_SUPPORTED, why)))?;
        size += bytes;
        if size > bounds.bytes {
            return Err(Failed::Unread(DbError::TooLarge(bounds.bytes as u64)));
        }
        if answer.rows.len() >= bounds.rows {
            return Err(Failed::Unread(DbError::TooLarge(bounds.rows as u64)));
        }
        answer.rows.push(values);
    }
    drop(rows);
    if answer.rows.is_empty() {
        // Prepared a moment ago: the driver knows its columns without asking.
        let prepared = connection.prepare(AssertSqlSafe(text.to_owned()).into_sql_str()).await?;
        answer.columns = decode::columns(prepared.columns());
    }
    Ok(answer)
}

async fn run_statement(connection: &mut PgConnection, shared: &Shared, work: &Statement) -> Result<u64, Failed> {
    let plan = shared.plans.get(&work.sql, &shared.bounds)?;
    let done = match &work.params {
        Params::Row(values) => run_row(connection, shared, &work.sql, &plan, values).await,
        Params::Columns(columns) => run_columns(connection, shared, &work.sql, &plan, columns).await,
    };
    if let Err(Failed::Answered(_)) = &done {
        // The next try asks the server again what the statement's types are.
        shared.plans.forget(&work.sql);
    }
    done
}

async fn run_row(
    connection: &mut PgConnection,
    shared: &Shared,
    text: &str,
    plan: &Plan,
    values: &[Value],
) -> Result<u64, Failed> {
    let targets = describe(connection, text, plan).await?;
    let arguments = row_arguments(values, targets, &shared.bounds)?;
    let done = sqlx::query_with(AssertSqlSafe(text.to_owned()), arguments).execute(connection).await?;
    Ok(done.rows_affected())
}

async fn run_columns(
    connection: &mut PgConnection,
    shared: &Shared,
    text: &str,
    plan: &Plan,
    columns: &[ColumnData],
) -> Result<u64, Failed> {
    let runs = runs(columns, &shared.bounds)?;
    if runs == 0 {
        return Ok(0);
    }
    if !plan.is_batch(columns, runs) {
        return run_one_by_one(connection, shared, text, plan, columns, runs).await;
    }
    let targets = describe(connection, text, plan).await?;
    count_matches(targets.len(), columns.len())?;
    let wrong = |why: String| mistake(DATATYPE_MISMATCH, why);
    let (over_arrays, elements) = plan.over_arrays(targets, columns).map_err(wrong)?;
    let mut arguments = PgArguments::default();
    for (n, ((column, target), element)) in columns.iter().zip(targets).zip(elements).enumerate() {
        let array = ArrayOf { column, element, target };
        arguments.add(array).map_err(|e| wrong(format!("${} {e}", n + 1)))?;
    }
    let done = sqlx::query_with(AssertSqlSafe(over_arrays), arguments).execute(connection).await?;
    Ok(done.rows_affected())
}

async fn run_one_by_one(
    connection: &mut PgConnection,
    shared: &Shared,
    text: &str,
    plan: &Plan,
    columns: &[ColumnData],
    runs: usize,
) -> Result<u64, Failed> {
    let mut affected = 0;
    for position in 0..runs {
        let values: Vec<Value> = columns.iter().map(|column| at(column, position)).collect();
        affected += run_row(connection, shared, text, plan, &values).await?;
    }
    Ok(affected)
}

#[async_trait]
impl Transaction for PostgresTransaction {
    fn now(&self) -> i64 {
        self.micros.saturating_mul(1_000)
    }

    async fn query(&mut self, sql: &str, params: Vec<Value>) -> Result<Rowset, DbError> {
        let limit = self.enter()?;
        let connection = Self::connection(&mut self.lent)?;
        let answer = timeout(limit, run_query(connection, &self.shared, sql, params)).await;
        self.leave(answer)
    }

    async fn execute(&mut self, work: Vec<Statement>) -> Result<Vec<u64>, DbError> {
        if work.len() > self.shared.bounds.statements {
            return Err(DbError::TooLarge(self.shared.bounds.statements as u64));
        }
        let mut affected = Vec::with_capacity(work.len());
        for statement in &work {
            let limit = self.enter()?;
            let connection = Self::connection(&mut self.lent)?;
            let answer = timeout(limit, run_statement(connection, &self.shared, statement)).await;
            let rows = self.leave(answer)?;
            self.changed |= rows > 0;
            self.books |= rows > 0 && statement.sql.starts_with("INSERT INTO bookings");
            affected.push(rows);
        }
        Ok(affected)
    }

    async fn commit(mut self: Box<Self>) -> Result<(), DbError> {
        let limit = self.enter()?;
        let Some((mut lent, permit)) = self.lent.take() else {
            return Err(mistake(FAILED_TRANSACTION, "the transaction has ended"));
        };
        let (key, epoch, now) = (self.held.key(), self.held.epoch(), Instant::now());
        let noted = self.changed && self.shared.notes.due(key, epoch, self.books, now);
        let note = noted.then_some(self.books);
        let message = commit_message(&self.held, self.options, self.micros, lent.session.schema.as_deref(), note);
        let message = match message {
            Ok(message) => message,
            Err(error) => {
                roll_back(self.shared.clone(), lent, permit);
                return Err(error);
            }
        };
        let sending = sqlx::raw_sql(AssertSqlSafe(message)).execute(&mut lent.session.connection);
        match timeout(limit, sending).await {
            Ok(Ok(_)) => {
                if noted {
                    self.shared.notes.committed(key, epoch, self.books, now);
                }
                self.shared.connections.give_back(lent);
                Ok(())
            }
            Ok(Err(error)) => {
                let ended = commit_failure(&error);
                if matches!(ended, DbError::LeaseLost) {
                    self.shared.fence_refusals.fetch_add(1, Ordering::Relaxed);
                }
                if !matches!(ended, DbError::OutcomeUnknown) {
                    roll_back(self.shared.clone(), lent, permit);
                }
                Err(ended)
            }
            // The connection is closed: whatever still comes over it is nobody's.
            Err(_) => Err(DbError::OutcomeUnknown),
        }
    }
}

/// The check of the fence and the COMMIT, in one message. An error in it ends it, so that COMMIT is reached only if the transaction
/// is sound and the fence holds. The division proves that the transaction is the one that was begun: outside it `now()` is another.
/// With `note` the commit leaves a note of itself, and whether it books: before the fence, which stays the last statement.
fn commit_message(
    held: &Held,
    options: Options,
    micros: i64,
    schema: Option<&str>,
    note: Option<bool>,
) -> Result<String, DbError> {
    let proof = format!("1 / (now() = 'epoch'::timestamptz + {micros} * interval '1 microsecond')::integer");
    if options.read_only {
        return Ok(format!("SELECT {proof}; COMMIT"));
    }
    let Some(schema) = schema else {
        return Err(DbError::Unavailable("the database has no plant_fence: run `host migrate`".to_owned()));
    };
    let (key, epoch, boot) = (held.key(), held.epoch(), held.holder().boot);
    let (role, partition) = (literal(key.role.as_str()), literal(&key.partition));
    let note = note
        .map_or_else(String::new, |books| format!("SELECT {schema}.plant_note_commit({role}, {partition}, {books}); "));
    Ok(format!(
        "{note}SELECT {schema}.plant_fence({role}, {partition}, {}, {}, '{boot}'), {proof}; COMMIT",
        epoch.timeline, epoch.number,
    ))
}

/// A text in SQL, whatever the session's settings are.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// What became of a transaction whose COMMIT was answered with an error, or not at all.
fn commit_failure(error: &sqlx::Error) -> DbError {
    let Some(answer) = error.as_database_error().and_then(|e| e.try_downcast_ref::<PgDatabaseError>()) else {
        return DbError::OutcomeUnknown;
    };
    let in_fence = answer.r#where().is_some_and(|place| place.contains("plant_fence"));
    // A serializable transaction may fail with 40001 as well, also while it reads the fence: that one may be tried again.
    let conflict = answer.routine().is_some_and(|routine| routine.contains("Serializ"));
    match answer.code() {
        "40001" if in_fence && !conflict => DbError::LeaseLost,
        // The server is ending; or the transaction was not the one that was begun. What happened is for the next reader to find out.
        "22012" => DbError::OutcomeUnknown,
        code if code.starts_with("57P") || code.starts_with("08") => DbError::OutcomeUnknown,
        _ => failure(error),
    }
}

/// Ends a transaction in the background. Its connection is kept only if the server confirms the rollback.
fn roll_back(shared: Arc<Shared>, mut lent: Lent, permit: OwnedSemaphorePermit) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    runtime.spawn(async move {
        let rolling = sqlx::raw_sql("ROLLBACK").execute(&mut lent.session.connection);
        if matches!(timeout(ROLLBACK, rolling).await, Ok(Ok(_))) {
            shared.connections.give_back(lent);
        }
        drop(permit);
    });
}

impl Drop for PostgresTransaction {
    fn drop(&mut self) {
        if let Some((lent, permit)) = self.lent.take()
            && self.state != State::Busy
        {
            roll_back(self.shared.clone(), lent, permit);
        }
    }
}
