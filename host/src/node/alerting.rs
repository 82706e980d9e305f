//! Which alerts a node sends: from what its keeper tells, and from looking whether somebody holds every role.
//!
//! Each event is told by one node: by the one that it happens to, or, of what happens to nobody, by the live one whose name comes first.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::vacancies::{Change, Vacancies};
use crate::alert::channels;
use crate::alert::{Alert, Alerts, Kind, Pace};
use crate::config::Config;
use crate::identity::{Epoch, NodeName, RoleKey};
use crate::lease::keeper::Snapshot;
use crate::lease::placement::{FLAP_WINDOW, MOST_CHANGES};
use crate::lease::{Cause, LeaseEvent};
use crate::store::vacancy;

/// A role without a holder for so many leases is vacant.
const VACANT_LEASES: u32 = 3;
const DEADLINE: Duration = Duration::from_secs(2);

/// The channels that the plant has; `None` where it has none.
///
/// # Errors
/// One sentence when one could never work.
pub(super) fn alerts(config: &Config) -> Result<Option<Alerts>, String> {
    let channels = channels::of(&config.alerts, &config.plant.name)?;
    Ok((!channels.is_empty()).then(|| Alerts::start(channels, Pace::default())))
}

/// What a node needs to send alerts.
pub(super) struct Alerting {
    pub(super) config: Arc<Config>,
    pub(super) node: NodeName,
    /// The lease that all roles are under, in a pair.
    pub(super) pair: Option<RoleKey>,
    pub(super) leases: watch::Receiver<Snapshot>,
    /// Where the plant has several nodes: their database, and how long a lease lasts.
    pub(super) plant: Option<(PgPool, Duration)>,
    pub(super) alerts: Alerts,
}

impl Alerting {
    /// Sends alerts until the node stops; what has happened by then is sent.
    pub(super) async fn keep(self, mut events: broadcast::Receiver<LeaseEvent>, stop: CancellationToken) {
        let telling = async {
            loop {
                match events.recv().await {
                    Ok(event) => self.happened(event),
                    Err(broadcast::error::RecvError::Lagged(missed)) => {
                        tracing::warn!(
                            missed,
                            "so many changes of leases at one moment that some are told in no alert"
                        );
                    }
                    Err(broadcast::error::RecvError::Closed) => return,
                }
            }
        };
        tokio::select! {
            // What has happened is told before the end is noticed.
            biased;
            () = telling => {}
            () = stop.cancelled() => {}
            () = self.watch() => {}
        }
    }

    fn send(&self, kind: Kind, key: Option<&RoleKey>, text: String) {
        self.alerts.send(Alert::now(&self.config.plant.name, &self.node, kind, key, text));
    }

    fn happened(&self, event: LeaseEvent) {
        match event {
            LeaseEvent::Taken { key, from: Some(from), cause, epoch } if from != self.node && self.is_told(&key) => {
                self.send(Kind::Takeover, Some(&key), self.takeover(&key, &from, cause, epoch));
            }
            LeaseEvent::Taken { .. } => {}
            LeaseEvent::Lost { key, epoch, why } => {
                // Where a pair's own lease is lost its roles go with it.
                let goes_with_another = self.pair.as_ref().is_some_and(|pair| *pair != key && !self.holds(pair));
                if !goes_with_another {
                    let (node, what) = (&self.node, self.what(&key));
                    self.send(
                        Kind::Demotion,
                        Some(&key),
                        format!("node {node} has lost {what} (epoch {epoch}): {why}"),
                    );
                }
            }
            LeaseEvent::Refused { sentence } => {
                self.send(Kind::Refused, None, format!("node {} may not take part, and ends: {sentence}", self.node));
            }
            LeaseEvent::Flapping { key } => {
                if self.holds(&key) && self.is_told(&key) {
                    let what = self.what(&key);
                    let text = format!(
                        "{what} has changed hands more than {MOST_CHANGES} times in {FLAP_WINDOW} leases: it stays on node {} until \
                         that ends",
                        self.node
                    );
                    self.send(Kind::Flapping, Some(&key), text);
                }
            }
        }
    }

