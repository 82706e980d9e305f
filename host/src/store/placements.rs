//! What people say of where roles run: written in one transaction with who said it, and told to every node at once.
//!
//! The nodes obey the tables, not a message: an order that nobody hears is found at the next look.

use std::time::Duration;

use sqlx::{PgConnection, PgPool, Row};

use super::millis;
use crate::identity::{NodeName, RoleKey};

/// What a person says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// A node takes the role next.
    Move {
        /// The role.
        key: RoleKey,
        /// The node.
        to: NodeName,
        /// For so long no other node may take it.
        within: Duration,
    },
    /// Nobody runs the role.
    Hold {
        /// The role.
        key: RoleKey,
        /// For how long; `None` is until somebody resumes it.
        at_most: Option<Duration>,
    },
    /// The hold is over.
    Resume {
        /// The role.
        key: RoleKey,
    },
    /// One node alone runs the role.
    Pin {
        /// The role.
        key: RoleKey,
        /// The node.
        node: NodeName,
    },
    /// Any node may run the role.
    Unpin {
        /// The role.
        key: RoleKey,
    },
    /// The node runs nothing.
    Drain {
        /// The node.
        node: NodeName,
    },
    /// The node may run roles again.
    Undrain {
        /// The node.
        node: NodeName,
    },
}

/// Who said it, and why.
#[derive(Debug, Clone, Copy)]
pub struct Author<'a> {
    /// A name for the record.
    pub who: &'a str,
    /// The reason, where one was given.
    pub why: Option<&'a str>,
}

/// Why an order was not taken.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// It can not be carried out as the plant is now; one sentence.
    #[error("{0}")]
    Refused(String),
    /// The database did not take it.
    #[error("the database did not take the order: {0}")]
    Database(#[from] sqlx::Error),
}

impl Order {
    /// The word that the record has for it.
    #[must_use]
    pub fn action(&self) -> &'static str {
        match self {
            Self::Move { .. } => "move",
            Self::Hold { .. } => "hold",
            Self::Resume { .. } => "resume",
            Self::Pin { .. } => "pin",
            Self::Unpin { .. } => "unpin",
            Self::Drain { .. } => "drain",
            Self::Undrain { .. } => "undrain",
        }
    }

    fn key(&self) -> Option<&RoleKey> {
        match self {
            Self::Move { key, .. }
            | Self::Hold { key, .. }
            | Self::Resume { key }
            | Self::Pin { key, .. }
            | Self::Unpin { key } => Some(key),
            Self::Drain { .. } | Self::Undrain { .. } => None,
        }
    }

    fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Move { to: node, .. } | Self::Pin { node, .. } | Self::Drain { node } | Self::Undrain { node } => {
                Some(node)
            }
            Self::Hold { .. } | Self::Resume { .. } | Self::Unpin { .. } => None,
        }
    }

    fn lasts_ms(&self) -> Option<i64> {
        let lasts = match self {
            Self::Move { within, .. } => Some(*within),
            Self::Hold { at_most, .. } => *at_most,
            _ => None,
        };
        lasts.map(millis)
    }
}

/// Writes an order down, with its record, and wakes every node; `lease` tells a live node from one that is gone.
///
/// # Errors
/// [`OrderError::Refused`] when it could not be carried out; nothing is written then.
pub async fn give(pool: &PgPool, order: &Order, author: Author<'_>, lease: Duration) -> Result<(), OrderError> {
    let mut transaction = pool.begin().await?;
    // Orders come one after the other: what is checked here is still so when it is written.
    sqlx::query("LOCK TABLE plant_placements IN SHARE ROW EXCLUSIVE MODE").execute(&mut *transaction).await?;
    check(&mut transaction, order, lease).await?;
    write(&mut transaction, order, author).await?;
    record(&mut transaction, order, author).await?;
    sqlx::query("SELECT pg_notify('plant_released', 'placement')").execute(&mut *transaction).await?;
    Ok(transaction.commit().await?)
}

async fn check(connection: &mut PgConnection, order: &Order, lease: Duration) -> Result<(), OrderError> {
    match order {
        Order::Move { key, to, .. } => {
            live(connection, to, lease).await?;
            can_run(connection, key, to).await?;
            free_to_move(connection, key, to).await
        }
        Order::Pin { key, node } => {
            known(connection, node).await?;
            can_run(connection, key, node).await
        }
        Order::Drain { node } => known(connection, node).await,
        Order::Undrain { node } => {
            let found = sqlx::query("SELECT FROM plant_drained_nodes WHERE node = $1").bind(node.as_str());
            let found = found.fetch_optional(connection).await?;
            if found.is_none() {
                refused(format!("node {node} is not drained: there is nothing to undo"))
            } else {
                Ok(())
            }
        }
        Order::Resume { key } => needs(connection, key, "held_until > clock_timestamp()", "is not held").await,
        Order::Unpin { key } => needs(connection, key, "pinned_to IS NOT NULL", "is not pinned").await,
        Order::Hold { .. } => Ok(()),
    }
}

