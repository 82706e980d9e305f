//! What was counted: the booked, the owed and the newest reading of every counter.

use axum::Json;
use axum::extract::State;

use crate::store::queries::{self, CounterRow};

use super::shapes::{CounterStatus, Production, micros};
use super::status::whole_millis;
use super::{AppState, Problem};

/// Every counter of every machine, also of those that were never read.
#[utoipa::path(
    get,
    path = "/api/production",
    responses((status = 200, body = Production), (status = 503, body = Problem, description = "nothing is known yet"))
)]
pub(super) async fn production(State(state): State<AppState>) -> Result<Json<Production>, Problem> {
    let inner = &state.0;
    let question = queries::production(&inner.pool);
    let answer =
        inner.production.get(&inner.database, question).await.map_err(|error| Problem::database_away(&error))?;
    let mut machines: Vec<CounterStatus> = answer.value.iter().map(counter).collect();
    let configured = inner.config.machines.iter().flat_map(|machine| {
        let counters = [("good", &machine.good), ("scrap", &machine.scrap)];
        counters.into_iter().filter(|(_, counter)| counter.is_some()).map(|(name, _)| (&machine.code, name))
    });
    for (code, name) in configured {
        if !machines.iter().any(|known| &known.machine == code && known.counter == name) {
            machines.push(never_read(code, name));
        }
    }
    let place = |machine: &CounterStatus| {
        let place = inner.config.machines.iter().position(|known| known.code == machine.machine);
        (place.unwrap_or(usize::MAX), machine.machine.clone(), machine.counter.clone())
    };
    machines.sort_by_cached_key(place);
    Ok(Json(Production { stale: answer.stale, age_ms: whole_millis(answer.age), machines }))
}

fn counter(row: &CounterRow) -> CounterStatus {
    let age_ms = |us: i64| chrono::Utc::now().timestamp_millis().saturating_sub(us.div_euclid(1_000)).max(0);
    CounterStatus {
        machine: row.machine.clone(),
        counter: row.counter.clone(),
        booked: row.booked.parse().unwrap_or(0),
        owed: row.owed.parse().ok(),
        baseline: row.baseline.parse().ok(),
        last_reading_at: row.last_reading_at.map(micros),
        last_reading_age_ms: row.last_reading_at.map(age_ms),
        anomalies: row.anomalies,
        undecided: row.undecided,
    }
}

fn never_read(machine: &str, counter: &str) -> CounterStatus {
    CounterStatus {
        machine: machine.to_owned(),
        counter: counter.to_owned(),
        booked: 0,
        owed: None,
        baseline: None,
        last_reading_at: None,
        last_reading_age_ms: None,
        anomalies: 0,
        undecided: 0,
    }
}
