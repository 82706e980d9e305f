//! How an instance begins: the machines of its partition, what the database knows of them, and the subscriptions.
//!
//! Everything that counting needs is read from the database here; nothing else is carried over from an earlier holder.

use std::collections::{BTreeMap, BTreeSet};

use plant_role::db::{self, Array, ColumnData, Explained, Params, Rowset, Statement, Transaction, Value};
use plant_role::opc;

use crate::connection::Link;
use crate::counter::{Baseline, Clock, ValueType};
use crate::floor::{Counter, Floor, Machine};
use crate::pending::Pending;
use crate::plan::{self, Plan};
use crate::state::{self, Watch};
use crate::tables::StateRow;

const MACHINES: &str = "INSERT INTO machines (code, line, connection) VALUES ($1, $2, $3) \
     ON CONFLICT (code) DO UPDATE SET line = excluded.line, connection = excluded.connection";
const IDS: &str = "SELECT code, id FROM machines";
const BASELINES: &str = "SELECT machine_id, counter, sequence, value, value_type, booked, owed, read_at, read_by, seen_at, \
     last_reading_at, pending FROM counter_baselines";
const STATES: &str = "SELECT s.machine_id, s.state, s.code, s.started_at, s.started_by, s.ended_at FROM machines m \
     JOIN machine_states s ON s.machine_id = m.id \
     AND s.started_at = (SELECT MAX(t.started_at) FROM machine_states t WHERE t.machine_id = m.id)";
const LINKS: &str = "SELECT machine_id, state, reason, started_at, detected_at, seen_at FROM machine_connections WHERE ended_at IS NULL";

/// Writes the machines down and reads what is known of them.
///
/// # Errors
/// One sentence, when a state map is wrong or the database refuses.
pub fn floor(plan: &Plan) -> Result<Floor, Explained> {
    db::with_transaction(|tx| {
        let mut floor = Floor::new(is_single);
        if plan.machines.is_empty() {
            return Ok(floor);
        }
        let of = |text: fn(&plan::Machine) -> &String| ColumnData {
            values: Array::Texts(plan.machines.iter().map(|m| text(m).clone()).collect()),
            nulls: Vec::new(),
        };
        let columns = vec![of(|m| &m.code), of(|m| &m.line), of(|m| &m.connection)];
        tx.execute(&[Statement { sql: MACHINES.to_owned(), params: Params::Columns(columns) }])?;
        let ids: BTreeMap<String, i64> =
            tx.query(IDS, &[])?.rows.iter().filter_map(|row| Some((text(row, 0)?, int(row, 1)?))).collect();
        for machine in &plan.machines {
            add(&mut floor, machine, ids.get(&machine.code).copied())?;
        }
        read_baselines(&mut floor, tx)?;
        read_watch(&mut floor, tx)?;
        leave_the_future(&mut floor, tx)?;
        let floor = close_unwatched(floor, tx)?;
        Ok(floor)
    })
    .map(|mut floor: Floor| {
        let now = i64::MIN;
        floor.accept(now, false);
        floor
    })
}

fn add(floor: &mut Floor, machine: &plan::Machine, id: Option<i64>) -> Result<(), Explained> {
    let id = id.ok_or_else(|| Explained(format!("the machine {} was not written down", machine.code)))?;
    let place = floor.machines.len();
    let reader = machine.state.as_ref().map(|s| state::Reader::new(&s.map)).transpose();
    let reader = reader.map_err(|e| Explained(format!("machine {}: {e}", machine.code)))?;
    floor.machines.push(Machine::new(machine.code.clone(), machine.connection.clone(), id, reader));
    for (number, name, counter) in [(0, "good", &machine.good), (1, "scrap", &machine.scrap)] {
        if let Some(counter) = counter {
            let name = format!("{} {name}", machine.code);
            floor.counters.push(Counter::new(name, place, id, number, counter.into()));
        }
    }
    Ok(())
}

/// Reads every baseline as the database has it.
///
/// # Errors
/// The database's.
pub fn read_baselines(floor: &mut Floor, tx: &Transaction) -> Result<(), Explained> {
    let rows = tx.query(BASELINES, &[])?;
    let of_counter: BTreeMap<(i64, i64), &Vec<Value>> =
        rows.rows.iter().filter_map(|row| Some(((int(row, 0)?, int(row, 1)?), row))).collect();
    for counter in &mut floor.counters {
        (counter.committed, counter.reach) = (None, None);
        if let Some(row) = of_counter.get(&(counter.machine, counter.number)) {
            let read =
                baseline(row).ok_or_else(|| Explained(format!("the baseline of {} cannot be read", counter.name)))?;
            counter.committed = Some(read);
            counter.last_reading_at = time(row, 10);
            counter.written = (whole(row, 6).and_then(|v| u64::try_from(v).ok()).unwrap_or(0), counter.last_reading_at);
        }
        counter.working = counter.committed;
    }
    Ok(())
}

