//! Between the values of `plant:db` and those of `store`: moves, so that an array crosses without being copied.

use crate::capability::bindings::imports::plant::db::db as wit;
use crate::store::{Array, Column, ColumnData, DbError, Options, Params, Rowset, Statement, Value};

fn all<A, B: From<A>>(many: Vec<A>) -> Vec<B> {
    many.into_iter().map(B::from).collect()
}

/// Parameters of a query.
pub fn values(values: Vec<wit::Value>) -> Vec<Value> {
    all(values)
}

/// Statements to execute.
pub fn statements(work: Vec<wit::Statement>) -> Vec<Statement> {
    all(work)
}

impl From<wit::Value> for Value {
    fn from(value: wit::Value) -> Self {
        match value {
            wit::Value::Null => Self::Null,
            wit::Value::Boolean(v) => Self::Boolean(v),
            wit::Value::Int(v) => Self::Int(v),
            wit::Value::Real(v) => Self::Real(v),
            wit::Value::Text(v) => Self::Text(v),
            wit::Value::Bytes(v) => Self::Bytes(v),
            wit::Value::Decimal(v) => Self::Decimal(v),
            wit::Value::Timestamp(v) => Self::Timestamp(v),
            wit::Value::Uuid((high, low)) => Self::Uuid(high, low),
            wit::Value::Json(v) => Self::Json(v),
            wit::Value::Other((kind, text)) => Self::Other(kind, text),
        }
    }
}

impl From<Value> for wit::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Boolean(v) => Self::Boolean(v),
            Value::Int(v) => Self::Int(v),
            Value::Real(v) => Self::Real(v),
            Value::Text(v) => Self::Text(v),
            Value::Bytes(v) => Self::Bytes(v),
            Value::Decimal(v) => Self::Decimal(v),
            Value::Timestamp(v) => Self::Timestamp(v),
            Value::Uuid(high, low) => Self::Uuid((high, low)),
            Value::Json(v) => Self::Json(v),
            Value::Other(kind, text) => Self::Other((kind, text)),
        }
    }
}

impl From<wit::Array> for Array {
    fn from(array: wit::Array) -> Self {
        match array {
            wit::Array::Booleans(v) => Self::Booleans(v),
            wit::Array::Ints(v) => Self::Ints(v),
            wit::Array::Reals(v) => Self::Reals(v),
            wit::Array::Decimals(v) => Self::Decimals(v),
            wit::Array::Texts(v) => Self::Texts(v),
            wit::Array::Timestamps(v) => Self::Timestamps(v),
            wit::Array::Values(v) => Self::Values(all(v)),
            wit::Array::Other((kind, texts)) => Self::Other(kind, texts),
        }
    }
}

impl From<wit::ColumnData> for ColumnData {
    fn from(column: wit::ColumnData) -> Self {
        Self { values: column.values.into(), nulls: column.nulls }
    }
}

impl From<wit::Statement> for Statement {
    fn from(statement: wit::Statement) -> Self {
        let params = match statement.params {
            wit::Params::Row(row) => Params::Row(all(row)),
            wit::Params::Columns(columns) => Params::Columns(all(columns)),
        };
        Self { sql: statement.sql, params }
    }
}

impl From<wit::Options> for Options {
    fn from(options: wit::Options) -> Self {
        Self {
            read_only: options.contains(wit::Options::READ_ONLY),
            serializable: options.contains(wit::Options::SERIALIZABLE),
        }
    }
}

impl From<Column> for wit::Column {
    fn from(column: Column) -> Self {
        Self { name: column.name, type_name: column.type_name }
    }
}

impl From<Rowset> for wit::Rowset {
    fn from(rows: Rowset) -> Self {
        Self { columns: all(rows.columns), rows: rows.rows.into_iter().map(all).collect() }
    }
}

impl From<DbError> for wit::Error {
    fn from(error: DbError) -> Self {
        match error {
            DbError::Denied(text) => Self::Denied(text),
            DbError::LeaseLost => Self::LeaseLost,
            DbError::OutcomeUnknown => Self::OutcomeUnknown,
            DbError::Timeout => Self::Timeout,
            DbError::TooLarge(bound) => Self::TooLarge(bound),
            DbError::Database { code, message, detail, constraint } => {
                Self::Database(wit::DbError { code, message, detail, constraint })
            }
            DbError::Unavailable(_) => Self::Other(error.to_string()),
        }
    }
}
