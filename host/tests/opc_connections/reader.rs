//! An instance's side of a connection, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use harness::asyncua::{Asyncua, Setup};
use host::config::{OpcConnection, Security};
use host::opc::{Batch, ConnectionChange, ConnectionStatus, Connections, EventQueue, Monitoring, Sample, Value};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
const HOW: Monitoring = Monitoring { publish_ms: 50, sampling_ms: 20, queue: 50, coalesce: true };
pub const GOOD: &str = "nsu=urn:plant:test;s=FILL01.Good";

fn connection(endpoint: String, pki: &TempDir) -> OpcConnection {
    OpcConnection {
        endpoint,
        security: Security::None,
        connect: Duration::from_secs(15),
        publish: Duration::from_millis(50),
        sampling: Duration::from_millis(20),
        silence: Duration::from_secs(6),
        writer: None,
        user: None,
        pki: pki.path().to_owned(),
        certificate: None,
    }
}

/// An instance's side of one connection, `line`.
pub struct Reader {
    pub queue: Arc<EventQueue>,
    pub connections: Connections,
    pub config: OpcConnection,
    _pki: TempDir,
}

impl Reader {
    pub fn new(endpoint: String, change: impl FnOnce(&mut OpcConnection)) -> Self {
        let pki = TempDir::new().unwrap();
        let mut config = connection(endpoint, &pki);
        change(&mut config);
        let queue = Arc::new(EventQueue::default());
        let configs = BTreeMap::from([("line".to_owned(), config.clone())]);
        let connections = Connections::new(&configs, &queue, tokio::runtime::Handle::current());
        Self { queue, connections, config, _pki: pki }
    }

    pub fn subscribe(&self, nodes: &[&str]) -> Vec<u32> {
        let nodes = nodes.iter().map(|n| (*n).to_owned()).collect();
        let items: Vec<u32> =
            self.connections.resolve("line", nodes).unwrap().into_iter().map(Result::unwrap).collect();
        self.connections.subscribe(&items, HOW).unwrap();
        items
    }

    pub async fn next(&self) -> Batch {
        tokio::time::timeout(PATIENCE, self.queue.next(1)).await.expect("something arrives")
    }

    /// The next sample of the item; connection changes on the way fail the test.
    pub async fn sample(&self, item: u32) -> Sample {
        loop {
            match self.next().await {
                Batch::Samples(samples) if samples[0].item == item => return samples[0].clone(),
                Batch::Samples(_) => {}
                Batch::Connection(change) => panic!("{change:?} while waiting for item {item}"),
            }
        }
    }

    /// Waits until the item has this value.
    pub async fn until(&self, item: u32, value: Value) {
        let reached = async { while self.sample(item).await.value != value {} };
        tokio::time::timeout(PATIENCE, reached).await.expect("the value arrives");
    }

    /// How the connection is.
    pub fn status(&self) -> ConnectionStatus {
        self.connections.status().remove(0)
    }

    /// The next connection change; samples on the way are skipped.
    pub async fn change(&self) -> ConnectionChange {
        loop {
            if let Batch::Connection(change) = self.next().await {
                return change;
            }
        }
    }

    pub async fn up(&self) {
        let first = self.next().await;
        assert!(
            matches!(&first, Batch::Connection(change) if change.connected),
            "the first thing said is that it is up, not {first:?}"
        );
    }
}

pub fn server() -> Asyncua {
    Asyncua::start(Setup::default()).unwrap()
}

/// A server that misbehaves, by `peers/faults.py`.
pub fn faulty(faults: serde_json::Value) -> Asyncua {
    Asyncua::start(Setup { faults, ..Setup::default() }).unwrap()
}

/// Waits until something about a connection is so.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    harness::process::wait_until(what, PATIENCE, || Ok(is_so())).unwrap();
}

/// Counts the server's clients until they are as many as expected.
pub fn wait_for_clients(server: &mut Asyncua, expected: u64) {
    harness::process::wait_until("the number of clients", PATIENCE, || Ok(server.clients()? == expected)).unwrap();
}
