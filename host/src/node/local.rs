//! What only this process knows, as the HTTP side asks for it.

use tokio::sync::watch;

use crate::api::{Ha, HaDetail, HaRole, Local};
use crate::identity::NodeName;
use crate::lease::keeper::Snapshot;
use crate::role::reports::Reports;
use crate::role::{Report, State};

pub(super) struct LocalView {
    pub(super) node: NodeName,
    pub(super) reports: Reports,
    pub(super) leases: watch::Receiver<Snapshot>,
}

impl Local for LocalView {
    fn reports(&self) -> Vec<Report> {
        self.reports.all().into_values().collect()
    }

    fn ha(&self) -> Ha {
        let now = self.leases.borrow().clone();
        let Some(lease) = now.lease else { return Ha::disabled() };
        let reports = self.reports.all();
        let starting = reports.values().any(|report| report.state == State::Promoting);
        let role = match (now.held.is_empty(), starting) {
            (true, _) => HaRole::Standby,
            (false, true) => HaRole::Promoting,
            (false, false) => HaRole::Active,
        };
        let reader = |key: &&crate::identity::RoleKey| key.role.as_str() == "reader";
        let held_here = now.held.iter().any(|key| reader(&key)).then(|| self.node.to_string());
        let seen = || now.seen.values().find(|seen| reader(&&seen.key)).and_then(|seen| seen.holder.as_ref());
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
}
