//! `plant:metrics`: a role's own figures among the node's.
//!
//! A role declares its metrics in its manifest, and they are registered once, under `role_<role>_`. What a guest then sends is bounded: a
//! name it did not declare, a label that is no label, or one series too many is dropped and counted, so that no guest can fill the memory
//! of the host or of whoever scrapes it. Counters live as long as the process; a gauge says what an instance sees, and goes with it.

mod host;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::identity::RoleName;
use crate::role::manifest::{self, MetricKind};

/// What people are told of this capability.
pub const ABOUT: super::kind::About = super::kind::About {
    package: "plant:metrics",
    kind: super::kind::Kind::Harmless,
    what: "counts for /metrics of the node",
};

/// The node's registry: what `/metrics` shows.
pub type SharedRegistry = Arc<Mutex<Registry>>;

/// The most series of one metric, over all partitions of the role on this node.
const SERIES: usize = 200;
/// The most labels that a guest may give.
const LABELS: usize = 8;
/// The longest name or value of a label, in bytes.
const LABEL_BYTES: usize = 128;

/// Label names and values, in the order of their names.
type Labels = Vec<(String, String)>;

#[derive(Debug)]
struct Metric {
    family: Families,
    series: AtomicUsize,
}

#[derive(Debug)]
enum Families {
    Counter(Family<Labels, Counter>),
    Gauge(Family<Labels, Gauge<f64, AtomicU64>>),
    Histogram(Family<Labels, Histogram, fn() -> Histogram>),
}

/// The metrics of one role on this node, shared by its instances.
#[derive(Debug, Default)]
pub struct RoleMetrics {
    metrics: BTreeMap<String, Metric>,
    refused: Counter,
}

/// One instance's way to its role's metrics.
#[derive(Debug)]
pub struct Series {
    role: Arc<RoleMetrics>,
    partition: String,
    gauges: BTreeSet<(String, Labels)>,
}

/// One to two thousandths of a second up to a minute, when it is seconds.
fn buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 16))
}

impl RoleMetrics {
    /// Registers what the role declares; to be called once for each role of a node.
    #[must_use]
    pub fn register(
        registry: &SharedRegistry,
        role: &RoleName,
        declared: &BTreeMap<String, manifest::Metric>,
    ) -> Arc<Self> {
        let mut registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
        let own = registry.sub_registry_with_prefix(format!("role_{}", role.as_str().replace(['-', '.'], "_")));
        let mut role = Self::default();
        own.register(
            "metrics_refused",
            "Figures of the role that were not declared or not bounded",
            role.refused.clone(),
        );
        for (name, manifest::Metric { kind, help }) in declared {
            if !is_label(name) {
                tracing::warn!(
                    metric = name,
                    "a metric with this name cannot be shown: use letters, digits and '_', a letter first"
                );
                continue;
            }
            let family = match kind {
                MetricKind::Counter => {
                    let family = Family::default();
                    own.register(name, help, family.clone());
                    Families::Counter(family)
                }
                MetricKind::Gauge => {
                    let family = Family::default();
                    own.register(name, help, family.clone());
                    Families::Gauge(family)
                }
                MetricKind::Histogram => {
                    let family = Family::new_with_constructor(buckets as fn() -> Histogram);
                    own.register(name, help, family.clone());
                    Families::Histogram(family)
                }
            };
            role.metrics.insert(name.clone(), Metric { family, series: AtomicUsize::new(0) });
        }
        Arc::new(role)
    }
}

impl Series {
    /// The metrics of the role for an instance of one partition.
    #[must_use]
    pub fn new(role: Arc<RoleMetrics>, partition: String) -> Self {
        Self { role, partition, gauges: BTreeSet::new() }
    }

    /// Adds to a counter.
    pub fn add(&mut self, name: &str, by: u64, labels: Labels) {
        let done = self.find(name, labels).and_then(|(metric, labels)| match &metric.family {
            Families::Counter(family) if metric.admits(family.get(&labels).is_some()) => {
                family.get_or_create(&labels).inc_by(by);
                Some(())
            }
            _ => None,
        });
        self.count_refused(done.is_some());
    }

