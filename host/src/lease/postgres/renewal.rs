//! The renewal: one statement for all the leases that a node holds.

use std::collections::HashMap;

use sqlx::PgConnection;

use super::rows::{columns, number, renewal, timeline};
use crate::identity::{Epoch, Holder, RoleKey};
use crate::lease::Renewal;

/// What this node thinks that it holds, and whether it does by what the statement sees when it begins. A new timeline or system
/// identifier is another history of the database: nothing is held there that was granted before.
macro_rules! asked {
    () => {
        "WITH asked AS (
             SELECT w.*, coalesce(l.node = $5 AND l.boot_id = $6 AND l.epoch = w.epoch AND l.expires_at > clock_timestamp()
                    AND f.timeline = w.timeline AND w.timeline = plant_timeline() AND f.system_identifier = plant_system()
                    AND NOT EXISTS (SELECT FROM plant_deaths d WHERE d.boot_id = $6), false) AS ours
               FROM unnest($1::text[], $2::text[], $3::bigint[], $4::integer[]) AS w(role, partition, epoch, timeline)
               LEFT JOIN plant_leases l USING (role, partition) LEFT JOIN plant_fences f USING (role, partition)
         )"
    };
}

/// Rows are locked in one order, and one that somebody else has locked is passed over: it is unconfirmed, not lost. What it has become
/// meanwhile is looked at again under the lock.
const RENEW: &str = concat!(
    asked!(),
    ", locked AS (
         SELECT l.role, l.partition FROM plant_leases l JOIN asked a USING (role, partition)
          WHERE a.ours AND l.node = $5 AND l.boot_id = $6 AND l.epoch = a.epoch AND l.expires_at > clock_timestamp()
          ORDER BY l.role, l.partition FOR UPDATE OF l SKIP LOCKED
     ), renewed AS (
         UPDATE plant_leases l
            SET renewed_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => $7::bigint / 1000.0)
           FROM locked k WHERE l.role = k.role AND l.partition = k.partition
         RETURNING l.role, l.partition
     )
     SELECT a.role, a.partition,
            CASE WHEN r.role IS NOT NULL THEN 'confirmed' WHEN a.ours THEN 'skipped' ELSE 'lost' END AS became
       FROM asked a LEFT JOIN renewed r USING (role, partition)"
);

/// Leases that never expire are only looked at.
const LOOK: &str = concat!(
    asked!(),
    " SELECT role, partition, CASE WHEN ours THEN 'confirmed' ELSE 'lost' END AS became FROM asked WHERE $7::bigint IS NULL"
);

/// Renews what is held; answers in the order of `held`.
pub(super) async fn renew(
    connection: &mut PgConnection,
    me: &Holder,
    held: &[(RoleKey, Epoch)],
    lease_ms: Option<i64>,
) -> Result<Vec<Renewal>, sqlx::Error> {
    let (roles, partitions) = columns(held.iter().map(|(key, _)| key));
    let epochs: Vec<i64> = held.iter().map(|(_, epoch)| number(*epoch)).collect();
    let timelines: Vec<i32> = held.iter().map(|(_, epoch)| timeline(*epoch)).collect();
    let statement = if lease_ms.is_some() { RENEW } else { LOOK };
    let query = sqlx::query(statement).bind(&roles).bind(&partitions).bind(&epochs).bind(&timelines);
    let rows = query.bind(me.node.as_str()).bind(me.boot.0).bind(lease_ms).fetch_all(connection).await?;
    let became: HashMap<RoleKey, Renewal> = rows.iter().map(renewal).collect::<Result<_, _>>()?;
    Ok(held.iter().map(|(key, _)| became.get(key).copied().unwrap_or(Renewal::Skipped)).collect())
}
