//! What one channel has still to send: bounded, so that a receiver that is away for a week costs no memory.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::Alert;

/// More than this do not wait: the oldest is dropped then.
pub(super) const ROOM: usize = 200;

/// An alert that has not been sent yet.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) alert: Arc<Alert>,
    /// Then it is news no more.
    pub(super) until: Instant,
}

/// Alerts, oldest first.
#[derive(Default)]
pub(super) struct Queue {
    waiting: watch::Sender<VecDeque<Waiting>>,
}

impl Queue {
    /// Puts one at the end; the one that had to make room for it, where one had.
    pub(super) fn put(&self, waiting: Waiting) -> Option<Waiting> {
        let mut dropped = None;
        self.waiting.send_modify(|queue| {
            if queue.len() >= ROOM {
                dropped = queue.pop_front();
            }
            queue.push_back(waiting);
        });
        dropped
    }

    /// The oldest, once there is one. It stays until it is removed.
    pub(super) async fn first(&self) -> Option<Waiting> {
        let mut changes = self.waiting.subscribe();
        let there = changes.wait_for(|queue| !queue.is_empty()).await;
        there.ok().and_then(|queue| queue.front().cloned())
    }

    /// Removes one, if it is still there.
    pub(super) fn remove(&self, id: Uuid) {
        self.waiting.send_modify(|queue| queue.retain(|waiting| waiting.alert.id != id));
    }

    /// Returns when nothing waits.
    pub(super) async fn empty(&self) {
        // The sender is this queue's own: it can not be gone.
        let _ = self.waiting.subscribe().wait_for(VecDeque::is_empty).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::takeover;
    use super::*;

    fn waiting() -> Waiting {
        Waiting { alert: Arc::new(takeover("reader")), until: Instant::now() }
    }

    #[tokio::test]
    async fn when_it_is_full_the_oldest_makes_room() {
        let queue = Queue::default();
        let all: Vec<Waiting> = (0..=ROOM).map(|_| waiting()).collect();
        let dropped: Vec<Uuid> = all.iter().filter_map(|one| queue.put(one.clone())).map(|one| one.alert.id).collect();
        assert_eq!(dropped, [all[0].alert.id]);
        assert_eq!(queue.first().await.map(|one| one.alert.id), Some(all[1].alert.id));
    }

    #[tokio::test]
    async fn it_is_empty_when_the_last_one_was_removed() {
        let (queue, one) = (Queue::default(), waiting());
        queue.put(one.clone());
        // One that was dropped while it was being sent is not there any more.
        queue.remove(Uuid::new_v4());
        assert_eq!(queue.first().await.map(|first| first.alert.id), Some(one.alert.id));
        queue.remove(one.alert.id);
        queue.empty().await;
    }
}