fn baseline(row: &[Value]) -> Option<Baseline> {
    let pending = match row.get(11) {
        Some(Value::Text(text) | Value::Json(text)) => serde_json::from_str::<Pending>(text).ok()?,
        _ => Pending::default(),
    };
    Some(Baseline {
        sequence: int(row, 2)?,
        value: u64::try_from(whole(row, 3)?).ok()?,
        value_type: ValueType::from_number(int(row, 4)?),
        booked: whole(row, 5)?,
        at: time(row, 7)?,
        clock: Clock::from_number(int(row, 8)?),
        seen_at: time(row, 9)?,
        pending,
    })
}

/// States that a source had dated into the future: written by readers that believed it. Nothing could follow them for as long.
const FUTURE_STATES: [&str; 2] = [
    "DELETE FROM machine_states WHERE machine_id = $1 AND started_at > $2",
    // Until when it lasted is not known.
    "UPDATE machine_states SET ended_at = started_at WHERE machine_id = $1 AND ended_at > $2",
];

/// Takes back what lies in the future: from now on the machines' states are unknown until they are heard.
fn leave_the_future(floor: &mut Floor, tx: &Transaction) -> Result<(), Explained> {
    let now = tx.now();
    let is_future = |watch: &Watch| {
        let newest = watch.open.map_or(watch.not_before, |open| open.started_at);
        state::is_ahead(newest, now)
    };
    let ahead: Vec<&mut Machine> = floor.machines.iter_mut().filter(|machine| is_future(&machine.watch)).collect();
    if ahead.is_empty() {
        return Ok(());
    }
    let column = |values| ColumnData { values, nulls: Vec::new() };
    let ids: Vec<i64> = ahead.iter().map(|machine| machine.id).collect();
    let statement = |sql: &str| {
        let columns = vec![column(Array::Ints(ids.clone())), column(Array::Timestamps(vec![now; ids.len()]))];
        Statement { sql: sql.to_owned(), params: Params::Columns(columns) }
    };
    tx.execute(&FUTURE_STATES.map(statement))?;
    for machine in ahead {
        plant_role::warn!("the states of {} lay in the future and were taken back", machine.code);
        machine.watch = Watch { open: None, not_before: state::whole_micros(now) };
    }
    Ok(())
}

fn read_watch(floor: &mut Floor, tx: &Transaction) -> Result<(), Explained> {
    let (states, links) = (tx.query(STATES, &[])?, tx.query(LINKS, &[])?);
    let (states, links) = (by_machine(&states), by_machine(&links));
    for machine in &mut floor.machines {
        if let Some(row) = states.get(&machine.id) {
            let ended_at = time(row, 5);
            machine.watch = Watch {
                open: if ended_at.is_none() { state_row(row) } else { None },
                not_before: ended_at.unwrap_or(i64::MIN),
            };
        }
        let link = links.get(&machine.id);
        machine.link = link.and_then(|row| {
            Some(Link {
                connected: text(row, 1)? == "connected",
                reason: text(row, 2)?,
                started_at: time(row, 3)?,
                detected_at: time(row, 4)?,
            })
        });
        machine.seen_at = link.and_then(|row| time(row, 5));
    }
    Ok(())
}

fn state_row(row: &[Value]) -> Option<StateRow> {
    Some(StateRow {
        state: state::name(&text(row, 1)?)?,
        code: int(row, 2)?,
        started_at: time(row, 3)?,
        started_by: Clock::from_number(int(row, 4)?),
    })
}

fn close_unwatched(mut floor: Floor, tx: &Transaction) -> Result<Floor, Explained> {
    floor.lose_unwatched(tx.now());
    if !floor.tables.is_empty() {
        floor.tables.send(|statements| tx.execute(statements))?;
    }
    Ok(floor)
}

fn by_machine(rows: &Rowset) -> BTreeMap<i64, &Vec<Value>> {
    rows.rows.iter().filter_map(|row| Some((int(row, 0)?, row))).collect()
}

