//! Columns of parameters: how many runs they stand for, and what each run gets.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::error::{DATATYPE_MISMATCH, UNDEFINED_PARAMETER, mistake};
use super::value::{Array, ColumnData, Value};
use super::{Bounds, DbError};

/// How many positions a column has.
pub(super) fn length(column: &ColumnData) -> usize {
    match &column.values {
        Array::Booleans(v) => v.len(),
        Array::Ints(v) | Array::Timestamps(v) => v.len(),
        Array::Reals(v) => v.len(),
        Array::Decimals(v) | Array::Texts(v) | Array::Other(_, v) => v.len(),
        Array::Values(v) => v.len(),
    }
}

/// The value of a column at a position; what is NULL, or beyond its end, is [`Value::Null`].
pub(super) fn at(column: &ColumnData, position: usize) -> Value {
    if column.nulls.iter().any(|n| usize::try_from(*n) == Ok(position)) {
        return Value::Null;
    }
    let found = match &column.values {
        Array::Booleans(v) => v.get(position).map(|b| Value::Boolean(*b)),
        Array::Ints(v) => v.get(position).map(|i| Value::Int(*i)),
        Array::Reals(v) => v.get(position).map(|r| Value::Real(*r)),
        Array::Decimals(v) => v.get(position).map(|d| Value::Decimal(d.clone())),
        Array::Texts(v) => v.get(position).map(|t| Value::Text(t.clone())),
        Array::Timestamps(v) => v.get(position).map(|n| Value::Timestamp(*n)),
        Array::Values(v) => v.get(position).cloned(),
        Array::Other(name, v) => v.get(position).map(|t| Value::Other(name.clone(), t.clone())),
    };
    found.unwrap_or(Value::Null)
}

/// The number of runs that columns stand for: all of them have as many positions.
pub(super) fn runs(columns: &[ColumnData], bounds: &Bounds) -> Result<usize, DbError> {
    let Some(first) = columns.first() else {
        return Err(mistake(UNDEFINED_PARAMETER, "parameters were to come as columns, and there is no column"));
    };
    let runs = length(first);
    if runs > bounds.runs {
        return Err(DbError::TooLarge(bounds.runs as u64));
    }
    let mut bytes = 0;
    for (n, column) in columns.iter().enumerate() {
        let length = length(column);
        if length != runs {
            let message = format!("column ${} has {length} positions and $1 has {runs}", n + 1);
            return Err(mistake(DATATYPE_MISMATCH, message));
        }
        if let Some(beyond) = column.nulls.iter().find(|p| usize::try_from(**p).is_ok_and(|p| p >= runs)) {
            let message = format!("column ${} has {runs} positions and says that {beyond} is null", n + 1);
            return Err(mistake(DATATYPE_MISMATCH, message));
        }
        bytes += size(&column.values);
    }
    if bytes > bounds.bytes { Err(DbError::TooLarge(bounds.bytes as u64)) } else { Ok(runs) }
}

fn size(values: &Array) -> usize {
    let texts = |v: &[String]| v.iter().map(|t| t.len() + 4).sum();
    match values {
        Array::Booleans(v) => v.len(),
        Array::Ints(v) | Array::Timestamps(v) => v.len() * 8,
        Array::Reals(v) => v.len() * 8,
        Array::Decimals(v) | Array::Texts(v) | Array::Other(_, v) => texts(v),
        Array::Values(v) => v.iter().map(value_size).sum(),
    }
}

/// About how many bytes a value takes.
pub(super) fn value_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Boolean(_) => 1,
        Value::Int(_) | Value::Real(_) | Value::Timestamp(_) => 8,
        Value::Uuid(..) => 16,
        Value::Bytes(b) => b.len(),
        Value::Text(t) | Value::Decimal(t) | Value::Json(t) | Value::Other(_, t) => t.len(),
    }
}

/// Whether two runs agree in all of `keys`. Two different runs may be taken for a repeat, once in 2⁶⁴; a repeat is never missed.
pub(super) fn repeats(columns: &[ColumnData], keys: &[usize], runs: usize) -> bool {
    let keys: Vec<&ColumnData> = keys.iter().filter_map(|key| columns.get(*key)).collect();
    let mut seen = HashSet::with_capacity(runs);
    (0..runs).any(|position| {
        let mut hasher = DefaultHasher::new();
        for column in &keys {
            hash(&column.values, position, &mut hasher);
        }
        !seen.insert(hasher.finish())
    })
}

fn hash(values: &Array, position: usize, hasher: &mut DefaultHasher) {
    match values {
        Array::Booleans(v) => v.get(position).hash(hasher),
        Array::Ints(v) | Array::Timestamps(v) => v.get(position).hash(hasher),
        Array::Reals(v) => v.get(position).map(|r| r.to_bits()).hash(hasher),
        Array::Decimals(v) | Array::Texts(v) | Array::Other(_, v) => v.get(position).hash(hasher),
        Array::Values(v) => v.get(position).map(|value| format!("{value:?}")).hash(hasher),
    }
}
