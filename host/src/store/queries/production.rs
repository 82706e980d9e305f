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
    /// How old that is by the database's clock, in milliseconds.
    pub last_reading_age_ms: Option<i64>,
    /// Anomalies ever.
    pub anomalies: i64,
    /// Those that wait for a person.
    pub undecided: i64,
    /// `running | idle | down | setup`; `None` is unknown.
    pub state: Option<String>,
    /// `connected | disconnected`; `None` is unknown.
    pub connection: Option<String>,
}

/// Every counter that has a baseline, by machine and counter.
///
/// # Errors
/// When the database does not answer, or has not these tables.
pub async fn production(pool: &Pool) -> Result<Vec<CounterRow>, sqlx::Error> {
    fetch_all!(
        pool,
        CounterRow,
        postgres: "SELECT p.machine, p.counter, CAST(p.booked AS text) AS booked, CAST(p.owed AS text) AS owed,
                          CAST(p.baseline AS text) AS baseline,
                          (extract(epoch FROM p.last_reading_at) * 1000000)::bigint AS last_reading_at,
                          (extract(epoch FROM clock_timestamp() - p.last_reading_at) * 1000)::bigint AS last_reading_age_ms,
                          p.anomalies, p.undecided, s.state, c.state AS connection
                   FROM production p JOIN machines m ON m.code = p.machine
                   LEFT JOIN machine_states s ON s.machine_id = m.id AND s.ended_at IS NULL
                   LEFT JOIN machine_connections c ON c.machine_id = m.id AND c.ended_at IS NULL
                   ORDER BY p.machine, p.counter",
        sqlite: "SELECT p.machine, p.counter, CAST(p.booked AS text) AS booked, CAST(p.owed AS text) AS owed,
                        CAST(p.baseline AS text) AS baseline, p.last_reading_at,
                        (CAST(unixepoch('subsec') * 1000000 AS INTEGER) - p.last_reading_at) / 1000 AS last_reading_age_ms,
                        p.anomalies, p.undecided, s.state, c.state AS connection
                 FROM production p JOIN machines m ON m.code = p.machine
                 LEFT JOIN machine_states s ON s.machine_id = m.id AND s.ended_at IS NULL
                 LEFT JOIN machine_connections c ON c.machine_id = m.id AND c.ended_at IS NULL
                 ORDER BY p.machine, p.counter",
    )
}
