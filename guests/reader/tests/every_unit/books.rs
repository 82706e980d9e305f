//! What a database would hold, and what people would see in it.

use std::collections::BTreeMap;

use plant_role::db::{Array, ColumnData, Params, Statement};
use reader::counter::Baseline;
use reader::floor::Floor;

/// The rows of one counter.
#[derive(Debug, Default)]
pub struct Books {
    baseline: Option<Baseline>,
    bookings: BTreeMap<i64, i64>,
    anomalies: Vec<Anomaly>,
}

#[derive(Debug)]
struct Anomaly {
    sequence: i64,
    kind: String,
    /// What accepting it books, and what it says that it may hide beside.
    quantity: u64,
    hides: u64,
}

impl Books {
    /// Takes in what the floor has to write.
    pub fn commit(&mut self, floor: &mut Floor) {
        let stored = self.baseline.map_or(0, |b| b.sequence);
        assert_eq!(floor.counters[0].committed.map_or(0, |b| b.sequence), stored, "written from a stale number");
        floor.tables.send(|statements| {
            for Statement { sql, params } in statements {
                let Params::Columns(columns) = params else { panic!("columns") };
                match sql {
                    sql if sql.contains("INTO bookings") => self.book(columns),
                    sql if sql.contains("INTO counter_anomalies") => self.report(columns),
                    sql if sql.contains("UPDATE counter_anomalies SET decision") => self.withdraw(columns),
                    _ => {}
                }
            }
        });
        self.baseline = floor.counters[0].working;
    }

    fn book(&mut self, columns: &[ColumnData]) {
        for (sequence, quantity) in ints(&columns[2]).iter().zip(ints(&columns[3])) {
            assert!(self.bookings.insert(*sequence, *quantity).is_none(), "sequence {sequence} booked twice");
        }
    }

    fn report(&mut self, columns: &[ColumnData]) {
        for row in 0..ints(&columns[2]).len() {
            let detail = &texts(&columns[7])[row];
            let hides = detail.rsplit_once("it may hide ").and_then(|(_, rest)| rest.split(' ').next());
            self.anomalies.push(Anomaly {
                sequence: ints(&columns[2])[row],
                kind: texts(&columns[3])[row].clone(),
                quantity: u64::try_from(ints(&columns[6])[row]).expect("a quantity"),
                hides: hides.map_or(0, |number| number.parse().expect("a number")),
            });
        }
    }

    fn withdraw(&mut self, columns: &[ColumnData]) {
        for sequence in ints(&columns[2]) {
            self.anomalies.retain(|anomaly| {
                !["jump", "late-return"].contains(&anomaly.kind.as_str()) || anomaly.sequence != *sequence
            });
        }
    }

    /// The baseline as another instance reads it.
    pub fn baseline(&self) -> Option<Baseline> {
        self.baseline.map(|mut b| {
            let text = b.pending.to_text();
            b.pending = text.map_or_else(Default::default, |text| serde_json::from_str(&text).expect("its own text"));
            b
        })
    }

    /// The value that was taken in last.
    pub fn newest(&self) -> u64 {
        self.baseline.map_or(0, |b| b.pending.glitch.map_or(b.value, |glitch| glitch.last))
    }

    /// Units booked.
    pub fn booked(&self) -> u64 {
        self.bookings.values().map(|q| u64::try_from(*q).expect("positive")).sum()
    }

    /// Units that the anomalies say there may be.
    pub fn open(&self) -> u64 {
        self.anomalies.iter().map(|anomaly| anomaly.quantity + anomaly.hides).sum()
    }
}

fn ints(column: &ColumnData) -> &[i64] {
    let Array::Ints(values) = &column.values else { panic!("integers, not {column:?}") };
    values
}

fn texts(column: &ColumnData) -> &[String] {
    let Array::Texts(values) = &column.values else { panic!("texts, not {column:?}") };
    values
}
