//! Metrics, as text that Prometheus reads.
//!
//! One registry: the host's own names begin with `host_`, those of a role with `role_`; other modules register their families into it. No
//! machine's or tag's name is a label: a plant has thousands, and each would be a series.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::role;

/// The registry, and the API's own families. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    requests: Family<RequestLabels, Counter>,
    seconds: Histogram,
    reachable: Gauge,
    instances: Family<RoleLabels, Gauge>,
    epochs: Family<RoleLabels, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RoleLabels {
    role: String,
    partition: String,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// A registry with the API's own families.
    #[must_use]
    pub fn new() -> Self {
        let metrics = Self {
            registry: Arc::new(Mutex::new(Registry::default())),
            requests: Family::default(),
            seconds: Histogram::new([0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0]),
            reachable: Gauge::default(),
            instances: Family::default(),
            epochs: Family::default(),
        };
        metrics.register(|registry| {
            registry.register("http_requests", "Requests that were answered", metrics.requests.clone());
            registry.register("http_request_seconds", "How long answers took", metrics.seconds.clone());
            registry.register(
                "database_reachable",
                "1 while the database answers this node",
                metrics.reachable.clone(),
            );
            registry.register("role_instances", "Instances of a role on this node: 0 or 1", metrics.instances.clone());
            registry.register("role_epoch", "The epoch of the role's instance on this node", metrics.epochs.clone());
        });
        metrics
    }

    /// The registry itself, without a prefix, for those that register while the node runs.
    #[must_use]
    pub fn registry(&self) -> Arc<Mutex<Registry>> {
        self.registry.clone()
    }

    /// Lets another module register its families; their names get the prefix `host_`.
    pub fn register(&self, families: impl FnOnce(&mut Registry)) {
        let mut all = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        families(all.sub_registry_with_prefix("host"));
    }

    /// All of it, as text.
    ///
    /// # Errors
    /// When a family cannot be written.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut all = String::new();
        text::encode(&mut all, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(all)
    }

    pub(super) fn answered(&self, route: &'static str, status: u16, took: Duration) {
        self.requests.get_or_create(&RequestLabels { route, status }).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    pub(super) fn see(&self, reachable: bool, reports: &[role::Report]) {
        self.reachable.set(i64::from(reachable));
        for report in reports {
            let labels = RoleLabels { role: report.key.role.to_string(), partition: report.key.partition.clone() };
            self.instances.get_or_create(&labels).set(i64::from(report.instances));
            let epoch = report.epoch.map_or(0, |epoch| epoch.number);
            self.epochs.get_or_create(&labels).set(i64::try_from(epoch).unwrap_or(i64::MAX));
        }
    }
}
