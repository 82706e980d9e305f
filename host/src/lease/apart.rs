//! Keeps plants with `[redundancy]` and nodes without it off one another's database.
//!
//! A node without it never renews, so that the others would take its roles from it after one lease; and it would take theirs at once. One
//! advisory lock says who is there: many nodes share it, a single node has it alone. It is held by a session, so that it is gone when its
//! process is, however it ended.

use sqlx::PgConnection;

/// The lock's number: any will do that nobody else takes.
const LOCK: i64 = 0x706c_616e_7400_0001;

/// For a node with `[redundancy]`: takes its share; a sentence when a single node is there.
pub(super) async fn share(connection: &mut PgConnection) -> Result<Option<String>, sqlx::Error> {
    let taken = sqlx::query_scalar("SELECT pg_try_advisory_lock_shared($1)").bind(LOCK).fetch_one(&mut *connection);
    if taken.await? {
        return Ok(None);
    }
    let other = newest(connection).await?;
    Ok(Some(format!(
        "{other} runs on this database without [redundancy]: end it, and give it the same [redundancy] as this one"
    )))
}

/// For a node without: takes the whole lock; a sentence when anybody is there, or may still be.
pub(super) async fn alone(connection: &mut PgConnection) -> Result<Option<String>, sqlx::Error> {
    const SHARED: &str = "
        SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ShareLock' AND objsubid = 1
                          AND classid = ($1 >> 32)::oid AND objid = ($1 & 4294967295)::oid
                          AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
    const LEASED: &str = "SELECT node FROM plant_leases WHERE node IS NOT NULL AND expires_at > clock_timestamp()
                             AND expires_at <> 'infinity' LIMIT 1";
    let taken = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(LOCK).fetch_one(&mut *connection);
    if taken.await? {
        // Its node may only have lost its connection.
        let leased: Option<String> = sqlx::query_scalar(LEASED).fetch_optional(connection).await?;
        return Ok(leased.map(|node| {
            format!("node {node} holds leases on this database, and this node has no [redundancy]: give it the same [redundancy]")
        }));
    }
    let shared: bool = sqlx::query_scalar(SHARED).bind(LOCK).fetch_one(&mut *connection).await?;
    let other = newest(connection).await?;
    Ok(Some(if shared {
        format!(
            "{other} runs on this database with [redundancy], and this node has none: give it the same [redundancy]"
        )
    } else {
        format!("{other} runs on this database already: end it, or give both [redundancy]")
    }))
}

/// The node that was heard of last, for people.
async fn newest(connection: &mut PgConnection) -> Result<String, sqlx::Error> {
    const NEWEST: &str = "SELECT node, address FROM plant_nodes ORDER BY heartbeat_at DESC LIMIT 1";
    let other: Option<(String, String)> = sqlx::query_as(NEWEST).fetch_optional(connection).await?;
    Ok(other.map_or_else(|| "another node".to_owned(), |(node, address)| format!("node {node} at {address}")))
}
