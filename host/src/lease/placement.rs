//! Where people want a role to run, and how often it has changed hands lately.
//!
//! The database decides: a lease is not granted against what a person has said, whoever asks. What is here tells a node that already
//! holds a role to give it up, and whether giving it up would only send it round in circles.

use std::fmt;

use crate::identity::RoleKey;

/// A role that changed hands more often than this in [`FLAP_WINDOW`] leases is flapping.
pub const MOST_CHANGES: u64 = 3;
/// In so many leases are changes of hands counted.
pub const FLAP_WINDOW: u32 = 10;

/// Why a node may not run a role, though nobody else holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bar {
    /// Nobody is to run it.
    Hold,
    /// Another node alone is to run it.
    Pin,
    /// Another node is to take it next.
    Move,
    /// This node is to run nothing.
    Drain,
}

impl Bar {
    /// The word that the database says it with.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Pin => "pin",
            Self::Move => "move",
            Self::Drain => "drain",
        }
    }
}

impl std::str::FromStr for Bar {
    type Err = ();
    fn from_str(word: &str) -> Result<Self, ()> {
        [Self::Hold, Self::Pin, Self::Move, Self::Drain].into_iter().find(|bar| bar.as_str() == word).ok_or(())
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hold => "a person holds it: nobody is to run it",
            Self::Pin => "it is pinned to another node",
            Self::Move => "a person moves it to another node",
            Self::Drain => "this node is drained: it is to run nothing",
        })
    }
}

/// One role, as people want it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Which role.
    pub key: RoleKey,
    /// Why this node may not run it.
    pub barred: Option<Bar>,
    /// How often it has changed hands within the last [`FLAP_WINDOW`] leases.
    pub changes: u64,
}

impl Placed {
    /// Whether it changes hands so often that it had better stay where it is.
    #[must_use]
    pub fn is_flapping(&self) -> bool {
        self.changes > MOST_CHANGES
    }
}
