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

    fn by_weak(connections: &Weak<Connections>, queue: &Weak<EventQueue>, names: &Arc<[String]>) -> Option<Self> {
        Some(Self { connections: connections.upgrade()?, queue: queue.upgrade()?, names: names.clone() })
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

/// The sessions of an instance that may be gone: they end with it.
type Opened = (Weak<Connections>, Weak<EventQueue>, Arc<[String]>);

/// The plant's own connections, by `plant.toml`.
#[derive(Debug)]
pub struct PlantOpc {
    configs: BTreeMap<String, OpcConnection>,
    runtime: Handle,
    opened: Mutex<BTreeMap<RoleKey, Opened>>,
}

impl PlantOpc {
    /// Sessions run on `runtime`, which must not be the guests'.
    #[must_use]
    pub fn new(configs: BTreeMap<String, OpcConnection>, runtime: Handle) -> Self {
        Self { configs, runtime, opened: Mutex::default() }
    }

    /// The sessions of the instances on this node; a node without an instance has none.
    #[must_use]
    pub fn open_now(&self) -> Vec<(RoleKey, Sessions)> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = |(key, (connections, queue, names)): (&RoleKey, &Opened)| {
            Some((key.clone(), Sessions::by_weak(connections, queue, names)?))
        };
        opened.iter().filter_map(alive).collect()
    }

    /// What an instance's servers do not do for it that they were asked for, in words for people.
    #[must_use]
    pub fn shortfall(&self, key: &RoleKey) -> Option<String> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let connections = opened.get(key).and_then(|(connections, _, _)| connections.upgrade())?;
        drop(opened);
        connections.shortfall()
    }

    /// How the connections of the instances on this node are.
    #[must_use]
    pub fn status(&self) -> Vec<(RoleKey, Vec<ConnectionStatus>)> {
        self.open_now().into_iter().map(|(key, sessions)| (key, sessions.connections.status())).collect()
    }
}

impl Opener for PlantOpc {
    fn open(&self, held: &Held) -> Sessions {
        let sessions = Sessions::open(&self.configs, self.runtime.clone());
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let weak = (Arc::downgrade(&sessions.connections), Arc::downgrade(&sessions.queue), sessions.names.clone());
        opened.insert(held.key().clone(), weak);
        sessions
    }
}
