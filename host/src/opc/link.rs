//! What one connection's session task and the instance share: what is wanted of it, and how it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opcua::client::Session;
use opcua::types::StatusCode;
use tokio::sync::{Notify, watch};
use tracing::warn;

use super::connections::ConnectionStatus;
use super::limits::Limits;
use super::node::Node;
use super::queue::EventQueue;
use super::{ConnectionChange, Monitoring, OpcError, Sample, Value};
use crate::clock::wall_nanos;
use crate::config::OpcConnection;

/// How many Bad items are named.
const BAD_NAMED: usize = 100;

/// One connection of one instance.
pub(super) struct Link {
    pub(super) name: String,
    pub(super) config: OpcConnection,
    pub(super) queue: Arc<EventQueue>,
    /// Signalled when `wanted` grew.
    pub(super) changed: Notify,
    wanted: Mutex<BTreeMap<u32, Wanted>>,
    /// Items whose newest status is Bad, with that status.
    bad: Mutex<BTreeMap<u32, u32>>,
    /// Values that were too large to hand on, and the items that had such.
    too_large: AtomicU64,
    large: Mutex<BTreeSet<u32>>,
    /// Items that the server does not monitor, with its reason.
    unmonitored: Mutex<BTreeMap<u32, StatusCode>>,
    /// What each item was last delivered with.
    newest: Mutex<HashMap<u32, Newest>>,
    /// Items that were read, and of which no notification has come yet.
    read: Mutex<BTreeMap<u32, Sample>>,
    state: watch::Sender<LinkState>,
    told: Mutex<Option<Told>>,
    /// When the server was last heard, nanoseconds since the Unix epoch; 0 for never.
    heard: AtomicI64,
}

/// An item to subscribe to.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) node: Node,
    pub(super) how: Monitoring,
}

/// What an item was last delivered with.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Newest {
    /// Of its value and quality.
    pub(super) fingerprint: u64,
    /// How many publishes there have been of it.
    pub(super) published: u64,
    /// Reading it costs more than reading a number.
    pub(super) is_large: bool,
}

/// A session that works.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) session: Arc<Session>,
    pub(super) limits: Arc<Limits>,
    /// By index, shared by all who use the session: they may grow while it lives.
    namespaces: Arc<Mutex<Arc<Vec<String>>>>,
}

impl Live {
    pub(super) fn new(session: Arc<Session>, namespaces: Arc<Vec<String>>, limits: Arc<Limits>) -> Self {
        Self { session, limits, namespaces: Arc::new(Mutex::new(namespaces)) }
    }

    /// The server's namespace URIs, by index.
    pub(super) fn namespaces(&self) -> Arc<Vec<String>> {
        lock(&self.namespaces).clone()
    }

    pub(super) fn set_namespaces(&self, read: Vec<String>) {
        *lock(&self.namespaces) = Arc::new(read);
    }
}

enum LinkState {
    Connecting,
    Up(Live),
    Down,
}

/// What the instance was told last.
struct Told {
    connected: bool,
    since: i64,
    reason: String,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(name: String, config: OpcConnection, queue: Arc<EventQueue>) -> Self {
        Self {
            name,
            config,
            queue,
            changed: Notify::new(),
            wanted: Mutex::default(),
            bad: Mutex::default(),
            too_large: AtomicU64::new(0),
            large: Mutex::default(),
            unmonitored: Mutex::default(),
            newest: Mutex::default(),
            read: Mutex::default(),
            state: watch::Sender::new(LinkState::Connecting),
            told: Mutex::default(),
            heard: AtomicI64::new(0),
        }
    }

    /// Adds items to what is wanted; all of them or, on error, none.
    pub(super) fn want(&self, items: &[(u32, Node)], how: Monitoring) -> Result<(), OpcError> {
        let mut wanted = lock(&self.wanted);
        for (item, node) in items {
            if wanted.get(item).is_some_and(|known| known.how != how) {
                return Err(OpcError::Denied(format!(
                    "node {node} of connection {} is subscribed to already with other intervals, queue or coalescing: subscribe once",
                    self.name
                )));
            }
        }
        let numbers: Vec<u32> = items.iter().map(|(item, _)| *item).collect();
        self.queue.declare(&self.name, &numbers, how.coalesce);
        for (item, node) in items {
            wanted.entry(*item).or_insert_with(|| Wanted { node: node.clone(), how });
        }
        drop(wanted);
        self.changed.notify_one();
        Ok(())
    }

