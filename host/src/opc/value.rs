//! From OPC UA's values to the shapes of `plant:opc`, losing no digit.

use std::fmt;

use opcua::types::{Array, DataValue, DateTime, StatusCode, Variant, VariantScalarTypeId};

use super::{Sample, Value};

/// The longest text form of a value that has no shape of its own, in bytes.
const LONGEST_OTHER: usize = 4096;

/// The OPC UA built-in type of a value. [`Value`] does not tell a Float from a Double.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DataType {
    scalar: VariantScalarTypeId,
    is_array: bool,
}

impl DataType {
    fn of(variant: &Variant) -> Option<Self> {
        match variant {
            Variant::Empty => None,
            Variant::Variant(inner) => Self::of(inner),
            Variant::Array(array) => Some(Self { scalar: array.value_type, is_array: true }),
            other => other.scalar_type_id().map(|scalar| Self { scalar, is_array: false }),
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.scalar, if self.is_array { "[]" } else { "" })
    }
}

/// The largest value that is handed on, in bytes: a guest may have 64 MiB in all, and what waits for it waits in memory.
const LARGEST: usize = 1 << 20;

/// How much memory a value takes beside its own place, in bytes.
pub(super) fn size(value: &Value) -> usize {
    let texts = |list: &[String]| list.iter().map(|text| text.len() + size_of::<String>()).sum();
    match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Ints(list) => size_of_val(list.as_slice()),
        Value::Uints(list) => size_of_val(list.as_slice()),
        Value::Reals(list) => size_of_val(list.as_slice()),
        Value::Texts(list) => texts(list),
        Value::Other(kind, text) => kind.len() + text.len(),
        _ => 0,
    }
}

/// One reading, of which a value that is too large is left out and called so; the others that came with it go on.
pub(super) fn sample(item: u32, data: DataValue) -> Sample {
    let mut sample = whole(item, data);
    if size(&sample.value) > LARGEST {
        sample.value = Value::Null;
        sample.status = StatusCode::BadResponseTooLarge.bits();
    }
    sample
}

/// One reading. A missing status is Good (OPC UA Part 6, 5.2.2.17); a missing value is null.
fn whole(item: u32, data: DataValue) -> Sample {
    Sample {
        item,
        data_type: data.value.as_ref().and_then(DataType::of),
        value: data.value.map_or(Value::Null, value),
        status: data.status.map_or(0, |status| status.bits()),
        source: data.source_timestamp.and_then(nanos),
        server: data.server_timestamp.and_then(nanos),
    }
}

/// A value by itself.
pub(super) fn value(variant: Variant) -> Value {
    match variant {
        Variant::Empty => Value::Null,
        Variant::Boolean(b) => Value::Boolean(b),
        Variant::SByte(n) => Value::Int(n.into()),
        Variant::Int16(n) => Value::Int(n.into()),
        Variant::Int32(n) => Value::Int(n.into()),
        Variant::Int64(n) => Value::Int(n),
        Variant::Byte(n) => Value::Uint(n.into()),
        Variant::UInt16(n) => Value::Uint(n.into()),
        Variant::UInt32(n) => Value::Uint(n.into()),
        Variant::UInt64(n) => Value::Uint(n),
        Variant::Float(n) => Value::Real(n.into()),
        Variant::Double(n) => Value::Real(n),
        Variant::String(text) => text.value().clone().map_or(Value::Null, Value::Text),
        Variant::LocalizedText(text) => text.text.value().clone().map_or(Value::Null, Value::Text),
        Variant::ByteString(bytes) => bytes.value.map_or(Value::Null, Value::Bytes),
        Variant::DateTime(time) => match nanos(*time) {
            Some(nanos) => Value::Time(nanos),
            None => Value::Other("DateTime".to_owned(), time.to_string()),
        },
        Variant::Variant(inner) => value(*inner),
        Variant::Array(array) => values(*array),
        Variant::Guid(guid) => Value::Other("Guid".to_owned(), guid.to_string()),
        Variant::StatusCode(status) => Value::Other("StatusCode".to_owned(), status.to_string()),
        Variant::NodeId(id) => Value::Other("NodeId".to_owned(), id.to_string()),
        Variant::ExpandedNodeId(id) => Value::Other("ExpandedNodeId".to_owned(), id.to_string()),
        Variant::QualifiedName(name) => Value::Other("QualifiedName".to_owned(), name.name.as_ref().to_owned()),
        Variant::XmlElement(xml) => Value::Other("XmlElement".to_owned(), shortened(xml.to_string())),
        Variant::ExtensionObject(object) => {
            Value::Other("ExtensionObject".to_owned(), shortened(format!("{object:?}")))
        }
        Variant::DataValue(data) => Value::Other("DataValue".to_owned(), shortened(format!("{data:?}"))),
        Variant::DiagnosticInfo(info) => Value::Other("DiagnosticInfo".to_owned(), shortened(format!("{info:?}"))),
    }
}

fn values(array: Array) -> Value {
    use VariantScalarTypeId as Type;
    if array.dimensions.as_ref().is_some_and(|d| d.len() > 1) {
        return other_array(&array);
    }
    let found = match array.value_type {
        Type::SByte | Type::Int16 | Type::Int32 | Type::Int64 => all(&array, |v| match v {
            Value::Int(n) => Some(n),
            _ => None,
        })
        .map(Value::Ints),
        Type::Byte | Type::UInt16 | Type::UInt32 | Type::UInt64 => all(&array, |v| match v {
            Value::Uint(n) => Some(n),
            _ => None,
        })
        .map(Value::Uints),
        Type::Float | Type::Double => all(&array, |v| match v {
            Value::Real(n) => Some(n),
            _ => None,
        })
        .map(Value::Reals),
        Type::String | Type::LocalizedText => all(&array, |v| match v {
            Value::Text(text) => Some(text),
            Value::Null => Some(String::new()),
            _ => None,
        })
        .map(Value::Texts),
        _ => None,
    };
    found.unwrap_or_else(|| other_array(&array))
}

