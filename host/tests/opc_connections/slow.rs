//! Servers that need seconds for a session.

use std::time::Duration;

use host::opc::{Batch, Value, connect};
use serde_json::json;

use super::reader::{GOOD, Reader, faulty, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_eight_seconds_for_a_session_is_read() {
    let mut server = faulty(json!({"session_late": 6, "activate_late": 2}));
    server.add("s=FILL01.Good", "UInt32", json!(1)).unwrap();
    let reader = Reader::new(server.url(), |_| {});
    let item = reader.subscribe(&[GOOD])[0];
    reader.up().await;
    reader.until(item, Value::Uint(1)).await;
    assert_eq!((server.sessions().unwrap(), server.count("sessions_created").unwrap()), (1, 1));
    connect::reach("line", &reader.config).await.unwrap();
    reader.connections.close().await;
    wait_until("the session is closed", || server.sessions().unwrap() == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_comes_too_late_is_closed_before_the_next_try() {
    for late in ["session_late", "activate_late"] {
        let mut server = faulty(json!({late: 6, "keep_sessions": true}));
        server.add("s=FILL01.Good", "UInt32", json!(1)).unwrap();
        let reader = Reader::new(server.url(), |config| config.connect = Duration::from_secs(2));
        reader.subscribe(&[GOOD]);
        let down = reader.change().await;
        let said = "did not open a session within 2 s: `connect` gives a slow server longer";
        assert!(!down.connected && down.reason.contains(said), "{down:?}");
        for tries in 2..4 {
            wait_until("it is tried again", || server.count("sessions_created").unwrap() == tries);
            assert_eq!(server.sessions().unwrap(), 1, "the one before is closed");
        }
        // It is fast again.
        server.fault(&json!({late: 0})).unwrap();
        loop {
            if let Batch::Connection(change) = reader.next().await
                && change.connected
            {
                break;
            }
        }
        assert_eq!(server.sessions().unwrap(), 1);
        reader.connections.close().await;
        wait_until("the session is closed", || server.sessions().unwrap() == 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_ends_while_it_connects_leaves_no_session_behind() {
    let mut server = faulty(json!({"session_late": 4, "keep_sessions": true}));
    let reader = Reader::new(server.url(), |_| {});
    reader.subscribe(&[GOOD]);
    wait_until("a session is being made", || server.count("sessions_created").unwrap() == 1);
    reader.connections.close().await;
    drop(reader);
    assert_eq!(server.sessions().unwrap(), 1, "the server is still at it");
    wait_until("the session is closed", || server.sessions().unwrap() == 0);
    wait_until("the connection is closed", || server.clients().unwrap() == 0);
}
