//! What changed hands, when and why.

use sqlx::PgPool;

use crate::identity::Holder;
use crate::store::Pool;

use super::fetch_all;

/// One change of hands.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct TakeoverRow {
    /// The role.
    pub role: String,
    /// Its partition.
    pub partition: String,
    /// Who held it before.
    pub from_node: Option<String>,
    /// Who holds it since.
    pub to_node: String,
    /// The epoch before.
    pub from_epoch: i64,
    /// The epoch since.
    pub to_epoch: i64,
    /// One of the words of [`crate::lease::Cause`].
    pub cause: String,
    /// When, microseconds since the Unix epoch.
    pub taken_at: i64,
    /// The lease's length, milliseconds; `None` where it never expires.
    pub lease_ms: Option<i64>,
    /// The last commit before it that was noted, microseconds since the Unix epoch.
    pub last_commit_at: Option<i64>,
    /// The new holder's first commit, microseconds since the Unix epoch.
    pub first_commit_at: Option<i64>,
    /// Units in the new holder's first commit that booked any.
    pub owed: Option<i64>,
    /// When that was, microseconds since the Unix epoch.
    pub owed_booked_at: Option<i64>,
}

/// The newest, at most `limit`, newest first.
///
/// # Errors
/// When the database does not answer, or has not these tables.
pub async fn takeovers(pool: &Pool, limit: i64) -> Result<Vec<TakeoverRow>, sqlx::Error> {
    fetch_all!(
        pool,
        TakeoverRow,
        postgres: "SELECT role, partition, from_node, to_node, from_epoch, to_epoch, cause,
                          (extract(epoch FROM taken_at) * 1000000)::bigint AS taken_at, lease_ms,
                          (extract(epoch FROM last_commit_at) * 1000000)::bigint AS last_commit_at,
                          (extract(epoch FROM first_commit_at) * 1000000)::bigint AS first_commit_at,
                          owed::bigint AS owed,
                          (extract(epoch FROM owed_booked_at) * 1000000)::bigint AS owed_booked_at
                   FROM plant_takeovers ORDER BY id DESC LIMIT $1",
        sqlite: "SELECT role, partition, from_node, to_node, from_epoch, to_epoch, cause, taken_at,
                        lease_ms, last_commit_at, first_commit_at, owed, owed_booked_at
                 FROM plant_takeovers ORDER BY id DESC LIMIT $1",
        limit,
    )
}

/// How long a role was without commits while it changed hands.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Gap {
    /// The takeover's number.
    pub id: i64,
    /// From the last commit of the holder before to the first one of the new holder.
    pub seconds: f64,
}

/// The number of the newest takeover; 0 when there was none.
///
/// # Errors
/// When the database does not answer, or has not this table.
pub async fn newest_id(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT coalesce(max(id), 0) FROM plant_takeovers").fetch_one(pool).await
}

/// The takeovers by this node, from another one, after the one numbered `since`; those that have come to their first commit.
///
/// # Errors
/// When the database does not answer, or has not this table.
pub async fn gaps_since(pool: &PgPool, me: &Holder, since: i64) -> Result<Vec<Gap>, sqlx::Error> {
    const GAPS: &str = "
        SELECT id, extract(epoch FROM first_commit_at - last_commit_at)::float8 AS seconds FROM plant_takeovers
         WHERE id > $1 AND to_node = $2 AND from_node <> $2 AND first_commit_at >= last_commit_at ORDER BY id";
    sqlx::query_as(GAPS).bind(since).bind(me.node.as_str()).fetch_all(pool).await
}
