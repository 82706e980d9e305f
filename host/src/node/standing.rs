//! What a node shows the others: that it is of the same plant, and that it could take over.
//!
//! A standby that could not take over is found out when it is needed, unless it tries before: every ten minutes it does what its first
//! minute as a holder would need, short of being one.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::fitness::Fitness;
use crate::capability::opc::PlantOpc;
use crate::clock::{BootInstant, wall_nanos};
use crate::config::{Config, key_check};
use crate::identity::Holder;
use crate::lease::keeper::Snapshot;
use crate::lease::{Cause, Held, Placed, Unfit};
use crate::opc::connect;
use crate::store::standing::{self, Facts, Now, Proof};

/// How often it is proved that this node could take over.
const PROVE: Duration = Duration::from_secs(600);
/// How soon it is tried again after it was found that it could not.
const PROVE_AGAIN: Duration = Duration::from_secs(15);
/// How often what it says is written again, and the others are looked at.
const SAY: Duration = Duration::from_secs(5);
/// How often this node looks at itself.
const LOOK: Duration = Duration::from_secs(1);
/// A connection that is down for less may only be between two tries.
const PATIENCE: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_secs(2);
/// The longest that one connection is tried beyond its own deadline, with a first key pair.
const TRY: Duration = Duration::from_secs(30);

/// One node's standing.
pub(super) struct Standing {
    pub(super) pool: PgPool,
    pub(super) me: Holder,
    pub(super) facts: Facts,
    pub(super) lease: Duration,
    pub(super) config: Arc<Config>,
    pub(super) opc: Arc<PlantOpc>,
    /// Why roles can not run here; one sentence for each.
    pub(super) refused: Vec<String>,
    /// When it was tried last whether this node could take over.
    pub(super) proved: Mutex<BootInstant>,
    /// It is to be tried at once.
    pub(super) prove_now: Notify,
}

/// What this node finds out about itself, for whoever asks.
pub(super) struct Told {
    pub(super) proof: watch::Sender<Option<Proof>>,
    /// A sentence if this node must not be beside another one.
    pub(super) conflict: watch::Sender<Option<String>>,
    /// What it leaves to others.
    pub(super) unfit: watch::Sender<Unfit>,
}

impl Told {
    /// No role is left to others for its own sake any more.
    fn take_part(&self) {
        self.unfit.send_if_modified(|now| !std::mem::take(&mut now.roles).is_empty());
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn lock(proved: &Mutex<BootInstant>) -> MutexGuard<'_, BootInstant> {
    proved.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is fixed when a node starts.
pub(super) fn facts(config: &Config, address: &str) -> Facts {
    Facts {
        sections: config.sections.clone(),
        key_check: config.serve.secret_key.as_deref().map(key_check),
        address: is_a_place(address).then(|| address.to_owned()),
    }
}

/// Whether an address leads somewhere from another box: two boxes may well have the same loopback address.
fn is_a_place(address: &str) -> bool {
    let host = address.split("://").nth(1).unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host).trim_matches(['[', ']']);
    host.parse::<IpAddr>().map_or(host != "localhost", |ip| !ip.is_loopback() && !ip.is_unspecified())
}

impl Standing {
    /// A sentence when this node must not be beside one that is there.
    pub(super) async fn conflict(&self) -> Option<String> {
        let asking = standing::conflict(&self.pool, &self.me, &self.facts, self.lease);
        timeout(DEADLINE, asking).await.ok()?.unwrap_or_else(|error| {
            tracing::debug!(%error, "the other nodes could not be looked at");
            None
        })
    }

