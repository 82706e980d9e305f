//! Nodes that come and go. Who is refused, and by whom, is in `lease_rules`.

use std::collections::BTreeMap;
use std::time::Duration;

use host::clock::BootInstant;
use host::config::Store;
use host::identity::{BootId, Holder, RoleKey};
use host::lease::postgres::{Me, PostgresStore};
use host::lease::single::SinglePostgres;
use host::lease::{Acquired, Cause, Held, LeaseError, LeaseStore, Renewal};
use host::store::{Bounds, Options};

use crate::ground::{Ground, store_at};

fn sentence<T: std::fmt::Debug>(answer: Result<T, LeaseError>) -> String {
    match answer {
        Err(LeaseError::Refused(sentence)) => sentence,
        other => panic!("{other:?}"),
    }
}

fn single(ground: &Ground, name: &str) -> SinglePostgres {
    let holder = Holder { node: name.parse().unwrap(), boot: BootId::random() };
    let store = Store::Postgres { urls: vec![ground.server.url()], migrate_url: None };
    SinglePostgres::new(
        &store,
        Me { holder, address: format!("http://plant-{name}:8080"), modules: BTreeMap::new(), gone: Vec::new() },
    )
    .unwrap()
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

#[tokio::test]
async fn a_heartbeat_answers_how_many_other_nodes_live() {
    let ground = Ground::new().await;
    let (first, second) = (ground.node("a"), ground.node("b"));
    first.store.register().await.unwrap();
    assert_eq!(first.store.heartbeat().await.unwrap(), 0);
    second.store.register().await.unwrap();
    assert_eq!(first.store.heartbeat().await.unwrap(), 1);
    // One that has not been heard of for a long time is not counted.
    ground.run("UPDATE plant_nodes SET heartbeat_at = heartbeat_at - interval '1 hour' WHERE node = 'b'").await;
    assert_eq!(first.store.heartbeat().await.unwrap(), 0);
    second.store.leave().await.unwrap();
    assert_eq!(first.store.heartbeat().await.unwrap(), 0);
}

#[tokio::test]
async fn the_fence_says_which_module_its_holder_runs() {
    let ground = Ground::new().await;
    let holder = Holder { node: "a".parse().unwrap(), boot: BootId::random() };
    let modules = BTreeMap::from([("reader".parse().unwrap(), "ab".repeat(32))]);
    let store = Store::Postgres { urls: vec![ground.server.url()], migrate_url: None };
    let me = Me { holder, address: "http://plant-a:8080".to_owned(), modules, gone: Vec::new() };
    let store = PostgresStore::new(&store, me, Some(Duration::from_secs(2))).unwrap();
    store.register().await.unwrap();
    for role in ["reader", "unknown"] {
        let key = RoleKey { role: role.parse().unwrap(), partition: String::new() };
        assert!(matches!(store.acquire(&key, None).await.unwrap(), Acquired::Granted(_)));
    }
    let told = "SELECT count(*) FROM plant_fences WHERE role = 'reader' AND module_sha256 = repeat('ab', 32)";
    assert_eq!(ground.number(told).await, 1);
    let untold = "SELECT count(*) FROM plant_fences WHERE role = 'unknown' AND module_sha256 IS NULL";
    assert_eq!(ground.number(untold).await, 1);
}

/// With the rights that docs/operate/database.md names, and no others.
#[tokio::test]
async fn a_login_that_does_not_own_the_schema_holds_leases() {
    const PAGE: &str = include_str!("../../../docs/operate/database.md");
    let ground = Ground::new().await;
    ground.run("CREATE ROLE plant LOGIN").await;
    ground.run("CREATE ROLE stranger LOGIN").await;
    let grants = PAGE.lines().filter_map(|line| line.strip_prefix("    GRANT "));
    for grant in grants {
        sqlx::query(sqlx::AssertSqlSafe(format!("GRANT {grant}"))).execute(&ground.pool).await.unwrap();
    }
    let holder = Holder { node: "a".parse().unwrap(), boot: BootId::random() };
    let url = ground.server.url().replace("postgres@", "plant@");
    let store = store_at(&url, holder.clone(), Some(Duration::from_secs(2)));
    store.register().await.unwrap();
    let key = RoleKey { role: "reader".parse().unwrap(), partition: String::new() };
    let Acquired::Granted(grant) = store.acquire(&key, None).await.unwrap() else { panic!("it is free") };
    assert_eq!(store.renew(&[(key.clone(), grant.epoch)]).await.unwrap(), [Renewal::Confirmed]);
    let config = Store::Postgres { urls: vec![url], migrate_url: None };
    host::store::check_schema(&host::store::Pool::connect(&config).await.unwrap()).await.unwrap();
    let (held, _control) = Held::new(key.clone(), holder, grant.epoch, BootInstant::NEVER, BootInstant::now());
    let database = host::store::open(&config, Bounds::default()).unwrap();
    database.begin(&held, Options::default()).await.unwrap().commit().await.unwrap();
    store.release(&key, grant.epoch, true, Cause::Release).await.unwrap();
    // Whoever has only a login gets nothing.
    let url = ground.server.url().replace("postgres@", "stranger@");
    let holder = Holder { node: "b".parse().unwrap(), boot: BootId::random() };
    store_at(&url, holder, Some(Duration::from_secs(2))).acquire(&key, None).await.unwrap_err();
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