fn refused(sentence: String) -> Result<(), OrderError> {
    Err(OrderError::Refused(sentence))
}

async fn needs(
    connection: &mut PgConnection,
    key: &RoleKey,
    condition: &'static str,
    what: &str,
) -> Result<(), OrderError> {
    let sql =
        sqlx::AssertSqlSafe(format!("SELECT FROM plant_placements WHERE role = $1 AND partition = $2 AND {condition}"));
    let found = sqlx::query(sql).bind(key.role.as_str()).bind(&key.partition).fetch_optional(connection).await?;
    if found.is_none() { refused(format!("{key} {what}: there is nothing to undo")) } else { Ok(()) }
}

async fn known(connection: &mut PgConnection, node: &NodeName) -> Result<(), OrderError> {
    let names: Vec<String> =
        sqlx::query_scalar("SELECT node FROM plant_nodes ORDER BY node").fetch_all(connection).await?;
    if names.iter().any(|name| name == node.as_str()) {
        return Ok(());
    }
    let there =
        if names.is_empty() { "there is none now".to_owned() } else { format!("there are {}", names.join(", ")) };
    refused(format!("the plant knows no node {node}: {there}"))
}

async fn live(connection: &mut PgConnection, node: &NodeName, lease: Duration) -> Result<(), OrderError> {
    const LIVE: &str = "SELECT n.heartbeat_at > clock_timestamp() - $2 * interval '1 millisecond'
            AND NOT EXISTS (SELECT FROM plant_deaths d WHERE d.boot_id = n.boot_id) AS live,
            EXISTS (SELECT FROM plant_drained_nodes d WHERE d.node = n.node) AS drained
       FROM plant_nodes n WHERE n.node = $1";
    known(connection, node).await?;
    let row = sqlx::query(LIVE).bind(node.as_str()).bind(millis(lease)).fetch_one(connection).await?;
    if !row.try_get::<bool, _>("live")? {
        return refused(format!("node {node} does not say that it lives: start it first"));
    }
    if row.try_get::<bool, _>("drained")? {
        return refused(format!("node {node} is drained: let it work again with `host node undrain {node}`"));
    }
    Ok(())
}

/// Whether the node has said that it can run the role. The pair's lease has no module.
async fn can_run(connection: &mut PgConnection, key: &RoleKey, node: &NodeName) -> Result<(), OrderError> {
    const SAID: &str = "SELECT FROM plant_role_reports r JOIN plant_nodes n USING (node, boot_id)
                         WHERE r.role = $1 AND r.partition = $2 AND r.node = $3";
    if key.role.as_str() == crate::config::PAIR {
        return Ok(());
    }
    let query = sqlx::query(SAID).bind(key.role.as_str()).bind(&key.partition).bind(node.as_str());
    if query.fetch_optional(connection).await?.is_some() {
        return Ok(());
    }
    refused(format!("node {node} has not said that it can run {key}: look at its log, and at `host role list` there"))
}

async fn free_to_move(connection: &mut PgConnection, key: &RoleKey, to: &NodeName) -> Result<(), OrderError> {
    const FREE: &str = "SELECT p.held_until > clock_timestamp() AS held, p.pinned_to, l.node AS holder
          FROM (SELECT $1::text AS role, $2::text AS partition) AS w
          LEFT JOIN plant_placements p USING (role, partition) LEFT JOIN plant_leases l USING (role, partition)";
    let row = sqlx::query(FREE).bind(key.role.as_str()).bind(&key.partition).fetch_one(connection).await?;
    if row.try_get::<Option<bool>, _>("held")?.unwrap_or(false) {
        return refused(format!("{key} is held: end that first with `host role resume {key}`"));
    }
    if let Some(pin) = row.try_get::<Option<String>, _>("pinned_to")?.filter(|pin| pin != to.as_str()) {
        return refused(format!("{key} is pinned to node {pin}: end that first with `host role unpin {key}`"));
    }
    match row.try_get::<Option<String>, _>("holder")? {
        Some(holder) if holder == to.as_str() => refused(format!("node {to} runs {key} already")),
        _ => Ok(()),
    }
}

