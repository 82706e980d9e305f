//! The table of nodes: who is there, and that no two live processes have one name.

use sqlx::PgConnection;

use super::Me;
use super::watch::Other;
use crate::identity::{BootId, Holder};

/// Makes this boot the node's; answers a sentence when another boot of the name is alive.
///
/// Whether it is alive only shows in time: a heartbeat that was fresh when its process died stays fresh for a whole lease. A process that
/// was started again after a crash is refused so long, like any other second one, unless it has proof that the first is gone.
pub(super) async fn register(
    connection: &mut PgConnection,
    me: &Me,
    fresh_ms: i64,
    lock_key: i64,
) -> Result<Option<String>, sqlx::Error> {
    const REGISTER: &str = "
        INSERT INTO plant_nodes AS n (node, boot_id, address, version, lock_key, started_at, heartbeat_at)
             VALUES ($1, $2, $3, $4, $6, clock_timestamp(), clock_timestamp())
        ON CONFLICT (node) DO UPDATE
             SET boot_id = excluded.boot_id, address = excluded.address, version = excluded.version, lock_key = excluded.lock_key,
                 started_at = CASE WHEN n.boot_id = excluded.boot_id THEN n.started_at ELSE excluded.started_at END,
                 could_take_over = CASE WHEN n.boot_id = excluded.boot_id THEN n.could_take_over END,
                 why_not = CASE WHEN n.boot_id = excluded.boot_id THEN n.why_not END,
                 proved_at = CASE WHEN n.boot_id = excluded.boot_id THEN n.proved_at END,
                 opc_down_since = CASE WHEN n.boot_id = excluded.boot_id THEN n.opc_down_since END,
                 heartbeat_at = excluded.heartbeat_at
           WHERE n.boot_id = excluded.boot_id OR n.heartbeat_at <= clock_timestamp() - make_interval(secs => $5::bigint / 1000.0)
              OR EXISTS (SELECT FROM plant_deaths d WHERE d.boot_id = n.boot_id)";
    const TWIN: &str = "
        SELECT address, to_char(started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') FROM plant_nodes WHERE node = $1";
    let node = me.holder.node.as_str();
    let query = sqlx::query(REGISTER).bind(node).bind(me.holder.boot.0).bind(&me.address);
    let registered =
        query.bind(env!("CARGO_PKG_VERSION")).bind(fresh_ms).bind(lock_key).execute(&mut *connection).await?;
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

/// What a heartbeat has found.
pub(super) enum Beat {
    /// The row is this boot's; these others live.
    Present(Vec<Other>),
    /// The row is another boot's, or was deleted.
    Absent,
    /// This boot was taken for dead.
    Dead,
}

/// Says that this boot lives, and asks who else does.
pub(super) async fn beat(connection: &mut PgConnection, me: &Holder, fresh_ms: i64) -> Result<Beat, sqlx::Error> {
    const BEAT: &str = "
        UPDATE plant_nodes SET heartbeat_at = clock_timestamp() WHERE node = $1 AND boot_id = $2
     RETURNING EXISTS (SELECT FROM plant_deaths d WHERE d.boot_id = $2)";
    const OTHERS: &str = "
        SELECT o.node, o.boot_id, coalesce(o.lock_key, 0) FROM plant_nodes o
         WHERE o.node <> $1 AND o.heartbeat_at > clock_timestamp() - make_interval(secs => $2::bigint / 1000.0)
           AND NOT EXISTS (SELECT FROM plant_deaths d WHERE d.boot_id = o.boot_id)";
    let beating = sqlx::query_scalar(BEAT).bind(me.node.as_str()).bind(me.boot.0);
    match beating.fetch_optional(&mut *connection).await? {
        None => return Ok(Beat::Absent),
        Some(true) => return Ok(Beat::Dead),
        Some(false) => {}
    }
    let asking = sqlx::query_as(OTHERS).bind(me.node.as_str()).bind(fresh_ms);
    let rows: Vec<(String, uuid::Uuid, i64)> = asking.fetch_all(connection).await?;
    let other = |(node, boot, lock_key): (String, uuid::Uuid, i64)| {
        let node = node.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        Ok(Other { holder: Holder { node, boot: BootId(boot) }, lock_key })
    };
    Ok(Beat::Present(rows.into_iter().map(other).collect::<Result<_, sqlx::Error>>()?))
}

/// Marks earlier boots of this name as dead, on proof from their own box.
pub(super) async fn mark_gone(connection: &mut PgConnection, me: &Holder, gone: &[BootId]) -> Result<(), sqlx::Error> {
    // What neither is known nor holds anything needs no mark.
    const MARK: &str = "
        INSERT INTO plant_deaths (boot_id, node, died_at)
             SELECT g.boot_id, $1, clock_timestamp() FROM unnest($2::uuid[]) AS g(boot_id)
              WHERE g.boot_id <> $3
                AND (EXISTS (SELECT FROM plant_nodes n WHERE n.node = $1 AND n.boot_id = g.boot_id)
                  OR EXISTS (SELECT FROM plant_leases l WHERE l.node = $1 AND l.boot_id = g.boot_id))
        ON CONFLICT DO NOTHING";
    if gone.is_empty() {
        return Ok(());
    }
    let boots: Vec<uuid::Uuid> = gone.iter().map(|boot| boot.0).collect();
    sqlx::query(MARK).bind(me.node.as_str()).bind(boots).bind(me.boot.0).execute(connection).await.map(drop)
}

/// Forgets deaths so old that nothing of theirs is left.
pub(super) async fn forget_deaths(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    const FORGET: &str = "
        DELETE FROM plant_deaths d WHERE d.died_at < clock_timestamp() - interval '7 days'
           AND NOT EXISTS (SELECT FROM plant_leases l WHERE l.boot_id = d.boot_id)
           AND NOT EXISTS (SELECT FROM plant_nodes n WHERE n.boot_id = d.boot_id)";
    sqlx::query(FORGET).execute(connection).await.map(drop)
}

/// Takes this boot out of the plant.
pub(super) async fn leave(connection: &mut PgConnection, me: &Holder) -> Result<(), sqlx::Error> {
    const LEAVE: &str = "DELETE FROM plant_nodes WHERE node = $1 AND boot_id = $2";
    sqlx::query(LEAVE).bind(me.node.as_str()).bind(me.boot.0).execute(connection).await.map(drop)
}