    pub(super) fn wanted(&self) -> BTreeMap<u32, Wanted> {
        lock(&self.wanted).clone()
    }

    /// The nodes of items that are wanted.
    pub(super) fn nodes(&self, items: &[u32]) -> Vec<(u32, Node)> {
        let wanted = lock(&self.wanted);
        items.iter().filter_map(|item| Some((*item, wanted.get(item)?.node.clone()))).collect()
    }

    /// The server does not monitor the item; what is read of it does not change that.
    pub(super) fn not_monitored(&self, item: u32, status: StatusCode) {
        lock(&self.unmonitored).insert(item, status);
    }

    /// The item is monitored again, or has no node to monitor.
    pub(super) fn monitored(&self, item: u32) {
        lock(&self.unmonitored).remove(&item);
    }

    /// The session, once it is known whether there is one.
    pub(super) async fn live(&self) -> Option<Live> {
        let mut state = self.state.subscribe();
        match &*state.wait_for(|state| !matches!(state, LinkState::Connecting)).await.ok()? {
            LinkState::Up(live) => Some(live.clone()),
            _ => None,
        }
    }

    /// The server was heard just now.
    pub(super) fn hear(&self) {
        self.heard.store(wall_nanos(), Ordering::Relaxed);
    }

    /// Delivers values that were read before their items are monitored, so that nobody waits for the first publish.
    pub(super) fn push_read(&self, samples: Vec<Sample>) {
        self.remember(&samples, 0);
        lock(&self.read).extend(samples.iter().map(|sample| (sample.item, sample.clone())));
        self.deliver(samples);
    }

    /// Delivers what the server published.
    ///
    /// A server begins a monitored item with its present value, which is what was read, or with one that it had kept: one that is
    /// older than what was read goes back in time, which for a counter is a fall. Only an item's first can be either.
    pub(super) fn push(&self, mut samples: Vec<Sample>) {
        self.remember(&samples, 1);
        let mut read = lock(&self.read);
        if !read.is_empty() {
            samples.retain(|sample| {
                let before = read.remove(&sample.item);
                before.is_none_or(|before| !is_same(sample, &before) && !is_older(sample, &before))
            });
        }
        drop(read);
        self.deliver(samples);
    }

    fn remember(&self, samples: &[Sample], publishes: u64) {
        let mut newest = lock(&self.newest);
        for sample in samples {
            let known = newest.entry(sample.item).or_default();
            known.fingerprint = fingerprint(sample);
            known.published += publishes;
            known.is_large = is_large(&sample.value);
        }
    }

    /// What an item was last delivered with in this session.
    pub(super) fn newest(&self, item: u32) -> Option<Newest> {
        lock(&self.newest).get(&item).copied()
    }

    fn deliver(&self, samples: Vec<Sample>) {
        if samples.is_empty() {
            return;
        }
        let mut bad = lock(&self.bad);
        for sample in &samples {
            if sample.status == StatusCode::BadResponseTooLarge.bits() {
                self.say_too_large(sample.item);
            }
            if sample.status >> 31 == 1 {
                bad.insert(sample.item, sample.status);
            } else if !bad.is_empty() {
                bad.remove(&sample.item);
            }
        }
        drop(bad);
        self.queue.push_samples(samples);
    }

    fn say_too_large(&self, item: u32) {
        self.too_large.fetch_add(1, Ordering::Relaxed);
        let first = lock(&self.large).insert(item);
        if let Some(node) = lock(&self.wanted).get(&item).map(|wanted| wanted.node.to_string()).filter(|_| first) {
            warn!(connection = self.name, node, "a value of more than 1 MiB is not handed on");
        }
    }

    /// The session works from now on; said before the first of its samples.
    pub(super) fn up(&self, live: Live, how: String) {
        let now = wall_nanos();
        self.heard.store(now, Ordering::Relaxed);
        self.tell(true, now, how);
        self.state.send_replace(LinkState::Up(live));
    }

    /// What is not monitored, in words for people; `None` when all is.
    pub(super) fn shortfall(&self) -> Option<String> {
        let unmonitored = lock(&self.unmonitored);
        let (count, status) = (unmonitored.len(), *unmonitored.values().next()?);
        drop(unmonitored);
        let items = lock(&self.wanted).len();
        Some(format!(
            "the server does not monitor {count} of {items} items ({status}): they are read every second instead, and what is shorter is missed"
        ))
    }