async fn write(connection: &mut PgConnection, order: &Order, author: Author<'_>) -> Result<(), sqlx::Error> {
    if let Some(key) = order.key() {
        let row = "INSERT INTO plant_placements (role, partition) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        sqlx::query(row).bind(key.role.as_str()).bind(&key.partition).execute(&mut *connection).await?;
    }
    let sql = match order {
        Order::Move { .. } => {
            "UPDATE plant_placements SET moved_to = $3, moved_at = clock_timestamp(),
                    move_until = clock_timestamp() + $4 * interval '1 millisecond' WHERE role = $1 AND partition = $2"
        }
        Order::Hold { .. } => {
            "UPDATE plant_placements SET held_until = coalesce(clock_timestamp() + $4 * interval '1 millisecond', 'infinity'),
                    held_why = $5 WHERE role = $1 AND partition = $2"
        }
        Order::Resume { .. } => {
            "UPDATE plant_placements SET held_until = NULL, held_why = NULL WHERE role = $1 AND partition = $2"
        }
        Order::Pin { .. } => "UPDATE plant_placements SET pinned_to = $3 WHERE role = $1 AND partition = $2",
        Order::Unpin { .. } => "UPDATE plant_placements SET pinned_to = NULL WHERE role = $1 AND partition = $2",
        Order::Drain { .. } => {
            "INSERT INTO plant_drained_nodes (node, since) VALUES ($3, clock_timestamp()) ON CONFLICT DO NOTHING"
        }
        Order::Undrain { .. } => "DELETE FROM plant_drained_nodes WHERE node = $3",
    };
    // Every statement is given all five, whichever it uses.
    let sql = format!("WITH given AS (SELECT $1::text, $2::text, $3::text, $4::bigint, $5::text) {sql}");
    let query = sqlx::query(sqlx::AssertSqlSafe(sql));
    let query =
        query.bind(order.key().map(|key| key.role.as_str())).bind(order.key().map(|key| key.partition.as_str()));
    let query = query.bind(order.node().map(NodeName::as_str)).bind(order.lasts_ms()).bind(author.why);
    query.execute(connection).await.map(drop)
}

async fn record(connection: &mut PgConnection, order: &Order, author: Author<'_>) -> Result<(), sqlx::Error> {
    const RECORD: &str = "INSERT INTO plant_audit (who, action, role, partition, node, until, why)
        VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $6 * interval '1 millisecond', $7)";
    let query = sqlx::query(RECORD).bind(author.who).bind(order.action());
    let query =
        query.bind(order.key().map(|key| key.role.as_str())).bind(order.key().map(|key| key.partition.as_str()));
    let query = query.bind(order.node().map(NodeName::as_str));
    let query = query.bind(order.lasts_ms());
    query.bind(author.why).execute(connection).await.map(drop)
}

/// Who holds a role just now, and at which epoch.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct HolderRow {
    /// The role.
    pub role: String,
    /// Its partition.
    pub partition: String,
    /// The node that holds it.
    pub node: String,
    /// The epoch.
    pub epoch: i64,
}

/// Every role that is held and has not expired.
///
/// # Errors
/// When the database does not answer.
pub async fn holders(pool: &PgPool) -> Result<Vec<HolderRow>, sqlx::Error> {
    let sql = "SELECT role, partition, node, epoch FROM plant_leases
                WHERE node IS NOT NULL AND expires_at > clock_timestamp() ORDER BY role, partition";
    sqlx::query_as(sql).fetch_all(pool).await
}

/// One order, as the record has it. Times are RFC 3339, in UTC.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct AuditRow {
    /// When it was given.
    pub at: String,
    /// Who gave it.
    pub who: String,
    /// The word of [`Order::action`].
    pub action: String,
    /// The role, where it is about one.
    pub role: Option<String>,
    /// Its partition.
    pub partition: Option<String>,
    /// The node, where it is about one.
    pub node: Option<String>,
    /// Until when it holds, where that was said.
    pub until: Option<String>,
    /// The reason, where one was given.
    pub why: Option<String>,
}

/// The newest orders, at most `limit`, the newest first.
///
/// # Errors
/// When the database does not answer, or has not this table.
pub async fn audit(pool: &PgPool, limit: i64) -> Result<Vec<AuditRow>, sqlx::Error> {
    const AUDIT: &str = "
        SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') AS at, who, action, role, partition, node,
               to_char(until AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') AS until, why
          FROM plant_audit ORDER BY id DESC LIMIT $1";
    sqlx::query_as(AUDIT).bind(limit).fetch_all(pool).await
}
