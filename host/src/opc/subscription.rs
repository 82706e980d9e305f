//! What one session monitors, and the order in which it arrives.
//!
//! It promises that nothing is lost in silence: a gap in the sequence numbers is asked for again, and when the server no longer has it
//! the subscription is made anew, which delivers the present value of every item, in order. An item that could not be created is
//! reported as a Bad sample with the server's status, and tried again until it is there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use opcua::client::{MonitoredItemMap, OnSubscriptionNotificationCore};
use opcua::types::{
    DataChangeNotification, ExtensionObject, MonitoredItemCreateRequest, MonitoringMode, MonitoringParameters,
    NotificationMessage, ReadValueId, StatusChangeNotification, StatusCode, TimestampsToReturn,
};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{debug, warn};

use super::connect::namespaces;
use super::connections::{bad, read_values};
use super::link::{Link, Live, Wanted};
use super::node::Node;
use super::value;

const TICK: Duration = Duration::from_millis(250);
/// Items in one request; halved for servers that allow fewer.
const CREATE_CHUNK: usize = 1000;
/// Values in one publish: more, and some servers' answers are too large for their own limits.
const NOTIFICATIONS_PER_PUBLISH: u32 = 1000;
/// Below this a burst between two publishes would be lost in the server.
const SMALLEST_QUEUE: u32 = 10;
/// Two answers may overtake each other; a gap older than this is one.
const GAP_AFTER: Duration = Duration::from_millis(100);
/// More missing publishes than this are not asked for one by one.
const LONGEST_GAP: u32 = 100;
/// Reading is for speed only: a server that takes longer publishes its values.
const READ_FIRST_WITHIN: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(5);
/// A tick that came so late was not the server's fault: this process stood still.
const FROZEN: Duration = Duration::from_secs(2);

/// The subscriptions of one session.
pub(super) struct Subscriptions {
    link: Arc<Link>,
    live: Live,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    sink: mpsc::UnboundedSender<Arrival>,
    open: Vec<Subscription>,
    failed: BTreeMap<u32, Failed>,
    next_key: u64,
    chunk: usize,
}

struct Subscription {
    key: u64,
    id: u32,
    publish_ms: u32,
    items: BTreeSet<u32>,
    /// The sequence number that comes next, and the one that the server will use next as far as is known.
    expected: u32,
    known: u32,
    early: BTreeMap<u32, Vec<ExtensionObject>>,
    gap_since: Option<Instant>,
    heard: Instant,
    silence: Duration,
}

struct Failed {
    status: StatusCode,
    pause: Duration,
    again: Instant,
}

/// One publish response.
struct Arrival {
    key: u64,
    sequence: u32,
    data: Vec<ExtensionObject>,
    at: Instant,
}

/// Sees every publish response, also the empty ones that keep a subscription alive.
struct Sink {
    key: u64,
    out: mpsc::UnboundedSender<Arrival>,
    link: Arc<Link>,
}

impl OnSubscriptionNotificationCore for Sink {
    fn on_subscription_notification(&mut self, message: NotificationMessage, _: MonitoredItemMap<'_>) {
        self.link.hear();
        let data = message.notification_data.unwrap_or_default();
        // Nobody listens any more: the session is being closed.
        let _ = self.out.send(Arrival { key: self.key, sequence: message.sequence_number, data, at: Instant::now() });
    }
}

impl Subscriptions {
    pub(super) fn new(link: Arc<Link>, live: Live) -> Self {
        let (sink, arrivals) = mpsc::unbounded_channel();
        Self { link, live, arrivals, sink, open: Vec::new(), failed: BTreeMap::new(), next_key: 0, chunk: CREATE_CHUNK }
    }

    /// Subscribes to what is wanted and delivers what arrives, until the server falls silent; says so.
    pub(super) async fn run(&mut self) -> String {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_tick = Instant::now();
        let link = self.link.clone();
        self.create_missing().await;
        loop {
            tokio::select! {
                Some(arrival) = self.arrivals.recv() => self.accept(arrival).await,
                () = link.changed.notified() => self.create_missing().await,
                _ = ticks.tick() => {
                    let frozen = last_tick.elapsed() > FROZEN + TICK;
                    last_tick = Instant::now();
                    if frozen {
                        self.forgive_silence();
                    } else if let Some(reason) = self.silent() {
                        return reason;
                    }
                    self.close_gaps().await;
                    if self.failed.values().any(|failed| failed.again <= last_tick) {
                        self.create_missing().await;
                    }
                    // What took long just now was waiting for the server, not a freeze.
                    last_tick = Instant::now();
                }
            }
        }
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
        let there: BTreeSet<u32> = self.open.iter().flat_map(|s| s.items.iter().copied()).collect();
        let mut by_interval: BTreeMap<u32, Vec<(u32, Wanted)>> = BTreeMap::new();
        let mut retried = false;
        for (item, wanted) in self.link.wanted() {
            let failed = self.failed.get(&item);
            if there.contains(&item) || failed.is_some_and(|failed| failed.again > now) {
                continue;
            }
            retried |= failed.is_some_and(|failed| failed.status == StatusCode::BadNodeIdUnknown);
            let publish_ms =
                if wanted.how.publish_ms == 0 { millis(self.link.config.publish) } else { wanted.how.publish_ms };
            by_interval.entry(publish_ms).or_default().push((item, wanted));
        }
        // A server that is still starting may get the namespace later.
        if retried && let Ok(read) = namespaces(&self.live.session).await {
            self.live.namespaces = Arc::new(read);
        }
        for (publish_ms, items) in by_interval {
            self.create_items(publish_ms, items).await;
        }
    }

