//! Roles that nobody holds, as the database sees it, and which of the live nodes speaks of them.

use std::time::Duration;

use sqlx::{PgPool, Row};

use super::millis;
use crate::identity::{NodeName, RoleKey};

/// What one look has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Of the roles that were asked for: those that nobody holds, though nobody has said that they are to be held back.
    pub vacant: Vec<RoleKey>,
    /// Whether no live node's name comes before this one's: one of them speaks for all.
    pub is_first: bool,
}

/// Looks at `keys`. A node whose heartbeat is older than `fresh` does not live.
///
/// # Errors
/// When the database does not answer, or has not these tables.
pub async fn look(pool: &PgPool, keys: &[RoleKey], node: &NodeName, fresh: Duration) -> Result<Look, sqlx::Error> {
    const VACANT: &str = "
        SELECT w.number FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (role, partition, number)
          LEFT JOIN plant_leases l ON l.role = w.role AND l.partition = w.partition
          LEFT JOIN plant_placements p ON p.role = w.role AND p.partition = w.partition
         WHERE NOT coalesce(l.node IS NOT NULL AND l.expires_at > clock_timestamp(), false)
           AND NOT coalesce(p.held_until > clock_timestamp(), false)
         ORDER BY w.number";
    const FIRST: &str = "
        SELECT NOT EXISTS (
            SELECT FROM plant_nodes n
             WHERE n.node COLLATE \"C\" < $1 AND n.heartbeat_at > clock_timestamp() - $2 * interval '1 millisecond'
               AND NOT EXISTS (SELECT FROM plant_deaths d WHERE d.boot_id = n.boot_id))";
    let (roles, partitions): (Vec<String>, Vec<String>) =
        keys.iter().map(|key| (key.role.to_string(), key.partition.clone())).unzip();
    let rows = sqlx::query(VACANT).bind(roles).bind(partitions).fetch_all(pool).await?;
    let mut vacant = Vec::new();
    for row in rows {
        let number: i64 = row.try_get("number")?;
        // Counted from one.
        let at = usize::try_from(number - 1).unwrap_or(usize::MAX);
        vacant.extend(keys.get(at).cloned());
    }
    let is_first = sqlx::query_scalar(FIRST).bind(node.as_str()).bind(millis(fresh)).fetch_one(pool).await?;
    Ok(Look { vacant, is_first })
}
