//! Values to and from SQLite, by storage class and declared type.

use sqlx::sqlite::{SqliteArguments, SqliteColumn, SqliteRow, SqliteValueRef};
use sqlx::{Arguments, Column as _, Decode, Row, Sqlite, TypeInfo, ValueRef};

use crate::store::columns::value_size;
use crate::store::value::{Column, Value};

/// Adds one parameter.
pub(super) fn add(arguments: &mut SqliteArguments, value: Value) -> Result<(), String> {
    let added = match value {
        Value::Null => arguments.add(None::<i64>),
        Value::Boolean(b) => arguments.add(b),
        Value::Int(i) => arguments.add(i),
        // NaN would be stored as NULL.
        Value::Real(r) if r.is_nan() => return Err("SQLite cannot store NaN".to_owned()),
        Value::Real(r) => arguments.add(r),
        Value::Text(t) | Value::Json(t) | Value::Other(_, t) => arguments.add(t),
        Value::Bytes(b) => arguments.add(b),
        // A column declared BLOB converts nothing, so that no digit is lost in either form.
        Value::Decimal(d) => match d.parse::<i64>() {
            Ok(whole) => arguments.add(whole),
            Err(_) => arguments.add(d),
        },
        Value::Timestamp(nanos) => arguments.add(nanos.div_euclid(1_000)),
        Value::Uuid(high, low) => arguments.add(uuid::Uuid::from_u64_pair(high, low).to_string()),
    };
    added.map_err(|e| e.to_string())
}

/// An answer's columns.
pub(super) fn columns(columns: &[SqliteColumn]) -> Vec<Column> {
    let named = |c: &SqliteColumn| Column { name: c.name().to_owned(), type_name: c.type_info().name().to_lowercase() };
    columns.iter().map(named).collect()
}

/// A row's values, with their size in bytes.
pub(super) fn values(row: &SqliteRow) -> Result<(Vec<Value>, usize), String> {
    let mut size = 0;
    let mut values = Vec::with_capacity(row.len());
    for column in row.columns() {
        let raw = row.try_get_raw(column.ordinal()).map_err(|e| e.to_string())?;
        let value =
            value(raw, column.type_info().name()).map_err(|why| format!("column {:?}: {why}", column.name()))?;
        size += value_size(&value) + 8;
        values.push(value);
    }
    Ok((values, size))
}

fn value(raw: SqliteValueRef<'_>, declared: &str) -> Result<Value, String> {
    if raw.is_null() {
        return Ok(Value::Null);
    }
    let stored = raw.type_info().name().to_owned();
    match (stored.as_str(), declared) {
        ("TEXT", "BLOB") => text(raw).map(exact),
        ("TEXT", _) => text(raw).map(Value::Text),
        ("REAL", _) => <f64 as Decode<Sqlite>>::decode(raw).map(Value::Real).map_err(|e| e.to_string()),
        ("BLOB", _) => <Vec<u8> as Decode<Sqlite>>::decode(raw).map(Value::Bytes).map_err(|e| e.to_string()),
        (_, declared) => {
            let int = <i64 as Decode<Sqlite>>::decode(raw).map_err(|e| e.to_string())?;
            Ok(match declared {
                "BOOLEAN" => Value::Boolean(int != 0),
                "DATETIME" => int.checked_mul(1_000).map_or(Value::Int(int), Value::Timestamp),
                _ => Value::Int(int),
            })
        }
    }
}

fn text(raw: SqliteValueRef<'_>) -> Result<String, String> {
    <String as Decode<Sqlite>>::decode(raw).map_err(|e| e.to_string())
}

/// Text in a column declared BLOB is a number that did not fit 64 bits, if it reads as one.
fn exact(text: String) -> Value {
    let digits = text.strip_prefix('-').unwrap_or(&text);
    let number =
        digits.starts_with(|c: char| c.is_ascii_digit()) && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if number { Value::Decimal(text) } else { Value::Text(text) }
}
