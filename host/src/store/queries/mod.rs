//! What people are shown, read from the database by any node: so that all of them answer the same.
//!
//! Every age and every "until" is computed by the database's clock in the statement itself. Times come back as microseconds since
//! the Unix epoch, which both databases can say. None of these has a deadline of its own: whoever asks sets one.

mod anomalies;
mod cluster;
mod corrections;
mod production;
mod takeovers;

pub use anomalies::{AnomalyRow, Decided, anomalies, decide};
pub use cluster::{NodeRow, ReportRow, RoleRow, nodes, reports, roles};
pub use corrections::{NewCorrection, correct};
pub use production::{CounterRow, production};
pub use takeovers::{Gap, TakeoverRow, gaps_since, newest_id, takeovers};

/// Runs one statement, written for each of the two databases, and gives its rows as a type that both can fill.
macro_rules! fetch_all {
    ($pool:expr, $row:ty, postgres: $postgres:expr, sqlite: $sqlite:expr $(, $argument:expr)* $(,)?) => {
        match $pool {
            $crate::store::Pool::Postgres(pool) => {
                sqlx::query_as::<_, $row>($postgres)$(.bind($argument))*.fetch_all(pool).await
            }
            $crate::store::Pool::Sqlite(pool) => {
                sqlx::query_as::<_, $row>($sqlite)$(.bind($argument))*.fetch_all(pool).await
            }
        }
    };
}
use fetch_all;
