//! From an alert to its receivers: repeats are merged, and each channel has a queue and a task of its own, so that one that is away
//! delays no other.
//!
//! Whoever sends an alert goes on at once, whatever the channels do. The tasks outlive a node's boot: they end when nobody can send any
//! more and everything was delivered, or given up.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Alert;
use super::channels::{Channel, SendError};
use super::figures::Figures;
use super::merge::Merge;
use super::queue::{Queue, Waiting};
use crate::role::backoff::jittered;

/// Alerts that nobody has looked at yet: more at one moment are dropped.
const HEARD: usize = 200;

/// How alerts are delivered.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How long one try may take.
    pub deadline: Duration,
    /// The pause after the first try that failed; it doubles from try to try.
    pub first_pause: Duration,
    /// No pause is longer.
    pub longest_pause: Duration,
    /// For so long it is tried.
    pub give_up: Duration,
    /// What repeats an alert within so long is merged.
    pub merge: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
            give_up: Duration::from_secs(3600),
            merge: Duration::from_secs(60),
        }
    }
}

enum Said {
    Alert(Box<Alert>),
    /// Everything that was said before is with the channels.
    Settle(oneshot::Sender<()>),
}

struct Post {
    channel: Box<dyn Channel>,
    queue: Queue,
    figures: Figures,
    pace: Pace,
}

/// The way to every channel. Cheap to clone.
#[derive(Clone)]
pub struct Alerts {
    said: mpsc::Sender<Said>,
    posts: Arc<[Arc<Post>]>,
    figures: Figures,
}

impl Alerts {
    /// Starts a task for each channel, and one before them; to be called within a runtime.
    #[must_use]
    pub fn start(channels: Vec<Box<dyn Channel>>, pace: Pace) -> Self {
        let (said, heard) = mpsc::channel(HEARD);
        let (closed, figures) = (CancellationToken::new(), Figures::default());
        let post = |channel| Arc::new(Post { channel, queue: Queue::default(), figures: figures.clone(), pace });
        let posts: Arc<[Arc<Post>]> = channels.into_iter().map(post).collect();
        for post in posts.iter() {
            tokio::spawn(post.clone().deliver(closed.clone()));
        }
        tokio::spawn(spread(heard, posts.clone(), pace, closed.drop_guard()));
        Self { said, posts, figures }
    }

    /// Hands an alert on; never waits.
    pub fn send(&self, alert: Alert) {
        if let Err(error) = self.said.try_send(Said::Alert(Box::new(alert))) {
            tracing::warn!(%error, "an alert is dropped: too many at one moment");
            self.posts.iter().for_each(|post| self.figures.count(post.channel.name(), "dropped"));
        }
    }

    /// Returns when every channel has delivered all that was sent before, or after `at_most`.
    pub async fn settle(&self, at_most: Duration) {
        let settling = async {
            let (answer, handed_on) = oneshot::channel();
            if self.said.send(Said::Settle(answer)).await.is_ok() {
                let _ = handed_on.await;
            }
            for post in self.posts.iter() {
                post.queue.empty().await;
            }
        };
        if timeout(at_most, settling).await.is_err() {
            tracing::warn!("the last alerts were not delivered within {} s", at_most.as_secs());
        }
    }

    /// Registers how many alerts were delivered, and how many were not.
    pub fn register(&self, registry: &mut Registry) {
        self.figures.register(registry);
    }
}

/// Merges what repeats, and puts the rest into every queue.
async fn spread(mut heard: mpsc::Receiver<Said>, posts: Arc<[Arc<Post>]>, pace: Pace, _closed: DropGuard) {
    let mut merge = Merge::within(pace.merge);
    loop {
        merge.due(Instant::now()).into_iter().for_each(|alert| put(&posts, alert));
        let said = tokio::select! {
            said = heard.recv() => said,
            () = reached(merge.next_end()) => continue,
        };
        match said {
            Some(Said::Alert(alert)) => {
                if let Some(alert) = merge.offer(*alert, Instant::now()) {
                    put(&posts, alert);
                }
            }
            Some(Said::Settle(answer)) => {
                merge.rest().into_iter().for_each(|alert| put(&posts, alert));
                // Whoever asked may have gone.
                let _ = answer.send(());
            }
            None => break,
        }
    }
    merge.rest().into_iter().for_each(|alert| put(&posts, alert));
}

