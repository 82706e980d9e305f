//! What the database said last, so that a node answers while the database is away and many browsers cost it one question.
//!
//! An answer younger than [`FRESH`] is given again. Only one request asks at a time; the others take what it brings. After a failure
//! nobody asks for [`PAUSE`]: a page that looks each second must not queue up behind a database that does not answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::time::timeout;

use crate::clock::{BootInstant, wall_nanos};

use super::Problem;
use super::bounds::QUESTION;
use super::shapes::DatabaseState;

const FRESH: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_secs(1);

/// Whether the database answers, as the routes have seen it.
pub(super) struct Database(Mutex<Reach>);

struct Reach {
    reachable: bool,
    since_ms: i64,
    error: Option<String>,
    failed_at: Option<BootInstant>,
}

impl Database {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Reach { reachable: true, since_ms: now_ms(), error: None, failed_at: None }))
    }

    fn reach(&self) -> MutexGuard<'_, Reach> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the page shows of it.
    pub(super) fn state(&self) -> DatabaseState {
        let reach = self.reach();
        DatabaseState {
            reachable: reach.reachable,
            since: super::shapes::millis(reach.since_ms),
            error: reach.error.clone(),
        }
    }

    /// Whether it failed so lately that it is not asked again yet.
    fn resting(&self) -> bool {
        self.reach().failed_at.is_some_and(|at| BootInstant::now().since(at) < PAUSE)
    }

    /// Asks it, within the bound.
    pub(super) async fn ask<T>(&self, question: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, String> {
        let answer = match timeout(QUESTION, question).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(sentence(&error)),
            Err(_) => Err(format!("no answer within {} ms", QUESTION.as_millis())),
        };
        self.seen(answer.as_ref().err());
        answer
    }

    /// Changes something in it, within the bound. What it refuses was not done; what it did not confirm may have been.
    pub(super) async fn change<T>(&self, change: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, Problem> {
        match timeout(QUESTION, change).await {
            Ok(Ok(done)) => {
                self.seen(None);
                Ok(done)
            }
            Ok(Err(sqlx::Error::Database(error))) => {
                let detail = format!("the database refused it and nothing was recorded: {}", error.message());
                Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "refused", detail))
            }
            Ok(Err(error)) => Err(Problem::write_unknown(&sentence(&error))),
            Err(_) => Err(Problem::write_unknown(&format!("no answer within {} ms", QUESTION.as_millis()))),
        }
    }

    fn seen(&self, error: Option<&String>) {
        let mut reach = self.reach();
        if reach.reachable != error.is_none() {
            reach.reachable = error.is_none();
            reach.since_ms = now_ms();
        }
        reach.error = error.cloned();
        reach.failed_at = error.map(|_| BootInstant::now());
    }

    fn error(&self) -> String {
        self.reach().error.clone().unwrap_or_else(|| "another question is under way".to_owned())
    }
}

/// One line, without what only a debugger wants.
fn sentence(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => error.message().to_owned(),
        sqlx::Error::PoolTimedOut => "no connection is free".to_owned(),
        other => other.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

fn now_ms() -> i64 {
    wall_nanos() / 1_000_000
}

/// The last answer to one question.
pub(super) struct Latest<T> {
    known: Mutex<Option<(Arc<T>, BootInstant)>>,
    asking: tokio::sync::Mutex<()>,
}

/// An answer, and whether it is from before the database went away.
pub(super) struct Answer<T> {
    pub(super) value: Arc<T>,
    pub(super) stale: bool,
    /// How old it is.
    pub(super) age: Duration,
}

impl<T> Latest<T> {
    pub(super) fn new() -> Self {
        Self { known: Mutex::new(None), asking: tokio::sync::Mutex::new(()) }
    }

    fn known(&self) -> Option<(Arc<T>, Duration)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().map(|(value, at)| (value.clone(), BootInstant::now().since(*at)))
    }

    fn fresh(&self) -> Option<Answer<T>> {
        let (value, age) = self.known().filter(|(_, age)| *age < FRESH)?;
        Some(Answer { value, stale: false, age })
    }

    /// The present answer, or the last one, or why there is none.
    pub(super) async fn get(
        &self,
        database: &Database,
        question: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<Answer<T>, String> {
        if let Some(answer) = self.fresh() {
            return Ok(answer);
        }
        if !database.resting()
            && let Ok(_asking) = timeout(QUESTION, self.asking.lock()).await
        {
            if let Some(answer) = self.fresh() {
                return Ok(answer);
            }
            // Whoever asked before may have found the database away.
            if !database.resting()
                && let Ok(value) = database.ask(question).await
            {
                let value = Arc::new(value);
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                *known = Some((value.clone(), BootInstant::now()));
                return Ok(Answer { value, stale: false, age: Duration::ZERO });
            }
        }
        match self.known() {
            Some((value, age)) => Ok(Answer { value, stale: true, age }),
            None => Err(database.error()),
        }
    }

    /// Forgets it, because it has just been changed.
    pub(super) fn outdated(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, at)) = known.as_mut() {
            *at = BootInstant::from_nanos(0);
        }
    }
}
