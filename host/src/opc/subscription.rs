//! What one session monitors, and the order in which it arrives.
//!
//! It promises that nothing is lost in silence: a gap in the sequence numbers is asked for again, and when the server no longer has it
//! the subscription is made anew, which delivers the present value of every item, in order. An item whose node is not there is reported
//! as a Bad sample with the server's status, and tried again until it is there, also when it was there before. One that the server has and does not monitor is read
//! instead, and people are told for as long as that is so.
//!
//! `stream` is one subscription's publishes; `create` makes subscriptions and items; `refused` has what is not monitored;
//! `check` finds what is not published any more.

mod check;
mod create;
mod refused;
mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use opcua::types::StatusCode;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};

use self::check::Check;
use self::refused::Refused;
use self::stream::{Arrival, Subscription};
use super::connect::namespaces;
use super::connections::read_values;
use super::limits::answered;
use super::link::{Link, Live, Wanted};
use super::node::Node;
use super::{OpcError, Sample};

const TICK: Duration = Duration::from_millis(250);
/// Two answers may overtake each other; a gap older than this is one.
const GAP_AFTER: Duration = Duration::from_millis(100);
/// More missing publishes than this are not asked for one by one.
const LONGEST_GAP: u32 = 100;
/// A tick that came so late was not the server's fault: this process stood still.
const FROZEN: Duration = Duration::from_secs(2);

/// Publishes that wait while the server is asked for something. One more is lost, which shows as a gap: the items are then read anew.
const MOST_ARRIVALS: usize = 1024;

/// The subscriptions of one session.
pub(super) struct Subscriptions {
    link: Arc<Link>,
    live: Live,
    arrivals: mpsc::Receiver<Arrival>,
    sink: mpsc::Sender<Arrival>,
    open: Vec<Subscription>,
    refused: Refused,
    check: Check,
    reading: Reading,
    next_key: u64,
    /// Another subscription would be no help: the server has no more room in this session.
    no_more_room: bool,
    /// Why the session can not go on.
    broken: Option<String>,
}

/// A read beside the publishes: one at a time, and nothing that arrives waits for it.
#[derive(Default)]
struct Reading(JoinSet<Result<Vec<Sample>, OpcError>>);

impl Reading {
    fn begin(&mut self, live: &Live, nodes: Vec<(u32, Node)>) {
        let live = live.clone();
        self.0.spawn(async move { read_values(&live, &nodes).await });
    }

    /// What was read; never, while nothing is being read. Dropping the future loses nothing.
    async fn done(&mut self) -> Result<Vec<Sample>, OpcError> {
        match self.0.join_next().await {
            Some(read) => read.unwrap_or_else(|error| Err(OpcError::Other(error.to_string()))),
            None => std::future::pending().await,
        }
    }
}

impl Subscriptions {
    pub(super) fn new(link: Arc<Link>, live: Live) -> Self {
        let (sink, arrivals) = mpsc::channel(MOST_ARRIVALS);
        Self {
            link,
            live,
            arrivals,
            sink,
            open: Vec::new(),
            refused: Refused::default(),
            check: Check::default(),
            reading: Reading::default(),
            next_key: 0,
            no_more_room: false,
            broken: None,
        }
    }

    /// Subscribes to what is wanted and delivers what arrives, until the server falls silent; says so.
    pub(super) async fn run(&mut self) -> String {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_tick = Instant::now();
        let link = self.link.clone();
        self.create_missing().await;
        loop {
            if let Some(reason) = self.broken.take() {
                return reason;
            }
            tokio::select! {
                Some(arrival) = self.arrivals.recv() => self.accept(arrival).await,
                () = link.changed.notified() => self.create_missing().await,
                read = self.reading.done() => self.judge(read).await,
                _ = ticks.tick() => {
                    let frozen = last_tick.elapsed() > FROZEN + TICK;
                    last_tick = Instant::now();
                    if frozen {
                        self.forgive_silence();
                    } else if let Some(reason) = self.silent() {
                        return reason;
                    }
                    self.close_gaps().await;
                    if self.refused.is_due(last_tick) {
                        self.create_missing().await;
                    }
                    self.look(last_tick);
                    // What took long just now was waiting for the server, not a freeze.
                    last_tick = Instant::now();
                }
            }
        }
    }

    /// Reads what the server does not monitor, and some of what it does.
    fn look(&mut self, now: Instant) {
        if !self.reading.0.is_empty() {
            return;
        }
        let mut items = self.refused.due_polls(now);
        items.extend(self.check.due_reads(&self.open, &self.link, now));
        if !items.is_empty() {
            self.reading.begin(&self.live, self.link.nodes(&items));
        }
    }

