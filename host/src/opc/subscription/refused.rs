//! Items that the server does not monitor: when to ask again, and what is read of them in the meantime.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use opcua::types::StatusCode;

use super::super::Sample;
use super::super::connections::bad;
use super::super::link::Link;

const FIRST_RETRY: Duration = Duration::from_secs(1);
/// A node that is not there may come at any moment.
const LONGEST_RETRY: Duration = Duration::from_secs(5);
/// A server that has no room for an item seldom gets it by itself.
const LONGEST_REFUSAL: Duration = Duration::from_secs(60);
/// How often items are read that the server has, and does not monitor.
const POLL: Duration = Duration::from_secs(1);

/// The items of one session that are wanted and not monitored.
#[derive(Default)]
pub(super) struct Refused {
    items: BTreeMap<u32, Refusal>,
    polled: Option<Instant>,
}

struct Refusal {
    status: StatusCode,
    pause: Duration,
    again: Instant,
    /// What was read of it last; unchanged, it is not delivered again.
    read: Option<Sample>,
}

impl Refused {
    /// Whether it is too early to ask for the item again.
    pub(super) fn waits(&self, item: u32, now: Instant) -> bool {
        self.items.get(&item).is_some_and(|refusal| refusal.again > now)
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.items.values().any(|refusal| refusal.again <= now)
    }

    pub(super) fn is_known(&self, item: u32) -> bool {
        self.items.contains_key(&item)
    }

    /// Whether it is read again and again in place of being monitored.
    pub(super) fn is_polled(&self, item: u32) -> bool {
        self.items.get(&item).is_some_and(|refusal| is_polled(refusal.status))
    }

    pub(super) fn has_no_node(&self, item: u32) -> bool {
        self.items.get(&item).is_some_and(|refusal| is_missing(refusal.status))
    }

    /// The server monitors it now.
    pub(super) fn monitored(&mut self, item: u32, link: &Link) {
        if self.items.remove(&item).is_some() {
            link.monitored(item);
        }
    }

    /// Remembers why items are not monitored, and says when to ask again. A node that is not there is a Bad sample, once for each
    /// status; of one that is there and not monitored, the link says so until it is, and what is read of it are its samples.
    pub(super) fn add(&mut self, refused: &[(u32, StatusCode)], link: &Link) {
        let mut news = Vec::new();
        for &(item, status) in refused {
            let before = self.items.remove(&item);
            let changed = before.as_ref().is_none_or(|before| before.status != status);
            if changed && is_missing(status) {
                link.monitored(item);
                news.push(bad(item, status));
            } else if changed && is_polled(status) {
                link.not_monitored(item, status);
            }
            let longest = if is_polled(status) { LONGEST_REFUSAL } else { LONGEST_RETRY };
            let (pause, read) = match before {
                Some(before) => ((before.pause * 2).min(longest), before.read.filter(|_| !is_missing(status))),
                None => (FIRST_RETRY, None),
            };
            self.items.insert(item, Refusal { status, pause, again: Instant::now() + pause, read });
        }
        link.push(news);
    }

    /// Remembers items whose nodes have gone while they were monitored, of which Bad samples have told already.
    pub(super) fn lost(&mut self, items: &[(u32, StatusCode)]) {
        for &(item, status) in items {
            let again = Instant::now() + FIRST_RETRY;
            self.items.insert(item, Refusal { status, pause: FIRST_RETRY, again, read: None });
        }
    }

    /// The items to read now, if it is time.
    pub(super) fn due_polls(&mut self, now: Instant) -> Vec<u32> {
        if self.polled.is_some_and(|polled| now < polled + POLL) {
            return Vec::new();
        }
        self.polled = Some(now);
        self.items.iter().filter(|(_, refusal)| is_polled(refusal.status)).map(|(item, _)| *item).collect()
    }

    /// Delivers what was read of them, where it is news.
    pub(super) fn polled(&mut self, mut samples: Vec<Sample>, link: &Link) {
        samples.retain(|sample| {
            let Some(refusal) = self.items.get_mut(&sample.item) else { return false };
            let same = refusal.read.as_ref().is_some_and(|before| is_same(before, sample));
            if !same {
                refusal.read = Some(sample.clone());
            }
            !same
        });
        link.push_read(samples);
    }
}

/// Servers differ in whether a value keeps its time from one look to the next.
fn is_same(one: &Sample, other: &Sample) -> bool {
    (&one.value, one.status) == (&other.value, other.status)
}

/// The server is there, and perhaps the node is, and it is not monitored.
fn is_polled(status: StatusCode) -> bool {
    !is_missing(status) && !is_of_connection(status)
}

/// There is no such node, for now at least.
pub(super) fn is_missing(status: StatusCode) -> bool {
    matches!(status, StatusCode::BadNodeIdUnknown | StatusCode::BadNodeIdInvalid | StatusCode::BadAttributeIdInvalid)
}

/// What is wrong with the whole connection is said of the connection.
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