    /// Says and proves it until the node stops, and gives up roles that another node could run and this one can not.
    pub(super) async fn keep(self, told: Told, leases: watch::Receiver<Snapshot>, stop: CancellationToken) {
        let mut fitness = Fitness::new(self.config.directory.clone());
        let Told { proof, conflict, unfit } = &told;
        let proving = async {
            loop {
                let found = self.prove(unfit).await;
                let pause = if found.is_ok() { PROVE } else { PROVE_AGAIN };
                *lock(&self.proved) = BootInstant::now();
                proof.send_if_modified(|before| {
                    let news = before.as_ref() != Some(&found);
                    if let (true, Err(why_not)) = (news, &found) {
                        tracing::warn!("this node could not take over just now: {why_not}");
                    }
                    if news {
                        *before = Some(found);
                    }
                    news
                });
                let _ = timeout(pause, self.prove_now.notified()).await;
            }
        };
        let saying = async {
            let mut news = proof.subscribe();
            let mut said: Option<(BootInstant, BootInstant, bool)> = None;
            loop {
                let well = fitness.look();
                let changed = unfit.send_if_modified(|now| std::mem::replace(&mut now.node, well.clone()) != well);
                let trouble = self.trouble();
                let proved = *lock(&self.proved);
                let due = said.is_none_or(|(at, of, was)| {
                    BootInstant::now().since(at) >= SAY || of != proved || was != trouble.is_some()
                });
                if due || news.has_changed().unwrap_or(false) {
                    let found = news.borrow_and_update().clone();
                    self.say(found, proved, trouble.is_some()).await;
                    said = Some((BootInstant::now(), proved, trouble.is_some()));
                    if let Some(sentence) = self.conflict().await {
                        conflict.send_replace(Some(sentence));
                    }
                    if changed || self.is_asked().await {
                        self.prove_now.notify_one();
                    }
                }
                self.leave_to_others(trouble.as_deref(), &told, &leases).await;
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = proving => {}
            () = saying => {}
        }
    }

    async fn say(&self, proof: Option<Proof>, proved: BootInstant, opc_down: bool) {
        let now = Now { proof, proved_ago: BootInstant::now().since(proved), opc_down };
        let wrote = timeout(DEADLINE, standing::write(&self.pool, &self.me, &self.facts, &now)).await;
        if !matches!(wrote, Ok(Ok(true))) {
            tracing::debug!(?wrote, "what this node says of itself is not written yet");
        }
    }

    async fn is_asked(&self) -> bool {
        let asking = standing::is_asked(&self.pool, &self.me, self.lease);
        matches!(timeout(DEADLINE, asking).await, Ok(Ok(true)))
    }

    /// The connection that a role here needs and has not had for a lease (5 s at least), in a sentence.
    fn trouble(&self) -> Option<String> {
        let down = self.opc.status().into_iter().flat_map(|(_, connections)| connections).find(|connection| {
            let since = connection.since.filter(|_| !connection.connected);
            since.is_some_and(|since| wall_nanos().saturating_sub(since) > nanos(self.lease.max(PATIENCE)))
        })?;
        Some(format!("the OPC UA connection {}: {}", down.connection, down.reason))
    }

    /// Gives up roles that do not reach their OPC UA server here while another live node does; and does not take them again before this
    /// node does, or nobody else could run them either. Where nobody reaches it, the PLC is off, and every role stays where it is.
    async fn leave_to_others(&self, trouble: Option<&str>, told: &Told, leases: &watch::Receiver<Snapshot>) {
        let reaches = trouble.is_none() && matches!(&*told.proof.borrow(), Some(Ok(())));
        if reaches || (trouble.is_none() && told.unfit.borrow().roles.is_empty()) {
            return told.take_part();
        }
        if trouble.is_some() && !matches!(&*told.proof.borrow(), Some(Err(_))) {
            // First this node says that it can not: else it would take the role again at once.
            return self.prove_now.notify_one();
        }
        let Ok(Ok(able)) = timeout(DEADLINE, standing::able(&self.pool, &self.me, self.lease)).await else { return };
        let Some(other) = able else {
            return told.take_part();
        };
        let Some(trouble) = trouble else { return };
        let (now, opened) = (leases.borrow().clone(), self.opc.open_now());
        let uses = |held: &&Held| opened.iter().any(|(key, _)| key == held.key());
        let stays = |held: &&Held| now.is_pair || now.placed(held.key()).is_some_and(Placed::is_flapping);
        for held in now.held.iter().filter(uses).filter(|held| !stays(held) && !held.draining()) {
            tracing::warn!(role = %held.key(), "{trouble}: the role is given up, since node {other} reaches it");
            told.unfit.send_modify(|now| {
                now.roles.insert(held.key().clone(), trouble.to_owned());
            });
            held.drain(Cause::Yield);
        }
    }

    /// A role that others may run and this node does not know.
    async fn unknown_role(&self) -> Option<String> {
        let mine: Vec<String> = self.config.roles.keys().map(ToString::to_string).collect();
        let asking = standing::unknown_roles(&self.pool, &self.me, &mine, self.lease);
        timeout(DEADLINE, asking).await.ok()?.unwrap_or_default().into_iter().next()
    }

    /// Does what a takeover needs: the box is well, every role's module was found good at the start, and every OPC UA server lets this
    /// node in.
    async fn prove(&self, unfit: &watch::Sender<Unfit>) -> Proof {
        if let Some(sentence) = unfit.borrow().node.clone() {
            return Err(sentence);
        }
        if let Some(refused) = self.refused.first() {
            return Err(refused.clone());
        }
        if let Some(role) = self.unknown_role().await {
            return Err(format!(
                "other nodes run the role {role}, and this node's plant.toml has no section [roles.{role}]"
            ));
        }
        if !self.opc.open_now().is_empty() {
            // It runs a role that uses them: its sessions are proof enough, and a PLC may have no room for a second one.
            return self.trouble().map_or(Ok(()), Err);
        }
        for (name, connection) in &self.config.opc {
            let longest = TRY + connection.connect;
            match timeout(longest, connect::reach(name, connection)).await {
                Ok(Ok(())) => {}
                Ok(Err(refusal)) => return Err(format!("the OPC UA connection {name}: {refusal}")),
                Err(_) => {
                    return Err(format!("the OPC UA connection {name} was not open within {} s", longest.as_secs()));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::is_a_place;

    #[test]
    fn only_addresses_that_lead_somewhere_are_compared() {
        for here in ["http://127.0.0.1:8080", "http://localhost:8080", "http://0.0.0.0:80", "http://[::1]:8080"] {
            assert!(!is_a_place(here), "{here}");
        }
        for there in ["http://plant-a:8080", "https://192.0.2.1", "http://[2001:db8::1]:8080"] {
            assert!(is_a_place(there), "{there}");
        }
    }
}
