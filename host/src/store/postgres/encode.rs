//! Parameters in PostgreSQL's binary form, each as the type that the statement wants.
//!
//! A value goes only to a type that takes it whole: nothing is rounded, cut or guessed, and a value that does not fit is an error
//! that names the parameter. Columns are written straight into the message, without a box for each value.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo};
use sqlx::{Encode, Postgres, Type};

use super::kind::{Kind, Target};
use crate::store::columns::length;
use crate::store::numeric;
use crate::store::value::{Array, ColumnData, Value};

/// Microseconds from the Unix epoch to PostgreSQL's, 2000-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// PostgreSQL's timestamp for nanoseconds since the Unix epoch: microseconds, rounded down.
pub(super) fn micros(nanos: i64) -> i64 {
    nanos.div_euclid(1_000).saturating_sub(EPOCH_MICROS)
}

/// Nanoseconds since the Unix epoch; `None` beyond what 64 bits hold (and for `infinity`).
pub(super) fn nanos(micros: i64) -> Option<i64> {
    micros.checked_add(EPOCH_MICROS)?.checked_mul(1_000)
}

/// What a value is called in an error.
fn called(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Boolean(_) => "a boolean",
        Value::Int(_) => "an int",
        Value::Real(_) => "a real",
        Value::Text(_) => "a text",
        Value::Bytes(_) => "bytes",
        Value::Decimal(_) => "a decimal",
        Value::Timestamp(_) => "a timestamp",
        Value::Uuid(..) => "a uuid",
        Value::Json(_) => "a json",
        Value::Other(..) => "an other",
    }
}

/// Appends `value` as `kind`; `Ok(false)` for NULL, which has no bytes.
pub(super) fn put(value: &Value, target: &Target, out: &mut Vec<u8>) -> Result<bool, String> {
    match (value, target.kind) {
        (Value::Null, _) => return Ok(false),
        (Value::Boolean(b), Kind::Bool) => out.push(u8::from(*b)),
        (Value::Int(i), kind) => put_int(*i, kind, target, out)?,
        (Value::Real(r), kind) => put_real(*r, kind, target, out)?,
        (Value::Decimal(d), kind) => put_decimal(d, kind, target, out)?,
        (Value::Text(t) | Value::Json(t) | Value::Other(_, t), Kind::Text) => out.extend_from_slice(t.as_bytes()),
        (Value::Text(t) | Value::Json(t) | Value::Other(_, t), Kind::Json) => out.extend_from_slice(t.as_bytes()),
        (Value::Text(t) | Value::Json(t) | Value::Other(_, t), Kind::Jsonb) => {
            out.push(1);
            out.extend_from_slice(t.as_bytes());
        }
        (Value::Text(t) | Value::Other(_, t), Kind::Uuid) => {
            let id: uuid::Uuid = t.parse().map_err(|_| format!("{t:?} is no uuid"))?;
            out.extend_from_slice(id.as_bytes());
        }
        (Value::Other(_, t), Kind::Numeric) => put_decimal(t, Kind::Numeric, target, out)?,
        (Value::Bytes(b), Kind::Bytes) => out.extend_from_slice(b),
        (Value::Timestamp(n), Kind::TimestampTz | Kind::Timestamp) => out.extend_from_slice(&micros(*n).to_be_bytes()),
        (Value::Uuid(high, low), Kind::Uuid) => {
            out.extend_from_slice(&high.to_be_bytes());
            out.extend_from_slice(&low.to_be_bytes());
        }
        (value, _) => return Err(mismatch(called(value), target)),
    }
    Ok(true)
}

fn mismatch(what: &str, target: &Target) -> String {
    let name = &target.name;
    match target.kind {
        Kind::Unknown | Kind::Date | Kind::Time => {
            format!("{what} cannot be sent as {name}: send a text and write CAST(CAST($n AS text) AS {name})")
        }
        _ => format!("{what} came where the statement wants {name}"),
    }
}

fn put_int(i: i64, kind: Kind, target: &Target, out: &mut Vec<u8>) -> Result<(), String> {
    let range = |_| format!("{i} is out of range for {}", target.name);
    match kind {
        Kind::Int8 => out.extend_from_slice(&i.to_be_bytes()),
        Kind::Int4 => out.extend_from_slice(&i32::try_from(i).map_err(range)?.to_be_bytes()),
        Kind::Int2 => out.extend_from_slice(&i16::try_from(i).map_err(range)?.to_be_bytes()),
        Kind::Numeric => numeric::encode(&i.to_string(), out).ok_or_else(|| numeric::WANTED.to_owned())?,
        Kind::Float8 | Kind::Float4 => put_float(exact_float(i)?, kind, out),
        _ => return Err(mismatch("an int", target)),
    }
    Ok(())
}

