//! Where the OPC UA server listens, as it is typed: `opc.tcp://127.0.0.1:4840`.

use std::fmt;
use std::str::FromStr;

/// A host, a port (0: a free one) and a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// A name or an IP address; an IPv6 one without its brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// With its leading slash, or empty.
    pub path: String,
}

/// What is wrong with an address, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{seen:?} is no address of an OPC UA server: write it like opc.tcp://127.0.0.1:4840")]
pub struct AddressError {
    seen: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let parsed = || {
            let rest = text.strip_prefix("opc.tcp://")?;
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let (host, port) = authority.rsplit_once(':')?;
            let host = match host.strip_prefix('[') {
                Some(host) => host.strip_suffix(']')?,
                None => Some(host).filter(|host| !host.contains(':'))?,
            };
            let port = port.parse().ok()?;
            (!host.is_empty()).then(|| Self {
                host: host.to_owned(),
                port,
                path: path.trim_end_matches('/').to_owned(),
            })
        };
        parsed().ok_or_else(|| AddressError { seen: text.to_owned() })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, path } = self;
        if host.contains(':') {
            write!(f, "opc.tcp://[{host}]:{port}{path}")
        } else {
            write!(f, "opc.tcp://{host}:{port}{path}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_written_back() {
        for text in ["opc.tcp://127.0.0.1:4840", "opc.tcp://plc-7:0/plant", "opc.tcp://[::1]:4840"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("opc.tcp://h:1/".parse::<Address>().unwrap().path, "");
    }

    #[test]
    fn a_wrong_address_is_refused_in_one_sentence() {
        for text in
            ["", "127.0.0.1:4840", "opc.tcp://127.0.0.1", "opc.tcp://:4840", "opc.tcp://h:port", "opc.tcp://::1:4840"]
        {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("write it like opc.tcp://"), "{error}");
        }
    }
}
