//! One subscription's publishes, in the order of their sequence numbers.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use opcua::client::{MonitoredItemMap, OnSubscriptionNotificationCore};
use opcua::types::{
    DataChangeNotification, ExtensionObject, NotificationMessage, StatusChangeNotification, StatusCode,
};
use tokio::sync::mpsc;

use super::super::link::Link;
use super::super::{Sample, value};
use super::refused::is_missing;

/// One subscription of a session.
pub(super) struct Subscription {
    pub(super) key: u64,
    pub(super) id: u32,
    /// The publishing interval that was asked for.
    pub(super) publish_ms: u32,
    /// The items that it monitors.
    pub(super) items: BTreeMap<u32, Monitored>,
    /// Items whose nodes the server says are gone, with its status; it will not look for them again.
    pub(super) gone: BTreeMap<u32, StatusCode>,
    /// The server takes no more items into it.
    pub(super) full: bool,
    /// The sequence number that comes next, and the one that the server will use next as far as is known.
    pub(super) expected: u32,
    known: u32,
    pub(super) early: BTreeMap<u32, Vec<ExtensionObject>>,
    pub(super) gap_since: Option<Instant>,
    pub(super) heard: Instant,
    pub(super) silence: Duration,
}

/// An item that the server monitors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Monitored {
    /// The server's id for it.
    pub(super) id: u32,
    /// How long a change may take to be published.
    pub(super) grace: Duration,
}

/// One publish response.
pub(super) struct Arrival {
    pub(super) key: u64,
    pub(super) sequence: u32,
    pub(super) data: Vec<ExtensionObject>,
    pub(super) at: Instant,
}

/// Sees every publish response, also the empty ones that keep a subscription alive.
pub(super) struct Sink {
    pub(super) key: u64,
    pub(super) out: mpsc::Sender<Arrival>,
    pub(super) link: Arc<Link>,
}

impl OnSubscriptionNotificationCore for Sink {
    fn on_subscription_notification(&mut self, message: NotificationMessage, _: MonitoredItemMap<'_>) {
        self.pass_on(message);
    }
}

impl Sink {
    fn pass_on(&self, message: NotificationMessage) {
        self.link.hear();
        let (key, sequence, at) = (self.key, message.sequence_number, Instant::now());
        let data = message.notification_data.unwrap_or_default();
        // Nobody listens any more, or too many wait: the gap is found and closed.
        let _ = self.out.try_send(Arrival { key, sequence, data, at });
    }
}

impl Subscription {
    pub(super) fn new(key: u64, id: u32, publish_ms: u32, silence: Duration) -> Self {
        Self {
            key,
            id,
            publish_ms,
            items: BTreeMap::new(),
            gone: BTreeMap::new(),
            full: false,
            expected: 1,
            known: 1,
            early: BTreeMap::new(),
            gap_since: None,
            heard: Instant::now(),
            silence,
        }
    }

    /// Takes a publish response and delivers what is next in order; breaks when the server has ended the subscription.
    pub(super) fn take(&mut self, arrival: Arrival, link: &Link) -> ControlFlow<()> {
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
    pub(super) fn deliver(&mut self, link: &Link) -> ControlFlow<()> {
        while let Some(data) = self.early.remove(&self.expected) {
            self.expected = following(self.expected);
            for notification in data {
                if notification.inner_as::<StatusChangeNotification>().is_some_and(|change| change.status.is_bad()) {
                    return ControlFlow::Break(());
                }
                let Some(changes) = notification.into_inner_as::<DataChangeNotification>() else { continue };
                let changes = changes.monitored_items.unwrap_or_default().into_iter();
                let samples = changes.filter_map(|c| Some(value::sample(c.client_handle.checked_sub(1)?, c.value)));
                let samples: Vec<Sample> = samples.collect();
                self.look_for_gone(&samples);
                link.push(samples);
            }
        }
        self.gap_since = match self.expected == self.known {
            true => None,
            false => self.gap_since.or_else(|| Some(Instant::now())),
        };
        ControlFlow::Continue(())
    }

    fn look_for_gone(&mut self, samples: &[Sample]) {
        for sample in samples {
            let status = StatusCode::from(sample.status);
            if is_missing(status) {
                self.gone.insert(sample.item, status);
            } else if !self.gone.is_empty() {
                self.gone.remove(&sample.item);
            }
        }
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

#[cfg(test)]
pub(super) mod tests;
