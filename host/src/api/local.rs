//! What only this process knows: its own instances, its view of its leases, and what waits in its queues.
//!
//! It is asked through a trait so that the routes know neither the keeper nor the supervisor. Its methods are called for each request
//! and must answer from memory.

use serde::Serialize;
use utoipa::ToSchema;

use crate::role::Report;

/// This process's own knowledge.
pub trait Local: Send + Sync + 'static {
    /// What it says of each role that it may run.
    fn reports(&self) -> Vec<Report>;

    /// Its view of redundancy.
    fn ha(&self) -> Ha;

    /// What waits between the machines and its instances.
    fn buffers(&self) -> Vec<Buffer> {
        Vec::new()
    }

    /// How the OPC UA connections of its instances are.
    fn connections(&self) -> Vec<Connection> {
        Vec::new()
    }

    /// Why it could not take a role over just now; `None` when it could.
    fn why_not(&self) -> Option<String> {
        None
    }
}

/// The object `ha` of `/api/status`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Ha {
    /// Whether the plant has `[redundancy]`.
    pub enabled: bool,
    /// The rest, where it is enabled.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub detail: Option<HaDetail>,
}

impl Ha {
    /// One node that is always active.
    #[must_use]
    pub fn disabled() -> Self {
        Self { enabled: false, detail: None }
    }

    /// One of several nodes.
    #[must_use]
    pub fn enabled(detail: HaDetail) -> Self {
        Self { enabled: true, detail: Some(detail) }
    }
}

/// What a node is among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HaRole {
    /// It holds a role at least.
    Active,
    /// It starts the first one.
    Promoting,
    /// It holds none.
    Standby,
}

/// Redundancy as this node sees it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct HaDetail {
    /// What this node is.
    pub role: HaRole,
    /// Its name.
    pub node_id: String,
    /// The node that reads the machines; null when nobody does.
    pub leader: Option<String>,
    /// The lease store's name in `plant.toml`.
    pub backend: String,
    /// Whether it can serve people and, if asked, roles.
    pub serving: bool,
    /// Since when it is what it is, milliseconds since the Unix epoch.
    pub since_ms: i64,
    /// When its last renewal was confirmed, milliseconds since the Unix epoch; 0 when none was.
    pub last_renew_ms: i64,
    /// Roles that it took over since it started.
    pub takeovers: u64,
    /// Roles that it lost since it started.
    pub demotions: u64,
    /// How long a lease lasts, in seconds.
    pub lease_ttl_secs: f64,
    /// How often it is renewed, in seconds.
    pub renew_secs: f64,
    /// What went wrong last with the lease store.
    pub last_error: Option<String>,
}

/// What waits between the machines and one instance. Nothing here is a count: a counter's next reading includes what was not seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Buffer {
    /// The role.
    pub role: String,
    /// Its partition.
    pub partition: String,
    /// Readings that wait.
    pub waiting: u64,
    /// Readings that can wait at most.
    pub capacity: u64,
    /// Counter readings that a newer one of the same counter replaced, since the instance started: nothing is lost by it.
    pub coalesced: u64,
    /// Readings of states and tags that had no room, since the instance started: these are lost.
    pub dropped: u64,
}

/// One OPC UA connection of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Connection {
    /// The role.
    pub role: String,
    /// Its partition.
    pub partition: String,
    /// The connection's name in `plant.toml`.
    pub connection: String,
    /// Whether it is up.
    pub connected: bool,
    /// Why it is down, or how it is secured; and what is not as it should be.
    pub reason: String,
    /// How many items are subscribed to.
    pub items: u64,
    /// How many of them are Bad.
    pub bad_items: u64,
    /// Some of those, at most 100.
    pub bad: Vec<Item>,
    /// How many items the server has and does not monitor: they are read every second instead.
    pub not_monitored_items: u64,
    /// Some of those, at most 100.
    pub not_monitored: Vec<Item>,
    /// Values of more than 1 MiB, since the instance started: they are Bad with `BadResponseTooLarge`.
    pub too_large: u64,
}

/// An item of a connection, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Item {
    /// Its node.
    pub node: String,
    /// The server's reason, an OPC UA status code by name.
    pub status: String,
}
