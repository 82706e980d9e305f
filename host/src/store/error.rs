//! What the store says when it fails: one sentence for people (`StoreError`), and the shape that guests see (`DbError`).

use super::DbError;

/// Why the plant's database cannot be used; each a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// What `plant.toml` says of the store cannot be used.
    #[error("{0}")]
    Configuration(String),
    /// The database does not answer now; trying again may help.
    #[error("{0}")]
    Unavailable(String),
    /// The database answers, and will not have us as we are.
    #[error("{0}")]
    Refused(String),
    /// The schema is not the one that this binary was built for.
    #[error("{0}")]
    Schema(String),
}

impl From<StoreError> for DbError {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// A mistake in a call that the database was not asked about, in the shape of the database's own errors.
pub(super) fn mistake(code: &str, message: impl Into<String>) -> DbError {
    DbError::Database { code: code.to_owned(), message: message.into(), detail: None, constraint: None }
}

/// SQLSTATE `datatype_mismatch`.
pub(super) const DATATYPE_MISMATCH: &str = "42804";
/// SQLSTATE `undefined_parameter`.
pub(super) const UNDEFINED_PARAMETER: &str = "42P02";
/// SQLSTATE `feature_not_supported`.
pub(super) const NOT_SUPPORTED: &str = "0A000";
/// SQLSTATE `in_failed_sql_transaction`.
pub(super) const FAILED_TRANSACTION: &str = "25P02";
