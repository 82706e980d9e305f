//! Nodes, leases and what the nodes say of their roles.

use std::time::Duration;

use crate::store::Pool;

use super::fetch_all;

/// One node's newest boot.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct NodeRow {
    /// Its name.
    pub node: String,
    /// Its boot.
    pub boot_id: String,
    /// How others reach it.
    pub address: String,
    /// The version of its program.
    pub version: String,
    /// When it started, microseconds since the Unix epoch.
    pub started_at: i64,
    /// How old its last heartbeat is, in microseconds.
    pub heartbeat_age_us: i64,
    /// Whether its death was proved.
    pub is_dead: bool,
    /// Whether a person has said that it is to run nothing.
    pub is_drained: bool,
    /// A hash for each section of its `plant.toml`, as JSON.
    pub sections: Option<String>,
    /// Whether it could take a role over, by what it tried last.
    pub could_take_over: Option<bool>,
    /// Why not.
    pub why_not: Option<String>,
}

/// One role's fence and lease.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct RoleRow {
    /// The role.
    pub role: String,
    /// Its partition.
    pub partition: String,
    /// The epoch it is at.
    pub epoch: i64,
    /// Who holds it.
    pub holder: Option<String>,
    /// Which boot of that node.
    pub boot_id: Option<String>,
    /// Until the lease expires, in milliseconds; negative when it has; `None` when it never does.
    pub expires_in_ms: Option<i64>,
    /// Whether a person has said that nobody is to run it.
    pub is_held: bool,
    /// Until when, microseconds since the Unix epoch; `None` until it is resumed.
    pub held_until: Option<i64>,
    /// Why.
    pub held_why: Option<String>,
    /// The node that alone runs it.
    pub pinned_to: Option<String>,
}

/// What a node says of a role.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct ReportRow {
    /// The role.
    pub role: String,
    /// Its partition.
    pub partition: String,
    /// The node that says it.
    pub node: String,
    /// Which boot of that node.
    pub boot_id: String,
    /// One of the words of [`crate::role::State`].
    pub state: String,
    /// A sentence for people.
    pub reason: String,
    /// The module's version.
    pub module_version: Option<String>,
    /// The module's hash.
    pub module_sha256: Option<String>,
    /// The newest reading, microseconds since the Unix epoch.
    pub last_reading_at: Option<i64>,
}

/// Every node that is known, by name.
///
/// # Errors
/// When the database does not answer, or has not these tables.
pub async fn nodes(pool: &Pool) -> Result<Vec<NodeRow>, sqlx::Error> {
    fetch_all!(
        pool,
        NodeRow,
        postgres: "SELECT node, CAST(boot_id AS text) AS boot_id, address, version,
                          (extract(epoch FROM started_at) * 1000000)::bigint AS started_at,
                          (extract(epoch FROM clock_timestamp() - heartbeat_at) * 1000000)::bigint AS heartbeat_age_us,
                          EXISTS (SELECT FROM plant_deaths d WHERE d.boot_id = plant_nodes.boot_id) AS is_dead,
                          EXISTS (SELECT FROM plant_drained_nodes d WHERE d.node = plant_nodes.node) AS is_drained,
                          CAST(sections AS text) AS sections, could_take_over, why_not
                   FROM plant_nodes ORDER BY node",
        sqlite: "SELECT node, CAST(boot_id AS text) AS boot_id, address, version, started_at,
                        CAST(unixepoch('subsec') * 1000000 AS INTEGER) - heartbeat_at AS heartbeat_age_us,
                        FALSE AS is_dead, FALSE AS is_drained,
                        NULL AS sections, NULL AS could_take_over, NULL AS why_not
                 FROM plant_nodes ORDER BY node",
    )
}

/// Every role that was ever held, by name. A role without a lease row is held as its fence says: on one node nothing expires.
///
/// # Errors
/// When the database does not answer, or has not these tables.
pub async fn roles(pool: &Pool) -> Result<Vec<RoleRow>, sqlx::Error> {
    fetch_all!(
        pool,
        RoleRow,
        postgres: "SELECT f.role, f.partition, f.epoch,
                          CASE WHEN l.role IS NULL THEN f.node ELSE l.node END AS holder,
                          CAST(CASE WHEN l.role IS NULL THEN f.boot_id ELSE l.boot_id END AS text) AS boot_id,
                          CASE WHEN isfinite(l.expires_at)
                               THEN (extract(epoch FROM l.expires_at - clock_timestamp()) * 1000)::bigint END AS expires_in_ms,
                          coalesce(p.held_until > clock_timestamp(), false) AS is_held,
                          CASE WHEN isfinite(p.held_until) THEN (extract(epoch FROM p.held_until) * 1000000)::bigint END AS held_until,
                          p.held_why, p.pinned_to
                   FROM plant_fences f LEFT JOIN plant_leases l ON l.role = f.role AND l.partition = f.partition
                   LEFT JOIN plant_placements p ON p.role = f.role AND p.partition = f.partition
                   ORDER BY f.role, f.partition",
        sqlite: "SELECT f.role, f.partition, f.epoch,
                        CASE WHEN l.role IS NULL THEN f.node ELSE l.node END AS holder,
                        CAST(CASE WHEN l.role IS NULL THEN f.boot_id ELSE l.boot_id END AS text) AS boot_id,
                        (l.expires_at - CAST(unixepoch('subsec') * 1000000 AS INTEGER)) / 1000 AS expires_in_ms,
                        FALSE AS is_held, NULL AS held_until, NULL AS held_why, NULL AS pinned_to
                 FROM plant_fences f LEFT JOIN plant_leases l ON l.role = f.role AND l.partition = f.partition
                 ORDER BY f.role, f.partition",
    )
}

/// What each node said last of each role, no older than `at_most`.
///
/// # Errors
/// When the database does not answer, or has not these tables.
pub async fn reports(pool: &Pool, at_most: Duration) -> Result<Vec<ReportRow>, sqlx::Error> {
    let micros = i64::try_from(at_most.as_micros()).unwrap_or(i64::MAX);
    fetch_all!(
        pool,
        ReportRow,
        postgres: "SELECT role, partition, node, CAST(boot_id AS text) AS boot_id, state, reason, module_version, module_sha256,
                          (extract(epoch FROM last_reading_at) * 1000000)::bigint AS last_reading_at
                   FROM plant_role_reports
                   WHERE reported_at > clock_timestamp() - $1 * interval '1 microsecond' ORDER BY role, partition, node",
        sqlite: "SELECT role, partition, node, CAST(boot_id AS text) AS boot_id, state, reason, module_version, module_sha256,
                        last_reading_at
                 FROM plant_role_reports
                 WHERE reported_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) - $1 ORDER BY role, partition, node",
        micros,
    )
}
