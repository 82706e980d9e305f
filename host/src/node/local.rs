//! What only this process knows, as the HTTP side asks for it.

use std::sync::Arc;

use tokio::sync::watch;

use super::machines;
use crate::api::{Buffer, Connection, Ha, HaDetail, HaRole, Local};
use crate::capability::opc::{PlantOpc, Sessions};
use crate::identity::{NodeName, RoleKey};
use crate::lease::Held;
use crate::lease::keeper::Snapshot;
use crate::role::reports::Reports;
use crate::role::{Report, State};
use crate::store::standing::Proof;

pub(super) struct LocalView {
    pub(super) node: NodeName,
    pub(super) reports: Reports,
    pub(super) leases: watch::Receiver<Snapshot>,
    /// The lease that all roles are under, in a pair.
    pub(super) pair: Option<RoleKey>,
    pub(super) opc: Arc<PlantOpc>,
    /// Why roles can not run here; one sentence for each.
    pub(super) refused: Vec<String>,
    /// Whether it could take over, by what it tried last.
    pub(super) proof: watch::Receiver<Option<Proof>>,
}

impl Local for LocalView {
    fn reports(&self) -> Vec<Report> {
        machines::with_shortfalls(&self.reports, &self.opc)
    }

    fn ha(&self) -> Ha {
        let now = self.leases.borrow().clone();
        let Some(lease) = now.lease else { return Ha::disabled() };
        let role = match &self.pair {
            Some(pair) => self.role_in_pair(&now, pair),
            None => self.role_among_others(&now),
        };
        let leads = |key: &RoleKey| self.pair.as_ref().map_or(key.role.as_str() == "reader", |pair| key == pair);
        let held_here = now.held.iter().map(Held::key).any(leads).then(|| self.node.to_string());
        let seen = || now.seen.values().find(|seen| leads(&seen.key)).and_then(|seen| seen.holder.as_ref());
        Ha::enabled(HaDetail {
            role,
            node_id: self.node.to_string(),
            leader: held_here.or_else(|| seen().map(|holder| holder.node.to_string())),
            backend: now.store.to_owned(),
            serving: now.last_error.is_none(),
            since_ms: now.since_ms,
            last_renew_ms: now.last_renew_ms,
            takeovers: now.takeovers,
            demotions: now.demotions,
            lease_ttl_secs: lease.as_secs_f64(),
            renew_secs: lease.as_secs_f64() / 3.0,
            last_error: now.last_error,
        })
    }

    fn buffers(&self) -> Vec<Buffer> {
        let buffer = |(key, sessions): (RoleKey, Sessions)| {
            let losses = sessions.losses();
            Buffer {
                role: key.role.into(),
                partition: key.partition,
                waiting: count(sessions.queue.waiting()),
                capacity: count(sessions.queue.capacity()),
                coalesced: losses.coalesced,
                dropped: losses.dropped,
            }
        };
        self.opc.open_now().into_iter().map(buffer).collect()
    }

    fn connections(&self) -> Vec<Connection> {
        machines::connections(&self.opc)
    }

    fn why_not(&self) -> Option<String> {
        let refused = self.refused.first().cloned();
        let unproved = || self.proof.borrow().clone().and_then(Result::err);
        refused.or_else(|| self.leases.borrow().last_error.clone()).or_else(unproved)
    }
}

impl LocalView {
    /// Each role is for itself: active is who holds one.
    fn role_among_others(&self, now: &Snapshot) -> HaRole {
        let starting = self.reports.all().values().any(|report| report.state == State::Promoting);
        match (now.held.is_empty(), starting) {
            (true, _) => HaRole::Standby,
            (false, true) => HaRole::Promoting,
            (false, false) => HaRole::Active,
        }
    }

    /// Active is who holds the pair's lease and has got every role to the point where it works, or has failed by itself.
    fn role_in_pair(&self, now: &Snapshot, pair: &RoleKey) -> HaRole {
        if !now.holds(pair) {
            return HaRole::Standby;
        }
        let barred = |key: &RoleKey| now.placed(key).is_some_and(|placed| placed.barred.is_some());
        let begun = |report: &Report| matches!(report.state, State::Running | State::Backoff | State::Draining);
        let all = self.reports.all().values().all(|report| begun(report) || barred(&report.key));
        if all { HaRole::Active } else { HaRole::Promoting }
    }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
