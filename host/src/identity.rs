//! Who is who: nodes, boots, roles, partitions and epochs.
//!
//! They are types of their own so that a node's name cannot be passed where a role's is wanted, and so that the rules for a
//! valid name stand in one place.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A name that is not usable, with what is wanted instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {seen:?} is not usable: {wanted}")]
pub struct NameError {
    what: &'static str,
    seen: String,
    wanted: &'static str,
}

fn checked(what: &'static str, seen: &str, max: usize) -> Result<String, NameError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let good = !seen.is_empty()
        && seen.len() <= max
        && seen.chars().all(plain)
        && seen.starts_with(|c: char| c.is_ascii_alphanumeric());
    if good {
        Ok(seen.to_owned())
    } else {
        Err(NameError {
            what,
            seen: seen.to_owned(),
            wanted: "use 1 to 63 letters, digits, '-', '_' or '.', beginning with a letter or digit",
        })
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = NameError;
            fn from_str(s: &str) -> Result<Self, NameError> {
                checked($what, s, 63).map(Self)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(s: String) -> Result<Self, NameError> {
                s.parse()
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A process that runs this plant's roles, `host run --node a`.
    NodeName,
    "node name"
);
name!(
    /// A job that runs in exactly one place, the section `[roles.NAME]` of `plant.toml`.
    RoleName,
    "role name"
);

/// A role's share that has a lease of its own; a singleton has the one partition `""`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RoleKey {
    /// The role's name.
    pub role: RoleName,
    /// The partition, `""` for a singleton.
    pub partition: String,
}

impl fmt::Display for RoleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.partition.is_empty() {
            write!(f, "{}", self.role)
        } else {
            write!(f, "{}/{}", self.role, self.partition)
        }
    }
}

/// Made at process start. Two boxes that were given one name differ in it, and so do two runs of one box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(pub Uuid);

impl BootId {
    /// A new one, at random.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who holds a lease: this boot of this node, and no other boot of the same name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// The node's name.
    pub node: NodeName,
    /// The boot of that node.
    pub boot: BootId,
}

/// The fencing token: grows at every start of an instance, never goes back.
///
/// It is ordered by the database's timeline first, so that a number that was issued on a branch a fail-over lost can not be
/// issued again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch {
    /// PostgreSQL's timeline (1 on a database that was never promoted); 0 on SQLite.
    pub timeline: u32,
    /// The number that people see.
    pub number: u64,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_space_is_refused_with_what_is_wanted() {
        let error = "plant a".parse::<NodeName>().err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.starts_with("node name \"plant a\" is not usable: use 1 to 63"), "{error}");
    }

    #[test]
    fn epochs_order_by_timeline_before_number() {
        assert!(Epoch { timeline: 2, number: 1 } > Epoch { timeline: 1, number: 9 });
    }
}