    fn takeover(&self, key: &RoleKey, from: &NodeName, cause: Cause, epoch: Epoch) -> String {
        let why = match cause {
            Cause::Death => format!("node {from}, which had it, has died"),
            Cause::Expiry => format!("node {from}, which had it, has said nothing for a whole lease"),
            Cause::Release => format!("node {from}, which had it, was stopped or has let go of it"),
            Cause::Move => format!("a person has moved it from node {from}"),
            Cause::Yield => format!("node {from} could not do its work and has let go of it"),
            Cause::Start | Cause::Restart => format!("node {from} had it before"),
        };
        format!("{} runs on node {} now: {why} (cause {}, epoch {epoch})", self.what(key), self.node, cause.as_str())
    }

    /// How people call what a lease is for.
    fn what(&self, key: &RoleKey) -> String {
        if self.pair.as_ref() == Some(key) { "the active node's lease".to_owned() } else { format!("role {key}") }
    }

    /// In a pair its own lease stands for all roles.
    fn is_told(&self, key: &RoleKey) -> bool {
        self.pair.as_ref().is_none_or(|pair| pair == key)
    }

    fn holds(&self, key: &RoleKey) -> bool {
        self.leases.borrow().holds(key)
    }

    /// Every lease that somebody should hold.
    fn keys(&self) -> Vec<RoleKey> {
        if let Some(pair) = &self.pair {
            return vec![pair.clone()];
        }
        let roles = self.config.roles.iter();
        let keys = roles.flat_map(|(name, role)| {
            role.partitions.iter().map(|partition| RoleKey { role: name.clone(), partition: partition.clone() })
        });
        keys.collect()
    }

    /// Looks for roles that nobody holds, for ever. One node alone holds everything, or does not run.
    async fn watch(&self) {
        let Some((pool, lease)) = &self.plant else { return std::future::pending().await };
        let (keys, mut vacancies) = (self.keys(), Vacancies::longer_than(*lease * VACANT_LEASES));
        loop {
            tokio::time::sleep(*lease / 3).await;
            match timeout(DEADLINE, vacancy::look(pool, &keys, &self.node, *lease)).await {
                Ok(Ok(look)) => {
                    vacancies.saw(&look, Instant::now()).into_iter().for_each(|change| self.changed(change));
                }
                failed => {
                    tracing::debug!(?failed, "whether somebody holds every role is not known");
                    vacancies.saw_nothing();
                }
            }
        }
    }

