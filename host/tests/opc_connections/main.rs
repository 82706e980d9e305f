//! Connections against an OPC UA server that is not our own: killed, silent, encrypted, late and lying.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

mod clocks;
mod limits;
mod nodes;
mod reader;
mod slow;

use std::collections::BTreeMap;
use std::time::Duration;

use harness::asyncua::{Asyncua, NAMESPACE, Proxy, Setup};
use host::config::{OpcConnection, Security};
use host::opc::{Batch, OpcError, Value};
use serde_json::json;
use tempfile::TempDir;

use self::reader::{GOOD, Reader, server, wait_for_clients};

#[tokio::test(flavor = "multi_thread")]
async fn each_change_arrives_in_order_with_quality_and_times() {
    let mut server = server();
    server.add("s=FILL01.Good", "UInt16", json!(65530)).unwrap();
    let reader = Reader::new(server.url(), |_| {});
    let item = reader.subscribe(&[GOOD])[0];
    assert!(
        matches!(reader.next().await, Batch::Connection(change) if change.connected && change.reason == "not encrypted, anonymous")
    );
    assert_eq!(reader.sample(item).await.value, Value::Uint(65530));

    // The counter wraps around.
    server.set("s=FILL01.Good", "UInt16", json!(4)).unwrap();
    assert_eq!(reader.sample(item).await.value, Value::Uint(4));
    // Bad, without a value.
    server
        .command(
            &json!({"do": "set", "node": "s=FILL01.Good", "type": "UInt16", "value": null, "status": 0x8089_0000_u32}),
        )
        .unwrap();
    let bad = reader.sample(item).await;
    assert_eq!((bad.value, bad.status), (Value::Null, 0x8089_0000));
    assert_eq!(reader.connections.status()[0].bad.len(), 1);
    // Uncertain, with one, and a source time that goes back.
    server
        .command(&json!({"do": "set", "node": "s=FILL01.Good", "type": "UInt16", "value": 7, "status": 0x4000_0000, "source": 1_000_000_000.25}))
        .unwrap();
    let uncertain = reader.sample(item).await;
    assert_eq!(
        (uncertain.value, uncertain.status, uncertain.source),
        (Value::Uint(7), 0x4000_0000, Some(1_000_000_000_250_000_000))
    );
    assert!(uncertain.server.is_some());
    assert_eq!(reader.connections.status()[0].bad, []);
    reader.connections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_is_noticed_and_its_values_come_again_when_it_is_back() {
    let mut server = server();
    server.add("s=FILL01.Good", "UInt32", json!(1)).unwrap();
    let reader = Reader::new(server.url(), |_| {});
    let item = reader.subscribe(&[GOOD])[0];
    reader.up().await;
    assert_eq!(reader.sample(item).await.value, Value::Uint(1));
    for round in 2..4 {
        server.kill().unwrap();
        let down = reader.change().await;
        assert!(!down.connected && down.since <= down.detected, "{down:?}");
        // The namespace has another index than before.
        server.set_up(Setup { namespaces: vec!["urn:other".to_owned(), NAMESPACE.to_owned()], ..Setup::default() });
        server.run().unwrap();
        server.add("s=FILL01.Good", "UInt32", json!(round)).unwrap();
        assert!(reader.change().await.connected);
        let mut last = reader.sample(item).await;
        // The server may have been asked before the node was there.
        while last.status != 0 {
            last = reader.sample(item).await;
        }
        assert_eq!(last.value, Value::Uint(round));
    }
    reader.connections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_falls_silent_is_dead_after_the_silence_and_recovers() {
    let mut server = server();
    server.add("s=FILL01.Good", "UInt32", json!(1)).unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let reader = Reader::new(proxy.url(), |config| config.silence = Duration::from_secs(3));
    let item = reader.subscribe(&[GOOD])[0];
    reader.up().await;
    assert_eq!(reader.sample(item).await.value, Value::Uint(1));
    proxy.swallow(true);
    let down = reader.change().await;
    assert!(!down.connected);
    assert!(down.since < down.detected, "the last evidence is older than the news: {down:?}");
    server.set("s=FILL01.Good", "UInt32", json!(9)).unwrap();
    proxy.swallow(false);
    assert!(reader.change().await.connected);
    assert_eq!(reader.sample(item).await.value, Value::Uint(9), "what changed meanwhile is delivered");
    reader.connections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_machine_is_not_a_lost_connection() {
    let mut server = server();
    server.add("s=FILL01.Good", "UInt32", json!(1)).unwrap();
    let reader = Reader::new(server.url(), |config| config.silence = Duration::from_secs(2));
    let item = reader.subscribe(&[GOOD])[0];
    reader.up().await;
    reader.sample(item).await;
    let quiet = tokio::time::timeout(Duration::from_secs(6), reader.queue.next(1)).await;
    assert!(quiet.is_err(), "nothing changed for three times the silence: {quiet:?}");
    reader.connections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_off_at_start_is_reported_once_and_found_when_it_comes() {
    let mut server = server();
    server.kill().unwrap();
    let reader = Reader::new(server.url(), |_| {});
    let item = reader.subscribe(&[GOOD])[0];
    let down = reader.change().await;
    assert!(!down.connected && down.reason.contains("is not reachable"), "{down:?}");
    assert_eq!(reader.connections.read(&[item]).await, Err(OpcError::Disconnected));
    server.run().unwrap();
    server.add("s=FILL01.Good", "UInt32", json!(5)).unwrap();
    let up = reader.next().await;
    assert!(matches!(&up, Batch::Connection(change) if change.connected), "nothing else was said meanwhile: {up:?}");
    while reader.sample(item).await.value != Value::Uint(5) {}
    reader.connections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_appears_late_is_picked_up_and_the_others_do_not_wait_for_it() {
    let mut server = server();
    server.add("s=FILL01.Good", "UInt32", json!(1)).unwrap();
    let reader = Reader::new(server.url(), |_| {});
    let items = reader.subscribe(&[GOOD, "nsu=urn:plant:test;s=Late", "nsu=urn:unknown;s=Nowhere"]);
    reader.up().await;
    let mut first = BTreeMap::new();
    while first.len() < 3 {
        if let Batch::Samples(samples) = reader.next().await {
            first.insert(samples[0].item, samples[0].status);
        }
    }
    assert_eq!(first, BTreeMap::from([(items[0], 0), (items[1], 0x8034_0000), (items[2], 0x8034_0000)]));
    let bad: Vec<_> =
        reader.connections.status()[0].bad.iter().map(|(node, status)| format!("{node} {status}")).collect();
    assert_eq!(bad, ["nsu=urn:plant:test;s=Late BadNodeIdUnknown", "nsu=urn:unknown;s=Nowhere BadNodeIdUnknown"]);
    server.add("s=Late", "Double", json!(1.5)).unwrap();
    assert_eq!(reader.sample(items[1]).await.value, Value::Real(1.5));
    reader.connections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_read_in_the_order_asked_for_and_a_bad_node_fails_alone() {
    let mut server = server();
    server.add("s=A", "Int32", json!([-1, 2])).unwrap();
    server.add("s=B", "String", json!("filling")).unwrap();
    let reader = Reader::new(server.url(), |_| {});
    let nodes = ["nsu=urn:plant:test;s=B", "nsu=urn:plant:test;s=No", "i=2261", "nsu=urn:plant:test;s=A"];
    let items = reader.connections.resolve("line", nodes.map(str::to_owned).to_vec()).unwrap();
    let items: Vec<u32> = items.into_iter().map(Result::unwrap).collect();
    let read = reader.connections.read(&items).await.unwrap();
    assert_eq!(read.iter().map(|s| s.item).collect::<Vec<_>>(), items);
    assert_eq!(read[0].value, Value::Text("filling".to_owned()));
    assert_eq!((read[1].value.clone(), read[1].status), (Value::Null, 0x8034_0000));
    assert_eq!(read[3].value, Value::Ints(vec![-1, 2]));
    assert_eq!(read[2].status, 0);
    assert!(matches!(reader.connections.read(&[99]).await, Err(OpcError::Denied(_))));
    reader.connections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolve_of_nonsense_says_what_is_wanted_and_opens_nothing() {
    let mut server = server();
    let reader = Reader::new(server.url(), |_| {});
    let unknown = reader.connections.resolve("press", vec![]).unwrap_err().to_string();
    assert!(unknown.contains("no OPC UA connection is named \"press\": there is line"), "{unknown}");
    let nodes = vec!["ns=2;s=X".to_owned(), GOOD.to_owned(), GOOD.to_owned()];
    let resolved = reader.connections.resolve("line", nodes).unwrap();
    assert!(matches!(&resolved[0], Err(OpcError::Denied(text)) if text.contains("nsu=URI;s=X")));
    assert_eq!(resolved[1], resolved[2], "one node has one number");
    assert_eq!(server.clients().unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_end_when_they_are_closed_and_when_they_are_dropped() {
    let mut server = server();
    server.add("s=FILL01.Good", "UInt32", json!(1)).unwrap();
    for graceful in [true, false] {
        let reader = Reader::new(server.url(), |_| {});
        let item = reader.subscribe(&[GOOD])[0];
        reader.up().await;
        reader.sample(item).await;
        wait_for_clients(&mut server, 1);
        if graceful {
            reader.connections.close().await;
        }
        let queue = reader.queue.clone();
        drop(reader);
        wait_for_clients(&mut server, 0);
        assert_eq!(queue.try_next(1), None, "nothing is said after the end");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_one_clear_reason_and_does_not_fill_the_server() {
    let users = vec![("reader".to_owned(), "secret".to_owned())];
    let mut server = Asyncua::start(Setup { users, no_anonymous: true, ..Setup::default() }).unwrap();
    let reader = Reader::new(server.url(), |config| config.user = Some(("reader".to_owned(), "wrong".to_owned())));
    reader.subscribe(&[GOOD]);
    let down = reader.change().await;
    assert!(
        !down.connected && down.reason.contains("refused the user \"reader\": check `user` and its password"),
        "{down:?}"
    );
    wait_for_clients(&mut server, 0);
    let more = tokio::time::timeout(Duration::from_secs(3), reader.queue.next(1)).await;
    assert!(more.is_err(), "it waits half a minute: {more:?}");
    assert_eq!(server.clients().unwrap(), 0);
    let anonymous = Reader::new(server.url(), |_| {});
    anonymous.subscribe(&[GOOD]);
    let down = anonymous.change().await;
    assert!(down.reason.contains("wants a user: set `user`"), "{down:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_server_is_trusted_by_moving_its_certificate() {
    use std::os::unix::fs::PermissionsExt;
    let users = vec![("reader".to_owned(), "s3cret".to_owned())];
    let mut server = Asyncua::start(Setup { users, secure: true, ..Setup::default() }).unwrap();
    server.add("s=FILL01.Good", "UInt32", json!(3)).unwrap();
    let pki = TempDir::new().unwrap();
    for (security, told) in
        [(Security::Basic256Sha256, "Basic256Sha256"), (Security::Aes256Sha256RsaPss, "Aes256-Sha256-RsaPss")]
    {
        let secure = |config: &mut OpcConnection| {
            config.security = security;
            config.pki = pki.path().to_owned();
            config.user = Some(("reader".to_owned(), "s3cret".to_owned()));
        };
        let trusted = pki.path().join("trusted");
        if !trusted.exists() {
            let stranger = Reader::new(server.url(), secure);
            stranger.subscribe(&[GOOD]);
            let down = stranger.change().await;
            let rejected = std::fs::read_dir(pki.path().join("rejected")).unwrap().next().unwrap().unwrap().path();
            let sentence = format!("is not trusted: if it is the right server, move {rejected:?} to {trusted:?}");
            assert!(down.reason.contains(&sentence), "{}", down.reason);
            std::fs::rename(&rejected, trusted.join(rejected.file_name().unwrap())).unwrap();
            let key = pki.path().join("own/host.pem");
            assert_eq!(std::fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let reader = Reader::new(server.url(), secure);
        let item = reader.subscribe(&[GOOD])[0];
        let up = reader.change().await;
        assert_eq!((up.connected, up.reason), (true, format!("signed and encrypted, {told}, as user reader")));
        assert_eq!(reader.sample(item).await.value, Value::Uint(3));
        reader.connections.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn security_that_the_server_does_not_offer_is_named_with_what_it_offers() {
    let server = server();
    let reader = Reader::new(server.url(), |config| config.security = Security::Basic256Sha256);
    reader.subscribe(&[GOOD]);
    let down = reader.change().await;
    assert!(
        down.reason.contains("does not offer security Basic256Sha256 SignAndEncrypt; it offers None None"),
        "{down:?}"
    );
}
