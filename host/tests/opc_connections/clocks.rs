//! Servers whose clocks are wrong, or that publish more slowly than they are asked to.

use std::time::{Duration, Instant};

use harness::asyncua::Proxy;
use host::opc::Value;
use serde_json::json;

use super::reader::{GOOD, Reader, faulty, wait_until};

/// How many seconds there are between the renewals of tokens that last 4 s, on a server whose clock is so many seconds off.
async fn between_renewals(created_at: i64) -> f64 {
    let mut server = faulty(json!({"created_at": created_at, "token_ms": 4000}));
    server.add("s=FILL01.Good", "UInt32", json!(1)).unwrap();
    let reader = Reader::new(server.url(), |_| {});
    let item = reader.subscribe(&[GOOD])[0];
    reader.up().await;
    reader.until(item, Value::Uint(1)).await;
    let (before, began) = (server.count("renewals").unwrap(), Instant::now());
    for value in 2.. {
        server.set("s=FILL01.Good", "UInt32", json!(value)).unwrap();
        reader.until(item, Value::Uint(value)).await;
        if began.elapsed() > Duration::from_secs(15) {
            break;
        }
    }
    let renewals = server.count("renewals").unwrap() - before;
    let seconds = began.elapsed().as_secs_f64() / f64::from(u32::try_from(renewals).unwrap());
    println!("clock {created_at:+} s off: {renewals} renewals, one in {seconds:.2} s");
    assert_eq!(server.count("sessions_created").unwrap(), 1);
    reader.connections.close().await;
    seconds
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_renewed_at_three_quarters_of_their_lifetime_whatever_the_servers_clock_says() {
    for skew in [600, 0, -600] {
        let seconds = between_renewals(skew).await;
        assert!((2.9..4.5).contains(&seconds), "one in {seconds:.2} s with a clock {skew} s off; 3 are due");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_publishes_slowly_is_quiet_and_not_lost_and_its_death_is_noticed() {
    let mut server = faulty(json!({"publish_ms": 5000}));
    server.add("s=FILL01.Good", "UInt32", json!(1)).unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let reader = Reader::new(proxy.url(), |_| {});
    let item = reader.subscribe(&[GOOD])[0];
    reader.up().await;
    reader.until(item, Value::Uint(1)).await;
    wait_until("it is monitored", || server.monitored().unwrap() == [1]);
    let subscriptions = server.command(&json!({"do": "subscriptions"})).unwrap()["subscriptions"].clone();
    assert_eq!(subscriptions, json!([{"items": 1, "keep_alive": 1, "publish_ms": 5000.0}]));
    let quiet = tokio::time::timeout(Duration::from_secs(30), reader.queue.next(1)).await;
    assert!(quiet.is_err(), "{quiet:?}");
    for value in 2..4 {
        let changed = Instant::now();
        server.set("s=FILL01.Good", "UInt32", json!(value)).unwrap();
        reader.until(item, Value::Uint(value)).await;
        assert!(changed.elapsed() < Duration::from_secs(8), "{:?}", changed.elapsed());
    }
    assert_eq!(server.count("sessions_created").unwrap(), 1);
    let dead = Instant::now();
    proxy.swallow(true);
    assert!(!reader.change().await.connected);
    assert!(dead.elapsed() < Duration::from_secs(16), "{:?}", dead.elapsed());
    reader.connections.close().await;
}
