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

fn takeover(row: &TakeoverRow) -> Takeover {
    Takeover {
        role: row.role.clone(),
        partition: row.partition.clone(),
        from: row.from_node.clone(),
        to: row.to_node.clone(),
        from_epoch: row.from_epoch,
        to_epoch: row.to_epoch,
        cause: row.cause.clone(),
        at: micros(row.taken_at),
        last_commit_at: None,
        first_commit_at: None,
        gap_ms: None,
        gap_leases: None,
        owed: None,
    }
}
