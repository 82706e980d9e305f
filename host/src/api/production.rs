//! What was counted: the booked, the owed and the newest reading of every counter.

use axum::Json;
use axum::extract::State;

use crate::store::queries::{self, CounterRow};

use super::shapes::{CounterStatus, Production, UnreadCounter, micros};
use super::status::whole_millis;
use super::{AppState, Problem};

/// Every counter that was ever read, and the names of those that never were.
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
    let unread = configured
        .filter(|(code, name)| !machines.iter().any(|known| &known.machine == *code && known.counter == *name));
    let unread = unread.map(|(code, name)| UnreadCounter { machine: code.clone(), counter: name.to_owned() }).collect();
    let place = |machine: &CounterStatus| {
        let place = inner.config.machines.iter().position(|known| known.code == machine.machine);
        (place.unwrap_or(usize::MAX), machine.machine.clone(), machine.counter.clone())
    };
    machines.sort_by_cached_key(place);
    Ok(Json(Production { stale: answer.stale, age_ms: whole_millis(answer.age), machines, unread }))
}

fn counter(row: &CounterRow) -> CounterStatus {
    CounterStatus {
        machine: row.machine.clone(),
        counter: row.counter.clone(),
        booked: row.booked.parse().unwrap_or(0),
        owed: row.owed.parse().ok(),
        baseline: row.baseline.parse().ok(),
        last_reading_at: row.last_reading_at.map(micros),
        last_reading_age_ms: row.last_reading_age_ms.map(|age| age.max(0)),
        anomalies: row.anomalies,
        undecided: row.undecided,
        state: row.state.clone(),
        connection: row.connection.clone(),
    }
}
