//! Where an instance's OPC UA connections come from.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::runtime::Handle;

use crate::config::OpcConnection;
use crate::identity::RoleKey;
use crate::lease::Held;
use crate::opc::queue::Losses;
use crate::opc::{ConnectionStatus, Connections, EventQueue};

/// One instance's connections, and the queue that their samples come through.
#[derive(Debug, Clone)]
pub struct Sessions {
    /// The connections; nothing is connected before a guest subscribes or reads.
    pub connections: Arc<Connections>,
    /// What they deliver.
    pub queue: Arc<EventQueue>,
    names: Arc<[String]>,
}

impl Sessions {
    /// Connections for one instance. Their sessions run on `runtime`, never on the guests' threads.
    #[must_use]
    pub fn open(configs: &BTreeMap<String, OpcConnection>, runtime: Handle) -> Self {
        let queue = Arc::new(EventQueue::default());
        let connections = Arc::new(Connections::new(configs, &queue, runtime));
        Self { connections, queue, names: configs.keys().cloned().collect() }
    }

    /// What the queue has lost so far, over all connections.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let mut all = Losses::default();
        for Losses { coalesced, dropped } in self.names.iter().map(|name| self.queue.losses(name)) {
            all.coalesced += coalesced;
            all.dropped += dropped;
        }
        all
    }
}

/// Opens the connections of instances.
pub trait Opener: Send + Sync {
    /// For the instance that exists under this lease.
    fn open(&self, held: &Held) -> Sessions;
}

/// The plant's own connections, by `plant.toml`.
#[derive(Debug)]
pub struct PlantOpc {
    configs: BTreeMap<String, OpcConnection>,
    runtime: Handle,
    opened: Mutex<BTreeMap<RoleKey, Weak<Connections>>>,
}

impl PlantOpc {
    /// Sessions run on `runtime`, which must not be the guests'.
    #[must_use]
    pub fn new(configs: BTreeMap<String, OpcConnection>, runtime: Handle) -> Self {
        Self { configs, runtime, opened: Mutex::default() }
    }

    /// How the connections of the instances on this node are; a node without an instance has none.
    #[must_use]
    pub fn status(&self) -> Vec<(RoleKey, Vec<ConnectionStatus>)> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let status =
            |(key, connections): (&RoleKey, &Weak<Connections>)| Some((key.clone(), connections.upgrade()?.status()));
        opened.iter().filter_map(status).collect()
    }
}

impl Opener for PlantOpc {
    fn open(&self, held: &Held) -> Sessions {
        let sessions = Sessions::open(&self.configs, self.runtime.clone());
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.insert(held.key().clone(), Arc::downgrade(&sessions.connections));
        sessions
    }
}
