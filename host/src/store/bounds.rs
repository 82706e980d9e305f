//! How much one transaction may ask of the database: a guest that asks for more gets an error, and nobody else waits for it.

use std::time::Duration;

/// Bounds of a role's transactions.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// The longest statement text, in bytes.
    pub statement_bytes: usize,
    /// The most parameters of one statement.
    pub parameters: usize,
    /// The most runs of one statement (positions of [`super::Params::Columns`]).
    pub runs: usize,
    /// The most statements of one `execute`.
    pub statements: usize,
    /// The most rows of one answer.
    pub rows: usize,
    /// The most bytes of one answer, and of one statement's parameters.
    pub bytes: usize,
    /// How long one statement may take.
    pub statement: Duration,
    /// How long a statement may wait for a lock.
    pub lock: Duration,
    /// How long an open transaction may do nothing before the database ends it.
    pub idle: Duration,
    /// How long `begin` may wait for a connection.
    pub acquire: Duration,
    /// The most transactions that are open at once.
    pub transactions: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            statement_bytes: 64 << 10,
            parameters: 1_000,
            runs: 100_000,
            statements: 1_000,
            rows: 50_000,
            bytes: 16 << 20,
            statement: Duration::from_secs(5),
            lock: Duration::from_secs(2),
            idle: Duration::from_secs(10),
            acquire: Duration::from_secs(5),
            transactions: 8,
        }
    }
}

impl Bounds {
    /// The defaults, with every time short enough for a lease: a holder fences itself after three quarters of it, and nothing
    /// that it left behind in the database may block longer than the last quarter.
    #[must_use]
    pub fn within_lease(lease: Option<Duration>) -> Self {
        let usual = Self::default();
        let Some(lease) = lease else { return usual };
        let quarter = (lease / 4).max(Duration::from_millis(250));
        Self {
            statement: usual.statement.min(quarter),
            lock: usual.lock.min(quarter / 2),
            idle: usual.idle.min(quarter),
            acquire: usual.acquire.min(quarter),
            ..usual
        }
    }
}