async fn reached(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn put(posts: &[Arc<Post>], alert: Alert) {
    let alert = Arc::new(alert);
    for post in posts {
        let waiting = Waiting { alert: alert.clone(), until: Instant::now() + post.pace.give_up };
        if let Some(dropped) = post.queue.put(waiting) {
            let channel = post.channel.name();
            tracing::error!(channel, text = dropped.alert.text, "an alert is dropped: too many wait already");
            post.figures.count(channel, "dropped");
        }
    }
}

impl Post {
    /// Delivers until the queue is empty and nobody can fill it any more.
    async fn deliver(self: Arc<Self>, closed: CancellationToken) {
        let channel = self.channel.name();
        let mut pauses = Pauses::new(self.pace);
        let mut fails = false;
        loop {
            let first = tokio::select! {
                biased;
                first = self.queue.first() => first,
                () = closed.cancelled() => None,
            };
            let Some(Waiting { alert, until }) = first else { return };
            if until <= Instant::now() {
                tracing::error!(channel, text = alert.text, "an alert could not be delivered, and is given up");
                self.figures.count(channel, "given_up");
                self.queue.remove(alert.id);
                continue;
            }
            match self.try_once(&alert).await {
                Ok(()) => {
                    self.queue.remove(alert.id);
                    self.figures.count(channel, "delivered");
                    pauses = Pauses::new(self.pace);
                    if std::mem::take(&mut fails) {
                        tracing::info!(channel, "alerts are delivered again");
                    }
                }
                Err(error) => {
                    self.figures.count(channel, "failed");
                    if !std::mem::replace(&mut fails, true) {
                        tracing::warn!(channel, %error, "an alert could not be delivered: it is tried again");
                    }
                    sleep_until(until.min(Instant::now() + pauses.next())).await;
                }
            }
        }
    }

    async fn try_once(&self, alert: &Alert) -> Result<(), SendError> {
        let deadline = self.pace.deadline;
        let late = |_| Err(SendError(format!("no answer within {} s", deadline.as_secs())));
        timeout(deadline, self.channel.send(alert)).await.unwrap_or_else(late)
    }
}

/// Pauses that double, up to the longest.
struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    fn new(pace: Pace) -> Self {
        Self { next: pace.first_pause, longest: pace.longest_pause }
    }

    fn next(&mut self) -> Duration {
        let pause = self.next.min(self.longest);
        self.next = pause.saturating_mul(2);
        jittered(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{Receiver, takeover};
    use super::*;

    fn quick() -> Pace {
        let (first_pause, longest_pause) = (Duration::from_millis(1), Duration::from_millis(2));
        Pace { first_pause, longest_pause, ..Pace::default() }
    }

    fn tries(of: &Receiver) -> Vec<String> {
        of.tries().into_iter().map(|alert| alert.text).collect()
    }

    #[test]
    fn pauses_double_up_to_a_minute() {
        let mut pauses = Pauses::new(Pace::default());
        let all: Vec<Duration> = (0..10).map(|_| pauses.next()).collect();
        for (n, seconds) in [1, 2, 4, 8, 16, 32, 60, 60, 60, 60].into_iter().enumerate() {
            let whole = Duration::from_secs(seconds);
            assert!(all[n] <= whole && all[n] >= whole.mul_f64(0.75), "{n}: {:?}", all[n]);
        }
    }

    #[tokio::test]
    async fn what_fails_is_tried_until_it_is_delivered_and_then_never_again() {
        let receiver = Receiver::away(3);
        let alerts = Alerts::start(vec![Box::new(receiver.clone())], quick());
        alerts.send(takeover("reader"));
        alerts.send(takeover("uns"));
        alerts.settle(Duration::from_secs(60)).await;
        let reader = "role reader moved";
        assert_eq!(tries(&receiver), [reader, reader, reader, reader, "role uns moved"]);
    }

    #[tokio::test]
    async fn a_channel_that_is_away_delays_no_other() {
        let (away, there) = (Receiver::away(usize::MAX), Receiver::away(0));
        let channels: Vec<Box<dyn Channel>> = vec![Box::new(away.clone()), Box::new(there.clone())];
        let alerts = Alerts::start(channels, Pace::default());
        alerts.send(takeover("reader"));
        let delivered = async {
            while tries(&there).is_empty() || tries(&away).is_empty() {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), delivered).await.unwrap();
        assert_eq!(tries(&there).len(), 1);
    }

    #[tokio::test]
    async fn what_cannot_be_delivered_is_given_up() {
        let receiver = Receiver::away(usize::MAX);
        let pace = Pace { give_up: Duration::from_millis(20), ..quick() };
        let alerts = Alerts::start(vec![Box::new(receiver.clone())], pace);
        alerts.send(takeover("reader"));
        alerts.settle(Duration::from_secs(60)).await;
        timeout(Duration::from_secs(60), alerts.posts[0].queue.empty()).await.unwrap();
        assert!(!tries(&receiver).is_empty());
    }

    #[tokio::test]
    async fn repeats_are_delivered_as_one_and_at_the_end_at_once() {
        let receiver = Receiver::away(0);
        let alerts = Alerts::start(vec![Box::new(receiver.clone())], quick());
        for _ in 0..4 {
            alerts.send(takeover("reader"));
        }
        alerts.settle(Duration::from_secs(60)).await;
        assert_eq!(tries(&receiver), ["role reader moved", "role reader moved (3 times within 60 s)"]);
    }

    #[tokio::test]
    async fn what_was_sent_before_the_last_sender_went_is_delivered_all_the_same() {
        let receiver = Receiver::away(2);
        let alerts = Alerts::start(vec![Box::new(receiver.clone())], quick());
        alerts.send(takeover("reader"));
        drop(alerts);
        let delivered = async {
            // The tasks let go of the channel when they end.
            while Arc::strong_count(&receiver) > 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(60), delivered).await.unwrap();
        assert_eq!(tries(&receiver).len(), 3);
    }
}