    /// Sets a gauge.
    pub fn set(&mut self, name: &str, to: f64, labels: Labels) {
        let done = self.find(name, labels).and_then(|(metric, labels)| match &metric.family {
            Families::Gauge(family) if metric.admits(family.get(&labels).is_some()) => {
                family.get_or_create(&labels).set(to);
                Some(labels)
            }
            _ => None,
        });
        self.count_refused(done.is_some());
        if let Some(labels) = done {
            self.gauges.insert((name.to_owned(), labels));
        }
    }

    /// Adds an observation to a histogram.
    pub fn observe(&mut self, name: &str, value: f64, labels: Labels) {
        let done = self.find(name, labels).and_then(|(metric, labels)| match &metric.family {
            Families::Histogram(family) if metric.admits(family.get(&labels).is_some()) => {
                family.get_or_create(&labels).observe(value);
                Some(())
            }
            _ => None,
        });
        self.count_refused(done.is_some());
    }

    fn find(&self, name: &str, labels: Labels) -> Option<(&Metric, Labels)> {
        Some((self.role.metrics.get(name)?, self.labels(labels)?))
    }

    fn count_refused(&self, done: bool) {
        if !done {
            self.role.refused.inc();
        }
    }

    /// The labels as they are kept; `None` when they are no labels.
    fn labels(&self, mut labels: Labels) -> Option<Labels> {
        let fits =
            labels.len() <= LABELS && labels.iter().all(|(name, value)| is_label(name) && value.len() <= LABEL_BYTES);
        if !fits {
            return None;
        }
        if !self.partition.is_empty() {
            labels.push(("partition".to_owned(), self.partition.clone()));
        }
        labels.sort();
        let count = labels.len();
        labels.dedup_by(|a, b| a.0 == b.0);
        (labels.len() == count).then_some(labels)
    }
}

impl Drop for Series {
    /// The instance has ended: what its gauges say is not so any more.
    fn drop(&mut self) {
        for (name, labels) in &self.gauges {
            let Some(metric) = self.role.metrics.get(name) else { continue };
            if let Families::Gauge(family) = &metric.family
                && family.remove(labels)
            {
                metric.series.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl Metric {
    /// Whether there is room for a series; a new one takes its place.
    fn admits(&self, known: bool) -> bool {
        let one_more = |series| (series < SERIES).then_some(series + 1);
        known || self.series.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }
}

fn is_label(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.len() <= LABEL_BYTES && name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(declared: &[(&str, MetricKind)]) -> (SharedRegistry, Series) {
        let registry = SharedRegistry::default();
        let metric = |kind| manifest::Metric { kind, help: "What it says".to_owned() };
        let declared = declared.iter().map(|(name, kind)| ((*name).to_owned(), metric(*kind))).collect();
        let role = RoleMetrics::register(&registry, &"erp-sync".parse().unwrap(), &declared);
        (registry, Series::new(role, String::new()))
    }

    fn text(registry: &SharedRegistry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry.lock().unwrap()).unwrap();
        text
    }

    #[test]
    fn a_declared_counter_is_shown_under_its_roles_name() {
        let (registry, mut series) = series(&[("sent", MetricKind::Counter)]);
        series.add("sent", 3, vec![("to".to_owned(), "erp".to_owned())]);
        assert!(text(&registry).contains("role_erp_sync_sent_total{to=\"erp\"} 3"), "{}", text(&registry));
    }

    #[test]
    fn a_metric_that_was_not_declared_is_dropped_and_counted() {
        let (registry, mut series) = series(&[]);
        series.set("surprise", 1.0, vec![]);
        assert!(!text(&registry).contains("surprise"));
        assert!(text(&registry).contains("role_erp_sync_metrics_refused_total 1"));
    }

    #[test]
    fn a_label_with_ever_new_values_is_bounded() {
        let (registry, mut series) = series(&[("sent", MetricKind::Counter)]);
        for n in 0..SERIES + 50 {
            series.add("sent", 1, vec![("id".to_owned(), n.to_string())]);
        }
        assert!(text(&registry).contains("role_erp_sync_metrics_refused_total 50"));
    }

    #[test]
    fn a_gauge_goes_with_its_instance_and_a_counter_stays() {
        let (registry, mut series) = series(&[("seen", MetricKind::Gauge), ("sent", MetricKind::Counter)]);
        series.set("seen", 4.0, vec![]);
        series.add("sent", 1, vec![]);
        drop(series);
        assert!(!text(&registry).contains("role_erp_sync_seen 4"));
        assert!(text(&registry).contains("role_erp_sync_sent_total 1"));
    }
}
