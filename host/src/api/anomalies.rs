//! What waits for a person, and the person's decision.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};

use crate::store::queries::{self, AnomalyRow, Decided};

use super::corrections::{body, sentence};
use super::shapes::{Anomaly, Decision, Recorded, micros};
use super::{AppState, Problem};

const SHOWN: i64 = 200;

/// The newest 200 anomalies, those that wait for a person first.
#[utoipa::path(
    get,
    path = "/api/anomalies",
    responses((status = 200, body = Vec<Anomaly>), (status = 503, body = Problem, description = "nothing is known yet"))
)]
pub(super) async fn list(State(state): State<AppState>) -> Result<Json<Vec<Anomaly>>, Problem> {
    let inner = &state.0;
    let question = queries::anomalies(&inner.pool, SHOWN);
    let answer =
        inner.anomalies.get(&inner.database, question).await.map_err(|error| Problem::database_away(&error))?;
    Ok(Json(answer.value.iter().map(anomaly).collect()))
}

fn anomaly(row: &AnomalyRow) -> Anomaly {
    let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok());
    Anomaly {
        id: row.id,
        machine: row.machine.clone(),
        counter: row.counter.clone(),
        kind: row.kind.clone(),
        baseline: number(&row.baseline),
        reading: number(&row.reading),
        quantity: number(&row.quantity),
        detail: row.detail.clone(),
        seen_at: micros(row.seen_at),
        needs_decision: row.needs_decision,
        decision: row.decision.clone(),
        decided_by: row.decided_by.clone(),
        why: row.why.clone(),
        decided_at: row.decided_at.map(micros),
        applied_at: row.applied_at.map(micros),
    }
}

/// Accepts or rejects one; the reader acts on it.
#[utoipa::path(
    post,
    path = "/api/anomalies/{id}",
    params(("id" = i64, Path, description = "the anomaly's number")),
    request_body = Decision,
    security(("token" = [])),
    responses(
        (status = 200, body = Recorded),
        (status = 400, body = Problem),
        (status = 401, body = Problem),
        (status = 403, body = Problem, description = "this plant takes no writes over HTTP"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "decided before, or nothing to decide"),
        (status = 503, body = Problem, description = "not confirmed: look before sending it again"),
    )
)]
pub(super) async fn decide(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<Json<Recorded>, Problem> {
    state.may_write(&headers)?;
    let Path(id) = id.map_err(|error| Problem::bad_request(error.body_text()))?;
    let id: i64 = id.parse().map_err(|_| Problem::not_found(format!("there is no anomaly {id:?}: give its number")))?;
    let wanted: Decision = body(bytes)?;
    if !matches!(wanted.decision.as_str(), "accept" | "reject") {
        return Err(Problem::bad_request(format!("decision is {:?}: use \"accept\" or \"reject\"", wanted.decision)));
    }
    let why = sentence("why", &wanted.why)?;
    let who = sentence("who", wanted.who.as_deref().unwrap_or("whoever has the token"))?;
    let inner = &state.0;
    let decided = inner.database.change(queries::decide(&inner.pool, id, &wanted.decision, who, why)).await?;
    inner.anomalies.outdated();
    inner.production.outdated();
    match decided {
        Decided::Recorded => Ok(Json(Recorded { id, state: "recorded" })),
        Decided::Unknown => Err(Problem::not_found(format!("there is no anomaly {id}: look at /api/anomalies"))),
        Decided::NothingToDecide => {
            let detail = format!("anomaly {id} is only a note: there is nothing to decide");
            Err(Problem::new(StatusCode::CONFLICT, "nothing_to_decide", detail))
        }
        Decided::Already(decision) => {
            let detail =
                format!("anomaly {id} was decided before, with {decision:?}: correct it with POST /api/corrections");
            Err(Problem::new(StatusCode::CONFLICT, "already_decided", detail))
        }
    }
}
