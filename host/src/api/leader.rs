//! In an active-standby pair only the active node takes writes; the other says where that is.

use axum::extract::{Request, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::local::HaRole;
use super::{AppState, Problem};

/// Refuses what would change something, on the standby of a pair.
pub(super) async fn only_on_the_active(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if reads || !state.is_standby_of_a_pair() {
        return next.run(request).await;
    }
    let leader = state.0.local.ha().detail.and_then(|detail| detail.leader);
    let address = match &leader {
        Some(leader) => state.address_of(leader).await,
        None => None,
    };
    let place = address.as_ref().map(|address| format!("{address}{}", request.uri().path()));
    let mut response = Problem::not_leader(leader, address).into_response();
    if let Some(place) = place.and_then(|place| HeaderValue::try_from(place).ok()) {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}

impl AppState {
    fn is_standby_of_a_pair(&self) -> bool {
        self.is_pair() && self.0.local.ha().detail.is_some_and(|detail| detail.role == HaRole::Standby)
    }
}
