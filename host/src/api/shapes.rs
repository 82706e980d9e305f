//! The documents that other programs rely on. Fields may be added; none is renamed, retyped or given another meaning.

use chrono::{DateTime, SecondsFormat};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::local::{Buffer, Connection, Ha};

/// RFC 3339 in UTC of microseconds since the Unix epoch.
pub(super) fn micros(us: i64) -> String {
    DateTime::from_timestamp_micros(us).unwrap_or_default().to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// RFC 3339 in UTC of milliseconds since the Unix epoch.
pub(super) fn millis(ms: i64) -> String {
    DateTime::from_timestamp_millis(ms).unwrap_or_default().to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Whether the database answers.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct DatabaseState {
    /// Whether the last question was answered.
    pub reachable: bool,
    /// Since when that is so, RFC 3339.
    pub since: String,
    /// What went wrong last, while it is not reachable.
    pub error: Option<String>,
}

/// `GET /api/status`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Status {
    /// The plant's name.
    pub plant: String,
    /// Whether it is a simulated plant.
    pub simulated: bool,
    /// The node that answers.
    pub node: String,
    /// Its boot.
    pub boot_id: String,
    /// The version of its program.
    pub version: String,
    /// Whether nodes and roles are from before the database went away.
    pub stale: bool,
    /// How old nodes and roles are, in milliseconds; null when nothing is known yet.
    pub age_ms: Option<u64>,
    /// The database, as this node sees it.
    pub database: DatabaseState,
    /// Every node that is known.
    pub nodes: Vec<NodeStatus>,
    /// Every role of the plant, by role and partition.
    pub roles: Vec<RoleStatus>,
    /// Sections of `plant.toml` in which other nodes differ from the one that answers, where they must not.
    pub drift: Vec<Drift>,
    /// What waits in this node's queues.
    pub buffers: Vec<Buffer>,
    /// How the OPC UA connections of this node's instances are.
    pub connections: Vec<Connection>,
    /// Why the node that answers could not take a role over just now; null when it could.
    pub why_not: Option<String>,
    /// Redundancy, as this node sees it.
    pub ha: Ha,
}

/// A section of `plant.toml` that is not the same everywhere.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Drift {
    /// The section's name.
    pub section: String,
    /// The nodes where it differs from the one that answers.
    pub nodes: Vec<String>,
}

/// One node.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct NodeStatus {
    /// Its name.
    pub node: String,
    /// Its boot.
    pub boot_id: String,
    /// How others and a browser reach it.
    pub address: String,
    /// The version of its program.
    pub version: String,
    /// Whether it said lately that it lives.
    pub live: bool,
    /// When it started, RFC 3339.
    pub since: String,
    /// Whether a person has said that it is to run nothing.
    pub drained: bool,
    /// Whether it could take over a role; null is unknown.
    pub could_take_over: Option<bool>,
    /// Why not.
    pub why_not: Option<String>,
}

/// One role of one partition.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RoleStatus {
    /// The role.
    pub role: String,
    /// Its partition, `""` for a singleton.
    pub partition: String,
    /// The node that holds it; null when nobody does.
    pub holder: Option<String>,
    /// How often it has changed hands or started anew.
    pub epoch: u64,
    /// Until its lease expires if it is not renewed, in milliseconds; null when it never does, or nobody holds it.
    pub expires_in_ms: Option<i64>,
    /// Whether the node that answers holds it.
    pub here: bool,
    /// `standby | promoting | running | draining | backoff | held | vacant`.
    pub state: String,
    /// The holder's sentence; null is unknown.
    pub reason: Option<String>,
    /// The holder's module; null is unknown.
    pub module: Option<ModuleStatus>,
    /// The newest reading that the holder had, RFC 3339; null is unknown.
    pub last_reading_at: Option<String>,
    /// What people have said of where it runs; null where they have said nothing.
    pub placement: Option<Placement>,
    /// What each live node says of it.
    pub nodes: Vec<NodeRole>,
}

/// Where people want a role to run.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Placement {
    /// Whether nobody is to run it.
    pub held: bool,
    /// Until when, RFC 3339; null until it is resumed.
    pub held_until: Option<String>,
    /// Why it is held.
    pub held_why: Option<String>,
    /// The node that alone runs it; null is any.
    pub pinned_to: Option<String>,
}

/// What one node says of one role.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct NodeRole {
    /// The node.
    pub node: String,
    /// Its state there.
    pub state: String,
    /// A sentence for people.
    pub reason: String,
}

/// A role's module.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ModuleStatus {
    /// Its version, from its manifest.
    pub version: Option<String>,
    /// Its hash, lower-case hexadecimal.
    pub sha256: Option<String>,
}

/// `GET /api/production`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Production {
    /// Whether this is from before the database went away.
    pub stale: bool,
    /// How old it is, in milliseconds.
    pub age_ms: u64,
    /// Every counter that was ever read.
    pub machines: Vec<CounterStatus>,
    /// Every counter of the configuration that never was.
    pub unread: Vec<UnreadCounter>,
}

