//! What was counted, machine by machine.

use crate::store::Pool;

use super::fetch_all;

/// One counter of one machine. Numbers are text: they may exceed 64 bits.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct CounterRow {
    /// The machine's code.
    pub machine: String,
    /// `good` or `scrap`.
    pub counter: String,
    /// Units booked since the start.
    pub booked: String,
    /// Units counted by the machine and not booked yet.
    pub owed: String,
    /// The counter's value up to which production is booked.
    pub baseline: String,
    /// The newest reading, microseconds since the Unix epoch.
    pub last_reading_at: Option<i64>,
    /// Anomalies ever.
    pub anomalies: i64,
    /// Those that wait for a person.
    pub undecided: i64,
}

/// Every counter that has a baseline, by machine and counter.
///
/// # Errors
/// When the database does not answer, or has not these tables.
pub async fn production(pool: &Pool) -> Result<Vec<CounterRow>, sqlx::Error> {
    fetch_all!(
        pool,
        CounterRow,
        postgres: "SELECT m.code AS machine, b.counter, CAST(b.booked AS text) AS booked, CAST(b.owed AS text) AS owed,
                          CAST(b.value AS text) AS baseline,
                          (extract(epoch FROM b.last_reading_at) * 1000000)::bigint AS last_reading_at,
                          count(a.id) AS anomalies,
                          count(a.id) FILTER (WHERE a.needs_decision AND a.decision IS NULL) AS undecided
                   FROM counter_baselines b JOIN machines m ON m.id = b.machine_id
                   LEFT JOIN counter_anomalies a ON a.machine_id = b.machine_id AND a.counter = b.counter
                   GROUP BY m.code, b.counter, b.booked, b.owed, b.value, b.last_reading_at ORDER BY m.code, b.counter",
        sqlite: "SELECT m.code AS machine, b.counter, CAST(b.booked AS text) AS booked, CAST(b.owed AS text) AS owed,
                        CAST(b.value AS text) AS baseline, b.last_reading_at,
                        count(a.id) AS anomalies,
                        count(a.id) FILTER (WHERE a.needs_decision AND a.decision IS NULL) AS undecided
                 FROM counter_baselines b JOIN machines m ON m.id = b.machine_id
                 LEFT JOIN counter_anomalies a ON a.machine_id = b.machine_id AND a.counter = b.counter
                 GROUP BY m.code, b.counter, b.booked, b.owed, b.value, b.last_reading_at ORDER BY m.code, b.counter",
    )
}
