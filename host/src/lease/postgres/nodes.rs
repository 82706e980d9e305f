//! The table of nodes: who is there, and that no two live processes have one name.

use sqlx::PgConnection;

use super::Me;
use crate::identity::Holder;

/// Makes this boot the node's; answers a sentence when another boot of the name is alive.
///
/// Whether it is alive only shows in time: a heartbeat that was fresh when its process died stays fresh for a whole lease. A process that
/// was started again after a crash is refused so long, like any other second one: it has no proof that the first is gone.
pub(super) async fn register(
    connection: &mut PgConnection,
    me: &Me,
    fresh_ms: i64,
) -> Result<Option<String>, sqlx::Error> {
    const REGISTER: &str = "
        INSERT INTO plant_nodes AS n (node, boot_id, address, version, started_at, heartbeat_at)
             VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp())
        ON CONFLICT (node) DO UPDATE
             SET boot_id = excluded.boot_id, address = excluded.address, version = excluded.version,
                 started_at = CASE WHEN n.boot_id = excluded.boot_id THEN n.started_at ELSE excluded.started_at END,
                 heartbeat_at = excluded.heartbeat_at
           WHERE n.boot_id = excluded.boot_id OR n.heartbeat_at <= clock_timestamp() - make_interval(secs => $5::bigint / 1000.0)";
    const TWIN: &str = "
        SELECT address, to_char(started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') FROM plant_nodes WHERE node = $1";
    let node = me.holder.node.as_str();
    let query = sqlx::query(REGISTER).bind(node).bind(me.holder.boot.0).bind(&me.address);
    let registered = query.bind(env!("CARGO_PKG_VERSION")).bind(fresh_ms).execute(&mut *connection).await?;
    if registered.rows_affected() == 1 {
        return Ok(None);
    }
    let twin: Option<(String, String)> = sqlx::query_as(TWIN).bind(node).fetch_optional(connection).await?;
    // It may have left between the two statements; whoever called asks again.
    let (address, started) = twin.unwrap_or_default();
    Ok(Some(format!(
        "a node named {node} is running already, at {address}, started {started} UTC: give this one another name with `--node`"
    )))
}

/// Says that this boot lives; answers how many other nodes do, or `None` when the row is not this boot's any more.
pub(super) async fn beat(
    connection: &mut PgConnection,
    me: &Holder,
    fresh_ms: i64,
) -> Result<Option<u64>, sqlx::Error> {
    const BEAT: &str = "
        UPDATE plant_nodes SET heartbeat_at = clock_timestamp() WHERE node = $1 AND boot_id = $2
     RETURNING (SELECT count(*) FROM plant_nodes o
                 WHERE o.node <> $1 AND o.heartbeat_at > clock_timestamp() - make_interval(secs => $3::bigint / 1000.0))";
    let beating = sqlx::query_scalar(BEAT).bind(me.node.as_str()).bind(me.boot.0).bind(fresh_ms);
    let others: Option<i64> = beating.fetch_optional(connection).await?;
    Ok(others.map(|others| u64::try_from(others).unwrap_or(0)))
}

/// Takes this boot out of the plant.
pub(super) async fn leave(connection: &mut PgConnection, me: &Holder) -> Result<(), sqlx::Error> {
    const LEAVE: &str = "DELETE FROM plant_nodes WHERE node = $1 AND boot_id = $2";
    sqlx::query(LEAVE).bind(me.node.as_str()).bind(me.boot.0).execute(connection).await.map(drop)
}
