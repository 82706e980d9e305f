//! The page at `/`: one file that loads nothing else and runs nothing that it did not bring.

use axum::http::HeaderValue;
use axum::http::header::CONTENT_SECURITY_POLICY;
use axum::response::{Html, IntoResponse, Response};
use uuid::Uuid;

const PAGE: &str = include_str!("page/index.html");

/// The page for people: nodes, roles, counts.
#[utoipa::path(get, path = "/", responses((status = 200, content_type = "text/html", body = String)))]
pub(super) async fn page() -> Response {
    let nonce = Uuid::new_v4().simple().to_string();
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let mut response = Html(PAGE.replace("{{nonce}}", &nonce)).into_response();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}
