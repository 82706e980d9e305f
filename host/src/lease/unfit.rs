//! What a node does not compete for, because it could not do it: its box is not well, or it does not reach what the role needs.

use std::collections::BTreeMap;

use tokio::sync::watch;

use crate::identity::RoleKey;

/// Why a node leaves leases to others; one sentence each. What it holds it keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unfit {
    /// Why it competes for nothing.
    pub node: Option<String>,
    /// Why it does not compete for these.
    pub roles: BTreeMap<RoleKey, String>,
}

impl Unfit {
    /// For a node that is always fit.
    #[must_use]
    pub fn never() -> watch::Receiver<Self> {
        watch::channel(Self::default()).1
    }

    /// Whether the node leaves this lease to others.
    #[must_use]
    pub fn is_for(&self, key: &RoleKey) -> bool {
        self.node.is_some() || self.roles.contains_key(key)
    }

    /// The first reason, for people.
    #[must_use]
    pub fn why(&self) -> Option<&String> {
        self.node.as_ref().or_else(|| self.roles.values().next())
    }
}
