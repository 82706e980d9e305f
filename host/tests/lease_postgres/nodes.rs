//! Nodes that come and go. Who is refused, and by whom, is in `lease_rules`.

use std::time::Duration;

use host::config::Store;
use host::identity::{BootId, Holder};
use host::lease::postgres::Me;
use host::lease::single::SinglePostgres;
use host::lease::{LeaseError, LeaseStore};

use crate::ground::Ground;

fn sentence<T: std::fmt::Debug>(answer: Result<T, LeaseError>) -> String {
    match answer {
        Err(LeaseError::Refused(sentence)) => sentence,
        other => panic!("{other:?}"),
    }
}

fn single(ground: &Ground, name: &str) -> SinglePostgres {
    let holder = Holder { node: name.parse().unwrap(), boot: BootId::random() };
    let store = Store::Postgres { urls: vec![ground.server.url()], migrate_url: None };
    SinglePostgres::new(&store, Me { holder, address: format!("http://plant-{name}:8080") }).unwrap()
}

#[tokio::test]
async fn a_node_that_left_is_not_there_any_more() {
    let ground = Ground::new().await;
    let (first, second) = (ground.node("a"), ground.node("a"));
    first.store.register().await.unwrap();
    first.store.leave().await.unwrap();
    second.store.register().await.unwrap();
    assert_eq!(ground.number("SELECT count(*) FROM plant_nodes").await, 1);
}

#[tokio::test]
async fn a_node_without_redundancy_takes_its_lock_again_when_its_session_was_ended() {
    let ground = Ground::new().await;
    let (first, second) = (single(&ground, "a"), single(&ground, "b"));
    first.register().await.unwrap();
    end_lock_sessions(&ground).await;
    first.heartbeat().await.unwrap();
    sentence(second.register().await);
    // Unless another was faster.
    end_lock_sessions(&ground).await;
    register_soon(&second).await;
    sentence(first.heartbeat().await);
}

async fn end_lock_sessions(ground: &Ground) {
    ground.run("SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory'").await;
    ground.until("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", 0).await;
}

/// The server takes a moment to notice that a session has ended.
async fn register_soon(store: &SinglePostgres) {
    let start = std::time::Instant::now();
    while let Err(error) = store.register().await {
        assert!(start.elapsed() < Duration::from_secs(20), "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
