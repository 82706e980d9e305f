//! What this node says of its roles, for the other nodes to show: at most once a second, and only while something changes.
//!
//! A report is news, not a decision: nothing that is safe depends on it, so it carries no fence and a lost one is written again.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::identity::Holder;
use crate::role::{Report, State};

use super::Pool;

const PAUSE: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(2);
/// Unchanged reports are written again after this long, so that old ones can be told from those of a process that is gone.
const AGAIN: Duration = Duration::from_secs(10);
/// Readers forget what is older.
pub const FORGOTTEN: Duration = Duration::from_secs(30);

/// Writes `reports` whenever they change, until stopped: at most once a second, but a change of what a role does at once. A database
/// that is away is tried again each second.
pub async fn keep_written(pool: Pool, me: Holder, mut reports: watch::Receiver<Vec<Report>>, stop: CancellationToken) {
    loop {
        let now = reports.borrow_and_update().clone();
        let wrote = timeout(DEADLINE, write(&pool, &me, &now)).await;
        if let Ok(Err(error)) = &wrote {
            tracing::debug!(%error, "the roles' reports were not written");
        }
        let written = matches!(wrote, Ok(Ok(())));
        tokio::select! {
            () = stop.cancelled() => return,
            open = next_turn(&mut reports, &now, written) => if !open { return },
        }
    }
}

/// Waits until there is something to write; whether anybody still reports.
async fn next_turn(reports: &mut watch::Receiver<Vec<Report>>, last: &[Report], written: bool) -> bool {
    let doing = |reports: &[Report]| -> Vec<_> { reports.iter().map(|report| (report.state, report.epoch)).collect() };
    let before = doing(last);
    if let Ok(changed) = timeout(PAUSE, reports.wait_for(|now| doing(now) != before)).await {
        return changed.is_ok();
    }
    !written || !matches!(timeout(AGAIN, reports.wait_for(|now| now.as_slice() != last)).await, Ok(Err(_)))
}

/// Writes them once.
///
/// # Errors
/// When the database does not answer, or has not this table.
pub async fn write(pool: &Pool, me: &Holder, reports: &[Report]) -> Result<(), sqlx::Error> {
    match pool {
        Pool::Postgres(pool) => {
            for report in reports {
                postgres(pool, me, report).await?;
            }
        }
        Pool::Sqlite(pool) => {
            for report in reports {
                sqlite(pool, me, report).await?;
            }
        }
    }
    Ok(())
}

/// The word for a state that stands in the table and in answers.
#[must_use]
pub fn word(state: State) -> &'static str {
    match state {
        State::Standby => "standby",
        State::Promoting => "promoting",
        State::Running => "running",
        State::Draining => "draining",
        State::Backoff => "backoff",
        State::Held => "held",
        State::Vacant => "vacant",
    }
}

fn last_reading_us(report: &Report) -> Option<i64> {
    report.last_reading_at.map(|nanos| nanos.div_euclid(1_000))
}

async fn postgres(pool: &sqlx::PgPool, me: &Holder, report: &Report) -> Result<(), sqlx::Error> {
    let sql = "INSERT INTO plant_role_reports AS r
                   (role, partition, node, boot_id, state, reason, module_version, module_sha256, last_reading_at, reported_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, to_timestamp(0) + $9 * interval '1 microsecond', clock_timestamp())
               ON CONFLICT (role, partition, node) DO UPDATE SET
                   boot_id = excluded.boot_id, state = excluded.state, reason = excluded.reason,
                   module_version = excluded.module_version, module_sha256 = excluded.module_sha256,
                   last_reading_at = excluded.last_reading_at, reported_at = excluded.reported_at";
    let query = sqlx::query(sql).bind(report.key.role.as_str()).bind(&report.key.partition);
    let query = query.bind(me.node.as_str()).bind(me.boot.0).bind(word(report.state)).bind(&report.reason);
    let query = query.bind(&report.module_version).bind(&report.module_sha256).bind(last_reading_us(report));
    query.execute(pool).await.map(drop)
}

async fn sqlite(pool: &sqlx::SqlitePool, me: &Holder, report: &Report) -> Result<(), sqlx::Error> {
    let sql = "INSERT INTO plant_role_reports
                   (role, partition, node, boot_id, state, reason, module_version, module_sha256, last_reading_at, reported_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
               ON CONFLICT (role, partition, node) DO UPDATE SET
                   boot_id = excluded.boot_id, state = excluded.state, reason = excluded.reason,
                   module_version = excluded.module_version, module_sha256 = excluded.module_sha256,
                   last_reading_at = excluded.last_reading_at, reported_at = excluded.reported_at";
    let query = sqlx::query(sql).bind(report.key.role.as_str()).bind(&report.key.partition);
    let query = query.bind(me.node.as_str()).bind(me.boot.to_string()).bind(word(report.state)).bind(&report.reason);
    let query = query.bind(&report.module_version).bind(&report.module_sha256).bind(last_reading_us(report));
    query.execute(pool).await.map(drop)
}