/// A counter that has no baseline yet.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct UnreadCounter {
    /// The machine's code.
    pub machine: String,
    /// `good` or `scrap`.
    pub counter: String,
}

/// One counter of one machine. Numbers may exceed 64 bits.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CounterStatus {
    /// The machine's code.
    pub machine: String,
    /// `good` or `scrap`.
    pub counter: String,
    /// Units booked since the start.
    #[schema(value_type = i64)]
    pub booked: i128,
    /// Units that the machine counted and that are not booked yet; null is unknown.
    #[schema(value_type = Option<i64>)]
    pub owed: Option<i128>,
    /// The counter's value up to which production is booked.
    #[schema(value_type = Option<i64>)]
    pub baseline: Option<i128>,
    /// The newest reading, RFC 3339; null before the first.
    pub last_reading_at: Option<String>,
    /// How old that was by the database's clock when it was asked, in milliseconds.
    pub last_reading_age_ms: Option<i64>,
    /// Anomalies ever.
    pub anomalies: i64,
    /// Those that wait for a person.
    pub undecided: i64,
    /// The machine's state, `running | idle | down | setup`; null is unknown.
    pub state: Option<String>,
    /// Whether the machine can be heard, `connected | disconnected`; null is unknown.
    pub connection: Option<String>,
}

/// `GET /api/anomalies`, those that wait for a person first, then the newest.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Anomaly {
    /// Its number.
    pub id: i64,
    /// The machine's code.
    pub machine: String,
    /// `good` or `scrap`.
    pub counter: String,
    /// What kind.
    pub kind: String,
    /// The baseline at that moment.
    #[schema(value_type = Option<i64>)]
    pub baseline: Option<i128>,
    /// The reading; null where it was no whole number.
    #[schema(value_type = Option<i64>)]
    pub reading: Option<i128>,
    /// The units it is about.
    #[schema(value_type = Option<i64>)]
    pub quantity: Option<i128>,
    /// A sentence for people.
    pub detail: String,
    /// When it was seen, RFC 3339.
    pub seen_at: String,
    /// Whether a person must decide.
    pub needs_decision: bool,
    /// `accept` or `reject`, once decided.
    pub decision: Option<String>,
    /// Who decided.
    pub decided_by: Option<String>,
    /// Why.
    pub why: Option<String>,
    /// When, RFC 3339.
    pub decided_at: Option<String>,
    /// When the reader acted on it, RFC 3339.
    pub applied_at: Option<String>,
}

/// `GET /api/takeovers`, newest first.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Takeover {
    /// The role.
    pub role: String,
    /// Its partition.
    pub partition: String,
    /// Who held it before; null when nobody had.
    pub from: Option<String>,
    /// Who holds it since.
    pub to: String,
    /// The epoch before.
    pub from_epoch: i64,
    /// The epoch since.
    pub to_epoch: i64,
    /// `release | death | expiry | move | yield | start | restart`.
    pub cause: String,
    /// When it was taken, RFC 3339.
    pub at: String,
    /// The last commit before, RFC 3339, up to a quarter of a second early; null is unknown.
    pub last_commit_at: Option<String>,
    /// The first commit after, RFC 3339; null is unknown.
    pub first_commit_at: Option<String>,
    /// Between the two, in milliseconds; null is unknown.
    pub gap_ms: Option<f64>,
    /// The same in lease lengths.
    pub gap_leases: Option<f64>,
    /// Units in the new holder's first commit that booked any: what was owed, and what was made until it read; null is unknown.
    pub owed: Option<i64>,
    /// When these were booked, RFC 3339; null is not yet.
    pub owed_booked_at: Option<String>,
}

/// The body of `POST /api/anomalies/{id}`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// `accept` or `reject`.
    pub decision: String,
    /// Why.
    pub why: String,
    /// Who decides; the token's holder when left out.
    pub who: Option<String>,
}

/// The body of `POST /api/corrections`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Correction {
    /// The machine's code.
    pub machine: String,
    /// `good` or `scrap`.
    pub counter: String,
    /// Units to add; below zero to take away; never 0.
    pub quantity: i64,
    /// Who says so.
    pub who: String,
    /// Why.
    pub why: String,
}

/// The answer to a write.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Recorded {
    /// The number of what was recorded.
    pub id: i64,
    /// Always `recorded`.
    pub state: &'static str,
}

/// `GET /api/ready`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Ready {
    /// Whether it is.
    pub ready: bool,
    /// `active | promoting | standby`.
    pub role: super::local::HaRole,
}

/// `GET /api/health`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Health {
    /// Always `ok`: a process that cannot say it does not serve.
    pub status: &'static str,
    /// The node.
    pub node: String,
    /// The version of its program.
    pub version: &'static str,
}
