//! Nodes that go and come back while the session lives.

use host::opc::Value;
use serde_json::json;

use super::reader::{GOOD, Reader, faulty, server, wait_until};

/// The last of them leaves the old monitored item frozen, as real servers do that forget to say that a node is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_deleted_and_made_again_is_read_on() {
    for at_once in [false, true] {
        let mut server = server();
        server.add("s=FILL01.Good", "UInt32", json!(9)).unwrap();
        server.add("s=FILL01.Scrap", "UInt32", json!(1)).unwrap();
        let reader = Reader::new(server.url(), |_| {});
        let items = reader.subscribe(&[GOOD, "nsu=urn:plant:test;s=FILL01.Scrap"]);
        reader.up().await;
        reader.until(items[0], Value::Uint(9)).await;
        // The values were read before: what is looked for here is what becomes of monitored items.
        wait_until("both are monitored", || server.monitored().unwrap() == [2]);
        server.command(&json!({"do": "remove", "node": "s=FILL01.Good"})).unwrap();
        if !at_once {
            let gone = reader.sample(items[0]).await;
            assert_eq!((gone.value, gone.status), (Value::Null, 0x8034_0000), "it is said that it is gone");
            assert_eq!(reader.status().bad_items, 1);
        }
        server.add("s=FILL01.Good", "UInt32", json!(100)).unwrap();
        reader.until(items[0], Value::Uint(100)).await;
        for value in 101..105 {
            server.set("s=FILL01.Good", "UInt32", json!(value)).unwrap();
            reader.until(items[0], Value::Uint(value)).await;
        }
        assert_eq!(reader.status().bad_items, 0);
        assert_eq!(server.count("sessions_created").unwrap(), 1, "in one session");
        assert_eq!(server.monitored().unwrap().iter().sum::<u64>(), 2, "none is monitored twice");
        reader.connections.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_the_server_says_is_gone_is_monitored_anew_when_it_is_there() {
    let mut server = server();
    server.add("s=FILL01.Good", "UInt32", json!(9)).unwrap();
    let reader = Reader::new(server.url(), |_| {});
    let item = reader.subscribe(&[GOOD])[0];
    reader.up().await;
    reader.until(item, Value::Uint(9)).await;
    // The node stays: only the notification says that it is gone, and the read that follows finds it.
    server
        .command(
            &json!({"do": "set", "node": "s=FILL01.Good", "type": "UInt32", "value": null, "status": 0x8034_0000_u32}),
        )
        .unwrap();
    assert_eq!(reader.sample(item).await.status, 0x8034_0000);
    wait_until("it is not monitored", || server.monitored().unwrap() == [0]);
    server.set("s=FILL01.Good", "UInt32", json!(10)).unwrap();
    reader.until(item, Value::Uint(10)).await;
    wait_until("it is monitored", || server.monitored().unwrap() == [1]);
    reader.connections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_the_server_stops_publishing_is_monitored_anew() {
    let mut server = faulty(json!({}));
    server.add("s=FILL01.Good", "UInt32", json!(1)).unwrap();
    let reader = Reader::new(server.url(), |_| {});
    let item = reader.subscribe(&[GOOD])[0];
    reader.up().await;
    reader.until(item, Value::Uint(1)).await;
    server.fault(&json!({"frozen_sampling": true})).unwrap();
    server.set("s=FILL01.Good", "UInt32", json!(2)).unwrap();
    reader.until(item, Value::Uint(2)).await;
    reader.connections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_comes_late_is_known_to_reads_too() {
    let mut server = server();
    let reader = Reader::new(server.url(), |_| {});
    let items = reader.subscribe(&["nsu=urn:late;s=A"]);
    reader.up().await;
    assert_eq!(reader.sample(items[0]).await.status, 0x8034_0000);
    assert_eq!(reader.connections.read(&items).await.unwrap()[0].status, 0x8034_0000);
    server.command(&json!({"do": "add-namespace", "uri": "urn:late"})).unwrap();
    server
        .command(&json!({"do": "add", "namespace": "urn:late", "node": "s=A", "type": "UInt32", "value": 3}))
        .unwrap();
    reader.until(items[0], Value::Uint(3)).await;
    assert_eq!(reader.connections.read(&items).await.unwrap()[0].value, Value::Uint(3));
    reader.connections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_is_too_large_fails_alone() {
    let mut server = server();
    server.add("s=FILL01.Good", "UInt32", json!(1)).unwrap();
    server.add("s=Picture", "ByteString", json!("07".repeat((1 << 20) + 1))).unwrap();
    let reader = Reader::new(server.url(), |_| {});
    let items = reader.subscribe(&[GOOD, "nsu=urn:plant:test;s=Picture"]);
    reader.up().await;
    wait_until("both are there", || reader.status().bad_items == 1);
    assert_eq!(reader.status().bad, [("nsu=urn:plant:test;s=Picture".to_owned(), "BadResponseTooLarge".to_owned())]);
    server.set("s=FILL01.Good", "UInt32", json!(2)).unwrap();
    reader.until(items[0], Value::Uint(2)).await;
    assert!(reader.status().too_large > 0);
    reader.connections.close().await;
}
