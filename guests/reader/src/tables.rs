//! The rows of one transaction, as columns of the statements that write them.
//!
//! Each statement is written for one row and sent once with columns, so that a batch of any size costs one round trip. The columns keep
//! their memory from batch to batch.

use std::collections::HashMap;
use std::fmt::Write as _;

use plant_role::db::{Array, ColumnData, Params, Statement};

use crate::counter::{Anomaly, Baseline, Clock, Ledger};

/// A change counts only from the number it started from: fewer rows than were sent say that somebody else has moved a baseline.
const BASELINES: &str = "INSERT INTO counter_baselines (machine_id, counter, sequence, moved_from, value, value_type, booked, owed, \
     read_at, read_by, seen_at, last_reading_at, pending) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) \
     ON CONFLICT (machine_id, counter) DO UPDATE SET sequence = excluded.sequence, moved_from = excluded.moved_from, \
     value = excluded.value, value_type = excluded.value_type, booked = excluded.booked, owed = excluded.owed, \
     read_at = excluded.read_at, read_by = excluded.read_by, seen_at = excluded.seen_at, \
     last_reading_at = excluded.last_reading_at, pending = excluded.pending \
     WHERE counter_baselines.sequence = excluded.moved_from";

const BOOKINGS: &str = "INSERT INTO bookings (machine_id, counter, sequence, quantity, read_at, read_by, booked_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7)";

const ANOMALIES: &str = "INSERT INTO counter_anomalies (machine_id, counter, sequence, kind, baseline, reading, quantity, detail, \
     seen_at, needs_decision) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

const WITHDRAWALS: &str = "UPDATE counter_anomalies SET decision = 'reject', decided_by = 'reader', why = $4, decided_at = $5, \
     applied_at = $5 WHERE machine_id = $1 AND counter = $2 AND sequence = $3 AND kind IN ('jump', 'late-return') AND decision IS NULL";

const APPLIED: &str = "UPDATE counter_anomalies SET applied_at = $2 WHERE id = $1 AND applied_at IS NULL";

/// A person may have named a reason meanwhile: only the end is written to a row that is there.
const STATES: &str = "INSERT INTO machine_states (machine_id, state, code, reason, started_at, started_by, ended_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (machine_id, started_at) DO UPDATE SET ended_at = excluded.ended_at \
     WHERE machine_states.ended_at IS NULL";

const CONNECTIONS: &str = "INSERT INTO machine_connections (machine_id, state, reason, started_at, detected_at, seen_at, ended_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (machine_id, started_at) DO UPDATE SET seen_at = excluded.seen_at, \
     ended_at = excluded.ended_at WHERE machine_connections.ended_at IS NULL";

/// The rows of one statement.
#[derive(Debug)]
pub struct Rows {
    sql: &'static str,
    columns: Vec<ColumnData>,
    rows: u32,
    next: usize,
}

/// What a column holds.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Ints,
    Times,
    Texts,
    Booleans,
}

impl Kind {
    fn empty(self) -> Array {
        match self {
            Self::Ints => Array::Ints(Vec::new()),
            Self::Times => Array::Timestamps(Vec::new()),
            Self::Texts => Array::Texts(Vec::new()),
            Self::Booleans => Array::Booleans(Vec::new()),
        }
    }
}

impl Rows {
    fn new(sql: &'static str, kinds: &[Kind]) -> Self {
        let columns = kinds.iter().map(|kind| ColumnData { values: kind.empty(), nulls: Vec::new() }).collect();
        Self { sql, columns, rows: 0, next: 0 }
    }

    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.rows
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    fn clear(&mut self) {
        self.rows = 0;
        for column in &mut self.columns {
            column.nulls.clear();
            match &mut column.values {
                Array::Ints(v) | Array::Timestamps(v) => v.clear(),
                Array::Texts(v) => v.clear(),
                Array::Booleans(v) => v.clear(),
                _ => column.values = Array::Ints(Vec::new()),
            }
        }
    }

    /// Writes one row: `fill` sets every column, in order.
    fn row(&mut self, fill: impl FnOnce(&mut Self)) {
        self.next = 0;
        fill(self);
        debug_assert_eq!(self.next, self.columns.len(), "a row has a value for every column");
        self.rows += 1;
    }

    /// Sets the last column of a row that was written with none there.
    fn end(&mut self, row: usize, at: Option<i64>) {
        let Some(ColumnData { values: Array::Timestamps(v), nulls }) = self.columns.last_mut() else { return };
        if let (Some(slot), Some(at)) = (v.get_mut(row), at) {
            *slot = at;
            nulls.retain(|null| *null as usize != row);
        }
    }

    fn column(&mut self) -> Option<&mut ColumnData> {
        self.next += 1;
        self.columns.get_mut(self.next - 1)
    }

    fn int(&mut self, value: i64) {
        if let Some(ColumnData { values: Array::Ints(v) | Array::Timestamps(v), .. }) = self.column() {
            v.push(value);
        }
    }

