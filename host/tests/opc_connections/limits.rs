//! Servers that take fewer items, subscriptions or nodes at once than they are asked for.

use std::collections::BTreeSet;

use host::opc::browse;
use host::opc::{Batch, Value};
use serde_json::json;

use super::reader::{Reader, faulty, wait_until};

fn counters(count: u32) -> Vec<String> {
    (0..count).map(|n| format!("nsu=urn:plant:test;s=C{n}")).collect()
}

fn subscribed(reader: &Reader, count: u32) -> Vec<u32> {
    let nodes = counters(count);
    reader.subscribe(&nodes.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Waits until each item has had a Good sample; a Bad one fails the test.
async fn all_good(reader: &Reader, items: &[u32]) {
    let mut missing: BTreeSet<u32> = items.iter().copied().collect();
    while !missing.is_empty() {
        if let Batch::Samples(samples) = reader.next().await {
            assert_eq!(samples[0].status, 0, "{samples:?}");
            missing.remove(&samples[0].item);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn items_that_the_server_refuses_to_monitor_are_counted_by_reads_and_never_look_healthy() {
    for whole in [false, true] {
        let mut server = faulty(json!({"items_per_session": 8, "refuse_whole": whole}));
        server.add_counters(12).unwrap();
        let reader = Reader::new(server.url(), |_| {});
        let items = subscribed(&reader, 12);
        reader.up().await;
        all_good(&reader, &items).await;
        wait_until("it is said", || reader.status().not_monitored_items == 4);
        assert_eq!(server.monitored().unwrap(), [8], "what the server takes is monitored");

        // Good reads of them change nothing about it, however many.
        for value in [100, 50, 101] {
            server.set("s=C11", "UInt32", json!(value)).unwrap();
            reader.until(items[11], Value::Uint(value)).await;
            server.set("s=C0", "UInt32", json!(value)).unwrap();
            reader.until(items[0], Value::Uint(value)).await;
            let status = reader.status();
            let named: Vec<_> = status.not_monitored.iter().map(|(node, reason)| format!("{node} {reason}")).collect();
            let expected: Vec<_> =
                (8..12).map(|n| format!("nsu=urn:plant:test;s=C{n} BadTooManyMonitoredItems")).collect();
            assert_eq!(named, expected);
            assert_eq!((status.connected, status.bad_items, status.items), (true, 0, 12));
            let said = "the server does not monitor 4 of 12 items (BadTooManyMonitoredItems)";
            assert!(status.reason.contains(said), "{}", status.reason);
        }

        // When there is room again, they are monitored.
        server.fault(&json!({"items_per_session": 100})).unwrap();
        wait_until("the items are monitored", || reader.status().not_monitored_items == 0);
        assert!(!reader.status().reason.contains("does not monitor"));
        assert_eq!(server.monitored().unwrap(), [12]);
        reader.connections.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_each_subscription_takes_few_items_there_are_several_of_them() {
    let mut server = faulty(json!({"items_per_subscription": 5}));
    server.add_counters(12).unwrap();
    let reader = Reader::new(server.url(), |_| {});
    let items = subscribed(&reader, 12);
    reader.up().await;
    all_good(&reader, &items).await;
    wait_until("all are monitored", || server.monitored().unwrap() == [5, 5, 2]);
    assert_eq!(reader.status().not_monitored_items, 0);
    for item in [0, 11] {
        server.set(&format!("s=C{item}"), "UInt32", json!(500)).unwrap();
        reader.until(items[item], Value::Uint(500)).await;
    }
    reader.connections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_there_may_be_only_one_subscription_the_rest_is_read() {
    let mut server = faulty(json!({"items_per_subscription": 5, "subscriptions": 1}));
    server.add_counters(7).unwrap();
    let reader = Reader::new(server.url(), |_| {});
    let items = subscribed(&reader, 7);
    reader.up().await;
    all_good(&reader, &items).await;
    wait_until("it is said", || reader.status().not_monitored_items == 2);
    assert_eq!(server.monitored().unwrap(), [5]);
    reader.connections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_as_large_as_the_server_says_or_as_it_turns_out() {
    for announce in [true, false] {
        let mut server =
            faulty(json!({"create_per_call": 3, "read_per_call": 5, "browse_per_call": 2, "announce": announce}));
        server.add_counters(20).unwrap();
        let reader = Reader::new(server.url(), |_| {});
        let items = subscribed(&reader, 20);
        reader.up().await;
        all_good(&reader, &items).await;
        wait_until("all are monitored", || server.monitored().unwrap() == [20]);
        let read = reader.connections.read(&items).await.unwrap();
        assert_eq!(read.iter().map(|sample| sample.status).max(), Some(0));
        if announce {
            let largest = (server.count("largest_create").unwrap(), server.count("largest_read").unwrap());
            assert_eq!(largest, (3, 5), "nothing had to be refused");
        }
        let open = host::opc::connect::open("line", &reader.config).await.unwrap();
        let tree = browse::tree(&open, &"ns=0;i=85".parse().unwrap(), 2).await.unwrap();
        let good = tree.nodes.iter().filter_map(|found| found.variable.as_ref()).filter(|v| v.data_type == "UInt32");
        assert!(good.count() >= 20, "{tree:?}");
        open.close().await;
        reader.connections.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn items_that_a_late_answer_leaves_behind_are_not_monitored_twice() {
    let mut server = faulty(json!({"create_late": 5}));
    server.add_counters(3).unwrap();
    let reader = Reader::new(server.url(), |_| {});
    let items = subscribed(&reader, 3);
    reader.up().await;
    all_good(&reader, &items).await;
    // The answer comes after the deadline, when the server monitors them already.
    wait_until("the deadline has passed", || reader.status().not_monitored_items == 3);
    wait_until("one subscription has each item once", || {
        reader.status().not_monitored_items == 0 && server.monitored().unwrap() == [3]
    });
    server.set("s=C2", "UInt32", json!(77)).unwrap();
    reader.until(items[2], Value::Uint(77)).await;
    assert_eq!(server.monitored().unwrap(), [3]);
    reader.connections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_needs_long_for_each_item_is_asked_for_fewer_at_once() {
    let mut server = faulty(json!({"create_slow": 1}));
    server.add_counters(6).unwrap();
    let reader = Reader::new(server.url(), |_| {});
    let items = subscribed(&reader, 6);
    reader.up().await;
    all_good(&reader, &items).await;
    wait_until("it was tried", || reader.status().not_monitored_items == 6);
    wait_until("each item is monitored once", || {
        reader.status().not_monitored_items == 0 && server.monitored().unwrap() == [6]
    });
    reader.connections.close().await;
}
