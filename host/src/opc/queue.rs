//! The one queue between an instance and its OPC UA sessions.
//!
//! It exists so that a slow guest or a slow database never slows a session, and so that what that costs is bounded and said. It
//! promises:
//!
//! * Samples and connection changes keep the order in which they came; nothing overtakes a change of its own connection.
//! * While fewer than [`Bounds::high_water`] entries wait, every value is delivered.
//! * Above it, an item that allows coalescing may lose a waiting value to a newer one of the same type that is not smaller, both of
//!   them Good. The value a fall ended on, the value before it, and the first value are always delivered: 1000 → 0 → 1200 arrives as
//!   three.
//! * Above [`Bounds::limit`], or 64 MiB, items that do not allow coalescing lose their oldest waiting values, counted by connection.
//!   Above twice either, counters do too. The newest value of an item is never lost; each is at most 1 MiB.
//! * A batch has at most 4 MiB, so that no guest is handed more than it can hold.
//!
//! A push costs O(1) (amortised), and no lock is held across an await.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::{ConnectionChange, DataType, Sample, Value, value};

/// From so many waiting bytes on, superseded values are dropped.
const MOST_BYTES: usize = 64 << 20;
/// A batch that has so many bytes is handed on.
const BATCH_BYTES: usize = 4 << 20;

/// When the queue begins to save room.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// From so many waiting entries on, values may be coalesced.
    pub high_water: usize,
    /// From so many on, superseded values are dropped.
    pub limit: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        // At 100 bytes an entry, the limit is 10 MB, and minutes of an ordinary plant.
        Self { high_water: 20_000, limit: 100_000 }
    }
}

/// What the actor takes at once.
#[derive(Debug, Clone, PartialEq)]
pub enum Batch {
    /// Samples, in order for each item; never empty.
    Samples(Vec<Sample>),
    /// A connection came up or went down.
    Connection(ConnectionChange),
}

/// What the queue saved room at the cost of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Values that a newer, not smaller one took the place of.
    pub coalesced: u64,
    /// Values that were thrown away because the queue was full.
    pub dropped: u64,
}

/// One bounded queue for each instance.
#[derive(Debug)]
pub struct EventQueue {
    state: Mutex<State>,
    filled: Notify,
    bounds: Bounds,
}

impl Default for EventQueue {
    fn default() -> Self {
        Self::new(Bounds::default())
    }
}

