//! Death, seen quickly: what a lock that is let go proves, and what it does not.

use std::time::Duration;

use host::lease::{Acquired, LeaseError, LeaseStore, Renewal};
use sqlx::{Executor, PgConnection};

use crate::ground::{Ground, granted, key};
use crate::keeping::{Keeper, PATIENCE, is_lost};

/// So long that a lease that changes hands within a test has not run out.
const LONG: Duration = Duration::from_secs(24);
/// The locks that are waited for: a node's, by another.
const WATCHED: &str =
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND mode = 'ShareLock'";
const DEATHS: &str = "SELECT count(*) FROM plant_deaths";

/// Ends the session by which a node shows that it lives.
async fn end_session(ground: &Ground, node: &'static str) {
    const END: &str = "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN plant_nodes n
         ON l.classid = (n.lock_key >> 32)::oid AND l.objid = (n.lock_key & 4294967295)::oid
         WHERE l.locktype = 'advisory' AND l.granted AND l.mode = 'ExclusiveLock' AND n.node = $1";
    let ended: Vec<bool> = sqlx::query_scalar(END).bind(node).fetch_all(&ground.pool).await.unwrap();
    assert_eq!(ended, [true], "{node} holds one lock");
}

/// Waits for a node's lock in another session, so that it is not had back.
async fn queue_for_lock(ground: &Ground, node: &'static str) -> tokio::task::JoinHandle<PgConnection> {
    let key = "SELECT lock_key FROM plant_nodes WHERE node = $1";
    let key: i64 = sqlx::query_scalar(key).bind(node).fetch_one(&ground.pool).await.unwrap();
    let mut other = ground.session().await;
    let waiting = tokio::spawn(async move {
        other.execute(sqlx::query("SELECT pg_advisory_lock($1)").bind(key)).await.unwrap();
        other
    });
    ground.until("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 1).await;
    waiting
}

#[tokio::test]
async fn a_holder_whose_session_ends_is_taken_over_long_before_its_lease_runs_out() {
    let ground = Ground::new().await;
    let mut a = Keeper::of(&ground.server.url(), "a", LONG);
    let old = a.held().await;
    let mut b = Keeper::of(&ground.server.url(), "b", LONG);
    ground.until(WATCHED, 1).await;
    end_session(&ground, "a").await;
    let new = b.held().await;
    assert!(new.epoch() > old.epoch());
    assert!(new.hold_back().is_some(), "what the other may still do is waited for");
    assert_eq!(ground.number("SELECT count(*) FROM plant_takeovers WHERE cause = 'death' AND to_node = 'b'").await, 1);
    // It lives, and finds out that it was taken for dead.
    is_lost(&old).await;
    tokio::time::timeout(PATIENCE, a.handle.dead()).await.unwrap();
}

#[tokio::test]
async fn a_lock_that_is_free_at_first_sight_proves_nothing() {
    let ground = Ground::new().await;
    ground.run("INSERT INTO plant_nodes VALUES ('z', gen_random_uuid(), 'http://z', '0', 4711, now(), now() + interval '1 hour')").await;
    let node = ground.node_at("a", &ground.server.url(), Some(Duration::from_secs(2)));
    node.store.register().await.unwrap();
    node.store.heartbeat().await.unwrap();
    // The watch has looked, and looks again after a third of a lease.
    let mut last: Option<String> = None;
    let mut looks = 0;
    let began = std::time::Instant::now();
    while looks < 3 {
        assert!(began.elapsed() < PATIENCE, "the watch has not looked three times: {last:?}");
        let seen: Option<String> = sqlx::query_scalar(
            "SELECT max(query_start)::text FROM pg_stat_activity WHERE query LIKE '%pg_advisory_unlock_shared%' AND pid <> pg_backend_pid()
              OR query LIKE '%pg_try_advisory_lock_shared%' AND pid <> pg_backend_pid()",
        )
        .fetch_one(&ground.pool)
        .await
        .unwrap();
        if seen.is_some() && seen != last {
            (last, looks) = (seen, looks + 1);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(ground.number(DEATHS).await, 0);
}

#[tokio::test]
async fn a_restart_of_the_database_proves_no_death() {
    let mut ground = Ground::new().await;
    let mut a = Keeper::of(&ground.server.url(), "a", LONG);
    let held = a.held().await;
    let b = Keeper::of(&ground.server.url(), "b", LONG);
    ground.until(WATCHED, 1).await;
    ground.server.kill().unwrap();
    ground.server.run().unwrap();
    ground.pool = sqlx::PgPool::connect(&ground.server.url()).await.unwrap();
    // Both are back, and watch again.
    ground.until(WATCHED, 2).await;
    assert_eq!(ground.number(DEATHS).await, 0);
    held.check().unwrap();
    assert_eq!(b.handle.snapshot().borrow().takeovers, 0);
}

#[tokio::test]
async fn a_boot_that_was_taken_for_dead_gets_nothing_and_is_not_revived() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    a.store.register().await.unwrap();
    let grant = a.take("reader").await;
    ground.run("INSERT INTO plant_deaths SELECT boot_id, node, now() FROM plant_nodes").await;
    assert!(matches!(a.store.heartbeat().await, Err(LeaseError::Dead(_))));
    assert_eq!(a.store.renew(&[(key("reader"), grant.epoch)]).await.unwrap(), [Renewal::Lost]);
    assert!(matches!(a.store.restart(&key("reader"), grant.epoch).await.unwrap(), Acquired::Taken(_)));
    assert!(matches!(a.acquire("other").await, Acquired::Taken(_)));
    assert!(b.observe("reader").await.is_dead);
    assert!(granted(b.acquire("reader").await).epoch > grant.epoch);
    // Another boot of the name need not wait until the dead one is forgotten.
    ground.node("a").store.register().await.unwrap();
}

#[tokio::test]
async fn a_node_that_left_in_an_orderly_way_is_not_dead() {
    let ground = Ground::new().await;
    let a = Keeper::of(&ground.server.url(), "a", LONG);
    let mut b = Keeper::of(&ground.server.url(), "b", LONG);
    ground.until(WATCHED, 2).await;
    a.handle.withdraw().await;
    a.handle.shutdown().await;
    let _held = b.held().await;
    ground.until(WATCHED, 0).await;
    assert_eq!(ground.number(DEATHS).await, 0);
}

#[tokio::test]
async fn a_boot_that_cannot_have_its_lock_back_for_a_third_of_a_lease_is_over() {
    let ground = Ground::new().await;
    let mut a = Keeper::of(&ground.server.url(), "a", Duration::from_secs(6));
    let held = a.held().await;
    let waiting = queue_for_lock(&ground, "a").await;
    end_session(&ground, "a").await;
    let _other = waiting.await.unwrap();
    tokio::time::timeout(PATIENCE, a.handle.dead()).await.unwrap();
    is_lost(&held).await;
}

#[tokio::test]
async fn without_its_lock_a_node_acquires_nothing() {
    let ground = Ground::new().await;
    let node = ground.node("a");
    node.store.register().await.unwrap();
    let waiting = queue_for_lock(&ground, "a").await;
    end_session(&ground, "a").await;
    let other = waiting.await.unwrap();
    node.store.heartbeat().await.ok();
    node.store.heartbeat().await.unwrap();
    let refused = node.store.acquire(&key("reader"), None).await.unwrap_err().to_string();
    assert!(refused.contains("is not back yet"), "{refused}");
    drop(other);
    ground.until("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'", 0).await;
    node.store.heartbeat().await.unwrap();
    node.take("reader").await;
}
