//! Making subscriptions and monitored items, within what the server allows.
//!
//! A server may limit the items of a request, of a subscription, or of a session. The first is kept to, the second is met with further
//! subscriptions, and against the third nothing helps: those items are read instead, and people are told.

use std::ops::ControlFlow;
use std::time::Duration;

use opcua::types::{
    ExtensionObject, MonitoredItemCreateRequest, MonitoredItemCreateResult, MonitoringMode, MonitoringParameters,
    ReadValueId, StatusCode, TimestampsToReturn,
};
use tokio::time::timeout;
use tracing::warn;

use super::super::connections::read_values;
use super::super::limits::answered;
use super::super::link::Wanted;
use super::super::node::Node;
use super::Subscriptions;
use super::stream::{Monitored, Sink, Subscription};

/// Values in one publish: more, and some servers' answers are too large for their own limits.
const NOTIFICATIONS_PER_PUBLISH: u32 = 1000;
/// Below this a burst between two publishes would be lost in the server.
const SMALLEST_QUEUE: u32 = 10;
/// Reading is for speed only: a server that takes longer publishes its values.
const READ_FIRST_WITHIN: Duration = Duration::from_secs(1);
/// The most subscriptions with one publishing interval: each costs the server a timer, and this host publish requests.
const MOST_SUBSCRIPTIONS: usize = 20;

/// A change may take so long to be published by any server.
const SHORTEST_GRACE: Duration = Duration::from_secs(2);

/// An item and how to monitor it.
type Request = (u32, MonitoredItemCreateRequest);

/// How often a subscription publishes, as the server has revised it.
struct Publishing {
    interval: Duration,
    /// After so long without news it says that it lives.
    keep_alive: Duration,
}

/// What came of asking one subscription to monitor items.
struct Asked {
    /// Those that it takes no more, with the server's reason.
    too_many: Vec<Request>,
    made: usize,
}

impl Subscriptions {
    /// Monitors items with one publishing interval; what the server refuses is remembered, and asked for again later.
    pub(super) async fn create_items(&mut self, publish_ms: u32, items: Vec<(u32, Wanted)>) {
        self.read_first(&items).await;
        let namespaces = self.live.namespaces();
        let (mut refused, mut requests) = (Vec::new(), Vec::new());
        for (item, wanted) in items {
            match wanted.node.on(&namespaces) {
                Some(id) => requests.push((item, self.request(item, ReadValueId::new_value(id), &wanted))),
                None => refused.push((item, StatusCode::BadNodeIdUnknown)),
            }
        }
        while !requests.is_empty() {
            let found = self.roomy(publish_ms).await;
            let subscription = match found {
                Ok(subscription) => subscription,
                Err(status) => {
                    refused.extend(requests.iter().map(|(item, _)| (*item, status)));
                    break;
                }
            };
            let asked = self.ask(subscription, requests, &mut refused).await;
            requests = asked.too_many;
            if !requests.is_empty() && self.close_full(subscription, asked.made).await.is_break() {
                refused.extend(requests.iter().map(|(item, _)| (*item, StatusCode::BadTooManyMonitoredItems)));
                break;
            }
        }
        if let Some((_, status)) = refused.iter().find(|(item, _)| !self.refused.is_known(*item)) {
            let name = &self.link.name;
            warn!(connection = name, items = refused.len(), %status, "items are not monitored; the server is asked again");
        }
        self.refused.add(&refused, &self.link);
    }

    /// Delivers the items' present values without waiting for the first publish. Before they are monitored, so that what the server
    /// publishes is newer; what cannot be read now is published later.
    async fn read_first(&self, items: &[(u32, Wanted)]) {
        let unread = items.iter().filter(|(item, _)| !self.refused.is_polled(*item));
        let nodes: Vec<(u32, Node)> = unread.map(|(item, wanted)| (*item, wanted.node.clone())).collect();
        if let Ok(Ok(mut samples)) = timeout(READ_FIRST_WITHIN, read_values(&self.live, &nodes)).await {
            samples.retain(|sample| !StatusCode::from(sample.status).is_bad());
            self.link.push_read(samples);
        }
    }

