//! Answers from PostgreSQL's binary form: exact, and nothing that panics on a type it does not know.

use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta};
use sqlx::postgres::{PgColumn, PgRow, PgTypeInfo, PgTypeKind, PgValueRef};
use sqlx::{Column as _, Row, TypeInfo, ValueRef};

use super::encode::nanos;
use super::kind::{Kind, spelled};
use crate::store::numeric;
use crate::store::value::{Column, Value};

/// An answer's columns.
pub(super) fn columns(columns: &[PgColumn]) -> Vec<Column> {
    columns.iter().map(|c| Column { name: c.name().to_owned(), type_name: spelled(c.type_info().name()) }).collect()
}

/// A row's values, with their size in bytes.
pub(super) fn values(row: &PgRow) -> Result<(Vec<Value>, usize), String> {
    let mut size = 0;
    let mut values = Vec::with_capacity(row.len());
    for column in row.columns() {
        let raw = row.try_get_raw(column.ordinal()).map_err(|e| e.to_string())?;
        size += raw.as_bytes().map_or(0, <[u8]>::len) + 8;
        values.push(value(&raw).map_err(|why| format!("column {:?}: {why}", column.name()))?);
    }
    Ok((values, size))
}

fn value(raw: &PgValueRef<'_>) -> Result<Value, String> {
    if raw.is_null() {
        return Ok(Value::Null);
    }
    let bytes = raw.as_bytes().map_err(|e| e.to_string())?;
    let info = raw.type_info();
    read(bytes, &info).unwrap_or_else(|| {
        let name = spelled(info.name());
        Err(format!("values of type {name} cannot be read: write CAST(… AS text)"))
    })
}

/// `None` when the type has no form that is known here.
fn read(bytes: &[u8], info: &PgTypeInfo) -> Option<Result<Value, String>> {
    let cut = || format!("a value of type {} came cut short", spelled(info.name()));
    let kind = Kind::of(info);
    let found = match kind {
        Kind::Bool => bytes.first().map(|b| Value::Boolean(*b != 0)),
        Kind::Int2 => fixed(bytes).map(|b| Value::Int(i64::from(i16::from_be_bytes(b)))),
        Kind::Int4 => fixed(bytes).map(|b| Value::Int(i64::from(i32::from_be_bytes(b)))),
        Kind::Int8 => fixed(bytes).map(|b| Value::Int(i64::from_be_bytes(b))),
        Kind::Float4 => fixed(bytes).map(|b| Value::Real(f64::from(f32::from_be_bytes(b)))),
        Kind::Float8 => fixed(bytes).map(|b| Value::Real(f64::from_be_bytes(b))),
        Kind::Text => text(bytes).map(Value::Text),
        Kind::Bytes => Some(Value::Bytes(bytes.to_vec())),
        Kind::Numeric => numeric::decode(bytes).map(number),
        Kind::TimestampTz | Kind::Timestamp => fixed(bytes).map(|b| moment(i64::from_be_bytes(b), kind)),
        Kind::Uuid => uuid(bytes),
        Kind::Json => text(bytes).map(Value::Json),
        Kind::Jsonb => bytes.get(1..).and_then(text).map(Value::Json),
        Kind::Date => fixed(bytes).map(|b| date(i32::from_be_bytes(b))),
        Kind::Time => fixed(bytes).and_then(|b| time(i64::from_be_bytes(b))),
        Kind::Unknown => return other(bytes, info),
    };
    Some(found.ok_or_else(cut))
}

fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

fn number(text: String) -> Value {
    let plain = text.ends_with(|c: char| c.is_ascii_digit());
    if plain { Value::Decimal(text) } else { Value::Other("numeric".to_owned(), text) }
}