fn exact_float(i: i64) -> Result<f64, String> {
    #[expect(clippy::cast_precision_loss, reason = "the check below refuses what would lose a digit")]
    let float = i as f64;
    if i.unsigned_abs() <= 1 << 53 { Ok(float) } else { Err(format!("{i} has more digits than a float holds")) }
}

fn put_float(r: f64, kind: Kind, out: &mut Vec<u8>) {
    if kind == Kind::Float4 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the column has this precision, and the database would round alike"
        )]
        out.extend_from_slice(&(r as f32).to_be_bytes());
    } else {
        out.extend_from_slice(&r.to_be_bytes());
    }
}

fn put_real(r: f64, kind: Kind, target: &Target, out: &mut Vec<u8>) -> Result<(), String> {
    match kind {
        Kind::Float8 | Kind::Float4 => put_float(r, kind, out),
        // The shortest text that reads back as the same float.
        Kind::Numeric => numeric::encode(&r.to_string(), out).ok_or_else(|| format!("{r} is no exact number"))?,
        _ => return Err(mismatch("a real", target)),
    }
    Ok(())
}

fn put_decimal(d: &str, kind: Kind, target: &Target, out: &mut Vec<u8>) -> Result<(), String> {
    match kind {
        Kind::Numeric => numeric::encode(d, out).ok_or_else(|| format!("{d:?}: {}", numeric::WANTED)),
        Kind::Int8 | Kind::Int4 | Kind::Int2 => {
            let whole: i64 =
                d.parse().map_err(|_| format!("{d:?} is no whole number in the range of {}", target.name))?;
            put_int(whole, kind, target, out)
        }
        Kind::Float8 | Kind::Float4 => {
            let float: f64 = d.parse().map_err(|_| format!("{d:?}: {}", numeric::WANTED))?;
            put_float(float, kind, out);
            Ok(())
        }
        Kind::Text => {
            out.extend_from_slice(d.as_bytes());
            Ok(())
        }
        _ => Err(mismatch("a decimal", target)),
    }
}

/// Bytes that are a parameter already, of a type that the server chose.
pub(super) struct Raw<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) null: bool,
    pub(super) info: PgTypeInfo,
}

impl Type<Postgres> for Raw<'_> {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("text")
    }
}

impl<'q> Encode<'q, Postgres> for Raw<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        if self.null {
            return Ok(IsNull::Yes);
        }
        buffer.extend_from_slice(self.bytes);
        Ok(IsNull::No)
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(self.info.clone())
    }

    fn size_hint(&self) -> usize {
        self.bytes.len()
    }
}

/// The type whose array carries a column to `target` without a loss.
pub(super) fn element(values: &Array, target: &Target) -> Result<Kind, String> {
    use Kind::{
        Bool, Bytes, Float4, Float8, Int2, Int4, Int8, Json, Jsonb, Numeric, Text, Timestamp, TimestampTz, Uuid,
    };
    let carried = match (values, target.kind) {
        (Array::Booleans(_), Bool) => Bool,
        (Array::Ints(_), Int8 | Int4 | Int2 | Numeric) => Int8,
        (Array::Reals(_), Float8 | Float4) => Float8,
        (Array::Texts(_), Text | Json | Jsonb | Uuid) => Text,
        (Array::Timestamps(_), TimestampTz | Timestamp) => target.kind,
        (Array::Other(..), _) => Text,
        // These are checked value by value as they are written.
        (Array::Ints(_), Float8 | Float4) | (Array::Reals(_), Numeric) => target.kind,
        (Array::Decimals(_), Numeric | Int8 | Int4 | Int2 | Float8 | Float4 | Text) => target.kind,
        (Array::Values(_), Bool | Int8 | Int4 | Int2 | Numeric | Float8 | Float4 | Text | Bytes) => target.kind,
        (Array::Values(_), TimestampTz | Timestamp | Uuid | Json | Jsonb) => target.kind,
        (Array::Booleans(_), _) => return Err(mismatch("a column of booleans", target)),
        (Array::Ints(_), _) => return Err(mismatch("a column of ints", target)),
        (Array::Reals(_), _) => return Err(mismatch("a column of reals", target)),
        (Array::Decimals(_), _) => return Err(mismatch("a column of decimals", target)),
        (Array::Texts(_), _) => return Err(mismatch("a column of texts", target)),
        (Array::Timestamps(_), _) => return Err(mismatch("a column of timestamps", target)),
        (Array::Values(_), _) => return Err(mismatch("a column of values", target)),
    };
    Ok(carried)
}

