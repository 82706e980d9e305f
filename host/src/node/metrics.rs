//! What the leases and the fence have done on this node, as metrics.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use sqlx::PgPool;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::api::Metrics;
use crate::identity::{Holder, RoleKey};
use crate::lease::keeper::Snapshot;
use crate::store::Database;
use crate::store::queries::{Gap, gaps_since, newest_id};
use crate::store::standing::Proof;

/// How often it is looked whether a takeover of this node has come to its first commit.
const LOOK: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_secs(2);
/// From a tenth of the fastest takeover to several of the longest usual lease, in seconds.
const GAPS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Registers the families of the leases and the fence.
pub(super) fn register(metrics: &Metrics, leases: LeaseMetrics) {
    metrics.register(|registry| registry.register_collector(Box::new(leases)));
}

/// Asked at each scrape.
pub(super) struct LeaseMetrics {
    pub(super) keys: Vec<RoleKey>,
    pub(super) leases: watch::Receiver<Snapshot>,
    pub(super) database: Arc<dyn Database>,
    /// Whether this node could take over, once it has tried.
    pub(super) proof: watch::Receiver<Option<Proof>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabels {
    role: String,
    partition: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabels {
    cause: &'static str,
}

impl fmt::Debug for LeaseMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseMetrics").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Collector for LeaseMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = self.leases.borrow().clone();
        let kind = ConstGauge::new(0_i64).metric_type();
        let mut held = encoder.encode_descriptor("lease_held", "1 while this node holds the lease", None, kind)?;
        for key in &self.keys {
            ConstGauge::new(i64::from(now.holds(key))).encode(held.encode_family(&labels(key))?)?;
        }
        let kind = ConstGauge::new(0.0_f64).metric_type();
        let help = "Until this node ends its own work under the lease, unless it is renewed";
        let mut left = encoder.encode_descriptor("lease_expires_seconds", help, None, kind)?;
        // Where leases never expire there is nothing to say.
        for held in now.held.iter().filter(|_| now.lease.is_some()) {
            ConstGauge::new(held.remaining().as_secs_f64()).encode(left.encode_family(&labels(held.key()))?)?;
        }
        if let Some(proof) = &*self.proof.borrow() {
            let help = "Whether this node could take a role over, by what it tried last";
            let kind = ConstGauge::new(0_i64).metric_type();
            let could = encoder.encode_descriptor("could_take_over", help, None, kind)?;
            ConstGauge::new(i64::from(proof.is_ok())).encode(could)?;
        }
        let kind = ConstCounter::new(0_u64).metric_type();
        let mut taken = encoder.encode_descriptor("lease_transitions", "Leases that this node took", None, kind)?;
        for (&cause, &count) in &now.taken {
            ConstCounter::new(count).encode(taken.encode_family(&CauseLabels { cause })?)?;
        }
        let lost = encoder.encode_descriptor(
            "lease_demotions",
            "Leases that this node lost or gave up in time",
            None,
            kind,
        )?;
        ConstCounter::new(now.demotions).encode(lost)?;
        let help = "Commits that the fence refused";
        let refusals = encoder.encode_descriptor("fence_refusals", help, None, kind)?;
        ConstCounter::new(self.database.fence_refusals()).encode(refusals)
    }
}

fn labels(key: &RoleKey) -> LeaseLabels {
    LeaseLabels { role: key.role.to_string(), partition: key.partition.clone() }
}

/// Measures this node's takeovers, until stopped: from the last commit of the holder before to the first one here, as the plant's record
/// has it.
pub(super) async fn measure(pool: PgPool, me: Holder, metrics: Metrics, stop: CancellationToken) {
    let seconds = Histogram::new(GAPS);
    metrics.register(|registry| {
        let help = "From the last commit of a role's holder before to the first one of this node";
        registry.register("takeover_seconds", help, seconds.clone());
    });
    let mut floor = None;
    let mut seen = BTreeSet::new();
    let looking = async {
        loop {
            match timeout(DEADLINE, look(&pool, &me, &mut floor)).await {
                Ok(Ok(gaps)) => {
                    for gap in gaps.into_iter().filter(|gap| seen.insert(gap.id)) {
                        seconds.observe(gap.seconds);
                    }
                }
                other => tracing::debug!(?other, "the takeovers could not be looked at"),
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    stop.run_until_cancelled(looking).await;
}

/// Those since the first look, which finds where they begin.
async fn look(pool: &PgPool, me: &Holder, floor: &mut Option<i64>) -> Result<Vec<Gap>, sqlx::Error> {
    let since = match *floor {
        Some(since) => since,
        None => *floor.insert(newest_id(pool).await?),
    };
    gaps_since(pool, me, since).await
}
