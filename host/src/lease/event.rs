//! What happens to leases on this node, told to whoever listens: alerts, metrics.
//!
//! The keeper waits for no listener: one that is too slow misses the oldest and is told how many.

use crate::identity::{Epoch, NodeName, RoleKey};
use crate::lease::Cause;

/// Something that has happened to a lease on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseEvent {
    /// It is this node's now.
    Taken {
        /// Which role; a pair's own lease comes before its roles.
        key: RoleKey,
        /// The node that held it last, perhaps this one; `None` where nobody had.
        from: Option<NodeName>,
        /// Why it could be taken.
        cause: Cause,
        /// The epoch that it is at.
        epoch: Epoch,
    },
    /// It was this node's, and was neither released nor given up.
    Lost {
        /// Which role; a pair's own lease comes before its roles.
        key: RoleKey,
        /// The epoch that it was at.
        epoch: Epoch,
        /// Why, for people.
        why: String,
    },
    /// This node may not take part.
    Refused {
        /// Why, and what to do.
        sentence: String,
    },
    /// The role has begun to change hands again and again. Every node notices that for itself.
    Flapping {
        /// Which role.
        key: RoleKey,
    },
}
