//! How long unfenceable effects wait: a whole lease from a takeover that was not clean, and nobody forgets it.

use std::time::Duration;

use host::lease::{Cause, LeaseStore};

use crate::ground::{Ground, LEASE, granted, key};

/// A whole lease, but for the time that this test takes.
fn assert_about_a_lease(hold_back: Duration) {
    assert!(hold_back <= LEASE && hold_back > LEASE - Duration::from_secs(30), "{hold_back:?}");
}

#[tokio::test]
async fn effects_wait_a_whole_lease_from_the_takeover_itself_however_long_ago_the_last_renewal_was() {
    let ground = Ground::new().await;
    ground.node("a").take("reader").await;
    ground.expire().await;
    assert_about_a_lease(ground.node("b").take("reader").await.hold_back);
}

#[tokio::test]
async fn effects_need_not_wait_after_a_clean_release() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let grant = a.take("reader").await;
    a.store.release(&key("reader"), grant.epoch, true, Cause::Release).await.unwrap();
    assert_eq!(b.take("reader").await.hold_back, Duration::ZERO);
}

#[tokio::test]
async fn effects_wait_after_a_release_that_was_not_clean() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let grant = a.take("reader").await;
    a.store.release(&key("reader"), grant.epoch, false, Cause::Release).await.unwrap();
    assert_about_a_lease(b.take("reader").await.hold_back);
}

#[tokio::test]
async fn a_hold_back_is_inherited_across_clean_releases_and_restarts() {
    let ground = Ground::new().await;
    let (a, b, c) = (ground.node("a"), ground.node("b"), ground.node("c"));
    a.take("reader").await;
    ground.expire().await;
    let second = b.take("reader").await;
    let restarted = granted(b.store.restart(&key("reader"), second.epoch).await.unwrap());
    assert_about_a_lease(restarted.hold_back);
    b.store.release(&key("reader"), restarted.epoch, true, Cause::Release).await.unwrap();
    let third = c.take("reader").await;
    assert_about_a_lease(third.hold_back);
    assert!(third.hold_back < second.hold_back, "it is the old one, which has gone on to run down");
}

#[tokio::test]
async fn effects_wait_when_a_node_takes_its_own_lease_again_because_an_answer_was_lost() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let first = a.take("reader").await;
    let again = a.take("reader").await;
    assert!(again.epoch > first.epoch);
    assert_about_a_lease(again.hold_back);
    let recorded = ground.number("SELECT count(*) FROM plant_takeovers").await;
    assert_eq!(recorded, 1, "nothing changed hands");
}

#[tokio::test]
async fn effects_wait_when_the_lease_row_is_missing_because_its_holder_is_unknown() {
    let ground = Ground::new().await;
    ground.node("a").take("reader").await;
    ground.run("DELETE FROM plant_leases").await;
    assert_about_a_lease(ground.node("b").take("reader").await.hold_back);
}

#[tokio::test]
async fn a_restart_alone_holds_nothing_back() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let grant = a.take("reader").await;
    assert_eq!(granted(a.store.restart(&key("reader"), grant.epoch).await.unwrap()).hold_back, Duration::ZERO);
}
