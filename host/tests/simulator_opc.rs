//! The simulator's OPC UA side, seen by the host's own connections and by a bare client.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test ends where it fails")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use host::config::{OpcConnection, Security};
use host::opc::{Batch, Connections, EventQueue, Monitoring, Sample, Value};
use host::simulator::{Beginning, Settings, Simulator};
use opcua::client::{ClientBuilder, IdentityToken, Session};
use opcua::types::{
    AttributeId, BrowseDescription, BrowseDirection, BrowseResultMask, DataTypeId, DataValue, EndpointDescription,
    NodeId, ObjectId, ReadValueId, ReferenceTypeId, StatusCode, TimestampsToReturn, UserTokenPolicy, Variant,
    WriteValue,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::AbortHandle;

const PATIENCE: Duration = Duration::from_secs(60);
/// So slow that no step makes two units, not even one that makes up for a standstill of the whole process.
const SLOW: f64 = 0.8;
const FOR_LONG_MS: u64 = 600_000;
const HOW: Monitoring = Monitoring { publish_ms: 50, sampling_ms: 10, queue: 1_000, coalesce: false };

fn beginning() -> Beginning {
    Beginning { seed: 1, speed: 20.0, paused: true, counters: 0, first: None }
}

async fn simulator(beginning: Beginning) -> Simulator {
    Simulator::start(Settings {
        listen: "opc.tcp://127.0.0.1:0".parse().unwrap(),
        control: "127.0.0.1:0".to_owned(),
        beginning,
        rate: 20,
    })
    .await
    .unwrap()
}

/// Posts to the control address, on a thread that may wait.
async fn post(line: &Simulator, path: &str, body: serde_json::Value) {
    let url = format!("{}{path}", line.control_url());
    let answer =
        tokio::task::spawn_blocking(move || ureq::post(url).send_json(body).map(|answer| answer.status().as_u16()));
    assert_eq!(answer.await.unwrap().unwrap(), 200);
}

async fn fault(line: &Simulator, kind: &str, for_ms: Option<u64>) {
    let mut body = json!({ "machine": "CAP01", "counter": "good", "kind": kind });
    if let Some(for_ms) = for_ms {
        body["for_ms"] = for_ms.into();
    }
    post(line, "/fault", body).await;
}

/// The host's own connection to it, with one node subscribed.
struct Watch {
    queue: Arc<EventQueue>,
    connections: Connections,
    _pki: TempDir,
}

impl Watch {
    fn new(line: &Simulator, node: &str) -> Self {
        let pki = TempDir::new().unwrap();
        let config = OpcConnection {
            endpoint: format!("{}/plant", line.url()),
            security: Security::None,
            connect: Duration::from_secs(15),
            publish: Duration::from_millis(50),
            sampling: Duration::from_millis(10),
            silence: Duration::from_secs(6),
            writer: None,
            user: None,
            pki: pki.path().to_owned(),
            certificate: None,
        };
        let queue = Arc::new(EventQueue::default());
        let configs = BTreeMap::from([("line".to_owned(), config)]);
        let connections = Connections::new(&configs, &queue, tokio::runtime::Handle::current());
        let node = format!("nsu=urn:plant:simulator;s={node}");
        let item = connections.resolve("line", vec![node]).unwrap().remove(0).unwrap();
        connections.subscribe(&[item], HOW).unwrap();
        Self { queue, connections, _pki: pki }
    }

    async fn next(&self) -> Batch {
        tokio::time::timeout(PATIENCE, self.queue.next(1)).await.expect("something arrives")
    }

    /// The next sample; connection changes on the way are skipped.
    async fn sample(&self) -> Sample {
        loop {
            if let Batch::Samples(samples) = self.next().await {
                return samples[0].clone();
            }
        }
    }

    /// The next change of the connection; samples on the way are skipped: an item may be said to be Bad before its connection is lost.
    async fn connected(&self) -> bool {
        loop {
            if let Batch::Connection(change) = self.next().await {
                return change.connected;
            }
        }
    }

    async fn sees(&self, expected: Value) {
        let mut seen = Vec::new();
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                let sample = self.sample().await;
                if sample.value == expected {
                    return;
                }
                seen.push(sample);
            }
        });
        assert!(waited.await.is_ok(), "{expected:?} did not come, but {seen:?}");
    }
}

