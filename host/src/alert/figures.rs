//! What became of the alerts, in numbers: who relies on them should see when they do not arrive.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    channel: &'static str,
    outcome: &'static str,
}

/// Counters, by channel and outcome. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Figures {
    alerts: Family<Labels, Counter>,
}

impl Figures {
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Alerts by channel and what became of them: delivered, failed (one try), dropped, given_up";
        registry.register("alerts", help, self.alerts.clone());
    }

    pub(super) fn count(&self, channel: &'static str, outcome: &'static str) {
        self.alerts.get_or_create(&Labels { channel, outcome }).inc();
    }
}
