//! What a node shows the others: that it is of the same plant, and that it could take over.
//!
//! A standby that could not take over is found out when it is needed, unless it tries before: every ten minutes it does what its first
//! minute as a holder would need, short of being one.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::capability::opc::PlantOpc;
use crate::config::{Config, key_check};
use crate::identity::Holder;
use crate::opc::connect;
use crate::store::standing::{self, Facts, Proof};

/// How often it is proved that this node could take over.
const PROVE: Duration = Duration::from_secs(600);
/// How soon it is tried again after it was found that it could not.
const PROVE_AGAIN: Duration = Duration::from_secs(15);
/// How often what it says is written again, and the others are looked at.
const SAY: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_secs(2);
/// The longest that one connection is tried, with a first key pair.
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

    /// Says and proves it until the node stops. The sentence of a conflict is shown in `conflict`.
    pub(super) async fn keep(
        self,
        proof: watch::Sender<Option<Proof>>,
        conflict: watch::Sender<Option<String>>,
        stop: CancellationToken,
    ) {
        let proving = async {
            loop {
                let found = self.prove().await;
                let pause = if found.is_ok() { PROVE } else { PROVE_AGAIN };
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
                tokio::time::sleep(pause).await;
            }
        };
        let saying = async {
            let mut news = proof.subscribe();
            loop {
                let now = news.borrow_and_update().clone();
                let wrote = timeout(DEADLINE, standing::write(&self.pool, &self.me, &self.facts, now.as_ref())).await;
                if !matches!(wrote, Ok(Ok(true))) {
                    tracing::debug!(?wrote, "what this node says of itself is not written yet");
                }
                if let Some(sentence) = self.conflict().await {
                    conflict.send_replace(Some(sentence));
                }
                let _ = timeout(SAY, news.changed()).await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = proving => {}
            () = saying => {}
        }
    }

    /// A role that others may run and this node does not know.
    async fn unknown_role(&self) -> Option<String> {
        let mine: Vec<String> = self.config.roles.keys().map(ToString::to_string).collect();
        let asking = standing::unknown_roles(&self.pool, &self.me, &mine, self.lease);
        timeout(DEADLINE, asking).await.ok()?.unwrap_or_default().into_iter().next()
    }

    /// Does what a takeover needs: every role's module was found good at the start, and every OPC UA server lets this node in.
    async fn prove(&self) -> Proof {
        if let Some(refused) = self.refused.first() {
            return Err(refused.clone());
        }
        if let Some(role) = self.unknown_role().await {
            return Err(format!(
                "other nodes run the role {role}, and this node's plant.toml has no section [roles.{role}]"
            ));
        }
        if !self.opc.open_now().is_empty() {
            // It runs a role that uses them: nothing has to be proved, and a PLC may have no room for a second session.
            return Ok(());
        }
        for (name, connection) in &self.config.opc {
            match timeout(TRY, connect::reach(name, connection)).await {
                Ok(Ok(())) => {}
                Ok(Err(refusal)) => return Err(format!("the OPC UA connection {name}: {refusal}")),
                Err(_) => return Err(format!("the OPC UA connection {name} was not open within {} s", TRY.as_secs())),
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