fn moment(micros: i64, kind: Kind) -> Value {
    nanos(micros).map_or_else(
        || {
            let text = match micros {
                i64::MAX => "infinity".to_owned(),
                i64::MIN => "-infinity".to_owned(),
                // Outside the years 1677 to 2262.
                far => i64::checked_add(far, 946_684_800_000_000)
                    .and_then(DateTime::from_timestamp_micros)
                    .map_or_else(|| format!("{far} µs after 2000"), |t| t.to_rfc3339()),
            };
            Value::Other(kind.sql().to_owned(), text)
        },
        Value::Timestamp,
    )
}

fn uuid(bytes: &[u8]) -> Option<Value> {
    let (high, low) = bytes.split_at_checked(8)?;
    Some(Value::Uuid(u64::from_be_bytes(fixed(high)?), u64::from_be_bytes(fixed(low)?)))
}

fn date(days: i32) -> Value {
    let first = NaiveDate::from_ymd_opt(2000, 1, 1);
    let day = first.and_then(|first| first.checked_add_signed(TimeDelta::days(i64::from(days))));
    let text = match (days, day) {
        (i32::MAX, _) => "infinity".to_owned(),
        (i32::MIN, _) => "-infinity".to_owned(),
        (_, Some(day)) => day.to_string(),
        (far, None) => format!("{far} days after 2000-01-01"),
    };
    Value::Other("date".to_owned(), text)
}

fn time(micros: i64) -> Option<Value> {
    let seconds = u32::try_from(micros.div_euclid(1_000_000)).ok()?;
    let nanos = u32::try_from(micros.rem_euclid(1_000_000)).ok()?.checked_mul(1_000)?;
    // 24:00:00 is a time of PostgreSQL's and none of chrono's.
    let time = NaiveTime::from_num_seconds_from_midnight_opt(seconds, nanos);
    Some(Value::Other("time".to_owned(), time.map_or_else(|| "24:00:00".to_owned(), |t| t.to_string())))
}

fn other(bytes: &[u8], info: &PgTypeInfo) -> Option<Result<Value, String>> {
    let name = info.name();
    match info.kind() {
        PgTypeKind::Array(element) => array(bytes, element).map(|text| Ok(Value::Other(spelled(name), text))),
        _ if name == "VOID" => Some(Ok(Value::Null)),
        _ if name == "OID" => fixed(bytes).map(|b| Ok(Value::Int(i64::from(u32::from_be_bytes(b))))),
        _ => None,
    }
}

/// A one-dimensional array in PostgreSQL's own text form.
fn array(bytes: &[u8], element: &PgTypeInfo) -> Option<String> {
    let dimensions = i32::from_be_bytes(fixed(bytes.get(..4)?)?);
    if dimensions == 0 {
        return Some("{}".to_owned());
    }
    if dimensions != 1 {
        return None;
    }
    let mut rest = bytes.get(20..)?;
    let mut texts = Vec::new();
    while !rest.is_empty() {
        let (prefix, tail) = rest.split_at_checked(4)?;
        let Ok(length) = usize::try_from(i32::from_be_bytes(fixed(prefix)?)) else {
            texts.push("NULL".to_owned());
            rest = tail;
            continue;
        };
        let (value, tail) = tail.split_at_checked(length)?;
        texts.push(element_text(read(value, element)?.ok()?)?);
        rest = tail;
    }
    Some(format!("{{{}}}", texts.join(",")))
}

fn element_text(value: Value) -> Option<String> {
    let quoted = |t: &str| format!("\"{}\"", t.replace('\\', "\\\\").replace('"', "\\\""));
    match value {
        Value::Boolean(b) => Some(if b { "t" } else { "f" }.to_owned()),
        Value::Int(i) => Some(i.to_string()),
        Value::Real(r) => Some(r.to_string()),
        Value::Decimal(d) => Some(d),
        Value::Text(t) | Value::Json(t) | Value::Other(_, t) => Some(quoted(&t)),
        Value::Uuid(high, low) => Some(uuid::Uuid::from_u64_pair(high, low).to_string()),
        Value::Timestamp(n) => Some(quoted(&DateTime::from_timestamp_nanos(n).to_rfc3339())),
        Value::Null | Value::Bytes(_) => None,
    }
}
