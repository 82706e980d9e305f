//! What changed hands, when and why, and what it cost.

use axum::Json;
use axum::extract::State;

use crate::store::queries::{self, TakeoverRow};

use super::shapes::{Takeover, micros};
use super::{AppState, Problem};

const SHOWN: i64 = 200;

/// The newest 200 changes of hands, newest first.
#[utoipa::path(
    get,
    path = "/api/takeovers",
    responses((status = 200, body = Vec<Takeover>), (status = 503, body = Problem, description = "nothing is known yet"))
)]
pub(super) async fn list(State(state): State<AppState>) -> Result<Json<Vec<Takeover>>, Problem> {
    let inner = &state.0;
    let question = queries::takeovers(&inner.pool, SHOWN);
    let answer =
        inner.takeovers.get(&inner.database, question).await.map_err(|error| Problem::database_away(&error))?;
    Ok(Json(answer.value.iter().map(takeover).collect()))
}

#[expect(clippy::cast_precision_loss, reason = "a gap has far fewer digits than a float holds")]
fn takeover(row: &TakeoverRow) -> Takeover {
    let between = row.last_commit_at.zip(row.first_commit_at);
    let gap_ms = between.map(|(last, first)| first.saturating_sub(last) as f64 / 1000.0);
    let lease_ms = row.lease_ms.filter(|lease| *lease > 0).map(|lease| lease as f64);
    Takeover {
        role: row.role.clone(),
        partition: row.partition.clone(),
        from: row.from_node.clone(),
        to: row.to_node.clone(),
        from_epoch: row.from_epoch,
        to_epoch: row.to_epoch,
        cause: row.cause.clone(),
        at: micros(row.taken_at),
        last_commit_at: row.last_commit_at.map(micros),
        first_commit_at: row.first_commit_at.map(micros),
        gap_ms,
        gap_leases: gap_ms.zip(lease_ms).map(|(gap, lease)| gap / lease),
        owed: row.owed,
        owed_booked_at: row.owed_booked_at.map(micros),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(last: Option<i64>, first: Option<i64>, lease_ms: Option<i64>) -> TakeoverRow {
        TakeoverRow {
            role: "reader".to_owned(),
            partition: String::new(),
            from_node: Some("a".to_owned()),
            to_node: "b".to_owned(),
            from_epoch: 6,
            to_epoch: 7,
            cause: "death".to_owned(),
            taken_at: 1_000_000,
            lease_ms,
            last_commit_at: last,
            first_commit_at: first,
            owed: Some(3),
            owed_booked_at: first,
        }
    }

    #[test]
    fn a_gap_is_told_in_milliseconds_and_in_leases() {
        let told = takeover(&row(Some(990_000), Some(1_031_000), Some(2_000)));
        assert_eq!((told.gap_ms, told.gap_leases), (Some(41.0), Some(0.0205)));
    }

    #[test]
    fn a_gap_without_both_its_ends_is_unknown() {
        for (last, first) in [(None, Some(1)), (Some(1), None), (None, None)] {
            let told = takeover(&row(last, first, Some(2_000)));
            assert_eq!((told.gap_ms, told.gap_leases), (None, None));
        }
    }

    #[test]
    fn a_lease_that_never_expires_is_no_unit() {
        let told = takeover(&row(Some(0), Some(1_000), None));
        assert_eq!((told.gap_ms, told.gap_leases), (Some(1.0), None));
    }
}
