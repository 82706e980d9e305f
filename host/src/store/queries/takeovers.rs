//! What changed hands, when and why.

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
                          (extract(epoch FROM taken_at) * 1000000)::bigint AS taken_at
                   FROM plant_takeovers ORDER BY id DESC LIMIT $1",
        sqlite: "SELECT role, partition, from_node, to_node, from_epoch, to_epoch, cause, taken_at
                 FROM plant_takeovers ORDER BY id DESC LIMIT $1",
        limit,
    )
}
