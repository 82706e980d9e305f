//! The API's own description, made from the routes' annotations; a test holds it against the routes.

use axum::Json;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::{anomalies, corrections, page, production, routes, status, takeovers};

#[derive(OpenApi)]
#[openapi(
    info(title = "Plant host", description = "Status, production and decisions of a plant; any node answers for all of it."),
    paths(
        status::health,
        status::ready,
        status::status,
        production::production,
        anomalies::list,
        anomalies::decide,
        corrections::correct,
        takeovers::list,
        routes::metrics,
        routes::description,
        page::page,
    ),
    modifiers(&Token)
)]
struct Description;

struct Token;

impl Modify for Token {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = api.components.get_or_insert_with(Default::default);
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
    }
}

pub(super) fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(Description::openapi())
}