    fn maybe_time(&mut self, value: Option<i64>) {
        let row = self.rows;
        if let Some(ColumnData { values: Array::Timestamps(v), nulls }) = self.column() {
            v.push(value.unwrap_or(0));
            if value.is_none() {
                nulls.push(row);
            }
        }
    }

    fn text(&mut self, value: &str) {
        if let Some(ColumnData { values: Array::Texts(v), .. }) = self.column() {
            v.push(value.to_owned());
        }
    }

    fn maybe_text(&mut self, value: Option<String>) {
        let row = self.rows;
        if let Some(ColumnData { values: Array::Texts(v), nulls }) = self.column() {
            if value.is_none() {
                nulls.push(row);
            }
            v.push(value.unwrap_or_default());
        }
    }

    fn boolean(&mut self, value: bool) {
        if let Some(ColumnData { values: Array::Booleans(v), .. }) = self.column() {
            v.push(value);
        }
    }

    /// An exact number. The column is one of integers until one is above their range; then it is one of decimals.
    fn exact(&mut self, value: u128) {
        let Some(column) = self.column() else { return };
        if let (Array::Ints(v), Ok(value)) = (&mut column.values, i64::try_from(value)) {
            v.push(value);
            return;
        }
        if let Array::Ints(v) = &column.values {
            column.values = Array::Decimals(v.iter().map(i64::to_string).collect());
        }
        if let Array::Decimals(v) = &mut column.values {
            v.push(value.to_string());
        }
    }

    fn maybe_exact(&mut self, value: Option<u64>) {
        let row = self.rows;
        self.exact(u128::from(value.unwrap_or(0)));
        if value.is_none()
            && let Some(column) = self.next.checked_sub(1).and_then(|i| self.columns.get_mut(i))
        {
            column.nulls.push(row);
        }
    }
}

/// A baseline's row, as far as the counter itself does not know it.
#[derive(Debug, Clone, Copy)]
pub struct BaselineRow {
    /// The machine.
    pub machine: i64,
    /// 0 good, 1 scrap.
    pub counter: i64,
    /// The number in the database.
    pub moved_from: i64,
    /// Counted and not booked.
    pub owed: u64,
    /// The newest good reading's time.
    pub last_reading_at: Option<i64>,
}

/// A state of a machine, from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateRow {
    /// `running | idle | down | setup`.
    pub state: &'static str,
    /// The machine's own number.
    pub code: i64,
    /// When it began: whole microseconds, in nanoseconds since the Unix epoch.
    pub started_at: i64,
    /// Whose time that is.
    pub started_by: Clock,
}

/// Everything that one transaction writes.
#[derive(Debug)]
pub struct Tables {
    /// Baselines: as many rows must be affected as are sent.
    pub baselines: Rows,
    /// Bookings.
    pub bookings: Rows,
    anomalies: Rows,
    withdrawals: Rows,
    applied: Rows,
    states: Rows,
    /// Where the rows of `states` are, by machine and start.
    states_at: HashMap<(i64, i64), usize>,
    connections: Rows,
    outgoing: Vec<Statement>,
}

impl Default for Tables {
    fn default() -> Self {
        use Kind::{Booleans, Ints, Texts, Times};
        Self {
            baselines: Rows::new(
                BASELINES,
                &[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Times, Ints, Times, Times, Texts],
            ),
            bookings: Rows::new(BOOKINGS, &[Ints, Ints, Ints, Ints, Times, Ints, Times]),
            anomalies: Rows::new(ANOMALIES, &[Ints, Ints, Ints, Texts, Ints, Ints, Ints, Texts, Times, Booleans]),
            withdrawals: Rows::new(WITHDRAWALS, &[Ints, Ints, Ints, Texts, Times]),
            applied: Rows::new(APPLIED, &[Ints, Times]),
            states: Rows::new(STATES, &[Ints, Texts, Ints, Texts, Times, Ints, Times]),
            states_at: HashMap::new(),
            connections: Rows::new(CONNECTIONS, &[Ints, Texts, Texts, Times, Times, Times, Times]),
            outgoing: Vec::new(),
        }
    }
}

impl Tables {
    fn all(&mut self) -> [&mut Rows; 7] {
        [
            &mut self.baselines,
            &mut self.bookings,
            &mut self.anomalies,
            &mut self.withdrawals,
            &mut self.applied,
            &mut self.states,
            &mut self.connections,
        ]
    }

    /// Forgets the rows, not their memory.
    pub fn clear(&mut self) {
        self.all().into_iter().for_each(Rows::clear);
        self.states_at.clear();
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&mut self) -> bool {
        self.all().into_iter().all(|rows| rows.is_empty())
    }