/// Subscribes to every node; those that cannot be are named in the answer, and the others go on.
///
/// # Errors
/// One sentence, when a whole connection is refused.
pub fn subscribe(floor: &mut Floor, plan: &Plan, queue: u32) -> Result<Vec<String>, String> {
    let mut refused = Vec::new();
    let mut connections: Vec<&str> = plan.machines.iter().map(|m| m.connection.as_str()).collect();
    connections.sort_unstable();
    connections.dedup();
    for connection in connections {
        let (counters, states) = nodes(plan, connection);
        let counters = bind(connection, counters, &mut refused, |item, place| floor.bind_counter(item, place))?;
        let states = bind(connection, states, &mut refused, |item, place| floor.bind_state(item, place))?;
        // A node that is both is subscribed to once, as a state: of a state every value matters.
        let counters: BTreeSet<u32> = counters.difference(&states).copied().collect();
        for (items, coalesce) in [(counters, true), (states, false)] {
            let how = opc::Monitoring { publish_ms: 0, sampling_ms: 0, queue, coalesce };
            if !items.is_empty() {
                let items: Vec<u32> = items.into_iter().collect();
                opc::subscribe(&items, how).map_err(|e| explain(connection, &e))?;
            }
        }
    }
    Ok(refused)
}

/// Resolves nodes and says of each item what it is; several nodes may be one item.
fn bind(
    connection: &str,
    wanted: Nodes,
    refused: &mut Vec<String>,
    mut is: impl FnMut(u32, usize),
) -> Result<BTreeSet<u32>, String> {
    let names: Vec<String> = wanted.iter().map(|(node, _)| node.clone()).collect();
    let resolved = opc::resolve(connection, &names).map_err(|e| explain(connection, &e))?;
    let mut items = BTreeSet::new();
    for ((node, place), item) in wanted.into_iter().zip(resolved) {
        match item {
            Ok(item) => {
                is(item, place);
                items.insert(item);
            }
            Err(ref e) => refused.push(explain(&node, e)),
        }
    }
    Ok(items)
}

/// Whether the server sends this item's floating-point numbers with 32 bits. Where it cannot be asked they are not trusted.
fn is_single(item: u32) -> bool {
    let types = opc::data_types(&[item]).unwrap_or_default();
    types.into_iter().next().flatten().is_none_or(|name| name == "Float")
}

type Nodes = Vec<(String, usize)>;

/// The nodes of one connection with their places in the floor: counters and states.
fn nodes(plan: &Plan, connection: &str) -> (Nodes, Nodes) {
    let (mut counters, mut states, mut counted) = (Vec::new(), Vec::new(), 0);
    for (place, machine) in plan.machines.iter().enumerate() {
        let here = machine.connection == connection;
        for counter in [&machine.good, &machine.scrap].into_iter().flatten() {
            if here {
                counters.push((counter.node.clone(), counted));
            }
            counted += 1;
        }
        if let Some(state) = machine.state.as_ref().filter(|_| here) {
            states.push((state.node.clone(), place));
        }
    }
    (counters, states)
}

fn explain(what: &str, error: &opc::Error) -> String {
    match error {
        opc::Error::Denied(text) | opc::Error::Other(text) => format!("{what}: {text}"),
        opc::Error::LeaseLost => format!("{what}: the lease is lost"),
        opc::Error::Timeout => format!("{what}: the OPC UA server did not answer in time"),
        opc::Error::Disconnected => format!("{what}: the OPC UA connection is down"),
        opc::Error::BadStatus(status) => format!("{what}: the OPC UA server answered {status:#010x}"),
    }
}

/// A whole number, as either database sends it.
#[must_use]
pub fn whole(row: &[Value], column: usize) -> Option<u128> {
    match row.get(column)? {
        Value::Int(value) => u128::try_from(*value).ok(),
        Value::Decimal(text) | Value::Text(text) => text.split('.').next()?.parse().ok(),
        _ => None,
    }
}

/// A whole number of 64 bits.
#[must_use]
pub fn int(row: &[Value], column: usize) -> Option<i64> {
    match row.get(column)? {
        Value::Int(value) => Some(*value),
        _ => None,
    }
}

/// Text.
#[must_use]
pub fn text(row: &[Value], column: usize) -> Option<String> {
    match row.get(column)? {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

fn time(row: &[Value], column: usize) -> Option<i64> {
    match row.get(column)? {
        Value::Timestamp(at) => Some(*at),
        _ => None,
    }
}
