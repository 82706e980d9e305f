//! Who gets a lease, and what asking for it may hold up.

use std::time::{Duration, Instant};

use host::identity::Holder;
use host::lease::{Acquired, Cause, LeaseError, LeaseStore, Renewal};
use sqlx::Executor;

use crate::ground::{Ground, granted, key};
use crate::proxy::Proxy;

#[tokio::test]
async fn a_lease_that_nobody_held_is_taken_and_then_refused_to_another() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let grant = a.take("reader").await;
    assert_eq!((grant.epoch.timeline, grant.epoch.number, grant.cause, grant.previous), (1, 1, Cause::Start, None));
    assert_eq!(grant.hold_back, Duration::ZERO);
    let seen = b.refused("reader").await;
    assert_eq!((seen.holder, seen.epoch), (Some(a.me.clone()), grant.epoch));
    assert!(seen.expires_in_ms > 0);
}

#[tokio::test]
async fn a_lease_that_ran_out_is_taken_with_a_higher_epoch() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let old = a.take("reader").await;
    ground.expire().await;
    let new = b.take("reader").await;
    assert!(new.epoch > old.epoch);
    assert_eq!((new.cause, new.previous), (Cause::Expiry, Some(a.me.clone())));
}

#[tokio::test]
async fn another_boot_of_my_name_has_no_privilege() {
    let ground = Ground::new().await;
    let (first, second) = (ground.node("a"), ground.node("a"));
    let grant = first.take("reader").await;
    assert_eq!(second.refused("reader").await.holder, Some(first.me.clone()));
    // Nor may it renew, release or restart what the other holds.
    assert_eq!(second.store.renew(&[(key("reader"), grant.epoch)]).await.unwrap(), [Renewal::Lost]);
    second.store.release(&key("reader"), grant.epoch, true, Cause::Release).await.unwrap();
    assert!(matches!(second.store.restart(&key("reader"), grant.epoch).await.unwrap(), Acquired::Taken(_)));
    assert_eq!(first.store.renew(&[(key("reader"), grant.epoch)]).await.unwrap(), [Renewal::Confirmed]);
    // It waits like anyone, and is held back like anyone.
    ground.expire().await;
    assert!(second.take("reader").await.hold_back > Duration::ZERO);
}

#[tokio::test]
async fn a_lease_seen_unchanged_for_a_whole_lease_is_taken_though_the_databases_clock_is_behind() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    a.take("reader").await;
    // As a server whose clock is a day behind shows it.
    ground.run("UPDATE plant_leases SET renewed_at = renewed_at + interval '1 day', expires_at = expires_at + interval '1 day'").await;
    let seen = b.observe("reader").await;
    b.refused("reader").await;
    let grant = granted(b.store.acquire(&key("reader"), Some(&seen)).await.unwrap());
    assert_eq!((grant.cause, grant.previous), (Cause::Expiry, Some(a.me.clone())));
    assert!(grant.hold_back > Duration::ZERO, "its holder may still act");
}

#[tokio::test]
async fn a_lease_that_was_renewed_since_it_was_looked_at_is_not_taken_as_unchanged() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let grant = a.take("reader").await;
    let seen = b.observe("reader").await;
    assert_eq!(a.store.renew(&[(key("reader"), grant.epoch)]).await.unwrap(), [Renewal::Confirmed]);
    assert!(matches!(b.store.acquire(&key("reader"), Some(&seen)).await.unwrap(), Acquired::Taken(_)));
}

#[tokio::test]
async fn the_epoch_is_never_lower_after_the_lease_rows_were_deleted() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let old = a.take("reader").await;
    ground.run("DELETE FROM plant_leases").await;
    assert!(b.take("reader").await.epoch > old.epoch);
}

#[tokio::test]
async fn the_epoch_is_never_lower_after_the_fence_rows_were_deleted() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let old = a.take("reader").await;
    ground.run("DELETE FROM plant_fences").await;
    ground.expire().await;
    assert!(b.take("reader").await.epoch > old.epoch);
}

#[tokio::test]
async fn an_epoch_that_was_answered_outlives_a_crash_of_the_database_that_commits_asynchronously() {
    let mut ground = Ground::new().await;
    ground.run("ALTER SYSTEM SET synchronous_commit = off").await;
    ground.run("ALTER SYSTEM SET wal_writer_delay = '10s'").await;
    ground.run("SELECT pg_reload_conf()").await;
    ground.until("SELECT count(*) FROM pg_settings WHERE name = 'synchronous_commit' AND setting = 'off'", 1).await;
    let grant = ground.node("a").take("reader").await;
    ground.server.kill().unwrap();
    ground.server.run().unwrap();
    ground.pool = sqlx::PgPool::connect(&ground.server.url()).await.unwrap();
    let kept = ground.number("SELECT coalesce(max(epoch), 0) FROM plant_fences").await;
    assert_eq!(u64::try_from(kept).unwrap(), grant.epoch.number);
}