impl EventQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self { state: Mutex::default(), filled: Notify::new(), bounds }
    }

    /// Says which connection the items belong to, and whether their values may be coalesced.
    pub fn declare(&self, connection: &str, items: &[u32], coalesce: bool) {
        let mut state = self.lock();
        let link = state.link(connection);
        for item in items {
            let known = state.items.entry(*item).or_default();
            known.link = link;
            known.coalesce = coalesce;
        }
    }

    /// Appends samples, in order.
    pub fn push_samples(&self, samples: impl IntoIterator<Item = Sample>) {
        let mut state = self.lock();
        for sample in samples {
            state.push_sample(sample, self.bounds);
        }
        drop(state);
        self.filled.notify_one();
    }

    /// Appends a connection change.
    pub fn push_connection(&self, change: ConnectionChange) {
        let mut state = self.lock();
        let link = state.link(&change.connection);
        let position = state.append(Entry::Connection(change));
        if let Some(link) = state.links.get_mut(link) {
            link.last_change = Some(position);
        }
        drop(state);
        self.filled.notify_one();
    }

    /// Waits for something, then takes at most `max` samples or one connection change. Dropping the future loses nothing.
    pub async fn next(&self, max: usize) -> Batch {
        loop {
            let filled = self.filled.notified();
            if let Some(batch) = self.try_next(max) {
                return batch;
            }
            filled.await;
        }
    }

    /// Takes at most `max` samples or one connection change, if anything waits.
    #[must_use]
    pub fn try_next(&self, max: usize) -> Option<Batch> {
        self.lock().take(max.max(1))
    }

    /// How many may wait before superseded values are dropped.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bounds.limit
    }

    /// How many samples and connection changes wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().live
    }

    /// How the server sent each item's newest value.
    #[must_use]
    pub fn data_types(&self, items: &[u32]) -> Vec<Option<DataType>> {
        let state = self.lock();
        items.iter().map(|item| state.items.get(item).and_then(|known| known.data_type)).collect()
    }

    /// What was lost so far, for a connection.
    #[must_use]
    pub fn losses(&self, connection: &str) -> Losses {
        let state = self.lock();
        let link = state.names.get(connection).and_then(|link| state.links.get(*link));
        link.map(|link| link.losses).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under this lock half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
enum Entry {
    Sample(Sample),
    Connection(ConnectionChange),
    /// A sample that was dropped from the middle.
    Gone,
}

/// What is remembered of an item's newest value, waiting or delivered.
#[derive(Debug, Default)]
struct Item {
    link: usize,
    coalesce: bool,
    /// Where it stands in the queue; may be delivered already.
    position: Option<u64>,
    newest: Option<Newest>,
    data_type: Option<DataType>,
}

#[derive(Debug, Clone, Copy)]
struct Newest {
    number: Option<Number>,
    source: Option<i64>,
    /// It went on from its predecessor without a fall or a change of type or quality: losing it hides nothing.
    continues: bool,
}

#[derive(Debug, Clone, Copy)]
enum Number {
    Int(i64),
    Uint(u64),
    Real(f64),
}

impl Number {
    /// The number of a Good sample; anything else is not coalesced.
    fn of(sample: &Sample) -> Option<Self> {
        // Severity alone: the info bits say nothing about whether the value is to be trusted.
        if sample.status >> 30 != 0 {
            return None;
        }
        match sample.value {
            Value::Int(n) => Some(Self::Int(n)),
            Value::Uint(n) => Some(Self::Uint(n)),
            Value::Real(n) => Some(Self::Real(n)),
            _ => None,
        }
    }

    /// Of the same type and not greater.
    fn rises_to(self, newer: Self) -> bool {
        match (self, newer) {
            (Self::Int(a), Self::Int(b)) => a <= b,
            (Self::Uint(a), Self::Uint(b)) => a <= b,
            (Self::Real(a), Self::Real(b)) => a <= b,
            _ => false,
        }
    }
}

impl Newest {
    fn after(older: Option<Self>, sample: &Sample) -> Self {
        let number = Number::of(sample);
        let rises = match (older.and_then(|o| o.number), number) {
            (Some(older), Some(newer)) => older.rises_to(newer),
            _ => false,
        };
        let in_time = match (older.and_then(|o| o.source), sample.source) {
            (Some(older), Some(newer)) => older <= newer,
            _ => true,
        };
        Self { number, source: sample.source, continues: rises && in_time }
    }
}

#[derive(Debug, Default)]
struct Link {
    /// Where the newest change of this connection stands: no value moves before it.
    last_change: Option<u64>,
    losses: Losses,
}

#[derive(Debug, Default)]
struct State {
    entries: VecDeque<Entry>,
    /// The position of the first entry; positions only grow.
    head: u64,
    /// Entries that are not `Gone`, and the bytes of those that are samples.
    live: usize,
    bytes: usize,
    items: HashMap<u32, Item>,
    links: Vec<Link>,
    names: BTreeMap<String, usize>,
    /// Positions of superseded values, oldest first: of plain items, and of those that coalesce. May name delivered ones.
    plain: VecDeque<u64>,
    counters: VecDeque<u64>,
}

impl State {
    fn link(&mut self, name: &str) -> usize {
        if let Some(link) = self.names.get(name) {
            return *link;
        }
        self.links.push(Link::default());
        self.names.insert(name.to_owned(), self.links.len() - 1);
        self.links.len() - 1
    }

    fn append(&mut self, entry: Entry) -> u64 {
        self.entries.push_back(entry);
        self.live += 1;
        self.head + self.entries.len() as u64 - 1
    }

    fn at(&mut self, position: u64) -> Option<&mut Entry> {
        let index = usize::try_from(position.checked_sub(self.head)?).ok()?;
        self.entries.get_mut(index)
    }

    fn push_sample(&mut self, sample: Sample, bounds: Bounds) {
        let (item, data_type) = (sample.item, sample.data_type);
        let (older, before, coalesce, link) = {
            let known = self.items.entry(item).or_default();
            (known.newest, known.position.filter(|p| *p >= self.head), known.coalesce, known.link)
        };
        let newest = Newest::after(older, &sample);
        let changed_since = self.links.get(link).and_then(|l| l.last_change);
        let replaceable = before.filter(|position| {
            let hides_nothing = newest.continues && older.is_some_and(|o| o.continues);
            let same_side = changed_since.is_none_or(|change| *position > change);
            coalesce && self.live >= bounds.high_water && hides_nothing && same_side
        });
        self.bytes += size(&sample);
        let position = match replaceable {
            Some(position) => {
                let before = self.at(position).map(|entry| std::mem::replace(entry, Entry::Sample(sample)));
                self.forget(before.as_ref());
                self.count(link, |losses| losses.coalesced += 1);
                position
            }
            None => {
                if let Some(superseded) = before {
                    if coalesce { &mut self.counters } else { &mut self.plain }.push_back(superseded);
                }
                self.append(Entry::Sample(sample))
            }
        };
        if let Some(known) = self.items.get_mut(&item) {
            known.newest = Some(newest);
            known.data_type = data_type.or(known.data_type);
            known.position = Some(position);
        }
        self.keep_within(bounds);
    }

    fn keep_within(&mut self, bounds: Bounds) {
        while self.live > bounds.limit || self.bytes > MOST_BYTES {
            let Some(position) = self.plain.pop_front() else { break };
            self.drop_at(position);
        }
        while self.live > bounds.limit.saturating_mul(2) || self.bytes > 2 * MOST_BYTES {
            let Some(position) = self.counters.pop_front() else { break };
            self.drop_at(position);
        }
        // Each round of this is paid for by as many drops as it moves entries.
        if self.entries.len() > self.live.saturating_mul(2) + 1024 {
            self.close_ranks();
        }
    }

    fn drop_at(&mut self, position: u64) {
        let Some(entry) = self.at(position) else { return };
        let Entry::Sample(sample) = entry else { return };
        let item = sample.item;
        let dropped = std::mem::replace(entry, Entry::Gone);
        self.forget(Some(&dropped));
        self.live -= 1;
        let link = self.items.get(&item).map(|i| i.link).unwrap_or_default();
        self.count(link, |losses| losses.dropped += 1);
    }

    fn forget(&mut self, entry: Option<&Entry>) {
        if let Some(Entry::Sample(sample)) = entry {
            self.bytes = self.bytes.saturating_sub(size(sample));
        }
    }

    fn count(&mut self, link: usize, add: impl FnOnce(&mut Losses)) {
        if self.links.is_empty() {
            // A sample of an item that nobody declared.
            self.links.push(Link::default());
        }
        if let Some(link) = self.links.get_mut(link) {
            add(&mut link.losses);
        }
    }

    /// Removes what is `Gone` and gives every entry a new position.
    fn close_ranks(&mut self) {
        // New positions begin behind all the old ones, so that an old one can never name a new entry.
        self.head += self.entries.len() as u64;
        self.entries.retain(|entry| !matches!(entry, Entry::Gone));
        self.plain.clear();
        self.counters.clear();
        for item in self.items.values_mut() {
            item.position = None;
        }
        for link in &mut self.links {
            link.last_change = None;
        }
        for (position, entry) in (self.head..).zip(&self.entries) {
            match entry {
                Entry::Sample(sample) => {
                    let known = self.items.entry(sample.item).or_default();
                    if let Some(superseded) = known.position.replace(position) {
                        if known.coalesce { &mut self.counters } else { &mut self.plain }.push_back(superseded);
                    }
                }
                Entry::Connection(change) => {
                    let link = self.names.get(&change.connection).and_then(|link| self.links.get_mut(*link));
                    if let Some(link) = link {
                        link.last_change = Some(position);
                    }
                }
                Entry::Gone => {}
            }
        }
    }

    fn take(&mut self, max: usize) -> Option<Batch> {
        let mut samples = Vec::new();
        let mut bytes = 0;
        while samples.len() < max && bytes < BATCH_BYTES {
            let change_next = matches!(self.entries.front(), Some(Entry::Connection(_)));
            if change_next && !samples.is_empty() {
                break;
            }
            let Some(entry) = self.entries.pop_front() else { break };
            self.forget(Some(&entry));
            self.head += 1;
            match entry {
                Entry::Gone => {}
                Entry::Sample(sample) => {
                    self.live -= 1;
                    bytes += size(&sample);
                    samples.push(sample);
                }
                Entry::Connection(change) => {
                    self.live -= 1;
                    return Some(Batch::Connection(change));
                }
            }
        }
        for superseded in [&mut self.plain, &mut self.counters] {
            while superseded.front().is_some_and(|position| *position < self.head) {
                superseded.pop_front();
            }
        }
        (!samples.is_empty()).then_some(Batch::Samples(samples))
    }
}

/// How much memory a sample takes, in bytes.
fn size(sample: &Sample) -> usize {
    size_of::<Sample>() + value::size(&sample.value)
}

#[cfg(test)]
mod tests;
