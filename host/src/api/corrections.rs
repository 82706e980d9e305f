//! Late corrections by people: added with who and why, never edited.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

use crate::store::queries::{self, NewCorrection};

use super::shapes::{Correction, Recorded};
use super::{AppState, Problem};

/// The longest name or sentence, in bytes.
const SENTENCE: usize = 1000;

/// Adds a correction.
#[utoipa::path(
    post,
    path = "/api/corrections",
    request_body = Correction,
    security(("token" = [])),
    responses(
        (status = 201, body = Recorded),
        (status = 400, body = Problem),
        (status = 401, body = Problem),
        (status = 403, body = Problem, description = "this plant takes no writes over HTTP"),
        (status = 404, body = Problem),
        (status = 503, body = Problem, description = "not confirmed: look before sending it again"),
    )
)]
pub(super) async fn correct(
    State(state): State<AppState>,
    headers: HeaderMap,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<Recorded>), Problem> {
    state.may_write(&headers)?;
    let wanted: Correction = body(bytes)?;
    if !matches!(wanted.counter.as_str(), "good" | "scrap") {
        return Err(Problem::bad_request(format!("counter is {:?}: use \"good\" or \"scrap\"", wanted.counter)));
    }
    if wanted.quantity == 0 {
        return Err(Problem::bad_request(
            "quantity is 0, which corrects nothing: give the units to add, or below zero to take away",
        ));
    }
    let new = NewCorrection {
        machine: sentence("machine", &wanted.machine)?,
        counter: &wanted.counter,
        quantity: wanted.quantity,
        who: sentence("who", &wanted.who)?,
        why: sentence("why", &wanted.why)?,
    };
    let inner = &state.0;
    let id = inner.database.change(queries::correct(&inner.pool, &new)).await?;
    inner.production.outdated();
    let unknown =
        || Problem::not_found(format!("the plant has no machine {:?}: look at /api/production", wanted.machine));
    id.map(|id| (StatusCode::CREATED, Json(Recorded { id, state: "recorded" }))).ok_or_else(unknown)
}

/// The body of a request as the document that is wanted.
pub(super) fn body<T: DeserializeOwned>(bytes: Result<Bytes, BytesRejection>) -> Result<T, Problem> {
    let bytes = bytes.map_err(|error| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let detail = format!("the body is too long: send at most {} bytes", super::bounds::BODY);
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
        }
        _ => Problem::bad_request(format!("the body could not be read: {}", error.body_text())),
    })?;
    let unlike = |error| {
        Problem::bad_request(format!("the body is not the JSON that is wanted ({error}): see /api/openapi.json"))
    };
    serde_json::from_slice(&bytes).map_err(unlike)
}

/// A text that a person wrote, as it may be stored.
pub(super) fn sentence<'a>(key: &str, text: &'a str) -> Result<&'a str, Problem> {
    let text = text.trim();
    if text.is_empty() || text.len() > SENTENCE || text.contains('\0') {
        return Err(Problem::bad_request(format!("{key} is empty or too long: write 1 to {SENTENCE} bytes of text")));
    }
    Ok(text)
}