    async fn create_items(&mut self, publish_ms: u32, items: Vec<(u32, Wanted)>) {
        self.read_first(&items).await;
        let subscription = match self.subscription(publish_ms).await {
            Ok(subscription) => subscription,
            Err(status) => {
                let items: Vec<_> = items.into_iter().map(|(item, _)| (item, status)).collect();
                return self.report(&items);
            }
        };
        let mut refused = Vec::new();
        let mut requests = Vec::new();
        for (item, wanted) in items {
            match wanted.node.on(&self.live.namespaces) {
                Some(id) => requests.push((item, self.request(item, ReadValueId::new_value(id), &wanted))),
                None => refused.push((item, StatusCode::BadNodeIdUnknown)),
            }
        }
        let mut rest = requests.as_slice();
        while !rest.is_empty() {
            let (chunk, later) = rest.split_at(self.chunk.min(rest.len()));
            let asked = chunk.iter().map(|(_, request)| request.clone()).collect();
            match self.live.session.create_monitored_items(subscription, TimestampsToReturn::Both, asked).await {
                Ok(results) => {
                    for ((item, _), created) in chunk.iter().zip(results) {
                        match created.result.status_code {
                            status if status.is_bad() => refused.push((*item, status)),
                            _ => self.created(subscription, *item),
                        }
                    }
                }
                Err(e) if is_too_much(e.status()) && chunk.len() > 1 => {
                    self.chunk = chunk.len().div_ceil(2);
                    continue;
                }
                Err(e) => {
                    if e.status() == StatusCode::BadSubscriptionIdInvalid {
                        self.open.retain(|s| s.id != subscription);
                    }
                    refused.extend(rest.iter().map(|(item, _)| (*item, e.status())));
                    break;
                }
            }
            rest = later;
        }
        self.report(&refused);
    }

    /// Delivers the items' present values without waiting for the first publish. Before they are monitored, so that what the server
    /// publishes is newer; what cannot be read now is published later.
    async fn read_first(&self, items: &[(u32, Wanted)]) {
        let nodes: Vec<(u32, Node)> = items.iter().map(|(item, wanted)| (*item, wanted.node.clone())).collect();
        if let Ok(Ok(mut samples)) = timeout(READ_FIRST_WITHIN, read_values(&self.live, &nodes)).await {
            samples.retain(|sample| !StatusCode::from(sample.status).is_bad());
            self.link.push_read(samples);
        }
    }

    fn request(&self, item: u32, node: ReadValueId, wanted: &Wanted) -> MonitoredItemCreateRequest {
        let sampling_ms =
            if wanted.how.sampling_ms == 0 { millis(self.link.config.sampling) } else { wanted.how.sampling_ms };
        let parameters = MonitoringParameters {
            client_handle: item.saturating_add(1),
            sampling_interval: f64::from(sampling_ms),
            // No filter: a change of status or value is reported, and no deadband swallows a count.
            filter: ExtensionObject::null(),
            queue_size: wanted.how.queue.max(SMALLEST_QUEUE),
            discard_oldest: true,
        };
        MonitoredItemCreateRequest::new(node, MonitoringMode::Reporting, parameters)
    }

    fn created(&mut self, subscription: u32, item: u32) {
        self.failed.remove(&item);
        if let Some(subscription) = self.open.iter_mut().find(|s| s.id == subscription) {
            subscription.items.insert(item);
        }
    }

    /// The subscription with this publishing interval, made when it is not there.
    async fn subscription(&mut self, publish_ms: u32) -> Result<u32, StatusCode> {
        if let Some(open) = self.open.iter().find(|s| s.publish_ms == publish_ms) {
            return Ok(open.id);
        }
        let interval = Duration::from_millis(publish_ms.max(1).into());
        let silence = self.link.config.silence;
        let keep_alive = count(silence / 3, interval).max(1);
        let lifetime = count(Duration::from_secs(30), interval).max(keep_alive.saturating_mul(3));
        self.next_key += 1;
        let key = self.next_key;
        let sink = Sink { key, out: self.sink.clone(), link: self.link.clone() };
        let session = &self.live.session;
        let created =
            session.create_subscription(interval, lifetime, keep_alive, NOTIFICATIONS_PER_PUBLISH, 0, true, sink).await;
        let id = created.map_err(|e| e.status())?;
        // The server may have made the intervals longer than was asked for.
        let revised = session
            .subscription_state()
            .lock()
            .get(id)
            .map(|s| s.publishing_interval().saturating_mul(s.max_keep_alive_count()));
        let silence = silence.max(revised.unwrap_or_default().saturating_mul(2));
        self.open.push(Subscription::new(key, id, publish_ms, silence));
        Ok(id)
    }

