//! Errors as `application/problem+json` (RFC 9457), with a `code` that programs may rely on and a sentence for people.

use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// One error.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Problem {
    /// Always `about:blank`: `code` says which error it is.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The HTTP status in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// Which error it is, for programs: it does not change.
    code: &'static str,
    /// What happened and what to do, for people.
    detail: String,
    /// With the code `not_leader`: who takes writes.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    active: Option<Box<Active>>,
}

/// The active node of a pair.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Active {
    /// Its name, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<String>,
    /// How it is reached, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

impl Problem {
    /// An error with its HTTP status, stable code and sentence.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("error");
        Self { kind: "about:blank", title, status: status.as_u16(), code, detail: detail.into(), active: None }
    }

    /// The request is not understood.
    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    /// What was asked for is not there.
    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// A write came to the standby of a pair.
    pub(super) fn not_leader(leader: Option<String>, address: Option<String>) -> Self {
        let detail = match (&leader, &address) {
            (Some(leader), Some(address)) => {
                format!(
                    "this node is the standby, and writes are taken by the active one: send it to node {leader} at {address}"
                )
            }
            (Some(leader), None) => {
                format!("this node is the standby, and writes are taken by the active one: send it to node {leader}")
            }
            (None, _) => {
                "this node is the standby, and no node is active just now: send it again in a second".to_owned()
            }
        };
        let active = Some(Box::new(Active { leader, address }));
        Self { active, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_leader", detail) }
    }

    /// The database is away and nothing is known from before.
    pub(super) fn database_away(error: &str) -> Self {
        let detail =
            format!("the database does not answer ({error}), and nothing is known from before: ask again in a second");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "database_unreachable", detail)
    }

    /// A write got no answer.
    pub(super) fn write_unknown(error: &str) -> Self {
        let detail =
            format!("the database did not confirm it ({error}): look whether it is there before you send it again");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "outcome_unknown", detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
