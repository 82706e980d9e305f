//! Nodes: one live process for each name, and no plant with redundancy beside a node without.

use std::time::Duration;

use host::config::Store;
use host::identity::{BootId, Holder};
use host::lease::postgres::Me;
use host::lease::single::SinglePostgres;
use host::lease::{Acquired, LeaseError, LeaseStore};

use crate::ground::{Ground, granted, key};

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
async fn a_second_live_process_of_the_same_name_is_refused_with_the_address_and_start_of_the_first() {
    let ground = Ground::new().await;
    let (first, second) = (ground.node("a"), ground.node("a"));
    first.store.register().await.unwrap();
    first.store.register().await.unwrap();
    let refused = sentence(second.store.register().await);
    assert!(refused.starts_with("a node named a is running already, at http://plant-a:8080, started 2"), "{refused}");
    first.store.heartbeat().await.unwrap();
}

#[tokio::test]
async fn a_node_that_was_started_again_is_let_in_when_the_heartbeat_of_its_last_boot_is_a_lease_old() {
    let ground = Ground::new().await;
    let (first, second) = (ground.node("a"), ground.node("a"));
    first.store.register().await.unwrap();
    sentence(second.store.register().await);
    ground.run("UPDATE plant_nodes SET heartbeat_at = now() - interval '61 s'").await;
    second.store.register().await.unwrap();
    // A process that only slept finds out that its name is another's.
    sentence(first.store.heartbeat().await);
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
async fn without_redundancy_a_second_node_on_the_database_is_refused_and_every_start_raises_the_epoch() {
    let ground = Ground::new().await;
    let (first, second) = (single(&ground, "a"), single(&ground, "b"));
    first.register().await.unwrap();
    let one = granted(first.acquire(&key("reader"), None).await.unwrap());
    let two = granted(first.restart(&key("reader"), one.epoch).await.unwrap());
    assert!(two.epoch > one.epoch);
    let refused = sentence(second.register().await);
    assert_eq!(
        refused,
        "node a at http://plant-a:8080 runs on this database already: end it, or give both [redundancy]"
    );
    drop(first);
    register_soon(&second).await;
    let seen = second.observe(&[key("reader")]).await.unwrap().pop().unwrap();
    let three = granted(second.acquire(&key("reader"), Some(&seen)).await.unwrap());
    assert!(three.epoch > two.epoch);
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

#[tokio::test]
async fn a_node_without_redundancy_and_a_plant_with_it_refuse_each_other() {
    let ground = Ground::new().await;
    let (plant, alone) = (ground.node("a"), single(&ground, "b"));
    plant.store.register().await.unwrap();
    let refused = sentence(alone.register().await);
    assert!(refused.starts_with("node a at http://plant-a:8080 runs on this database with [redundancy]"), "{refused}");
    drop(plant);
    register_soon(&alone).await;
    let refused = sentence(ground.node("c").store.register().await);
    assert!(
        refused.starts_with("node b at http://plant-b:8080 runs on this database without [redundancy]"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_node_without_redundancy_is_refused_while_a_lease_of_a_silent_plant_runs() {
    let ground = Ground::new().await;
    let (plant, alone) = (ground.node("a"), single(&ground, "b"));
    plant.take("reader").await;
    drop(plant);
    ground.until("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", 0).await;
    let refused = sentence(alone.register().await);
    assert!(refused.starts_with("node a holds leases on this database"), "{refused}");
    ground.expire().await;
    register_soon(&alone).await;
    assert!(matches!(alone.acquire(&key("reader"), None).await.unwrap(), Acquired::Granted(_)));
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
