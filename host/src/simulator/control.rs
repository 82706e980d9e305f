//! The control address: what was really made, and faults on demand. Tests and people with `curl` use it, so that it reads any body as
//! JSON and says in one sentence what it did not understand.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Core;
use super::counter::Fault;
use super::simulation::{Trouble, Which};
use super::stations::STATIONS;
use crate::api::Problem;

const A_FAULT: &str = r#"{"machine":"FILL01","counter":"good","kind":"glitch","for_ms":2000}"#;
const AN_ABSENCE: &str = r#"{"down_ms":3000}"#;
/// What a fault takes that does not say how long.
const FOR_MS: u64 = 2_000;
/// How far a jump goes that does not say it.
const SIZE: u64 = 1_000;
const LONGEST_MS: u64 = 86_400_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultBody {
    machine: String,
    #[serde(default = "good")]
    counter: Which,
    kind: Kind,
    for_ms: Option<u64>,
    size: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Reset,
    Glitch,
    Bad,
    Stop,
    Jump,
    Spike,
    Vanish,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerBody {
    down_ms: u64,
}

type Answer = Result<Json<Value>, Problem>;

/// The routes.
pub fn app(core: Arc<Core>) -> Router {
    Router::new()
        .route("/truth", get(truth))
        .route("/health", get(health))
        .route("/pause", post(|State(core): State<Arc<Core>>| async move { pause(&core, true) }))
        .route("/resume", post(|State(core): State<Arc<Core>>| async move { pause(&core, false) }))
        .route("/fault", post(fault))
        .route("/server", post(server))
        .fallback(nothing_there)
        .method_not_allowed_fallback(nothing_there)
        .with_state(core)
}

async fn truth(State(core): State<Arc<Core>>) -> Json<Value> {
    let truth = core.truth().into_iter().map(|(code, made)| (code, json!({ "good": made.good, "scrap": made.scrap })));
    Json(Value::Object(truth.collect::<Map<_, _>>()))
}

async fn health(State(core): State<Arc<Core>>) -> Json<Value> {
    let (ticks, paused) = core.progress();
    Json(json!({ "opc": core.opc_address(), "opc_up": core.opc_up(), "paused": paused, "ticks": ticks }))
}

fn pause(core: &Core, paused: bool) -> Json<Value> {
    core.pause(paused);
    Json(json!({ "paused": paused }))
}

async fn fault(State(core): State<Arc<Core>>, body: Bytes) -> Answer {
    let body: FaultBody = read(&body, "fault", A_FAULT)?;
    let trouble = trouble(&body)?;
    if core.suffer(&body.machine, trouble) {
        return Ok(Json(json!({ "fault": "begun" })));
    }
    let codes: Vec<&str> = STATIONS.iter().map(|station| station.code).collect();
    Err(bad(format!("there is no machine {:?} in the line: name one of {}", body.machine, codes.join(", "))))
}

/// What the body asks for. A field that its kind has no use for is not looked at.
fn trouble(body: &FaultBody) -> Result<Trouble, Problem> {
    let for_ = || duration("for_ms", body.for_ms.unwrap_or(FOR_MS));
    let size = || match body.size.unwrap_or(SIZE) {
        0 => Err(bad("size is 0, and that shows nowhere: send at least 1")),
        size => Ok(size),
    };
    let fault = match body.kind {
        Kind::Stop => return Ok(Trouble::Stop(for_()?)),
        Kind::Reset => Fault::Reset,
        Kind::Glitch => Fault::Glitch(for_()?),
        Kind::Bad => Fault::Bad(for_()?),
        Kind::Vanish => Fault::Vanish(for_()?),
        Kind::Jump => Fault::Jump(size()?),
        Kind::Spike => Fault::Spike(size()?, for_()?),
    };
    Ok(Trouble::Counter(body.counter, fault))
}

async fn server(State(core): State<Arc<Core>>, body: Bytes) -> Answer {
    let body: ServerBody = read(&body, "absence", AN_ABSENCE)?;
    core.server_down(duration("down_ms", body.down_ms)?).await;
    Ok(Json(json!({ "down_ms": body.down_ms })))
}

async fn nothing_there(method: Method, uri: Uri) -> Problem {
    let detail = format!(
        "there is no {method} {}: ask GET /truth or /health, or POST /pause, /resume, /fault or /server",
        uri.path()
    );
    Problem::new(StatusCode::NOT_FOUND, "not_found", detail)
}

fn good() -> Which {
    Which::Good
}

fn duration(name: &str, ms: u64) -> Result<Duration, Problem> {
    if (1..=LONGEST_MS).contains(&ms) {
        return Ok(Duration::from_millis(ms));
    }
    Err(bad(format!("{name} is {ms}: send milliseconds from 1 to {LONGEST_MS}")))
}

fn read<T: DeserializeOwned>(body: &[u8], what: &str, example: &str) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map_err(|error| bad(format!("the body is no {what} ({error}): send one like {example}")))
}

fn bad(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "bad_request", detail)
}
