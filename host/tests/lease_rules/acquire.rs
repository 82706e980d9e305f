//! Acquire: one call, the fence row first and the lease row second, bounded, and who may have the lease.

use std::time::Duration;

use host::lease::{Acquired, Cause, LeaseError, LeaseStore, Renewal};

use crate::ground::{ACQUIRE_WAITS, Ground, READER, granted, key};

// Without the row locks both would read epoch 1 and both be granted epoch 2.
#[tokio::test]
async fn of_two_nodes_that_ask_at_once_one_is_granted() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let reader = key(READER);
    let mut last = 0;
    for _ in 0..20 {
        let (one, two) = tokio::join!(a.leases.acquire(&reader, None), b.leases.acquire(&reader, None));
        let grants: Vec<_> = [(&a, one.unwrap()), (&b, two.unwrap())]
            .into_iter()
            .filter_map(|(node, answer)| match answer {
                Acquired::Granted(grant) => Some((node, grant)),
                Acquired::Taken(_) => None,
            })
            .collect();
        assert_eq!(grants.len(), 1, "{:?}", grants.iter().map(|(_, grant)| grant).collect::<Vec<_>>());
        let (winner, grant) = &grants[0];
        assert!(grant.epoch.number > last, "{} after {last}", grant.epoch);
        last = grant.epoch.number;
        winner.leases.release(&reader, grant.epoch, true, Cause::Release).await.unwrap();
    }
}

// A client that locks the lease row by a statement of its own and then freezes makes every renewal time out. There is no such client: while
// an acquire waits for the fence it has not touched the lease row, and it is over when its one call is.
#[tokio::test]
async fn an_acquire_that_waits_for_the_fence_keeps_nobody_from_renewing() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let held = a.take().await;
    let in_flight = ground.commit_in_flight(&a, held.epoch).await;
    let asking = tokio::spawn(async move { b.leases.acquire(&key(READER), None).await });
    ground.until(ACQUIRE_WAITS, 1).await;
    assert_eq!(a.renew(held.epoch).await, Renewal::Confirmed);
    ground.run("SELECT FROM plant_leases FOR UPDATE NOWAIT").await;
    in_flight.commit().await.unwrap();
    assert!(matches!(asking.await.unwrap().unwrap(), Acquired::Taken(_)));
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
    assert_eq!(ground.number(open).await, 0);
    assert_eq!(a.renew(held.epoch).await, Renewal::Confirmed);
}

// `lock_timeout` begins anew with every wait, and new sharers of the row overtake a waiter: it alone never fires.
#[tokio::test]
async fn an_acquire_that_commits_overtake_for_ever_gives_up_on_both_sides() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let held = a.take().await;
    let mut first = ground.commit_in_flight(&a, held.epoch).await;
    let asking = tokio::spawn(async move { b.leases.acquire(&key(READER), None).await });
    ground.until(ACQUIRE_WAITS, 1).await;
    while !asking.is_finished() {
        let mut next = ground.pool.begin().await.unwrap();
        crate::ground::fence(&mut next, &a, held.epoch).await.unwrap();
        first.rollback().await.unwrap();
        first = next;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let answer = asking.await.unwrap();
    assert!(matches!(answer, Err(LeaseError::Unavailable(_))), "{answer:?}");
    ground.until(ACQUIRE_WAITS, 0).await;
    assert_eq!(a.renew(held.epoch).await, Renewal::Confirmed);
}

// By its name alone a second boot would be "the holder", and run beside the first.
#[tokio::test]
async fn another_boot_of_the_same_name_has_no_privilege_and_is_held_back() {
    let ground = Ground::new().await;
    let (first, second) = (ground.node("a"), ground.node("a"));
    let held = first.take().await;
    let seen = second.see_taken(None).await;
    assert_eq!(seen.holder, Some(first.me.clone()));
    let restarted = second.leases.restart(&key(READER), held.epoch).await.unwrap();
    assert!(matches!(restarted, Acquired::Taken(_)), "{restarted:?}");
    assert_eq!(second.renew(held.epoch).await, Renewal::Lost);
    ground.expire().await;
    let taken = second.take().await;
    assert!(taken.epoch > held.epoch);
    assert_eq!((taken.hold_back, taken.cause), (crate::ground::LEASE, Cause::Expiry));
}

