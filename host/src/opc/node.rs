//! Node ids by namespace URI.
//!
//! A namespace's index is the server's own affair and may change when it restarts; its URI does not. So configuration and guests
//! name nodes by URI, and the index is looked up again at each connect.

use std::fmt;
use std::str::FromStr;

use opcua::types::{ByteString, Guid, Identifier, NodeId, UAString};

/// OPC UA's own namespace; always index 0.
pub const UA: &str = "http://opcfoundation.org/UA/";

/// A text that is no usable node id; a sentence that says what is wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NodeError(String);

/// A node, named independently of a server's present namespace indexes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    uri: String,
    identifier: Identifier,
}

/// A server's namespaces, by index.
pub type Namespaces = [String];

impl Node {
    /// The node's id on a server with these namespaces; `None` when the server does not know the URI.
    #[must_use]
    pub fn on(&self, namespaces: &Namespaces) -> Option<NodeId> {
        let index = if self.uri == UA { Some(0) } else { namespaces.iter().position(|n| *n == self.uri) };
        let index = u16::try_from(index?).ok()?;
        Some(NodeId { namespace: index, identifier: self.identifier.clone() })
    }

    /// Names a server's node; `None` when its index has no URI.
    #[must_use]
    pub fn of(id: &NodeId, namespaces: &Namespaces) -> Option<Self> {
        let uri = if id.namespace == 0 { UA } else { namespaces.get(usize::from(id.namespace))? };
        Some(Self { uri: uri.to_owned(), identifier: id.identifier.clone() })
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.uri != UA {
            write!(f, "nsu={};", self.uri.replace('%', "%25").replace(';', "%3B"))?;
        }
        match &self.identifier {
            Identifier::Numeric(number) => write!(f, "i={number}"),
            Identifier::String(text) => write!(f, "s={}", text.as_ref()),
            Identifier::Guid(guid) => write!(f, "g={guid}"),
            Identifier::ByteString(bytes) => write!(f, "b={}", bytes.as_base64()),
        }
    }
}

impl FromStr for Node {
    type Err = NodeError;

    fn from_str(text: &str) -> Result<Self, NodeError> {
        if text.len() > 4096 {
            let start: String = text.chars().take(40).collect();
            return Err(NodeError(format!("node id \"{start}…\" has {} bytes: at most 4096 are wanted", text.len())));
        }
        let (uri, rest) = if let Some(rest) = text.strip_prefix("nsu=") {
            let (uri, rest) = rest.split_once(';').ok_or_else(|| wanted(text))?;
            (uri.replace("%3B", ";").replace("%3b", ";").replace("%25", "%"), rest)
        } else if let Some(rest) = text.strip_prefix("ns=") {
            let (index, rest) = rest.split_once(';').ok_or_else(|| wanted(text))?;
            if index != "0" {
                return Err(NodeError(format!(
                    "node id {text:?} names its namespace by an index, which may change when the server restarts: write \
                     \"nsu=URI;{rest}\" with the namespace's URI, as `host opc browse` shows it"
                )));
            }
            (UA.to_owned(), rest)
        } else {
            (UA.to_owned(), text)
        };
        if uri.is_empty() {
            return Err(wanted(text));
        }
        let identifier = identifier(rest).ok_or_else(|| wanted(text))?;
        Ok(Self { uri, identifier })
    }
}

fn identifier(text: &str) -> Option<Identifier> {
    let (kind, value) = text.split_once('=')?;
    if value.is_empty() {
        return None;
    }
    match kind {
        "i" => value.parse().ok().map(Identifier::Numeric),
        "s" => Some(Identifier::String(UAString::from(value))),
        "g" => Guid::from_str(value).ok().map(Identifier::Guid),
        "b" => ByteString::from_base64(value).map(Identifier::ByteString),
        _ => None,
    }
}

fn wanted(text: &str) -> NodeError {
    NodeError(format!(
        "node id {text:?} is not usable: write \"nsu=URI;s=NAME\", or i=NUMBER, g=GUID or b=BASE64 in place of s=NAME"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespaces() -> Vec<String> {
        vec![UA.to_owned(), "urn:server".to_owned(), "urn:plant".to_owned()]
    }

    #[test]
    fn every_form_of_a_node_id_is_read_and_written_alike() {
        for text in [
            "nsu=urn:plant;s=FILL01.Good;Count=1",
            "nsu=urn:plant;i=42",
            "nsu=urn:plant;g=09087e75-8e5e-499b-954f-f2a9603db28a",
            "nsu=urn:plant;b=aGVsbG8=",
            "nsu=urn:a%3Bb%25;s=x",
            "i=2258",
        ] {
            assert_eq!(text.parse::<Node>().map(|n| n.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("ns=0;i=2258".parse::<Node>(), "i=2258".parse());
        assert_eq!("nsu=http://opcfoundation.org/UA/;i=2258".parse::<Node>(), "i=2258".parse());
    }

    #[test]
    fn a_node_follows_its_uri_when_the_servers_indexes_change() {
        let node: Node = "nsu=urn:plant;i=7".parse().unwrap();
        assert_eq!(node.on(&namespaces()).map(|id| id.namespace), Some(2));
        assert_eq!(node.on(&[UA.to_owned(), "urn:plant".to_owned()]).map(|id| id.namespace), Some(1));
        assert_eq!(node.on(&[UA.to_owned()]), None);
        assert_eq!(Node::of(&NodeId::new(2, 7), &namespaces()), Some(node));
        assert_eq!(Node::of(&NodeId::new(9, 7), &namespaces()), None);
    }

    #[test]
    fn an_index_is_refused_with_what_to_write_instead() {
        let error = "ns=2;s=Count".parse::<Node>().unwrap_err().to_string();
        assert!(error.contains("write \"nsu=URI;s=Count\""), "{error}");
    }

    #[test]
    fn what_is_no_node_id_is_refused_with_what_is_wanted() {
        for text in
            ["", "nsu=", "nsu=urn:x", "nsu=;s=a", "nsu=urn:x;q=1", "i=-1", "i=", "g=nope", "b=%", "ns=;s=a", "s"]
        {
            let error = text.parse::<Node>().map(|n| n.to_string()).unwrap_err().to_string();
            assert!(error.starts_with("node id "), "{text}: {error}");
        }
    }
}
