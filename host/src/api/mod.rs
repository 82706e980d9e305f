//! The HTTP side: status, production, metrics and the page.
//!
//! Any node answers for the whole plant, from the database, and goes on answering while the database is away: from what it knew last,
//! marked as such. Nothing here waits longer than [`bounds`] say, and nothing here can delay a role: it only reads, except for a
//! person's decisions and corrections, which need the token.

mod anomalies;
mod bounds;
mod corrections;
mod latest;
mod leader;
pub mod local;
pub mod metrics;
mod openapi;
mod page;
mod problem;
mod production;
mod routes;
pub mod shapes;
mod status;
mod takeovers;
mod token;

use std::io;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::config::Config;
use crate::identity::Holder;
use crate::store::Pool;

use latest::{Database, Latest};
pub use local::{Buffer, Connection, Ha, HaDetail, HaRole, Item, Local};
pub use metrics::Metrics;
pub use problem::Problem;
pub use routes::ROUTES;

/// What the routes answer from. Cheap to clone.
#[derive(Clone)]
pub struct AppState(Arc<Inner>);

struct Inner {
    me: Holder,
    address: String,
    config: Arc<Config>,
    pool: Pool,
    local: Arc<dyn Local>,
    metrics: Metrics,
    database: Database,
    cluster: Latest<status::Cluster>,
    production: Latest<Vec<crate::store::queries::CounterRow>>,
    anomalies: Latest<Vec<crate::store::queries::AnomalyRow>>,
    takeovers: Latest<Vec<crate::store::queries::TakeoverRow>>,
    started_at: chrono::DateTime<chrono::Utc>,
}

impl AppState {
    /// `address` is how others reach this node; `local` is what only this process knows.
    #[must_use]
    pub fn new(
        me: Holder,
        address: String,
        config: Arc<Config>,
        pool: Pool,
        local: Arc<dyn Local>,
        metrics: Metrics,
    ) -> Self {
        Self(Arc::new(Inner {
            me,
            address,
            config,
            pool,
            local,
            metrics,
            database: Database::new(),
            cluster: Latest::new(),
            production: Latest::new(),
            anomalies: Latest::new(),
            takeovers: Latest::new(),
            started_at: chrono::Utc::now(),
        }))
    }
}

/// All the routes, to be served or to be tested without a socket.
pub fn app(state: AppState) -> Router {
    routes::router(state)
}

/// Serves until `stop`, then lets running requests end within their bound. Each request is answered by what `current` gives then.
///
/// # Errors
/// When the listener fails for good.
pub async fn serve(
    listener: TcpListener,
    current: impl Fn() -> Router + Clone + Send + Sync + 'static,
    stop: CancellationToken,
) -> io::Result<()> {
    let stopped = stop.clone();
    let listener = bounds::Bounded::new(listener);
    let answer = move |request: axum::extract::Request| {
        let now = current();
        // A router is ready at any time and never fails.
        async move { now.oneshot(request).await.unwrap_or_else(|never| match never {}) }
    };
    let serving = axum::serve(listener, Router::new().fallback(answer))
        .with_graceful_shutdown(async move { stop.cancelled().await });
    let grace = async move {
        stopped.cancelled().await;
        tokio::time::sleep(bounds::GRACE).await;
    };
    tokio::select! {
        served = serving.into_future() => served,
        () = grace => Ok(()),
    }
}
