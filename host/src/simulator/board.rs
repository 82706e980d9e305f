//! What every node shows at the moment: written by the simulation, read by the OPC UA server, whichever server that is just now.
//!
//! The nodes outlive a server that goes away and comes back, and a read costs one look into a list: five thousand counters that
//! change twenty times a second must leave the processor to those who read them.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use opcua::types::{DataTypeId, DataValue, DateTime, StatusCode, Variant};

use super::counter::Shown;
use super::stations::{SCRAP, STATIONS};

/// The namespace of all the nodes.
pub const NAMESPACE: &str = "urn:plant:simulator";

/// The nodes of one machine of the line, in their order on the board.
pub const NODES_A_STATION: usize = 4;

/// What a node is, for good.
pub struct Node {
    /// The machine that it belongs to.
    pub machine: String,
    /// Its name there, like `GoodCount`; its identifier is `<machine>.<name>`.
    pub name: &'static str,
    /// What it means, for who browses.
    pub description: String,
    /// The type of its value.
    pub data_type: DataTypeId,
}

impl Node {
    /// The identifier, as in `nsu=urn:plant:simulator;s=<identifier>`.
    #[must_use]
    pub fn identifier(&self) -> String {
        format!("{}.{}", self.machine, self.name)
    }
}

/// A node's value and since when it has it.
#[derive(Debug, Clone)]
pub struct Reading {
    /// What is shown.
    pub shown: Shown,
    /// The source timestamp.
    pub since: DateTime,
}

impl Reading {
    /// As a client gets it, with both timestamps; without a value and with a Bad status where there is none.
    #[must_use]
    pub fn data_value(&self) -> DataValue {
        let (value, status) = match &self.shown {
            Shown::Value(value) => (Some(value.clone()), StatusCode::Good),
            Shown::Bad => (None, StatusCode::BadDeviceFailure),
            Shown::Gone => (None, StatusCode::BadNodeIdUnknown),
        };
        let server_timestamp = Some(DateTime::now());
        DataValue {
            value,
            status: Some(status),
            source_timestamp: Some(self.since),
            server_timestamp,
            ..DataValue::null()
        }
    }
}

/// All the nodes. They are there from the start and keep their order: by machine `GoodCount`, `ScrapCount`, `State` and the analogue
/// value, then the counters for load tests.
pub struct Board {
    nodes: Vec<Node>,
    by_identifier: HashMap<String, usize>,
    readings: RwLock<Vec<Reading>>,
}

impl Board {
    /// The nodes of the line and `counters` more, all of them Bad until something is written.
    #[must_use]
    pub fn new(counters: usize) -> Self {
        let mut nodes = Vec::with_capacity(STATIONS.len() * NODES_A_STATION + counters);
        for station in &STATIONS {
            let node = |name, description: &str, data_type| Node {
                machine: station.code.to_owned(),
                name,
                description: description.to_owned(),
                data_type,
            };
            nodes.push(node("GoodCount", "good pieces since the PLC was made", station.good.data_type()));
            nodes.push(node("ScrapCount", "spoiled pieces since the PLC was made", SCRAP.data_type()));
            nodes.push(node("State", "what the machine does, as a number", DataTypeId::Int32));
            nodes.push(node(station.value, &format!("in {}", station.unit), DataTypeId::Double));
        }
        nodes.extend((1..=counters).map(|n| Node {
            machine: load_machine(n),
            name: "Count",
            description: "counts every step, for load tests".to_owned(),
            data_type: DataTypeId::UInt32,
        }));
        let by_identifier = nodes.iter().enumerate().map(|(at, node)| (node.identifier(), at)).collect();
        let nothing = Reading { shown: Shown::Bad, since: DateTime::now() };
        Self { readings: RwLock::new(vec![nothing; nodes.len()]), nodes, by_identifier }
    }

    /// The nodes, in the board's order.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Where the node with this identifier is.
    #[must_use]
    pub fn position(&self, identifier: &str) -> Option<usize> {
        self.by_identifier.get(identifier).copied()
    }

    /// What all the nodes show, for as long as the guard is kept: not over an await.
    pub fn readings(&self) -> RwLockReadGuard<'_, Vec<Reading>> {
        self.readings.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows `all` from the first node on, and answers which nodes changed.
    pub fn show(&self, all: impl Iterator<Item = Shown>) -> Vec<usize> {
        let now = DateTime::now();
        let mut readings = self.readings.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = Vec::new();
        for ((at, reading), shown) in readings.iter_mut().enumerate().zip(all) {
            if reading.shown != shown {
                *reading = Reading { shown, since: now };
                changed.push(at);
            }
        }
        changed
    }
}

/// The machine of the `n`th counter for load tests, from 1.
#[must_use]
pub fn load_machine(n: usize) -> String {
    format!("LOAD{n:04}")
}

/// What a counter for load tests shows.
#[must_use]
pub fn load_value(count: u64) -> Shown {
    Shown::Value(Variant::UInt32(u32::try_from(count % (1 << 32)).unwrap_or(0)))
}