fn all<T>(array: &Array, one: impl Fn(Value) -> Option<T>) -> Option<Vec<T>> {
    array.values.iter().map(|v| one(value(v.clone()))).collect()
}

fn other_array(array: &Array) -> Value {
    let kind = match &array.dimensions {
        Some(dimensions) if dimensions.len() > 1 => format!("{:?}{dimensions:?}", array.value_type),
        _ => format!("{:?}[]", array.value_type),
    };
    let mut text = String::new();
    for value in &array.values {
        if text.len() > LONGEST_OTHER {
            break;
        }
        text.push_str(if text.is_empty() { "[" } else { ", " });
        text.push_str(&value.to_string());
    }
    text.push_str(if text.is_empty() { "[]" } else { "]" });
    Value::Other(kind, shortened(text))
}

fn shortened(mut text: String) -> String {
    if text.len() > LONGEST_OTHER {
        let mut end = LONGEST_OTHER;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Nanoseconds since the Unix epoch; `None` for a null time and for one that 64 bits cannot hold.
fn nanos(time: DateTime) -> Option<i64> {
    if time.is_null() { None } else { time.as_chrono().timestamp_nanos_opt() }
}

#[cfg(test)]
mod tests {
    use opcua::types::{ByteString, LocalizedText, UAString};

    use super::*;

    #[test]
    fn numbers_are_exact_over_their_whole_range() {
        assert_eq!(value(Variant::UInt64(u64::MAX)), Value::Uint(u64::MAX));
        assert_eq!(value(Variant::Int64(i64::MIN)), Value::Int(i64::MIN));
        assert_eq!(value(Variant::SByte(-1)), Value::Int(-1));
        assert_eq!(value(Variant::Float(0.5)), Value::Real(0.5));
    }

    #[test]
    fn null_strings_and_bytes_are_null_not_empty() {
        assert_eq!(value(Variant::String(UAString::null())), Value::Null);
        assert_eq!(value(Variant::String(UAString::from(""))), Value::Text(String::new()));
        assert_eq!(value(Variant::ByteString(ByteString::null())), Value::Null);
        assert_eq!(value(Variant::from(LocalizedText::new("en", "Filler"))), Value::Text("Filler".to_owned()));
    }

    #[test]
    fn arrays_keep_their_type_also_when_empty() {
        let array = |kind, values: Vec<Variant>| Variant::from(Array::new(kind, values).unwrap());
        assert_eq!(value(array(VariantScalarTypeId::UInt16, vec![])), Value::Uints(vec![]));
        let reals = vec![Variant::Double(1.5), Variant::Double(2.0)];
        assert_eq!(value(array(VariantScalarTypeId::Double, reals)), Value::Reals(vec![1.5, 2.0]));
        let flags = vec![Variant::Boolean(true), Variant::Boolean(false)];
        assert_eq!(
            value(array(VariantScalarTypeId::Boolean, flags)),
            Value::Other("Boolean[]".to_owned(), "[true, false]".to_owned())
        );
        let grid =
            Array::new_multi(VariantScalarTypeId::Byte, vec![Variant::Byte(1), Variant::Byte(2)], vec![1, 2]).unwrap();
        assert_eq!(value(Variant::from(grid)), Value::Other("Byte[1, 2]".to_owned(), "[1, 2]".to_owned()));
    }

    #[test]
    fn a_missing_status_is_good_and_a_null_time_is_none() {
        let data = DataValue {
            value: Some(Variant::Int32(1)),
            source_timestamp: Some(DateTime::null()),
            server_timestamp: Some(DateTime::ymd(2024, 1, 1)),
            ..DataValue::null()
        };
        let read = sample(3, data);
        assert_eq!((read.item, read.status, read.source), (3, 0, None));
        assert_eq!(read.server, Some(1_704_067_200_000_000_000));
    }

    #[test]
    fn a_value_that_is_too_large_is_bad_and_keeps_its_times() {
        let of = |bytes: usize| {
            let value = Some(Variant::ByteString(ByteString::from(vec![7; bytes])));
            sample(1, DataValue { value, source_timestamp: Some(DateTime::ymd(2024, 1, 1)), ..DataValue::null() })
        };
        assert_eq!(of(LARGEST).status, 0);
        let large = of(LARGEST + 1);
        assert_eq!((large.value, large.status), (Value::Null, StatusCode::BadResponseTooLarge.bits()));
        assert_eq!(large.source, Some(1_704_067_200_000_000_000));
        let reals = vec![Variant::Double(1.5); LARGEST / 8 + 1];
        let array = Variant::from(Array::new(VariantScalarTypeId::Double, reals).unwrap());
        let data = DataValue { value: Some(array), ..DataValue::null() };
        assert_eq!(sample(1, data).status, StatusCode::BadResponseTooLarge.bits());
    }

    #[test]
    fn a_bad_reading_keeps_its_whole_status() {
        let status = StatusCode::BadSensorFailure.set_overflow(true);
        let read = sample(1, DataValue { status: Some(status), ..DataValue::null() });
        assert_eq!((read.value, read.status), (Value::Null, status.bits()));
    }
}
