//! Feeds a queue from the side of the database: the next round of samples arrives when the transaction for the last one begins.
//!
//! So there is always work, batches have one size, and no OPC UA server takes part. Whoever is measured sees the same samples in
//! the same batches, and pays the same for their making.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use host::capability::opc::{Opener, Sessions};
use host::clock::wall_nanos;
use host::config::OpcConnection;
use host::lease::Held;
use host::opc::{EventQueue, Sample, Value};
use host::store::{Database, DbError, Options, Rowset, Statement, Transaction, Value as DbValue};
use tokio::runtime::Handle;

/// Makes samples of counters that all count, one unit at a time.
#[derive(Debug)]
pub struct Feed {
    queue: Arc<EventQueue>,
    items: Vec<u32>,
    going: AtomicBool,
    place: Mutex<Place>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    round: usize,
    next: usize,
    value: u64,
    pushed: u64,
    pushing: Duration,
}

impl Feed {
    /// Into `queue`, in rounds of `round` samples, item after item.
    #[must_use]
    pub fn new(queue: Arc<EventQueue>, items: Vec<u32>, round: usize) -> Self {
        let place = Place { round, next: 0, value: 1, pushed: 0, pushing: Duration::ZERO };
        Self { queue, items, going: AtomicBool::new(false), place: Mutex::new(place) }
    }

    /// Begins, in rounds of this size.
    pub fn go(&self, round: usize) {
        lock(&self.place).round = round;
        self.going.store(true, Ordering::SeqCst);
        self.push();
    }

    /// One sample of each item, and then no other.
    pub fn once(&self) {
        lock(&self.place).round = self.items.len();
        self.push();
    }

    /// The next round does not come.
    pub fn stop(&self) {
        self.going.store(false, Ordering::SeqCst);
    }

    /// Samples that were pushed so far, and the time that took.
    #[must_use]
    pub fn pushed(&self) -> (u64, Duration) {
        let place = *lock(&self.place);
        (place.pushed, place.pushing)
    }

    /// The next round, if the one before was taken.
    fn next_round(&self) {
        if self.going.load(Ordering::SeqCst) && self.queue.waiting() == 0 {
            self.push();
        }
    }

    fn push(&self) {
        let began = Instant::now();
        let mut place = lock(&self.place);
        let now = wall_nanos();
        let mut samples = Vec::with_capacity(place.round);
        for _ in 0..place.round {
            let Some(item) = self.items.get(place.next) else { break };
            samples.push(Sample {
                item: *item,
                value: Value::Uint(place.value),
                status: 0,
                source: Some(now),
                server: Some(now),
                data_type: None,
            });
            place.next += 1;
            if place.next == self.items.len() {
                (place.next, place.value) = (0, place.value + 1);
            }
        }
        place.pushed += samples.len() as u64;
        self.queue.push_samples(samples);
        place.pushing += began.elapsed();
    }
}

/// Hands out connections that never connect, and keeps them.
#[derive(Debug)]
pub struct Unconnected {
    configs: BTreeMap<String, OpcConnection>,
    runtime: Handle,
    opened: Mutex<Option<Sessions>>,
}

impl Unconnected {
    /// With these connections' names; whatever listens there must not be an OPC UA server.
    #[must_use]
    pub fn new(configs: BTreeMap<String, OpcConnection>, runtime: Handle) -> Self {
        Self { configs, runtime, opened: Mutex::default() }
    }

    /// The connections and the queue of the newest instance.
    #[must_use]
    pub fn opened(&self) -> Option<Sessions> {
        lock(&self.opened).clone()
    }
}

impl Opener for Unconnected {
    fn open(&self, _: &Held) -> Sessions {
        let sessions = Sessions::open(&self.configs, self.runtime.clone());
        *lock(&self.opened) = Some(sessions.clone());
        sessions
    }
}

/// A database that feeds, and counts what was booked in it.
pub struct Fed {
    inner: Arc<dyn Database>,
    tally: Arc<Tally>,
}

/// What was committed through one [`Fed`].
#[derive(Debug, Default)]
pub struct Tally {
    feed: Mutex<Option<Arc<Feed>>>,
    booked: AtomicU64,
    committed: AtomicU64,
    texts: Mutex<Vec<String>>,
    last: Mutex<Option<Instant>>,
}

impl Fed {
    /// Over a real one. Nothing is fed before [`Tally::feed`].
    #[must_use]
    pub fn new(inner: Arc<dyn Database>) -> Self {
        Self { inner, tally: Arc::default() }
    }

    /// What is committed.
    #[must_use]
    pub fn tally(&self) -> Arc<Tally> {
        self.tally.clone()
    }
}

impl Tally {
    /// From now on `feed` is asked for a round at each `begin`.
    pub fn feed(&self, feed: Arc<Feed>) {
        *lock(&self.feed) = Some(feed);
    }

    /// Rows of `bookings` that were committed.
    #[must_use]
    pub fn booked(&self) -> u64 {
        self.booked.load(Ordering::SeqCst)
    }

    /// Transactions that were committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed.load(Ordering::SeqCst)
    }

    /// When the last one was.
    #[must_use]
    pub fn last(&self) -> Option<Instant> {
        *lock(&self.last)
    }

    /// The texts of the last transaction that booked something.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        lock(&self.texts).clone()
    }
}

#[async_trait]
impl Database for Fed {
    async fn begin(&self, held: &Held, options: Options) -> Result<Box<dyn Transaction>, DbError> {
        if let Some(feed) = &*lock(&self.tally.feed) {
            feed.next_round();
        }
        let inner = self.inner.begin(held, options).await?;
        Ok(Box::new(Watched { inner, tally: self.tally.clone(), booked: 0 }))
    }

    fn fence_refusals(&self) -> u64 {
        self.inner.fence_refusals()
    }
}

struct Watched {
    inner: Box<dyn Transaction>,
    tally: Arc<Tally>,
    booked: u64,
}

#[async_trait]
impl Transaction for Watched {
    fn now(&self) -> i64 {
        self.inner.now()
    }

    async fn query(&mut self, sql: &str, params: Vec<DbValue>) -> Result<Rowset, DbError> {
        self.inner.query(sql, params).await
    }

    async fn execute(&mut self, work: Vec<Statement>) -> Result<Vec<u64>, DbError> {
        let booking = work.iter().position(|statement| statement.sql.starts_with("INSERT INTO bookings "));
        if booking.is_some() && lock(&self.tally.texts).is_empty() {
            *lock(&self.tally.texts) = work.iter().map(|statement| statement.sql.clone()).collect();
        }
        let affected = self.inner.execute(work).await?;
        self.booked += booking.and_then(|place| affected.get(place)).copied().unwrap_or(0);
        Ok(affected)
    }

    async fn commit(self: Box<Self>) -> Result<(), DbError> {
        let Self { inner, tally, booked } = *self;
        inner.commit().await?;
        *lock(&tally.last) = Some(Instant::now());
        tally.booked.fetch_add(booked, Ordering::SeqCst);
        tally.committed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
