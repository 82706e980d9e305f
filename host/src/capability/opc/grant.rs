//! Which of the plant's OPC UA connections a role may use.

use std::collections::BTreeSet;

/// One role's grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// None of them.
    Nothing,
    /// All of them.
    All,
    /// These.
    Some(BTreeSet<String>),
}

impl Grant {
    /// Whether nodes of a connection may be resolved.
    ///
    /// # Errors
    /// The sentence that the guest is told.
    pub fn check(&self, connection: &str) -> Result<(), String> {
        match self {
            Self::All => Ok(()),
            Self::Some(connections) if connections.contains(connection) => Ok(()),
            Self::Some(connections) => {
                let granted: Vec<_> = connections.iter().map(String::as_str).collect();
                Err(format!(
                    "this role has no grant for the OPC UA connection {connection:?}, only for: {}",
                    granted.join(", ")
                ))
            }
            Self::Nothing => Err(format!(
                "this role has no grant for the OPC UA connection {connection:?}: only the roles that come with the host have one"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_was_not_granted_is_refused_by_name() {
        let grant = Grant::Some(["line".to_owned()].into());
        assert_eq!(grant.check("line"), Ok(()));
        let refused = grant.check("boiler").unwrap_err();
        assert!(refused.contains("\"boiler\"") && refused.contains("line"), "{refused}");
    }
}
