//! What a node says of itself beside that it lives: its configuration's hashes, and whether it could take a role over.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::PgPool;

use super::millis;
use crate::identity::Holder;

/// What does not change while a process runs.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// A hash for each section of `plant.toml` that has to be the same everywhere.
    pub sections: BTreeMap<String, String>,
    /// What tells the plant's shared key from another one.
    pub key_check: Option<String>,
    /// How others reach it, where that is a place of its own.
    pub address: Option<String>,
}

/// Whether it could take a role over; the sentence says why not.
pub type Proof = Result<(), String>;

/// What it says of itself now.
#[derive(Debug, Clone, Default)]
pub struct Now {
    /// Whether it could take over, once it has tried.
    pub proof: Option<Proof>,
    /// How long ago that was.
    pub proved_ago: Duration,
    /// Whether it does not reach an OPC UA server that a role of its needs.
    pub opc_down: bool,
}

/// Writes it down; false when this boot is not known to the plant yet, or not any more.
///
/// # Errors
/// When the database does not answer, or has not this table.
pub async fn write(pool: &PgPool, me: &Holder, facts: &Facts, now: &Now) -> Result<bool, sqlx::Error> {
    const WRITE: &str = "
        UPDATE plant_nodes
           SET sections = $3::jsonb, key_check = $4, could_take_over = $5, why_not = $6,
               proved_at = CASE WHEN $5 IS NOT NULL THEN clock_timestamp() - $7 * interval '1 millisecond' END,
               opc_down_since = CASE WHEN $8 THEN coalesce(opc_down_since, clock_timestamp()) END
         WHERE node = $1 AND boot_id = $2";
    let sections = serde_json::to_string(&facts.sections).unwrap_or_default();
    let query = sqlx::query(WRITE).bind(me.node.as_str()).bind(me.boot.0).bind(sections).bind(&facts.key_check);
    let why_not = now.proof.as_ref().and_then(|proof| proof.as_ref().err());
    let query = query.bind(now.proof.as_ref().map(Result::is_ok)).bind(why_not);
    let done = query.bind(millis(now.proved_ago)).bind(now.opc_down).execute(pool).await?;
    Ok(done.rows_affected() == 1)
}

/// A live node that could take over instead of this one, by what it tried after this one lost its way to an OPC UA server, if it has.
///
/// # Errors
/// When the database does not answer, or has not these tables.
pub async fn able(pool: &PgPool, me: &Holder, fresh: Duration) -> Result<Option<String>, sqlx::Error> {
    const ABLE: &str = "
        SELECT o.node FROM plant_nodes o
         WHERE o.node <> $1 AND o.heartbeat_at > clock_timestamp() - $2 * interval '1 millisecond' AND o.could_take_over
           AND NOT EXISTS (SELECT FROM plant_deaths d WHERE d.boot_id = o.boot_id)
           AND NOT EXISTS (SELECT FROM plant_drained_nodes d WHERE d.node = o.node)
           AND o.proved_at > coalesce((SELECT m.opc_down_since FROM plant_nodes m WHERE m.node = $1 AND m.boot_id = $3), '-infinity')
         ORDER BY o.node LIMIT 1";
    let query = sqlx::query_scalar(ABLE).bind(me.node.as_str()).bind(millis(fresh)).bind(me.boot.0);
    query.fetch_optional(pool).await
}

/// Whether another live node has lost its way to an OPC UA server since this one tried last: it wants to know whether this one has one.
///
/// # Errors
/// When the database does not answer, or has not these tables.
pub async fn is_asked(pool: &PgPool, me: &Holder, fresh: Duration) -> Result<bool, sqlx::Error> {
    const ASKED: &str = "
        SELECT EXISTS (
            SELECT FROM plant_nodes o
             WHERE o.node <> $1 AND o.heartbeat_at > clock_timestamp() - $2 * interval '1 millisecond'
               AND NOT EXISTS (SELECT FROM plant_deaths d WHERE d.boot_id = o.boot_id)
               AND o.opc_down_since > (SELECT m.proved_at FROM plant_nodes m WHERE m.node = $1 AND m.boot_id = $3))";
    let query = sqlx::query_scalar(ASKED).bind(me.node.as_str()).bind(millis(fresh)).bind(me.boot.0);
    query.fetch_one(pool).await
}

/// A sentence when this node and one that was there before can not both be right: they have different keys, or one address.
///
/// # Errors
/// When the database does not answer, or has not this table.
pub async fn conflict(
    pool: &PgPool,
    me: &Holder,
    facts: &Facts,
    fresh: Duration,
) -> Result<Option<String>, sqlx::Error> {
    const OTHERS: &str = "
        SELECT o.node, o.address, o.key_check FROM plant_nodes o
         WHERE o.node <> $1 AND o.heartbeat_at > clock_timestamp() - $2 * interval '1 millisecond'
           AND NOT EXISTS (SELECT FROM plant_deaths d WHERE d.boot_id = o.boot_id)
           AND o.started_at < coalesce((SELECT m.started_at FROM plant_nodes m WHERE m.node = $1 AND m.boot_id = $3), 'infinity')
         ORDER BY o.node";
    let fresh_ms = millis(fresh);
    let query = sqlx::query_as(OTHERS).bind(me.node.as_str()).bind(fresh_ms).bind(me.boot.0);
    let others: Vec<(String, String, Option<String>)> = query.fetch_all(pool).await?;
    for (node, address, key_check) in others {
        if facts.address.as_ref() == Some(&address) {
            return Ok(Some(format!(
                "node {node} says that it is reached at {address}, and so does this node {}: give one of them its own with `--advertise`",
                me.node
            )));
        }
        if let (Some(theirs), Some(mine)) = (&key_check, &facts.key_check)
            && theirs != mine
        {
            return Ok(Some(format!(
                "node {node} has another key than this node {}: give both the same in the variable that serve.secret_key_env names",
                me.node
            )));
        }
    }
    Ok(None)
}

/// Roles that other nodes of the plant may run and that are not among `mine`: this node could not take those over.
///
/// # Errors
/// When the database does not answer, or has not this table.
pub async fn unknown_roles(
    pool: &PgPool,
    me: &Holder,
    mine: &[String],
    fresh: Duration,
) -> Result<Vec<String>, sqlx::Error> {
    const OTHERS: &str = "
        SELECT DISTINCT r.role FROM plant_role_reports r JOIN plant_nodes n ON n.node = r.node AND n.boot_id = r.boot_id
         WHERE r.node <> $1 AND n.heartbeat_at > clock_timestamp() - $2 * interval '1 millisecond'
           AND NOT EXISTS (SELECT FROM plant_deaths d WHERE d.boot_id = n.boot_id) AND r.role <> ALL ($3)
         ORDER BY r.role";
    let fresh_ms = millis(fresh);
    sqlx::query_scalar(OTHERS).bind(me.node.as_str()).bind(fresh_ms).bind(mine).fetch_all(pool).await
}