/// A column as a one-dimensional array of `element`s.
pub(super) struct ArrayOf<'a> {
    pub(super) column: &'a ColumnData,
    pub(super) element: Kind,
    pub(super) target: &'a Target,
}

impl Type<Postgres> for ArrayOf<'_> {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("text")
    }
}

impl<'q> Encode<'q, Postgres> for ArrayOf<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let length = i32::try_from(length(self.column))?;
        buffer.extend_from_slice(&1_i32.to_be_bytes());
        buffer.extend_from_slice(&1_i32.to_be_bytes());
        buffer.extend_from_slice(&self.element.oid().to_be_bytes());
        buffer.extend_from_slice(&length.to_be_bytes());
        buffer.extend_from_slice(&1_i32.to_be_bytes());
        self.put_elements(buffer)?;
        Ok(IsNull::No)
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(PgTypeInfo::with_oid(sqlx::postgres::types::Oid(self.element.array_oid())))
    }
}

impl ArrayOf<'_> {
    fn put_elements(&self, out: &mut Vec<u8>) -> Result<(), BoxDynError> {
        let mut nulls = self.column.nulls.clone();
        nulls.sort_unstable();
        match (&self.column.values, self.element) {
            (Array::Ints(v), Kind::Int8) => each(v, &nulls, out, |i, out| fixed(&i.to_be_bytes(), out)),
            (Array::Timestamps(v), _) => each(v, &nulls, out, |n, out| fixed(&micros(*n).to_be_bytes(), out)),
            (Array::Reals(v), Kind::Float8) => each(v, &nulls, out, |r, out| fixed(&r.to_be_bytes(), out)),
            (Array::Booleans(v), _) => each(v, &nulls, out, |b, out| fixed(&[u8::from(*b)], out)),
            (Array::Texts(v) | Array::Other(_, v), Kind::Text) => {
                each(v, &nulls, out, |t, out| fixed(t.as_bytes(), out))
            }
            (Array::Decimals(v), kind) => {
                each(v, &nulls, out, |d, out| measured(out, |out| put_decimal(d, kind, self.target, out)))
            }
            (Array::Reals(v), kind) => {
                each(v, &nulls, out, |r, out| measured(out, |out| put_real(*r, kind, self.target, out)))
            }
            (Array::Ints(v), kind) => {
                each(v, &nulls, out, |i, out| measured(out, |out| put_int(*i, kind, self.target, out)))
            }
            (Array::Values(v), _) => each(v, &nulls, out, |value, out| put_value(value, self.target, out)),
            (Array::Texts(_) | Array::Other(..), _) => Err(mismatch("a column of texts", self.target)),
        }?;
        Ok(())
    }
}

fn each<T>(
    values: &[T],
    nulls: &[u32],
    out: &mut Vec<u8>,
    mut put: impl FnMut(&T, &mut Vec<u8>) -> Result<(), String>,
) -> Result<(), String> {
    // Most columns have no NULL; the positions of the others are visited in order.
    let mut nulls = nulls.iter().map(|n| usize::try_from(*n).unwrap_or(usize::MAX)).peekable();
    for (position, value) in values.iter().enumerate() {
        while nulls.next_if(|n| *n < position).is_some() {}
        if nulls.peek() == Some(&position) {
            out.extend_from_slice(&(-1_i32).to_be_bytes());
        } else {
            put(value, out).map_err(|why| format!("at position {position}: {why}"))?;
        }
    }
    Ok(())
}

fn fixed(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let length = i32::try_from(bytes.len()).map_err(|_| "a value is longer than 2 GiB".to_owned())?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}

/// Writes a value whose length is known only when it is written.
fn measured(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>) -> Result<(), String>) -> Result<(), String> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    put(out)?;
    let length = i32::try_from(out.len() - start - 4).map_err(|_| "a value is longer than 2 GiB".to_owned())?;
    if let Some(prefix) = out.get_mut(start..start + 4) {
        prefix.copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

fn put_value(value: &Value, target: &Target, out: &mut Vec<u8>) -> Result<(), String> {
    if *value == Value::Null {
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        return Ok(());
    }
    measured(out, |out| put(value, target, out).map(drop))
}
