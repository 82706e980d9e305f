//! Who may not take part: each is refused in one sentence that says what to do.

use std::time::Duration;

use host::lease::single::{SinglePostgres, SingleSqlite};
use host::lease::{LeaseError, LeaseStore};
use host::store::{self, Pool};

use crate::ground::{Ground, at, me};

/// The sentence with which a node is refused.
async fn refusal(store: &dyn LeaseStore) -> String {
    let answer = store.register().await;
    let Err(LeaseError::Refused(sentence)) = answer else { panic!("not refused: {answer:?}") };
    assert!(!sentence.contains('\n') && sentence.contains(": "), "{sentence}");
    sentence
}

impl Ground {
    fn single(&self, node: &str) -> SinglePostgres {
        SinglePostgres::new(&at(self.server.url()), me(node)).unwrap()
    }

    /// Waits until a store is let in: the server drops the session of one that is gone a moment later.
    async fn until_let_in(&self, store: &dyn LeaseStore) {
        let start = std::time::Instant::now();
        while let Err(error) = store.register().await {
            assert!(start.elapsed() < crate::ground::PATIENCE, "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

// Two processes that count into one file would count twice.
#[tokio::test]
async fn a_second_process_on_a_sqlite_file_is_refused() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("plant.db");
    let config = host::config::Store::Sqlite { path: file.clone() };
    store::migrate(&config).await.unwrap();
    let Pool::Sqlite(pool) = Pool::connect(&config).await.unwrap() else { panic!("not SQLite") };
    let first = SingleSqlite::new(me("a"), &file, pool.clone());
    first.register().await.unwrap();
    let second = SingleSqlite::new(me("b"), &file, pool.clone());
    let sentence = refusal(&second).await;
    assert!(sentence.contains("plant.db is in use by another host"), "{sentence}");
    assert!(sentence.contains(&format!("process {}", std::process::id())), "{sentence}");
    // The kernel lets go of it with the process.
    drop(first);
    second.register().await.unwrap();
}

// Without [redundancy] nobody renews and nobody expires: both would run every role.
#[tokio::test]
async fn a_second_node_without_redundancy_on_one_database_is_refused() {
    let ground = Ground::new().await;
    let first = ground.single("a");
    first.register().await.unwrap();
    let second = ground.single("b");
    let sentence = refusal(&second).await;
    assert!(sentence.contains("node a at http://a.example:8080") && sentence.contains("[redundancy]"), "{sentence}");
    drop(first);
    ground.until_let_in(&second).await;
}

// The one without never renews, so that the others would take its roles after one lease; and it would take theirs at once.
#[tokio::test]
async fn nodes_with_and_without_redundancy_refuse_each_other() {
    let ground = Ground::new().await;
    let single = ground.single("a");
    single.register().await.unwrap();
    let redundant = ground.node("b");
    let sentence = refusal(&redundant.leases).await;
    assert!(sentence.contains("node a at http://a.example:8080") && sentence.contains("without"), "{sentence}");
    assert!(matches!(redundant.leases.acquire(&crate::ground::key("reader"), None).await, Err(LeaseError::Refused(_))));
    drop(single);
    ground.until_let_in(&redundant.leases).await;
    ground.node("c").leases.register().await.unwrap();
    let sentence = refusal(&ground.single("d")).await;
    assert!(sentence.contains("[redundancy]"), "{sentence}");
}

// Its process may only have lost its connection.
#[tokio::test]
async fn a_node_without_redundancy_is_refused_while_a_lease_of_another_runs() {
    let ground = Ground::new().await;
    let redundant = ground.node("b");
    redundant.take().await;
    drop(redundant);
    ground.until("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", 0).await;
    let single = ground.single("a");
    let sentence = refusal(&single).await;
    assert!(sentence.contains("node b holds leases on this database"), "{sentence}");
    ground.expire().await;
    ground.until_let_in(&single).await;
}

// Two boxes that were given one name would answer for each other in every list and count.
#[tokio::test]
async fn a_second_live_process_of_a_name_is_refused_until_the_first_has_been_silent_for_a_lease() {
    let ground = Ground::new().await;
    let (first, second) = (ground.node("a"), ground.node("a"));
    first.leases.register().await.unwrap();
    let sentence = refusal(&second.leases).await;
    assert!(sentence.contains("a node named a is running already, at http://a.example:8080"), "{sentence}");
    first.leases.heartbeat().await.unwrap();
    ground.run("UPDATE plant_nodes SET heartbeat_at = clock_timestamp() - interval '59 s'").await;
    refusal(&second.leases).await;
    ground.run("UPDATE plant_nodes SET heartbeat_at = clock_timestamp() - interval '60 s'").await;
    second.leases.register().await.unwrap();
    // The first has lost its name, and no heartbeat of it brings that back.
    assert!(matches!(first.leases.heartbeat().await, Err(LeaseError::Refused(_))));
    assert_eq!(ground.number("SELECT count(*) FROM plant_nodes").await, 1);
}
