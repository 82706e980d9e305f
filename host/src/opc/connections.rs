//! What an instance holds: its OPC UA connections, by the names in `plant.toml`.
//!
//! There is at most one session for each connection, opened when something is first subscribed to or read through it. All of them end
//! when this is closed or dropped; nothing is delivered after that.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opcua::types::{ReadValueId, StatusCode};
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::link::{Link, Live};
use super::node::Node;
use super::queue::EventQueue;
use super::session::supervise;
use super::{DataType, Monitoring, OpcError, Sample, Value, value};
use crate::config::OpcConnection;

/// A read, from asking for the connection until the answer, takes at most this.
const READ_WITHIN: Duration = Duration::from_secs(4);
/// A graceful close of all the sessions together takes at most this.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// What an instance has of OPC UA.
#[derive(Debug)]
pub struct Connections {
    links: BTreeMap<String, Arc<Link>>,
    items: Mutex<Items>,
    running: Mutex<BTreeMap<String, JoinHandle<()>>>,
    closed: CancellationToken,
    runtime: Handle,
    queue: Arc<EventQueue>,
}

#[derive(Debug, Default)]
struct Items {
    by_number: Vec<Item>,
    numbers: HashMap<(String, Node), u32>,
}

#[derive(Debug, Clone)]
struct Item {
    connection: String,
    node: Node,
}

/// What people are told of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConnectionStatus {
    /// Its name in `plant.toml`.
    pub connection: String,
    /// Whether it is up.
    pub connected: bool,
    /// Since when it is up or down; nanoseconds since the Unix epoch. `None` when it was not needed yet.
    pub since: Option<i64>,
    /// Why it is down; how it is secured when it is up.
    pub reason: String,
    /// How many items are subscribed to.
    pub items: usize,
    /// The items whose newest status is Bad: node id and status, at most 100 of them.
    pub bad: Vec<(String, String)>,
    /// How many items are Bad.
    pub bad_items: usize,
    /// The items that the server does not monitor, which are therefore read: node id and the server's reason, at most 100 of them.
    pub not_monitored: Vec<(String, String)>,
    /// How many items the server does not monitor.
    pub not_monitored_items: usize,
    /// Values that were too large to hand on; their items are Bad with `BadResponseTooLarge`.
    pub too_large: u64,
    /// Waiting values that a newer one took the place of.
    pub coalesced: u64,
    /// Values thrown away because the instance was too slow.
    pub dropped: u64,
}

impl Connections {
    /// Connections of one instance; nothing is opened yet. Sessions run on `runtime`, whatever thread asks for them.
    #[must_use]
    pub fn new(configs: &BTreeMap<String, OpcConnection>, queue: &Arc<EventQueue>, runtime: Handle) -> Self {
        let link = |(name, config): (&String, &OpcConnection)| {
            (name.clone(), Arc::new(Link::new(name.clone(), config.clone(), queue.clone())))
        };
        Self {
            links: configs.iter().map(link).collect(),
            items: Mutex::default(),
            running: Mutex::default(),
            closed: CancellationToken::new(),
            runtime,
            queue: queue.clone(),
        }
    }

    /// Numbers nodes of a connection; the same node always gets the same number. Checks the text only and opens nothing.
    ///
    /// # Errors
    /// The connection has no `[opc.NAME]`; inside, a node id that is not usable. Both are [`OpcError::Denied`].
    pub fn resolve(&self, connection: &str, nodes: Vec<String>) -> Result<Vec<Result<u32, OpcError>>, OpcError> {
        self.link(connection)?;
        let mut items = lock(&self.items);
        Ok(nodes
            .iter()
            .map(|text| {
                let node: Node = text.parse().map_err(|e: super::node::NodeError| OpcError::Denied(e.to_string()))?;
                items.number(connection, node)
            })
            .collect())
    }

    /// Delivers the items' values through the queue from now on; opens the connection if it is not open. Subscribing again in the
    /// same way changes nothing.
    ///
    /// # Errors
    /// [`OpcError::Denied`] when an item is not one of `resolve`, or is subscribed to in another way already; then nothing is done.
    pub fn subscribe(&self, items: &[u32], how: Monitoring) -> Result<(), OpcError> {
        for (connection, items) in self.by_connection(items)? {
            let link = self.link(&connection)?;
            link.want(&items, how)?;
            self.start(&link);
        }
        Ok(())
    }

    /// Reads present values, in the order asked for; opens the connection if it is not open. A node that cannot be read is a Bad sample.
    ///
    /// # Errors
    /// [`OpcError::Disconnected`] when a connection is down, [`OpcError::Timeout`] after 4 s, [`OpcError::Denied`] for an unknown item.
    pub async fn read(&self, items: &[u32]) -> Result<Vec<Sample>, OpcError> {
        let grouped = self.by_connection(items)?;
        let mut found = HashMap::new();
        for (connection, items) in grouped {
            let link = self.link(&connection)?;
            self.start(&link);
            let read = async {
                let live = link.live().await.ok_or(OpcError::Disconnected)?;
                read_values(&live, &items).await
            };
            for sample in timeout(READ_WITHIN, read).await.map_err(|_| OpcError::Timeout)?? {
                found.insert(sample.item, sample);
            }
        }
        let missing = |item: u32| OpcError::Other(format!("the server answered nothing for item {item}"));
        items.iter().map(|item| found.get(item).cloned().ok_or_else(|| missing(*item))).collect()
    }

