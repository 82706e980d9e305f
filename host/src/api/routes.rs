//! Which path is answered by what, and what holds for every answer: a bound on its time, headers, and a line in the metrics.

use std::time::Instant;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::time::timeout;

use super::leader::only_on_the_active;
use super::{AppState, Problem, anomalies, bounds, corrections, openapi, page, production, status, takeovers};

/// Every route: its method and path.
pub const ROUTES: [(&str, &str); 11] = [
    ("get", "/"),
    ("get", "/api/health"),
    ("get", "/api/ready"),
    ("get", "/api/status"),
    ("get", "/api/production"),
    ("get", "/api/anomalies"),
    ("post", "/api/anomalies/{id}"),
    ("post", "/api/corrections"),
    ("get", "/api/takeovers"),
    ("get", "/api/openapi.json"),
    ("get", "/metrics"),
];

pub(super) fn router(state: AppState) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/api/health", get(status::health))
        .route("/api/ready", get(status::ready))
        .route("/api/status", get(status::status))
        .route("/api/production", get(production::production))
        .route("/api/anomalies", get(anomalies::list))
        .route("/api/anomalies/{id}", post(anomalies::decide))
        .route("/api/corrections", post(corrections::correct))
        .route("/api/takeovers", get(takeovers::list))
        .route("/api/openapi.json", get(description))
        .route("/metrics", get(metrics))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(DefaultBodyLimit::max(bounds::BODY))
        .layer(from_fn_with_state(state.clone(), only_on_the_active))
        .layer(from_fn_with_state(state.clone(), observed))
        .with_state(state)
}

/// This description.
#[utoipa::path(get, path = "/api/openapi.json", responses((status = 200, content_type = "application/json", body = Object)))]
pub(super) async fn description() -> Json<utoipa::openapi::OpenApi> {
    openapi::document()
}

/// Metrics in the OpenMetrics text format.
#[utoipa::path(get, path = "/metrics", responses((status = 200, content_type = "text/plain", body = String)))]
pub(super) async fn metrics(State(state): State<AppState>) -> Result<Response, Problem> {
    let inner = &state.0;
    inner.metrics.see(inner.database.state().reachable, &inner.local.reports());
    let text = inner.metrics.text().map_err(|_| {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the metrics could not be written: look at the node's log",
        )
    })?;
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    Ok(([(CONTENT_TYPE, kind)], text).into_response())
}

async fn no_such_path(uri: Uri) -> Problem {
    Problem::not_found(format!("there is nothing at {:?}: /api/openapi.json lists what there is", uri.path()))
}

async fn no_such_method(request: Request) -> Problem {
    let detail =
        format!("{:?} does not take {}: /api/openapi.json lists what it takes", request.uri().path(), request.method());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}

/// A path's route, so that made-up paths make no new series.
fn label(path: &str) -> &'static str {
    let same =
        |route: &&str| *route == path || (*route == "/api/anomalies/{id}" && path.starts_with("/api/anomalies/"));
    ROUTES.into_iter().map(|(_, route)| route).find(same).unwrap_or("other")
}

async fn observed(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let route = label(request.uri().path());
    let mut response = match timeout(bounds::REQUEST, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!("no answer was ready within {} s: ask again", bounds::REQUEST.as_secs());
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", detail).into_response()
        }
    };
    state.0.metrics.answered(route, response.status().as_u16(), begun.elapsed());
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}