    /// Hands the statements that have rows to `send`, baselines first. Answers `send`'s own answer.
    pub fn send<T>(&mut self, send: impl FnOnce(&[Statement]) -> T) -> T {
        let mut outgoing = std::mem::take(&mut self.outgoing);
        outgoing.clear();
        for rows in self.all().into_iter().filter(|rows| !rows.is_empty()) {
            outgoing.push(Statement {
                sql: rows.sql.to_owned(),
                params: Params::Columns(std::mem::take(&mut rows.columns)),
            });
        }
        let answer = send(&outgoing);
        let mut sent = outgoing.drain(..);
        for rows in self.all().into_iter().filter(|rows| !rows.is_empty()) {
            if let Some(Statement { params: Params::Columns(columns), .. }) = sent.next() {
                rows.columns = columns;
            }
        }
        drop(sent);
        self.outgoing = outgoing;
        answer
    }

    /// Whether every baseline and booking was written; `affected` has one count for each statement that was sent.
    #[must_use]
    pub fn all_written(&self, affected: &[u64]) -> bool {
        let mut affected = affected.iter();
        [&self.baselines, &self.bookings]
            .into_iter()
            .filter(|rows| !rows.is_empty())
            .all(|rows| affected.next() == Some(&u64::from(rows.len())))
    }

    /// A baseline as it is now.
    pub fn baseline(&mut self, row: &BaselineRow, b: &Baseline) {
        self.baselines.row(|r| {
            r.int(row.machine);
            r.int(row.counter);
            r.int(b.sequence);
            r.int(row.moved_from);
            r.exact(u128::from(b.value));
            r.int(b.value_type as i64);
            r.exact(b.booked);
            r.exact(u128::from(row.owed));
            r.int(b.at);
            r.int(b.clock as i64);
            r.int(b.seen_at);
            r.maybe_time(row.last_reading_at);
            r.maybe_text(b.pending.to_text());
        });
    }

    /// A person's decision has been applied.
    pub fn applied(&mut self, id: i64, now: i64) {
        self.applied.row(|r| {
            r.int(id);
            r.int(now);
        });
    }

    /// A state, open or ended.
    ///
    /// One that begins and ends in one transaction is one row: a statement that names a row twice would be sent row by row.
    pub fn state(&mut self, machine: i64, s: &StateRow, ended_at: Option<i64>) {
        let place = self.states.len() as usize;
        let there = *self.states_at.entry((machine, s.started_at)).or_insert(place);
        if there < place {
            self.states.end(there, ended_at);
            return;
        }
        self.states.row(|r| {
            r.int(machine);
            r.text(s.state);
            r.int(s.code);
            r.maybe_text((s.state == "down").then(|| "unlabelled".to_owned()));
            r.int(s.started_at);
            r.int(s.started_by as i64);
            r.maybe_time(ended_at);
        });
    }

    /// A connection's time, open or ended.
    pub fn connection(&mut self, machine: i64, c: &crate::connection::Link, seen_at: i64, ended_at: Option<i64>) {
        self.connections.row(|r| {
            r.int(machine);
            r.text(if c.connected { "connected" } else { "disconnected" });
            r.text(&c.reason);
            r.int(c.started_at);
            r.int(c.detected_at);
            r.int(seen_at);
            r.maybe_time(ended_at);
        });
    }

    /// What one counter brings forth.
    pub fn of(&mut self, machine: i64, counter: i64, now: i64) -> CounterTables<'_> {
        CounterTables { tables: self, machine, counter, now }
    }
}

/// Writes one counter's rows.
#[derive(Debug)]
pub struct CounterTables<'a> {
    tables: &'a mut Tables,
    machine: i64,
    counter: i64,
    now: i64,
}

impl Ledger for CounterTables<'_> {
    fn book(&mut self, sequence: i64, quantity: u64, at: i64, clock: Clock) {
        let (machine, counter, now) = (self.machine, self.counter, self.now);
        self.tables.bookings.row(|r| {
            r.int(machine);
            r.int(counter);
            r.int(sequence);
            r.exact(u128::from(quantity));
            r.int(at);
            r.int(clock as i64);
            r.int(now);
        });
    }

    fn report(&mut self, a: Anomaly) {
        let (machine, counter, now) = (self.machine, self.counter, self.now);
        let mut detail = a.detail;
        if a.may_hide > 0 {
            // Writing to a String cannot fail.
            let _ = write!(detail, "; it may hide {} units", a.may_hide);
        }
        self.tables.anomalies.row(|r| {
            r.int(machine);
            r.int(counter);
            r.int(a.sequence);
            r.text(a.kind);
            r.maybe_exact(a.baseline);
            r.maybe_exact(a.reading);
            r.maybe_exact(a.quantity);
            r.text(&detail);
            r.int(now);
            r.boolean(a.needs_decision);
        });
    }

    fn withdraw(&mut self, sequence: i64) {
        let (machine, counter, now) = (self.machine, self.counter, self.now);
        self.tables.withdrawals.row(|r| {
            r.int(machine);
            r.int(counter);
            r.int(sequence);
            r.text("the counter came back to where it would be without the jump");
            r.int(now);
        });
    }
}
