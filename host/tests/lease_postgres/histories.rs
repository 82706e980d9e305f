//! A promoted standby is another history of the database: what was granted on the old one may be lost, and is never granted again.

use std::time::Duration;

use host::lease::{Acquired, Cause, LeaseStore, Renewal};

use crate::ground::{Ground, assert_lease_lost, granted, key};

#[tokio::test]
async fn on_a_new_timeline_every_lease_is_lost_and_every_commit_fails() {
    let mut ground = Ground::new().await.with_work().await;
    let a = ground.node("a");
    let grant = a.take("reader").await;
    ground.promote().await;
    let a = ground.node_of(&a);
    assert_lease_lost(a.commit("reader", grant.epoch, &mut ground.begun().await).await);
    assert_eq!(a.store.renew(&[(key("reader"), grant.epoch)]).await.unwrap(), [Renewal::Lost]);
    let again = a.take("reader").await;
    assert_eq!(again.epoch.timeline, 2);
    assert!(again.epoch > grant.epoch && again.epoch.number > grant.epoch.number);
    a.commit("reader", again.epoch, &mut ground.begun().await).await.unwrap();
}

#[tokio::test]
async fn on_a_new_timeline_hold_backs_start_again_also_after_a_clean_release() {
    let mut ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let grant = a.take("reader").await;
    a.store.release(&key("reader"), grant.epoch, true, Cause::Release).await.unwrap();
    // The very first holder was held back as well, and what it waited for is over.
    ground.run("UPDATE plant_fences SET effects_not_before = '-infinity'").await;
    ground.promote().await;
    assert!(ground.node_of(&b).take("reader").await.hold_back > Duration::ZERO);
}

#[tokio::test]
async fn an_epoch_that_a_fail_over_lost_is_not_issued_again() {
    let mut ground = Ground::new().await.with_work().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let old = a.take("reader").await;
    a.store.release(&key("reader"), old.epoch, true, Cause::Release).await.unwrap();
    let kept = ground.copy().await;
    // Granted, and lost with the server.
    let lost = ground.node_of(&a).take("reader").await;
    ground.fail_over(&kept).await;
    let after = ground.node_of(&b).take("reader").await;
    assert_eq!(after.epoch.number, lost.epoch.number, "the replica did not know of it");
    assert!(after.epoch > lost.epoch, "the timeline tells them apart");
    assert_lease_lost(a.commit("reader", lost.epoch, &mut ground.begun().await).await);
}

#[tokio::test]
async fn a_node_that_knows_of_an_epoch_does_not_go_below_it_after_a_fail_over_that_lost_it() {
    let mut ground = Ground::new().await;
    let (a, reader) = (ground.node("a"), key("reader"));
    let first = a.take("reader").await;
    let kept = ground.copy().await;
    let lost = granted(again(|| a.store.restart(&reader, first.epoch)).await);
    ground.fail_over(&kept).await;
    let after = granted(again(|| a.store.acquire(&reader, None)).await);
    assert!(after.epoch.number > lost.epoch.number);
}

#[tokio::test]
async fn a_release_for_a_history_that_was_lost_frees_nothing() {
    let mut ground = Ground::new().await;
    let a = ground.node("a");
    let lost = a.take("reader").await;
    ground.promote().await;
    // The same number on the new history, as it is after a fail-over that lost the grant.
    let a = ground.node_of(&a);
    let now = a.take("reader").await;
    ground.run("UPDATE plant_leases SET epoch = 1; UPDATE plant_fences SET epoch = 1").await;
    a.store.release(&key("reader"), lost.epoch, true, Cause::Release).await.unwrap();
    assert_eq!(a.observe("reader").await.holder, Some(a.me.clone()), "{now:?}");
    assert!(matches!(a.store.restart(&key("reader"), lost.epoch).await.unwrap(), Acquired::Taken(_)));
}

#[tokio::test]
async fn in_another_database_than_the_lease_was_granted_in_it_is_lost() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let grant = a.take("reader").await;
    // As after a dump was restored into a new cluster.
    ground.run("UPDATE plant_fences SET system_identifier = system_identifier + 1").await;
    assert_eq!(a.store.renew(&[(key("reader"), grant.epoch)]).await.unwrap(), [Renewal::Lost]);
    let again = a.take("reader").await;
    assert!(again.epoch > grant.epoch && again.hold_back > Duration::ZERO);
}

/// The first question after a server has ended may only find out that it has.
async fn again<F: Future<Output = Result<Acquired, host::lease::LeaseError>>>(ask: impl Fn() -> F) -> Acquired {
    match ask().await {
        Ok(answer) => answer,
        Err(_) => ask().await.unwrap(),
    }
}
