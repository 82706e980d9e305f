//! The host's own metrics of the roles it runs.

use std::sync::PoisonError;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use crate::capability::metrics::SharedRegistry;
use crate::identity::RoleKey;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Role {
    role: String,
    partition: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ending {
    role: String,
    partition: String,
    why: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    role: String,
    partition: String,
    export: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Export {
    role: String,
    export: &'static str,
}

/// The node's figures of its roles; cheap to clone.
#[derive(Debug, Clone)]
pub struct Figures {
    started: Family<Role, Counter>,
    ended: Family<Ending, Counter>,
    calls: Family<Call, Counter>,
    seconds: Family<Export, Histogram, fn() -> Histogram>,
    delivered: Family<Role, Counter>,
    coalesced: Family<Role, Counter>,
    dropped: Family<Role, Counter>,
}

/// From a tenth of a millisecond to six seconds.
fn buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 3.0, 11))
}

impl Figures {
    /// Registers them; once for each node.
    #[must_use]
    pub fn register(registry: &SharedRegistry) -> Self {
        let figures = Self {
            started: Family::default(),
            ended: Family::default(),
            calls: Family::default(),
            seconds: Family::new_with_constructor(buckets as fn() -> Histogram),
            delivered: Family::default(),
            coalesced: Family::default(),
            dropped: Family::default(),
        };
        let mut registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
        let all = registry.sub_registry_with_prefix("host");
        all.register("instances_started", "Instances that were started", figures.started.clone());
        all.register("instances_ended", "Instances that ended, by why", figures.ended.clone());
        all.register("calls", "Calls into guests, by outcome", figures.calls.clone());
        all.register("call_seconds", "How long calls into guests took", figures.seconds.clone());
        all.register("samples_delivered", "OPC UA samples that guests accepted", figures.delivered.clone());
        all.register(
            "samples_coalesced",
            "Samples that gave way to a newer one in the queue",
            figures.coalesced.clone(),
        );
        all.register("samples_dropped", "Samples that a full queue lost", figures.dropped.clone());
        drop(registry);
        figures
    }

    /// The figures of one role.
    #[must_use]
    pub fn of(&self, key: &RoleKey) -> RoleFigures {
        RoleFigures { all: self.clone(), role: key.role.to_string(), partition: key.partition.clone() }
    }
}

/// The figures of one role and partition.
#[derive(Debug, Clone)]
pub struct RoleFigures {
    all: Figures,
    role: String,
    partition: String,
}

impl RoleFigures {
    fn role(&self) -> Role {
        Role { role: self.role.clone(), partition: self.partition.clone() }
    }

    /// An instance was started.
    pub fn started(&self) {
        self.all.started.get_or_create(&self.role()).inc();
    }

    /// An instance ended.
    pub fn ended(&self, why: &'static str) {
        let Role { role, partition } = self.role();
        self.all.ended.get_or_create(&Ending { role, partition, why }).inc();
    }

    /// A call into a guest returned, or was interrupted.
    pub fn call(&self, export: &'static str, outcome: &'static str, took: Duration) {
        let Role { role, partition } = self.role();
        self.all.seconds.get_or_create(&Export { role: role.clone(), export }).observe(took.as_secs_f64());
        self.all.calls.get_or_create(&Call { role, partition, export, outcome }).inc();
    }

    /// A guest accepted so many samples.
    pub fn delivered(&self, samples: u64) {
        self.all.delivered.get_or_create(&self.role()).inc_by(samples);
    }

    /// So many samples gave way to a newer one, and so many were lost.
    pub fn queue(&self, coalesced: u64, dropped: u64) {
        self.all.coalesced.get_or_create(&self.role()).inc_by(coalesced);
        self.all.dropped.get_or_create(&self.role()).inc_by(dropped);
    }
}
