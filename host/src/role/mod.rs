//! Roles: manifests, modules, instances and their supervisor.
//!
//! The supervisor starts an instance when the keeper grants a lease and none otherwise. An instance is an actor: one task owns the
//! guest's store, and dropping the store ends everything that the guest has begun.

pub mod backoff;
mod call;
mod ending;
pub mod figures;
mod handlers;
mod instance;
pub mod reports;
pub mod runnable;
pub mod supervisor;
mod tenure;
pub mod threads;

pub mod bundled;
pub mod directory;
pub mod manifest;
pub mod module;

use serde::Serialize;

use crate::identity::{Epoch, RoleKey};

pub use ending::Ending;
pub use runnable::Runnable;
pub use supervisor::Supervisor;

/// What a role is doing on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Another node holds the lease, or nobody does; this one has no instance.
    Standby,
    /// The lease is held and the instance is starting.
    Promoting,
    /// The instance works.
    Running,
    /// The instance finishes what is in hand, before a clean release.
    Draining,
    /// The instance ended; a new one starts after a pause.
    Backoff,
    /// A person has said that nobody runs it.
    Held,
    /// Nobody holds it.
    Vacant,
}

/// What this node says of one of its roles.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Which role.
    pub key: RoleKey,
    /// What it is doing here.
    pub state: State,
    /// A sentence for people: why, and how it goes.
    pub reason: String,
    /// The epoch of the instance, where there is one.
    pub epoch: Option<Epoch>,
    /// How many instances exist here: 0 or 1.
    pub instances: u32,
    /// The module's version, from its manifest.
    pub module_version: Option<String>,
    /// The module's hash, lower-case hex.
    pub module_sha256: Option<String>,
    /// The newest reading that the instance was given, nanoseconds since the Unix epoch.
    pub last_reading_at: Option<i64>,
}