#[tokio::test]
async fn a_node_that_freezes_in_the_middle_of_asking_holds_up_no_renewal() {
    let ground = Ground::new().await;
    let cable = Proxy::to(ground.server.port()).await;
    let (a, b) = (ground.node("a"), ground.node_at("b", &cable.url(), Some(crate::ground::LEASE)));
    let grant = a.take("reader").await;
    b.observe("reader").await;
    // The question is under way when the node freezes: it waits for this lock.
    let mut other = ground.session().await;
    other.execute("BEGIN; SELECT FROM plant_fences FOR UPDATE").await.unwrap();
    let asking = tokio::spawn(async move { b.store.acquire(&key("reader"), None).await });
    ground
        .until(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%plant_acquire%' AND wait_event_type = 'Lock'",
            1,
        )
        .await;
    cable.freeze();
    other.execute("COMMIT").await.unwrap();
    // The server has its answer ready, and nobody reads it.
    ground.until("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%plant_acquire(%' AND state <> 'idle' AND pid <> pg_backend_pid()", 0).await;
    assert_eq!(a.store.renew(&[(key("reader"), grant.epoch)]).await.unwrap(), [Renewal::Confirmed]);
    assert!(matches!(asking.await.unwrap(), Err(LeaseError::Unavailable(_))), "it learnt nothing");
}

#[tokio::test]
async fn asking_ends_in_time_though_commits_keep_overtaking_it() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node_at("b", &ground.server.url(), Some(Duration::from_secs(2))));
    a.take("reader").await;
    ground.expire().await;
    b.observe("reader").await;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut sharers = Vec::new();
    for turn in 0..2 {
        // Each holds the fence while the other changes over, so that it is never free.
        let (mut session, stop) = (ground.session().await, stop.clone());
        sharers.push(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(60 * turn)).await;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                session
                    .execute("BEGIN; SELECT FROM plant_fences FOR SHARE; SELECT pg_sleep(0.12); COMMIT")
                    .await
                    .unwrap();
            }
        }));
    }
    ground.until("SELECT count(DISTINCT pid) FROM pg_stat_activity WHERE query LIKE '%FOR SHARE%' AND pid <> pg_backend_pid()", 2).await;
    let start = Instant::now();
    let answer = b.store.acquire(&key("reader"), None).await;
    let took = start.elapsed();
    ground.until("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%plant_acquire(%' AND state = 'active' AND pid <> pg_backend_pid()", 0).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for sharer in sharers {
        sharer.await.unwrap();
    }
    // Either it found a gap, or it was given up; it did not wait until the commits ended.
    assert!(took < Duration::from_secs(2), "{took:?}: {answer:?}");
}

#[tokio::test]
async fn what_changed_hands_is_written_down_as_it_does() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let first = a.take("reader").await;
    a.store.release(&key("reader"), first.epoch, true, Cause::Yield).await.unwrap();
    let second = b.take("reader").await;
    assert_eq!((second.cause, second.previous.as_ref()), (Cause::Yield, Some(&a.me)));
    ground.expire().await;
    a.take("reader").await;
    let rows: Vec<(Option<String>, String, String)> =
        sqlx::query_as("SELECT from_node, to_node, cause FROM plant_takeovers ORDER BY id")
            .fetch_all(&ground.pool)
            .await
            .unwrap();
    let said: Vec<_> = rows.iter().map(|(from, to, cause)| (from.as_deref(), to.as_str(), cause.as_str())).collect();
    assert_eq!(said, [(None, "a", "start"), (Some("a"), "b", "yield"), (Some("b"), "a", "expiry")]);
}

#[tokio::test]
async fn two_nodes_that_ask_at_once_get_one_lease() {
    let ground = Ground::new().await;
    let nodes: Vec<_> = ["a", "b", "c", "d"].into_iter().map(|name| ground.node(name)).collect();
    let asked = futures::future::join_all(nodes.iter().map(|node| node.acquire("reader"))).await;
    let holders: Vec<Holder> = asked
        .iter()
        .zip(&nodes)
        .filter_map(|(answer, node)| matches!(answer, Acquired::Granted(_)).then(|| node.me.clone()))
        .collect();
    assert_eq!(holders.len(), 1);
    assert_eq!(nodes[0].observe("reader").await.holder, holders.first().cloned());
}
