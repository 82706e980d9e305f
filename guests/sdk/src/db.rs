//! Transactions on the plant's database. The host opens, fences and commits them.

use std::fmt;

pub use crate::bindings::imports::plant::db::db::{
    Array, Column, ColumnData, DbError, Error, Options, Params, Rowset, Statement, Transaction, Value,
};

/// Runs `work` in a transaction and commits it; an error rolls back.
///
/// # Errors
/// What `work` answered, or what the database did. After [`Error::OutcomeUnknown`] the work may have been committed: return an error from
/// the handler, and the host starts a fresh instance that reads what is there.
pub fn with_transaction<T, E: From<Error>>(work: impl FnOnce(&Transaction) -> Result<T, E>) -> Result<T, E> {
    let tx = Transaction::begin(Options::empty())?;
    let answer = work(&tx)?;
    Transaction::commit(tx)?;
    Ok(answer)
}

/// As [`with_transaction`], for reading only: there is nothing to commit, and no lease is asked for.
///
/// # Errors
/// What `work` answered, or what the database did.
pub fn reading<T, E: From<Error>>(work: impl FnOnce(&Transaction) -> Result<T, E>) -> Result<T, E> {
    work(&Transaction::begin(Options::READ_ONLY)?)
}

/// The sentence for people; handlers answer errors as text.
#[must_use]
pub fn explain(error: &Error) -> String {
    match error {
        Error::Denied(what) => what.clone(),
        Error::LeaseLost => "the lease is lost; nothing was committed".to_owned(),
        Error::OutcomeUnknown => "the answer to COMMIT was lost: it may or may not have happened".to_owned(),
        Error::Timeout => "the database took longer than it may".to_owned(),
        Error::TooLarge(bound) => format!("the statement is over the bound of {bound}"),
        Error::Database(e) => format!("the database refused it: {} (SQLSTATE {})", e.message, e.code),
        Error::Other(what) => what.clone(),
    }
}

/// A database error as the text that a handler answers: a role's own error type converts from [`Error`] through this, or is this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained(pub String);

impl From<Error> for Explained {
    fn from(error: Error) -> Self {
        Self(explain(&error))
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Explained> for String {
    fn from(error: Explained) -> Self {
        error.0
    }
}