/// A bare session, ended with the test.
struct Bare {
    session: Arc<Session>,
    namespace: u16,
    events: AbortHandle,
    _pki: TempDir,
}

impl Bare {
    async fn new(line: &Simulator) -> Self {
        let pki = TempDir::new().unwrap();
        let mut client = ClientBuilder::new()
            .application_name("test")
            .application_uri("urn:test")
            .pki_dir(pki.path())
            .create_sample_keypair(false)
            .session_retry_limit(0)
            .client()
            .unwrap();
        let endpoint: EndpointDescription =
            (line.url().as_str(), "None", opcua::types::MessageSecurityMode::None, UserTokenPolicy::anonymous()).into();
        let (session, events) = client.connect_to_matching_endpoint(endpoint, IdentityToken::Anonymous).await.unwrap();
        let events = events.spawn().abort_handle();
        assert!(tokio::time::timeout(PATIENCE, session.wait_for_connection()).await.unwrap());
        let namespace = session.get_namespace_index("urn:plant:simulator").await.unwrap();
        Self { session, namespace, events, _pki: pki }
    }

    fn id(&self, identifier: &str) -> NodeId {
        NodeId::new(self.namespace, identifier)
    }

    async fn read(&self, identifier: &str, attribute: AttributeId) -> DataValue {
        let what =
            ReadValueId { node_id: self.id(identifier), attribute_id: attribute as u32, ..ReadValueId::default() };
        self.session.read(&[what], TimestampsToReturn::Both, 0.0).await.unwrap().remove(0)
    }