    async fn judge(&mut self, read: Result<Vec<Sample>, OpcError>) {
        // A server that does not answer is noticed by its silence.
        let samples = read.unwrap_or_default();
        let found = self.check.judge(&samples, &self.open, &self.link, Instant::now());
        self.refused.polled(samples, &self.link);
        if !found.missing.is_empty() {
            self.refused.add(&found.missing, &self.link);
            self.lose(&found.missing).await;
        }
        if !found.silent.is_empty() {
            let items = found.silent.len();
            warn!(
                connection = self.link.name,
                items, "the server has stopped publishing items: they are monitored anew"
            );
            self.release(&found.silent).await;
            self.create_missing().await;
        }
    }

    /// Stops monitoring items whose nodes are gone; they are tried again until they are there.
    async fn lose(&mut self, items: &[(u32, StatusCode)]) {
        if let Some((_, status)) = items.first() {
            warn!(connection = self.link.name, items = items.len(), %status, "nodes are gone; they are looked for again");
        }
        let items: Vec<u32> = items.iter().map(|(item, _)| *item).collect();
        self.release(&items).await;
    }

    /// Delivers what arrived before the session ended.
    pub(super) fn deliver_rest(&mut self) {
        while let Ok(arrival) = self.arrivals.try_recv() {
            if let Some(subscription) = self.open.iter_mut().find(|s| s.key == arrival.key) {
                // The session is over in any case.
                let _ = subscription.take(arrival, &self.link);
            }
        }
    }

    fn silent(&self) -> Option<String> {
        let silent = self.open.iter().find(|s| s.heard.elapsed() > s.silence)?;
        Some(format!("no publish and no keep-alive for {:.1} s", silent.heard.elapsed().as_secs_f64()))
    }

    /// What arrived while this process stood still is still on its way.
    fn forgive_silence(&mut self) {
        for subscription in &mut self.open {
            subscription.heard = Instant::now();
        }
    }

    /// Creates what is wanted and not there; what cannot be created is reported and tried again later.
    async fn create_missing(&mut self) {
        let now = Instant::now();
        let there: BTreeSet<u32> = self.open.iter().flat_map(|s| s.items.keys().copied()).collect();
        let mut by_interval: BTreeMap<u32, Vec<(u32, Wanted)>> = BTreeMap::new();
        let (mut retried, mut without_node) = (false, false);
        for (item, wanted) in self.link.wanted() {
            if there.contains(&item) || self.refused.waits(item, now) {
                continue;
            }
            retried |= self.refused.is_polled(item);
            without_node |= self.refused.has_no_node(item);
            let publish_ms =
                if wanted.how.publish_ms == 0 { millis(self.link.config.publish) } else { wanted.how.publish_ms };
            by_interval.entry(publish_ms).or_default().push((item, wanted));
        }
        // A server that is still starting may get the namespace later.
        if without_node && let Ok(read) = answered(namespaces(&self.live.session)).await {
            self.live.set_namespaces(read);
        }
        // Another client may have left room since.
        if retried {
            self.open.iter_mut().for_each(|subscription| subscription.full = false);
        }
        for (publish_ms, items) in by_interval {
            self.create_items(publish_ms, items).await;
        }
    }

    async fn accept(&mut self, arrival: Arrival) {
        let key = arrival.key;
        let Some(subscription) = self.open.iter_mut().find(|s| s.key == key) else { return };
        if subscription.take(arrival, &self.link).is_break() {
            return self.renew(key).await;
        }
        let gone: Vec<_> = std::mem::take(&mut subscription.gone).into_iter().collect();
        if !gone.is_empty() {
            self.refused.lost(&gone);
            self.lose(&gone).await;
        }
    }

    /// Asks again for what is missing; makes the subscription anew when the server does not have it any more.
    async fn close_gaps(&mut self) {
        let overdue = |s: &&Subscription| s.gap_since.is_some_and(|since| since.elapsed() > GAP_AFTER);
        let gaps: Vec<u64> = self.open.iter().filter(overdue).map(|s| s.key).collect();
        for key in gaps {
            if !self.republish(key).await {
                self.renew(key).await;
            }
        }
    }

    async fn republish(&mut self, key: u64) -> bool {
        for _ in 0..LONGEST_GAP {
            let Some(subscription) = self.open.iter_mut().find(|s| s.key == key) else { return true };
            if subscription.gap_since.is_none() {
                return true;
            }
            let missing = subscription.expected;
            debug!(connection = self.link.name, missing, "a publish is missing and asked for again");
            match answered(self.live.session.republish(subscription.id, missing)).await {
                Ok(message) => subscription.early.insert(missing, message.notification_data.unwrap_or_default()),
                Err(_) => return false,
            };
            if subscription.deliver(&self.link).is_break() {
                return false;
            }
        }
        false
    }

    /// A new subscription in place of this one: it begins with the present value of every item.
    async fn renew(&mut self, key: u64) {
        let Some(old) = self.open.iter().find(|s| s.key == key) else { return };
        warn!(connection = self.link.name, items = old.items.len(), "publishes were lost: every item is read anew");
        self.end(old.id).await;
        self.create_missing().await;
    }
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
