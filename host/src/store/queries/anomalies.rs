//! What the counting could not decide by itself, and what people decided.

use crate::store::Pool;

use super::fetch_all;

/// One anomaly. Numbers of units are text: they may exceed 64 bits.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct AnomalyRow {
    /// Its number.
    pub id: i64,
    /// The machine's code.
    pub machine: String,
    /// `good` or `scrap`.
    pub counter: String,
    /// What kind.
    pub kind: String,
    /// The baseline at that moment, where there was one.
    pub baseline: Option<String>,
    /// The reading, where it was a number.
    pub reading: Option<String>,
    /// The units it is about.
    pub quantity: Option<String>,
    /// A sentence for people.
    pub detail: String,
    /// When it was seen, microseconds since the Unix epoch.
    pub seen_at: i64,
    /// Whether a person must decide.
    pub needs_decision: bool,
    /// `accept` or `reject`, once decided.
    pub decision: Option<String>,
    /// Who decided.
    pub decided_by: Option<String>,
    /// Why.
    pub why: Option<String>,
    /// When, microseconds since the Unix epoch.
    pub decided_at: Option<i64>,
    /// When the decision took effect, microseconds since the Unix epoch.
    pub applied_at: Option<i64>,
}

/// The newest anomalies, at most `limit`; those that wait for a decision first.
///
/// # Errors
/// When the database does not answer, or has not these tables.
pub async fn anomalies(pool: &Pool, limit: i64) -> Result<Vec<AnomalyRow>, sqlx::Error> {
    fetch_all!(
        pool,
        AnomalyRow,
        postgres: "SELECT a.id, a.machine, a.counter, a.kind, CAST(a.baseline AS text) AS baseline,
                          CAST(a.reading AS text) AS reading, CAST(a.quantity AS text) AS quantity, a.detail,
                          (extract(epoch FROM a.seen_at) * 1000000)::bigint AS seen_at, a.needs_decision,
                          a.decision, a.decided_by, a.why,
                          (extract(epoch FROM a.decided_at) * 1000000)::bigint AS decided_at,
                          (extract(epoch FROM a.applied_at) * 1000000)::bigint AS applied_at
                   FROM anomalies a
                   ORDER BY (a.needs_decision AND a.decision IS NULL) DESC, a.id DESC LIMIT $1",
        sqlite: "SELECT a.id, a.machine, a.counter, a.kind, CAST(a.baseline AS text) AS baseline,
                        CAST(a.reading AS text) AS reading, CAST(a.quantity AS text) AS quantity, a.detail, a.seen_at,
                        a.needs_decision, a.decision, a.decided_by, a.why, a.decided_at, a.applied_at
                 FROM anomalies a
                 ORDER BY (a.needs_decision AND a.decision IS NULL) DESC, a.id DESC LIMIT $1",
        limit,
    )
}

/// What became of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decided {
    /// It is recorded; the reader acts on it.
    Recorded,
    /// There is no such anomaly.
    Unknown,
    /// It is only a note: there is nothing to decide.
    NothingToDecide,
    /// Somebody has decided before.
    Already(String),
}

/// Records a decision once: of two people who decide at the same moment, the second is told so.
///
/// # Errors
/// When the database does not answer, or has not these tables.
pub async fn decide(pool: &Pool, id: i64, decision: &str, who: &str, why: &str) -> Result<Decided, sqlx::Error> {
    let changed = match pool {
        Pool::Postgres(pool) => {
            let sql =
                "UPDATE counter_anomalies SET decision = $2, decided_by = $3, why = $4, decided_at = clock_timestamp()
                       WHERE id = $1 AND needs_decision AND decision IS NULL";
            sqlx::query(sql).bind(id).bind(decision).bind(who).bind(why).execute(pool).await?.rows_affected()
        }
        Pool::Sqlite(pool) => {
            let sql = "UPDATE counter_anomalies SET decision = $2, decided_by = $3, why = $4,
                              decided_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
                       WHERE id = $1 AND needs_decision AND decision IS NULL";
            sqlx::query(sql).bind(id).bind(decision).bind(who).bind(why).execute(pool).await?.rows_affected()
        }
    };
    if changed == 1 {
        return Ok(Decided::Recorded);
    }
    let sql = "SELECT needs_decision, decision FROM counter_anomalies WHERE id = $1";
    let found: Vec<(bool, Option<String>)> = fetch_all!(pool, (bool, Option<String>), postgres: sql, sqlite: sql, id)?;
    Ok(match found.into_iter().next() {
        None => Decided::Unknown,
        Some((_, Some(decision))) => Decided::Already(decision),
        Some((_, None)) => Decided::NothingToDecide,
    })
}
