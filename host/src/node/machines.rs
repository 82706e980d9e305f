//! What the OPC UA connections of this node's instances are like, for people and for Prometheus.
//!
//! A role that runs, on a connection that is up, is not all there is to know: a server may have refused to monitor some of its items. So
//! what a node says of such a role ends with that, and the figures have it by connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::api::{Connection, Item, Metrics};
use crate::capability::opc::PlantOpc;
use crate::opc::ConnectionStatus;
use crate::role::Report;
use crate::role::reports::Reports;

/// How often it is looked whether a server has changed its mind.
const LOOK: Duration = Duration::from_secs(5);

/// Registers the families of the connections.
pub(super) fn register(metrics: &Metrics, opc: Arc<PlantOpc>) {
    metrics.register(|registry| registry.register_collector(Box::new(OpcMetrics(opc))));
}

/// What this node says of its roles, with what their servers do not do for them.
pub(super) fn with_shortfalls(reports: &Reports, opc: &PlantOpc) -> Vec<Report> {
    let mut all: Vec<Report> = reports.all().into_values().collect();
    for report in &mut all {
        if let Some(shortfall) = opc.shortfall(&report.key) {
            report.reason = format!("{}; {shortfall}", report.reason);
        }
    }
    all
}

/// The same as a list that follows the reports, for whoever writes them down.
pub(super) fn listed(reports: Reports, opc: Arc<PlantOpc>) -> watch::Receiver<Vec<Report>> {
    let mut changes = reports.watch();
    let (list, listed) = watch::channel(with_shortfalls(&reports, &opc));
    tokio::spawn(async move {
        // What a server refuses changes without the role's own report.
        while !matches!(timeout(LOOK, changes.changed()).await, Ok(Err(_))) && !list.is_closed() {
            changes.mark_unchanged();
            let now = with_shortfalls(&reports, &opc);
            list.send_if_modified(|before| {
                let news = *before != now;
                *before = now;
                news
            });
        }
    });
    listed
}

/// The connections, as the API shows them.
pub(super) fn connections(opc: &PlantOpc) -> Vec<Connection> {
    let of_role = opc.status().into_iter();
    let all = of_role.flat_map(|(key, connections)| connections.into_iter().map(move |of| (key.clone(), of)));
    // One that no item is wanted of is not needed, and there is nothing to say.
    let used = all.filter(|(_, of)| of.since.is_some() || of.items > 0);
    used.map(|(key, of)| Connection {
        role: key.role.into(),
        partition: key.partition,
        connection: of.connection,
        connected: of.connected,
        reason: of.reason,
        items: count(of.items),
        bad_items: count(of.bad_items),
        bad: items(of.bad),
        not_monitored_items: count(of.not_monitored_items),
        not_monitored: items(of.not_monitored),
        too_large: of.too_large,
    })
    .collect()
}

fn items(named: Vec<(String, String)>) -> Vec<Item> {
    named.into_iter().map(|(node, status)| Item { node, status }).collect()
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Asked at each scrape.
struct OpcMetrics(Arc<PlantOpc>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    role: String,
    partition: String,
    connection: String,
}

/// A family's name, its help, and its figure.
type Figure = (&'static str, &'static str, fn(&ConnectionStatus) -> u64);

const FIGURES: [Figure; 5] = [
    ("opc_connected", "1 while the OPC UA connection is up", |of| u64::from(of.connected)),
    ("opc_items", "Items that the role wants of the connection", |of| count(of.items)),
    ("opc_items_bad", "Items whose newest status is Bad", |of| count(of.bad_items)),
    ("opc_items_not_monitored", "Items that the server refuses to monitor: they are read every second instead", |of| {
        count(of.not_monitored_items)
    }),
    ("opc_values_too_large", "Values of more than 1 MiB, which are not handed on, since the instance started", |of| {
        of.too_large
    }),
];

impl fmt::Debug for OpcMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpcMetrics")
    }
}

impl Collector for OpcMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = self.0.status();
        let kind = ConstGauge::new(0_i64).metric_type();
        for (name, help, figure) in FIGURES {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (key, connections) in &now {
                for of in connections.iter().filter(|of| of.since.is_some()) {
                    let (role, partition) = (key.role.to_string(), key.partition.clone());
                    let labels = Labels { role, partition, connection: of.connection.clone() };
                    let value = i64::try_from(figure(of)).unwrap_or(i64::MAX);
                    ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}