    async fn browse(&self, node: NodeId) -> (StatusCode, Vec<String>) {
        let what = BrowseDescription {
            node_id: node,
            browse_direction: BrowseDirection::Forward,
            reference_type_id: ReferenceTypeId::HierarchicalReferences.into(),
            include_subtypes: true,
            node_class_mask: 0,
            result_mask: BrowseResultMask::All as u32,
        };
        let found = self.session.browse(&[what], 0, None).await.unwrap().remove(0);
        let mut names: Vec<String> =
            found.references.into_iter().flatten().map(|r| r.browse_name.name.as_ref().to_owned()).collect();
        names.sort();
        (found.status_code, names)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.events.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_line_can_be_browsed_from_objects_to_every_value() {
    let line = simulator(Beginning { counters: 2, ..beginning() }).await;
    let bare = Bare::new(&line).await;
    assert!(bare.browse(ObjectId::ObjectsFolder.into()).await.1.contains(&"Line".to_owned()));
    let (_, machines) = bare.browse(bare.id("Line")).await;
    assert_eq!(machines, ["CAP01", "FILL01", "LABEL01", "LOAD0001", "LOAD0002", "LOAD01", "PACK01", "RINSE01"]);
    let (_, nodes) = bare.browse(bare.id("FILL01")).await;
    assert_eq!(nodes, ["FillWeight", "GoodCount", "ScrapCount", "State"]);
    assert_eq!(bare.browse(bare.id("LOAD0001")).await.1, ["Count"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_have_the_documented_types_a_status_and_both_times() {
    let line = simulator(beginning()).await;
    let bare = Bare::new(&line).await;
    let documented = [
        ("LOAD01.GoodCount", Variant::UInt32(412_905), DataTypeId::UInt32),
        ("FILL01.GoodCount", Variant::UInt16(12_480), DataTypeId::UInt16),
        ("CAP01.GoodCount", Variant::Int32(1_204_377), DataTypeId::Int32),
        ("PACK01.GoodCount", Variant::UInt64(5_000_000_017), DataTypeId::UInt64),
        ("PACK01.ScrapCount", Variant::UInt32(188), DataTypeId::UInt32),
        ("FILL01.State", Variant::Int32(0), DataTypeId::Int32),
        ("LABEL01.State", Variant::Int32(4), DataTypeId::Int32),
        ("FILL01.FillWeight", Variant::Double(502.0), DataTypeId::Double),
    ];
    for (identifier, expected, expected_type) in documented {
        let value = bare.read(identifier, AttributeId::Value).await;
        assert_eq!((value.value.as_ref(), value.status()), (Some(&expected), StatusCode::Good), "{identifier}");
        assert!(value.source_timestamp.is_some() && value.server_timestamp.is_some(), "{identifier}: {value:?}");
        let data_type = bare.read(identifier, AttributeId::DataType).await.value;
        assert_eq!(data_type, Some(Variant::from(NodeId::from(expected_type))), "{identifier}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_exist_is_unknown_to_every_service() {
    let line = simulator(beginning()).await;
    let bare = Bare::new(&line).await;
    for identifier in ["FILL01.Nothing", "FILL09.GoodCount"] {
        assert_eq!(bare.read(identifier, AttributeId::Value).await.status(), StatusCode::BadNodeIdUnknown);
        assert_eq!(bare.read(identifier, AttributeId::BrowseName).await.status(), StatusCode::BadNodeIdUnknown);
        assert_eq!(bare.browse(bare.id(identifier)).await.0, StatusCode::BadNodeIdUnknown);
        assert_eq!(write(&bare, identifier).await, StatusCode::BadNodeIdUnknown);
        let watch = Watch::new(&line, identifier);
        let sample = watch.sample().await;
        assert_eq!((sample.value, sample.status), (Value::Null, StatusCode::BadNodeIdUnknown.bits()), "{identifier}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_refused_and_change_nothing() {
    let line = simulator(beginning()).await;
    let bare = Bare::new(&line).await;
    assert_eq!(write(&bare, "FILL01.GoodCount").await, StatusCode::BadNotWritable);
    assert_eq!(bare.read("FILL01.GoodCount", AttributeId::Value).await.value, Some(Variant::UInt16(12_480)));
}

async fn write(bare: &Bare, identifier: &str) -> StatusCode {
    let value = DataValue::value_only(Variant::UInt16(7));
    let write = WriteValue {
        node_id: bare.id(identifier),
        attribute_id: AttributeId::Value as u32,
        value,
        ..WriteValue::default()
    };
    bare.session.write(&[write]).await.unwrap().remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_unit_arrives_as_a_data_change_with_times_that_grow() {
    let line = simulator(Beginning { speed: SLOW, ..beginning() }).await;
    let watch = Watch::new(&line, "LOAD01.GoodCount");
    let first = watch.sample().await;
    assert_eq!(first.value, Value::Uint(412_905));
    let mut last = first.source;
    post(&line, "/resume", json!({})).await;
    for made in 412_906..412_911 {
        let next = watch.sample().await;
        assert_eq!((next.value, next.status), (Value::Uint(made), 0));
        assert!(next.source > last && next.server.is_some());
        last = next.source;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_a_counter_is_seen_by_who_subscribes_to_it() {
    let line = simulator(beginning()).await;
    let watch = Watch::new(&line, "CAP01.GoodCount");
    assert_eq!(watch.sample().await.value, Value::Int(1_204_377));

    fault(&line, "jump", None).await;
    assert_eq!(watch.sample().await.value, Value::Int(1_205_377));
    fault(&line, "glitch", Some(300)).await;
    assert_eq!(watch.sample().await.value, Value::Int(0));
    assert_eq!(watch.sample().await.value, Value::Int(1_205_377));
    fault(&line, "bad", Some(300)).await;
    let bad = watch.sample().await;
    assert_eq!((bad.value, bad.status), (Value::Null, StatusCode::BadDeviceFailure.bits()));
    assert_eq!(watch.sample().await.value, Value::Int(1_205_377));
    fault(&line, "vanish", Some(300)).await;
    let gone = watch.sample().await;
    assert_eq!((gone.value, gone.status), (Value::Null, StatusCode::BadNodeIdUnknown.bits()));
    assert_eq!(watch.sample().await.value, Value::Int(1_205_377));
    fault(&line, "spike", Some(300)).await;
    assert_eq!(watch.sample().await.value, Value::Int(1_206_377));
    assert_eq!(watch.sample().await.value, Value::Int(1_205_377));
    fault(&line, "reset", None).await;
    assert_eq!(watch.sample().await.value, Value::Int(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vanished_node_is_gone_from_the_address_space_and_comes_back() {
    let line = simulator(beginning()).await;
    let bare = Bare::new(&line).await;
    fault(&line, "vanish", Some(FOR_LONG_MS)).await;
    assert_eq!(bare.read("CAP01.GoodCount", AttributeId::Value).await.status(), StatusCode::BadNodeIdUnknown);
    assert_eq!(bare.read("CAP01.GoodCount", AttributeId::BrowseName).await.status(), StatusCode::BadNodeIdUnknown);
    assert_eq!(bare.browse(bare.id("CAP01")).await.1, ["CapTorque", "ScrapCount", "State"]);
    // The last fault that hides a register counts: this one ends at once.
    fault(&line, "vanish", Some(1)).await;
    let back = tokio::time::timeout(PATIENCE, async {
        while bare.browse(bare.id("CAP01")).await.1.len() < 4 {}
        bare.read("CAP01.GoodCount", AttributeId::Value).await.value
    });
    assert_eq!(back.await.unwrap(), Some(Variant::Int32(1_204_377)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_machine_says_that_it_is_down() {
    let line = simulator(Beginning { paused: false, ..beginning() }).await;
    let watch = Watch::new(&line, "FILL01.State");
    watch.sees(Value::Int(1)).await;
    let stop = |for_ms| json!({ "machine": "FILL01", "kind": "stop", "for_ms": for_ms });
    post(&line, "/fault", stop(FOR_LONG_MS)).await;
    watch.sees(Value::Int(4)).await;
    post(&line, "/fault", stop(1)).await;
    watch.sees(Value::Int(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_16_bit_counter_rolls_over_before_the_eyes_of_who_subscribes_to_it() {
    let line = simulator(Beginning { speed: SLOW, first: Some(65_534), ..beginning() }).await;
    let watch = Watch::new(&line, "FILL01.GoodCount");
    assert_eq!(watch.sample().await.value, Value::Uint(65_534));
    post(&line, "/resume", json!({})).await;
    for expected in [65_535, 0, 1] {
        assert_eq!(watch.sample().await.value, Value::Uint(expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_went_away_has_lost_its_sessions_and_none_of_its_counts() {
    let line = simulator(beginning()).await;
    let watch = Watch::new(&line, "CAP01.GoodCount");
    assert!(watch.connected().await);
    assert_eq!(watch.sample().await.value, Value::Int(1_204_377));
    post(&line, "/server", json!({ "down_ms": FOR_LONG_MS })).await;
    assert!(!watch.connected().await);
    fault(&line, "jump", None).await;
    post(&line, "/server", json!({ "down_ms": 1 })).await;
    assert!(watch.connected().await);
    assert_eq!(watch.sample().await.value, Value::Int(1_205_377));
    watch.connections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_for_load_tests_change_at_every_step() {
    let line = simulator(Beginning { counters: 5_000, paused: false, ..beginning() }).await;
    let watch = Watch::new(&line, "LOAD5000.Count");
    let Value::Uint(first) = watch.sample().await.value else { panic!("a counter is a number") };
    for step in 1..20 {
        assert_eq!(watch.sample().await.value, Value::Uint(first + step));
    }
}