    fn changed(&self, change: Change) {
        match change {
            Change::Vacant(key, lasted) => {
                let (what, seconds) = (self.what(&key), lasted.as_secs());
                let text =
                    format!("nobody holds {what} for {seconds} s ({VACANT_LEASES} leases or more): no node runs it");
                self.send(Kind::Vacant, Some(&key), text);
            }
            Change::Over(key, lasted) => {
                let (what, seconds) = (self.what(&key), lasted.as_secs());
                self.send(
                    Kind::HeldAgain,
                    Some(&key),
                    format!("{what} is held again, or held back by people, after {seconds} s"),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::samples::Receiver;
    use crate::clock::BootInstant;
    use crate::identity::{BootId, Holder};
    use crate::lease::Held;

    fn key(role: &str) -> RoleKey {
        RoleKey { role: role.parse().unwrap(), partition: String::new() }
    }

    fn taken(role: &str, from: Option<&str>) -> LeaseEvent {
        let (from, epoch) = (from.map(|from| from.parse().unwrap()), Epoch { timeline: 1, number: 7 });
        LeaseEvent::Taken { key: key(role), from, cause: Cause::Death, epoch }
    }

    fn lost(role: &str) -> LeaseEvent {
        LeaseEvent::Lost { key: key(role), epoch: Epoch { timeline: 1, number: 7 }, why: "it ran out".to_owned() }
    }

    /// What node `b`, which holds these, sends of all this.
    async fn sent(pair: Option<&str>, holds: &[&str], all: Vec<LeaseEvent>) -> Vec<(Kind, Option<String>, String)> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("plant.toml");
        std::fs::write(&file, "[plant]\nname = \"bottling\"\n").unwrap();
        let receiver = Receiver::away(0);
        let alerts = Alerts::start(vec![Box::new(receiver.clone())], Pace::default());
        let held = |role: &str| {
            let holder = Holder { node: "b".parse().unwrap(), boot: BootId::random() };
            let epoch = Epoch { timeline: 1, number: 8 };
            Held::new(key(role), holder, epoch, BootInstant::NEVER, BootInstant::from_nanos(0)).0
        };
        let now = Snapshot { held: holds.iter().copied().map(held).collect(), ..Snapshot::default() };
        let (_keeper, leases) = watch::channel(now);
        let alerting = Alerting {
            config: Arc::new(Config::load_with(&file, &|_| None).unwrap()),
            node: "b".parse().unwrap(),
            pair: pair.map(key),
            leases,
            plant: None,
            alerts: alerts.clone(),
        };
        let (events, heard) = broadcast::channel(16);
        for event in all {
            events.send(event).unwrap();
        }
        // Although the node has stopped already: what has happened is told.
        let stop = CancellationToken::new();
        stop.cancel();
        alerting.keep(heard, stop).await;
        alerts.settle(Duration::from_secs(60)).await;
        let short = |alert: Alert| (alert.kind, alert.role.map(|role| role.to_string()), alert.text);
        receiver.tries().into_iter().map(short).collect()
    }

    #[tokio::test]
    async fn a_role_that_came_from_another_node_is_told_and_one_that_came_back_or_from_nobody_is_not() {
        let all = vec![taken("reader", None), taken("reader", Some("b")), taken("uns", Some("a"))];
        let text = "role uns runs on node b now: node a, which had it, has died (cause death, epoch 7)".to_owned();
        assert_eq!(sent(None, &["reader", "uns"], all).await, [(Kind::Takeover, Some("uns".to_owned()), text)]);
    }

    #[tokio::test]
    async fn in_a_pair_its_own_lease_stands_for_its_roles() {
        let all = vec![taken("node", Some("a")), taken("reader", Some("a")), lost("node"), lost("reader")];
        let kinds: Vec<_> =
            sent(Some("node"), &[], all).await.into_iter().map(|(kind, role, _)| (kind, role)).collect();
        let node = || Some("node".to_owned());
        assert_eq!(kinds, [(Kind::Takeover, node()), (Kind::Demotion, node())]);
        // One that is lost alone is told.
        let alone = sent(Some("node"), &["node"], vec![lost("reader")]).await;
        let text = "node b has lost role reader (epoch 7): it ran out".to_owned();
        assert_eq!(alone, [(Kind::Demotion, Some("reader".to_owned()), text)]);
    }

    #[tokio::test]
    async fn of_a_role_that_flaps_its_holder_speaks() {
        let all = vec![LeaseEvent::Flapping { key: key("reader") }, LeaseEvent::Flapping { key: key("uns") }];
        let told = sent(None, &["reader"], all).await;
        assert_eq!((told.len(), told[0].0, told[0].1.as_deref()), (1, Kind::Flapping, Some("reader")));
    }

    #[tokio::test]
    async fn a_refusal_is_about_the_node() {
        let told = sent(None, &[], vec![LeaseEvent::Refused { sentence: "there is one already".to_owned() }]).await;
        let text = "node b may not take part, and ends: there is one already".to_owned();
        assert_eq!(told, [(Kind::Refused, None, text)]);
    }
}