// Nobody else could be told apart from an earlier instance: each start has an epoch of its own, also when the answer was lost.
#[tokio::test]
async fn a_node_that_asks_again_for_what_it_holds_gets_a_new_epoch() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let first = a.take().await;
    let second = a.take().await;
    assert!(second.epoch > first.epoch);
    assert_eq!(a.renew(first.epoch).await, Renewal::Lost);
    assert_eq!(a.renew(second.epoch).await, Renewal::Confirmed);
}

// A promoted replica's clock may be hours behind: by it alone the role would stay unheld for hours.
#[tokio::test]
async fn a_lease_that_has_not_changed_for_a_whole_lease_is_taken_though_the_databases_clock_is_behind() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let held = a.take().await;
    ground
        .run("UPDATE plant_leases SET renewed_at = now() + interval '1 h', expires_at = now() + interval '2 h'")
        .await;
    let seen = b.see_taken(None).await;
    let taken = b.take_seen(Some(&seen)).await;
    assert!(taken.epoch > held.epoch);
    assert_eq!(taken.hold_back, crate::ground::LEASE);
}

// The holder may have renewed between the last look and the call: compared under the row's lock, not before.
#[tokio::test]
async fn a_lease_that_was_renewed_since_it_was_looked_at_is_not_taken() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let held = a.take().await;
    let seen = b.see_taken(None).await;
    assert_eq!(a.renew(held.epoch).await, Renewal::Confirmed);
    let now = b.see_taken(Some(&seen)).await;
    assert_ne!(now.renewed_at_us, seen.renewed_at_us);
    // Nor one whose instance was started anew: another epoch.
    let again = granted(a.leases.restart(&key(READER), held.epoch).await.unwrap());
    assert_eq!(b.see_taken(Some(&now)).await.epoch, again.epoch);
}

// State that was read before the earlier instance's COMMIT landed would be written back over it, and counted twice.
#[tokio::test]
async fn a_restart_waits_for_a_commit_in_flight_and_sees_what_it_did() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let held = a.take().await;
    let in_flight = ground.commit_in_flight(&a, held.epoch).await;
    let restarting = tokio::spawn(async move { a.leases.restart(&key(READER), held.epoch).await });
    ground.until(ACQUIRE_WAITS, 1).await;
    assert!(!restarting.is_finished());
    in_flight.commit().await.unwrap();
    let again = granted(restarting.await.unwrap().unwrap());
    assert!(again.epoch > held.epoch);
    assert_eq!((again.cause, ground.rows().await), (Cause::Restart, 1));
}

// An old request that the network kept would start a second instance over the one that runs.
#[tokio::test]
async fn a_restart_that_comes_late_changes_nothing() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let held = a.take().await;
    let again = granted(a.leases.restart(&key(READER), held.epoch).await.unwrap());
    let late = a.leases.restart(&key(READER), held.epoch).await.unwrap();
    assert!(matches!(&late, Acquired::Taken(seen) if seen.epoch == again.epoch), "{late:?}");
    assert_eq!(a.renew(again.epoch).await, Renewal::Confirmed);
    // Nor does one that has run out: somebody may be about to take it.
    ground.expire().await;
    let late = a.leases.restart(&key(READER), again.epoch).await.unwrap();
    assert!(matches!(late, Acquired::Taken(_)), "{late:?}");
}

// An epoch that a crash of the database took back would be issued a second time.
#[tokio::test]
async fn an_epoch_that_was_answered_outlives_a_crash_also_where_commits_are_not_waited_for() {
    let mut ground = Ground::new().await;
    ground.run("ALTER DATABASE postgres SET synchronous_commit = off").await;
    // The log's own writer is slow on purpose, so that a commit that was not waited for is lost.
    ground.run("ALTER SYSTEM SET wal_writer_delay = '10s'").await;
    ground.run("SELECT pg_reload_conf()").await;
    let a = ground.node("a");
    let held = a.take().await;
    ground.server.kill().unwrap();
    ground.server.run().unwrap();
    ground.pool = sqlx::PgPool::connect(&ground.server.url()).await.unwrap();
    assert_eq!(ground.number("SELECT max(epoch) FROM plant_fences").await, i64::try_from(held.epoch.number).unwrap());
}
