//! What people want of the roles, as one node reads it.

use std::time::Duration;

use sqlx::{PgConnection, Row};

use super::rows::{columns, key};
use crate::identity::{NodeName, RoleKey};
use crate::lease::placement::{FLAP_WINDOW, Placed};

/// Roles that nobody has said anything of and that have not changed hands are told as well.
const PLACEMENTS: &str = "
    SELECT w.role, w.partition, plant_barred(w.role, w.partition, $3) AS barred,
           (SELECT count(*) FROM plant_takeovers t
             WHERE t.role = w.role AND t.partition = w.partition AND t.from_node <> t.to_node
               AND t.taken_at > clock_timestamp() - $4 * interval '1 millisecond') AS changes
      FROM unnest($1::text[], $2::text[]) AS w(role, partition)";

/// What `node` has to know of these roles; `lease` is what changes of hands are counted in.
pub(in crate::lease) async fn placements(
    connection: &mut PgConnection,
    node: &NodeName,
    keys: &[RoleKey],
    lease: Duration,
) -> Result<Vec<Placed>, sqlx::Error> {
    let (roles, partitions) = columns(keys.iter());
    let window_ms = i64::try_from((lease * FLAP_WINDOW).as_millis()).unwrap_or(i64::MAX);
    let query = sqlx::query(PLACEMENTS).bind(&roles).bind(&partitions).bind(node.as_str()).bind(window_ms);
    let rows = query.fetch_all(connection).await?;
    let placed = |row: &sqlx::postgres::PgRow| {
        let barred: Option<String> = row.try_get("barred")?;
        let changes: i64 = row.try_get("changes")?;
        // A word of a newer schema bars as well: the database grants nothing against it, whatever this node makes of it.
        let barred = barred.map(|word| word.parse().unwrap_or(crate::lease::placement::Bar::Hold));
        Ok(Placed { key: key(row)?, barred, changes: u64::try_from(changes).unwrap_or(0) })
    };
    rows.iter().map(placed).collect()
}
