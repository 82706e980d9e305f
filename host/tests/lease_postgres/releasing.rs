//! Letting go: of one's own tenure and of no other, and so that others hear of it.

use std::time::{Duration, Instant};

use host::lease::{Cause, LeaseStore};

use crate::ground::{Ground, key};

#[tokio::test]
async fn a_release_that_comes_late_does_not_free_the_next_tenure() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let first = a.take("reader").await;
    ground.expire().await;
    // The same node holds it again: only the epoch tells the two tenures apart.
    let second = a.take("reader").await;
    a.store.release(&key("reader"), first.epoch, true, Cause::Release).await.unwrap();
    assert_eq!(b.refused("reader").await.epoch, second.epoch);
}

#[tokio::test]
async fn a_release_raises_the_epoch() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let grant = a.take("reader").await;
    a.store.release(&key("reader"), grant.epoch, true, Cause::Release).await.unwrap();
    let seen = a.observe("reader").await;
    assert_eq!(seen.holder, None);
    assert!(seen.epoch > grant.epoch);
    assert!(a.take("reader").await.epoch > seen.epoch);
}

#[tokio::test]
async fn a_release_wakes_whoever_waits_for_one() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let grant = a.take("reader").await;
    let start = Instant::now();
    let (woken, ()) = tokio::join!(
        async {
            b.store.released(Duration::from_secs(60)).await;
            start.elapsed()
        },
        async {
            ground.until("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'", 1).await;
            a.store.release(&key("reader"), grant.epoch, true, Cause::Release).await.unwrap();
        }
    );
    assert!(woken < Duration::from_secs(30), "{woken:?}");
}