    /// There is no session; said once, with the reason at that time. The status always has the newest reason.
    pub(super) fn down(&self, reason: String) {
        self.state.send_replace(LinkState::Down);
        // The next session may have room for them.
        lock(&self.unmonitored).clear();
        lock(&self.newest).clear();
        // The next server's clock, or the same one's after its restart, may be behind: nothing it publishes is older than it was read.
        lock(&self.read).clear();
        let mut told = lock(&self.told);
        if let Some(told) = told.as_mut().filter(|told| !told.connected) {
            told.reason = reason;
            return;
        }
        drop(told);
        let heard = self.heard.load(Ordering::Relaxed);
        let since = if heard == 0 { wall_nanos() } else { heard };
        self.tell(false, since, reason);
    }

    fn tell(&self, connected: bool, since: i64, reason: String) {
        *lock(&self.told) = Some(Told { connected, since, reason: reason.clone() });
        let connection = self.name.clone();
        self.queue.push_connection(ConnectionChange { connection, connected, since, detected: wall_nanos(), reason });
    }

    pub(super) fn status(&self, name: impl Fn(u32) -> String) -> ConnectionStatus {
        let losses = self.queue.losses(&self.name);
        let bad = lock(&self.bad);
        let named =
            bad.iter().take(BAD_NAMED).map(|(item, status)| (name(*item), StatusCode::from(*status).to_string()));
        let (named, bad_items) = (named.collect(), bad.len());
        drop(bad);
        let unmonitored = lock(&self.unmonitored);
        let not_monitored: Vec<_> =
            unmonitored.iter().take(BAD_NAMED).map(|(item, status)| (name(*item), status.to_string())).collect();
        let not_monitored_items = unmonitored.len();
        drop(unmonitored);
        let shortfall = self.shortfall();
        let told = lock(&self.told);
        let mut reason = told.as_ref().map_or_else(|| "not needed yet".to_owned(), |t| t.reason.clone());
        if let Some(shortfall) = shortfall.filter(|_| told.as_ref().is_some_and(|t| t.connected)) {
            reason = format!("{reason}; {shortfall}");
        }
        ConnectionStatus {
            connection: self.name.clone(),
            connected: told.as_ref().is_some_and(|t| t.connected),
            since: told.as_ref().map(|t| t.since),
            reason,
            items: lock(&self.wanted).len(),
            bad: named,
            bad_items,
            not_monitored,
            not_monitored_items,
            too_large: self.too_large.load(Ordering::Relaxed),
            coalesced: losses.coalesced,
            dropped: losses.dropped,
        }
    }
}

/// Tells values and qualities apart without keeping them. Times and info bits are left out: they differ between a read and a publish.
pub(super) fn fingerprint(sample: &Sample) -> u64 {
    let mut hasher = DefaultHasher::new();
    (sample.status >> 30).hash(&mut hasher);
    std::mem::discriminant(&sample.value).hash(&mut hasher);
    match &sample.value {
        Value::Null => {}
        Value::Boolean(is) => is.hash(&mut hasher),
        Value::Int(n) | Value::Time(n) => n.hash(&mut hasher),
        Value::Uint(n) => n.hash(&mut hasher),
        Value::Real(n) => n.to_bits().hash(&mut hasher),
        Value::Text(text) => text.hash(&mut hasher),
        Value::Bytes(bytes) => bytes.hash(&mut hasher),
        Value::Ints(list) => list.hash(&mut hasher),
        Value::Uints(list) => list.hash(&mut hasher),
        Value::Reals(list) => list.iter().for_each(|n| n.to_bits().hash(&mut hasher)),
        Value::Texts(list) => list.hash(&mut hasher),
        Value::Other(kind, text) => (kind, text).hash(&mut hasher),
    }
    hasher.finish()
}

/// More than a number or a short text.
fn is_large(value: &Value) -> bool {
    const LONG: usize = 1024;
    match value {
        Value::Text(text) | Value::Other(_, text) => text.len() > LONG,
        Value::Bytes(bytes) => bytes.len() > LONG,
        Value::Ints(_) | Value::Uints(_) | Value::Reals(_) | Value::Texts(_) => true,
        _ => false,
    }
}

/// Servers differ in whether a value keeps its time from one look to the next.
fn is_same(sample: &Sample, as_before: &Sample) -> bool {
    (&sample.value, sample.status) == (&as_before.value, as_before.status)
}

fn is_older(sample: &Sample, than: &Sample) -> bool {
    sample.source.zip(than.source).is_some_and(|(one, other)| one < other)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
