//! Between the values of `plant:opc` and those of `opc`, by moves.

use crate::capability::bindings::imports::plant::opc::opc as wit;
use crate::opc::{Monitoring, OpcError, Sample, Value};

/// Readings as a guest sees them.
pub(crate) fn samples(samples: Vec<Sample>) -> Vec<wit::Sample> {
    samples.into_iter().map(wit::Sample::from).collect()
}

impl From<Sample> for wit::Sample {
    fn from(sample: Sample) -> Self {
        let Sample { item, value, status, source, server, data_type: _ } = sample;
        Self { item, value: value.into(), status, source, server }
    }
}

impl From<Value> for wit::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Boolean(v) => Self::Boolean(v),
            Value::Int(v) => Self::Int(v),
            Value::Uint(v) => Self::Uint(v),
            Value::Real(v) => Self::Real(v),
            Value::Text(v) => Self::Text(v),
            Value::Bytes(v) => Self::Bytes(v),
            Value::Time(v) => Self::Time(v),
            Value::Ints(v) => Self::Ints(v),
            Value::Uints(v) => Self::Uints(v),
            Value::Reals(v) => Self::Reals(v),
            Value::Texts(v) => Self::Texts(v),
            Value::Other(kind, text) => Self::Other((kind, text)),
        }
    }
}

impl From<wit::Monitoring> for Monitoring {
    fn from(how: wit::Monitoring) -> Self {
        let wit::Monitoring { publish_ms, sampling_ms, queue, coalesce } = how;
        Self { publish_ms, sampling_ms, queue, coalesce }
    }
}

impl From<OpcError> for wit::Error {
    fn from(error: OpcError) -> Self {
        match error {
            OpcError::Denied(text) => Self::Denied(text),
            OpcError::LeaseLost => Self::LeaseLost,
            OpcError::Timeout => Self::Timeout,
            OpcError::Disconnected => Self::Disconnected,
            OpcError::BadStatus(status) => Self::BadStatus(status),
            OpcError::Other(text) => Self::Other(text),
        }
    }
}
