//! What this node says of its roles, for the status page and for whoever waits for a state.

use std::collections::BTreeMap;

use tokio::sync::watch;

use super::{Report, State};
use crate::identity::{Epoch, RoleKey};

/// The reports of all the roles of this node, shared; cheap to clone.
#[derive(Debug, Clone)]
pub struct Reports(watch::Sender<BTreeMap<RoleKey, Report>>);

impl Default for Reports {
    fn default() -> Self {
        Self(watch::Sender::new(BTreeMap::new()))
    }
}

impl Reports {
    /// Every role's report now.
    #[must_use]
    pub fn all(&self) -> BTreeMap<RoleKey, Report> {
        self.0.borrow().clone()
    }

    /// One role's report now.
    #[must_use]
    pub fn get(&self, key: &RoleKey) -> Option<Report> {
        self.0.borrow().get(key).cloned()
    }

    /// To wait for changes.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<BTreeMap<RoleKey, Report>> {
        self.0.subscribe()
    }

    /// One role's way to its report; a role that nobody spoke for is a standby.
    #[must_use]
    pub fn of(&self, key: RoleKey, module_version: Option<String>, module_sha256: Option<String>) -> Reporter {
        self.0.send_modify(|all| {
            all.entry(key.clone()).or_insert_with(|| Report {
                key: key.clone(),
                state: State::Standby,
                reason: "the lease is not held here".to_owned(),
                epoch: None,
                instances: 0,
                module_version,
                module_sha256,
                last_reading_at: None,
            });
        });
        Reporter { reports: self.clone(), key }
    }
}

/// One role's way to its report.
#[derive(Debug, Clone)]
pub struct Reporter {
    reports: Reports,
    key: RoleKey,
}

impl Reporter {
    /// What the role does now, and why.
    pub fn state(&self, state: State, reason: impl Into<String>, epoch: Option<Epoch>) {
        let reason = reason.into();
        self.change(|report| {
            report.state = state;
            report.reason = reason;
            report.epoch = epoch;
        });
    }

    /// The newest reading that the instance was given.
    pub fn reading(&self, at: i64) {
        self.change(|report| report.last_reading_at = report.last_reading_at.max(Some(at)));
    }

    /// Says that an instance exists, for as long as the answer does.
    #[must_use]
    pub fn instance(&self) -> Alive {
        self.change(|report| report.instances += 1);
        Alive(self.clone())
    }

    fn change(&self, change: impl FnOnce(&mut Report)) {
        self.reports.0.send_modify(|all| {
            if let Some(report) = all.get_mut(&self.key) {
                change(report);
            }
        });
    }
}

/// An instance exists. It lies in the store, so that a report can not say that an instance is gone while its store is not.
#[derive(Debug)]
pub struct Alive(Reporter);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.change(|report| report.instances = report.instances.saturating_sub(1));
    }
}