    /// How the server sent each item's newest value; `None` where it has sent none.
    ///
    /// # Errors
    /// [`OpcError::Denied`] for an unknown item.
    pub fn data_types(&self, items: &[u32]) -> Result<Vec<Option<DataType>>, OpcError> {
        self.by_connection(items)?;
        Ok(self.queue.data_types(items))
    }

    /// Ends every session: gracefully where the server answers, within 2 s in any case.
    pub async fn close(&self) {
        self.closed.cancel();
        let running: Vec<_> = std::mem::take(&mut *lock(&self.running)).into_values().collect();
        let stop: Vec<_> = running.iter().map(JoinHandle::abort_handle).collect();
        if timeout(CLOSE_WITHIN, futures::future::join_all(running)).await.is_err() {
            stop.iter().for_each(tokio::task::AbortHandle::abort);
        }
    }

    /// How the connections are, by name; those that were not needed yet too.
    #[must_use]
    pub fn status(&self) -> Vec<ConnectionStatus> {
        let items = lock(&self.items).by_number.clone();
        let name = |item: u32| {
            let item = usize::try_from(item).ok().and_then(|item| items.get(item));
            item.map(|item| item.node.to_string()).unwrap_or_default()
        };
        self.links.values().map(|link| link.status(name)).collect()
    }

    /// What the servers do not do that they were asked for, in words for people; `None` when nothing is amiss.
    #[must_use]
    pub fn shortfall(&self) -> Option<String> {
        let each =
            |(name, link): (&String, &Arc<Link>)| Some(format!("OPC UA connection {name}: {}", link.shortfall()?));
        let all: Vec<String> = self.links.iter().filter_map(each).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    fn link(&self, connection: &str) -> Result<Arc<Link>, OpcError> {
        self.links.get(connection).cloned().ok_or_else(|| {
            let known: Vec<&str> = self.links.keys().map(String::as_str).collect();
            let known =
                if known.is_empty() { "there is none".to_owned() } else { format!("there is {}", known.join(", ")) };
            OpcError::Denied(format!(
                "no OPC UA connection is named {connection:?}: {known}; add [opc.{connection}] to plant.toml"
            ))
        })
    }

    fn by_connection(&self, numbers: &[u32]) -> Result<BTreeMap<String, Vec<(u32, Node)>>, OpcError> {
        let items = lock(&self.items);
        let mut grouped: BTreeMap<String, Vec<(u32, Node)>> = BTreeMap::new();
        for number in numbers {
            let item = usize::try_from(*number).ok().and_then(|n| items.by_number.get(n));
            let item =
                item.ok_or_else(|| OpcError::Denied(format!("item {number} is not one that resolve gave out")))?;
            grouped.entry(item.connection.clone()).or_default().push((*number, item.node.clone()));
        }
        Ok(grouped)
    }

    fn start(&self, link: &Arc<Link>) {
        let mut running = lock(&self.running);
        // Asked under the lock, so that nothing starts after `close` took what runs.
        if self.closed.is_cancelled() || running.contains_key(&link.name) {
            return;
        }
        let task = self.runtime.spawn(supervise(link.clone(), self.closed.clone()));
        running.insert(link.name.clone(), task);
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        // The tasks deliver nothing more; they say goodbye to their servers within a second, and end.
        self.closed.cancel();
    }
}

impl Items {
    fn number(&mut self, connection: &str, node: Node) -> Result<u32, OpcError> {
        let key = (connection.to_owned(), node);
        if let Some(number) = self.numbers.get(&key) {
            return Ok(*number);
        }
        // The client's handle of an item is its number plus one.
        let number = u32::try_from(self.by_number.len()).ok().filter(|n| *n < u32::MAX);
        let number = number.ok_or_else(|| OpcError::Other("there are too many items".to_owned()))?;
        self.by_number.push(Item { connection: connection.to_owned(), node: key.1.clone() });
        self.numbers.insert(key, number);
        Ok(number)
    }
}

/// Reads through a live session; a node whose namespace the server does not have is Bad without being asked for.
pub(super) async fn read_values(live: &Live, items: &[(u32, Node)]) -> Result<Vec<Sample>, OpcError> {
    let mut samples = Vec::with_capacity(items.len());
    let mut asked = Vec::with_capacity(items.len());
    let namespaces = live.namespaces();
    for (item, node) in items {
        match node.on(&namespaces) {
            Some(id) => asked.push((*item, ReadValueId::new_value(id))),
            None => samples.push(bad(*item, StatusCode::BadNodeIdUnknown)),
        }
    }
    let ids: Vec<_> = asked.iter().map(|(_, id)| id.clone()).collect();
    let values = live.limits.read_all(&live.session, &ids).await.map_err(|e| of_request(e.status()))?;
    samples.extend(asked.iter().zip(values).map(|((item, _), data)| value::sample(*item, data)));
    Ok(samples)
}

/// What the answer to a whole request means.
fn of_request(status: StatusCode) -> OpcError {
    match status {
        StatusCode::BadTimeout => OpcError::Timeout,
        StatusCode::BadConnectionClosed | StatusCode::BadNotConnected => OpcError::Disconnected,
        status => OpcError::BadStatus(status.bits()),
    }
}

/// A sample that says only what is wrong with the item.
pub(super) fn bad(item: u32, status: StatusCode) -> Sample {
    Sample { item, value: Value::Null, status: status.bits(), source: None, server: None, data_type: None }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