    /// Reports items that could not be created, each once for each status, and says when to try again.
    fn report(&mut self, refused: &[(u32, StatusCode)]) {
        let mut news = Vec::new();
        for (item, status) in refused {
            let before = self.failed.get(item);
            // What is wrong with the whole connection is said of the connection.
            if before.is_none_or(|before| before.status != *status) && !is_of_connection(*status) {
                news.push(bad(*item, *status));
            }
            let pause = before.map_or(FIRST_RETRY, |before| (before.pause * 2).min(LONGEST_RETRY));
            self.failed.insert(*item, Failed { status: *status, pause, again: Instant::now() + pause });
        }
        if let Some((_, status)) = refused.first().filter(|_| !news.is_empty()) {
            warn!(connection = self.link.name, items = refused.len(), %status, "items could not be subscribed to; they are tried again");
        }
        self.link.push(news);
    }

    async fn accept(&mut self, arrival: Arrival) {
        let key = arrival.key;
        let Some(subscription) = self.open.iter_mut().find(|s| s.key == key) else { return };
        if subscription.take(arrival, &self.link).is_break() {
            self.renew(key).await;
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
            match self.live.session.republish(subscription.id, missing).await {
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
        let Some(at) = self.open.iter().position(|s| s.key == key) else { return };
        let old = self.open.remove(at);
        warn!(connection = self.link.name, items = old.items.len(), "publishes were lost: every item is read anew");
        // The server may have deleted it already.
        let _ = self.live.session.delete_subscription(old.id).await;
        self.create_missing().await;
    }
}

impl Subscription {
    fn new(key: u64, id: u32, publish_ms: u32, silence: Duration) -> Self {
        Self {
            key,
            id,
            publish_ms,
            items: BTreeSet::new(),
            expected: 1,
            known: 1,
            early: BTreeMap::new(),
            gap_since: None,
            heard: Instant::now(),
            silence,
        }
    }

    /// Takes a publish response and delivers what is next in order; breaks when the server has ended the subscription.
    fn take(&mut self, arrival: Arrival, link: &Link) -> ControlFlow<()> {
        self.heard = arrival.at;
        let empty = arrival.data.is_empty();
        if is_before(arrival.sequence, self.expected) {
            // A repeat of what was delivered, or an empty message that counts as the last one did.
            return ControlFlow::Continue(());
        }
        // An empty message carries the number that the next full one will have.
        let next = if empty { arrival.sequence } else { following(arrival.sequence) };
        if is_before(self.known, next) {
            self.known = next;
        }
        if !empty {
            self.early.insert(arrival.sequence, arrival.data);
        }
        self.deliver(link)
    }

    /// Hands on what is next in order; breaks when the server has ended the subscription.
    fn deliver(&mut self, link: &Link) -> ControlFlow<()> {
        while let Some(data) = self.early.remove(&self.expected) {
            self.expected = following(self.expected);
            for notification in data {
                if notification.inner_as::<StatusChangeNotification>().is_some_and(|change| change.status.is_bad()) {
                    return ControlFlow::Break(());
                }
                let Some(changes) = notification.into_inner_as::<DataChangeNotification>() else { continue };
                let changes = changes.monitored_items.unwrap_or_default().into_iter();
                let samples = changes.filter_map(|c| Some(value::sample(c.client_handle.checked_sub(1)?, c.value)));
                link.push(samples.collect());
            }
        }
        self.gap_since = match self.expected == self.known {
            true => None,
            false => self.gap_since.or_else(|| Some(Instant::now())),
        };
        ControlFlow::Continue(())
    }
}

/// The sequence number after this one; they skip 0.
fn following(sequence: u32) -> u32 {
    sequence.wrapping_add(1).max(1)
}

/// Whether `a` comes before `b` in numbers that wrap around.
fn is_before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

fn is_too_much(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BadTooManyOperations
            | StatusCode::BadRequestTooLarge
            | StatusCode::BadResponseTooLarge
            | StatusCode::BadEncodingLimitsExceeded
    )
}

fn is_of_connection(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BadConnectionClosed
            | StatusCode::BadNotConnected
            | StatusCode::BadServerNotConnected
            | StatusCode::BadCommunicationError
            | StatusCode::BadSecureChannelClosed
            | StatusCode::BadSecureChannelIdInvalid
            | StatusCode::BadSessionClosed
            | StatusCode::BadSessionIdInvalid
    )
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// How many intervals make up a time.
fn count(time: Duration, interval: Duration) -> u32 {
    u32::try_from(time.as_millis() / interval.as_millis().max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