    fn request(&self, item: u32, node: ReadValueId, wanted: &Wanted) -> MonitoredItemCreateRequest {
        let sampling_ms =
            if wanted.how.sampling_ms == 0 { super::millis(self.link.config.sampling) } else { wanted.how.sampling_ms };
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

    /// Asks one subscription to monitor items, in chunks that the server takes. Those refused for another reason than their number are
    /// added to `refused`.
    async fn ask(&mut self, subscription: u32, requests: Vec<Request>, refused: &mut Vec<(u32, StatusCode)>) -> Asked {
        let mut asked = Asked { too_many: Vec::new(), made: 0 };
        let mut rest = requests.as_slice();
        // A server that refuses a whole request because it has room for a part of it is asked for less and less.
        let mut room = usize::MAX;
        while !rest.is_empty() {
            let size = self.live.limits.create.of(rest.len()).min(room);
            let (chunk, later) = rest.split_at(size);
            let items = chunk.iter().map(|(_, request)| request.clone()).collect();
            let creating = self.live.session.create_monitored_items(subscription, TimestampsToReturn::Both, items);
            match answered(creating).await {
                Ok(results) => {
                    for (request, created) in chunk.iter().zip(results) {
                        match created.result.status_code {
                            StatusCode::BadTooManyMonitoredItems => asked.too_many.push(request.clone()),
                            status if status.is_bad() => refused.push((request.0, status)),
                            _ => {
                                asked.made += 1;
                                self.created(subscription, request.0, &created.result);
                            }
                        }
                    }
                }
                Err(e) if e.status() == StatusCode::BadTooManyMonitoredItems && size > 1 => {
                    room = size / 2;
                    continue;
                }
                Err(e) if e.status() == StatusCode::BadTooManyMonitoredItems => {
                    asked.too_many.extend_from_slice(rest);
                    break;
                }
                Err(e) if self.live.limits.create.was_too_many(size, e.status()) => continue,
                Err(e) => {
                    if e.status() == StatusCode::BadTimeout {
                        self.live.limits.create.was_too_slow(size);
                    }
                    refused.extend(rest.iter().map(|(item, _)| (*item, e.status())));
                    self.give_up(subscription, e.status()).await;
                    break;
                }
            }
            rest = later;
        }
        asked
    }

    fn created(&mut self, subscription: u32, item: u32, made: &MonitoredItemCreateResult) {
        self.refused.monitored(item, &self.link);
        let publishing = self.publishing(subscription).map_or(Duration::ZERO, |revised| revised.interval);
        let Some(subscription) = self.open.iter_mut().find(|s| s.id == subscription) else { return };
        let sampling = Duration::try_from_secs_f64(made.revised_sampling_interval / 1000.0).unwrap_or_default();
        let grace = publishing.saturating_add(sampling).saturating_mul(3).max(SHORTEST_GRACE);
        subscription.items.insert(item, Monitored { id: made.monitored_item_id, grace });
    }

    /// A request for items failed as a whole. After one that was not answered in time the server may monitor them all the same: they
    /// would be monitored twice, and count twice against its limit. So that subscription ends with all that is in it.
    async fn give_up(&mut self, subscription: u32, status: StatusCode) {
        match status {
            StatusCode::BadSubscriptionIdInvalid => self.open.retain(|s| s.id != subscription),
            StatusCode::BadTimeout => self.end(subscription).await,
            _ => {}
        }
    }

    /// Stops monitoring items, so that they can be monitored anew.
    pub(super) async fn release(&mut self, items: &[u32]) {
        let mut ended = Vec::new();
        for subscription in &mut self.open {
            let ids: Vec<u32> = items.iter().filter_map(|item| Some(subscription.items.remove(item)?.id)).collect();
            for chunk in ids.chunks(self.live.limits.create.of(ids.len())) {
                // A server that has forgotten them has nothing to delete; one that does not answer may still have them.
                if let Err(e) = answered(self.live.session.delete_monitored_items(subscription.id, chunk)).await
                    && e.status() == StatusCode::BadTimeout
                {
                    ended.push(subscription.id);
                    break;
                }
            }
        }
        for subscription in ended {
            self.end(subscription).await;
        }
    }

    /// Deletes a subscription; one that may live on would use up publish requests unseen, so then the session ends.
    pub(super) async fn end(&mut self, subscription: u32) {
        self.open.retain(|s| s.id != subscription);
        if let Err(e) = answered(self.live.session.delete_subscription(subscription)).await
            && e.status() == StatusCode::BadTimeout
        {
            self.broken = Some("the server did not answer whether a subscription is deleted".to_owned());
        }
    }

    /// Takes no more items into a subscription. One that took none at all shows that it is not the subscription that is full: breaks.
    async fn close_full(&mut self, subscription: u32, made: usize) -> ControlFlow<()> {
        let Some(full) = self.open.iter_mut().find(|s| s.id == subscription) else { return ControlFlow::Continue(()) };
        full.full = true;
        if made > 0 || !full.items.is_empty() {
            return ControlFlow::Continue(());
        }
        self.no_more_room = true;
        self.end(subscription).await;
        ControlFlow::Break(())
    }

    /// A subscription with this publishing interval that may take more items, made when there is none.
    async fn roomy(&mut self, publish_ms: u32) -> Result<u32, StatusCode> {
        let same = || self.open.iter().filter(|s| s.publish_ms == publish_ms);
        if let Some(open) = same().find(|s| !s.full) {
            return Ok(open.id);
        }
        let count = same().count();
        if count > 0 && (self.no_more_room || count >= MOST_SUBSCRIPTIONS) {
            return Err(StatusCode::BadTooManyMonitoredItems);
        }
        let made = self.subscribe(publish_ms).await;
        match made {
            Err(StatusCode::BadTimeout) => {
                self.broken = Some("the server did not answer whether a subscription is made".to_owned());
                made
            }
            Err(StatusCode::BadTooManySubscriptions) if count > 0 => {
                self.no_more_room = true;
                Err(StatusCode::BadTooManyMonitoredItems)
            }
            _ => made,
        }
    }

    /// Makes a subscription. Keep-alives are counted in publishing intervals: where the server has another interval than it was asked
    /// for, the count that suits it is known only now, and the subscription is made anew with both.
    async fn subscribe(&mut self, publish_ms: u32) -> Result<u32, StatusCode> {
        let interval = Duration::from_millis(publish_ms.max(1).into());
        let (mut key, mut id) = self.make(interval).await?;
        let revised = self.publishing(id).map_or(interval, |revised| revised.interval);
        if counts(self.link.config.silence, revised) != counts(self.link.config.silence, interval) {
            self.end(id).await;
            (key, id) = self.make(revised).await?;
        }
        let keep_alive = self.publishing(id).map_or(Duration::ZERO, |revised| revised.keep_alive);
        let silence = self.link.config.silence.max(keep_alive.saturating_mul(2));
        self.open.push(Subscription::new(key, id, publish_ms, silence));
        Ok(id)
    }

    async fn make(&mut self, interval: Duration) -> Result<(u64, u32), StatusCode> {
        let (keep_alive, lifetime) = counts(self.link.config.silence, interval);
        self.next_key += 1;
        let key = self.next_key;
        let sink = Sink { key, out: self.sink.clone(), link: self.link.clone() };
        let making = self.live.session.create_subscription(
            interval,
            lifetime,
            keep_alive,
            NOTIFICATIONS_PER_PUBLISH,
            0,
            true,
            sink,
        );
        Ok((key, answered(making).await.map_err(|e| e.status())?))
    }

    fn publishing(&self, id: u32) -> Option<Publishing> {
        let state = self.live.session.subscription_state().lock();
        let subscription = state.get(id)?;
        let interval = subscription.publishing_interval();
        Some(Publishing { interval, keep_alive: interval.saturating_mul(subscription.max_keep_alive_count()) })
    }
}

/// After how many publishing intervals without news the server says that it lives, and after how many without this host it ends the
/// subscription.
fn counts(silence: Duration, interval: Duration) -> (u32, u32) {
    let keep_alive = count(silence / 3, interval).max(1);
    (keep_alive, count(Duration::from_secs(30), interval).max(keep_alive.saturating_mul(3)))
}

/// How many intervals make up a time.
fn count(time: Duration, interval: Duration) -> u32 {
    u32::try_from(time.as_millis() / interval.as_millis().max(1)).unwrap_or(u32::MAX)
}
