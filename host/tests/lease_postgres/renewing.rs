//! Renewals: what they wait for (nothing), and what they conclude.

use host::lease::{Cause, LeaseStore, Renewal};
use sqlx::Executor;

use crate::ground::{Ground, key};

#[tokio::test]
async fn a_lease_whose_row_is_locked_is_unconfirmed_and_the_others_are_renewed() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let (reader, floor) = (a.take("reader").await, a.take("floor").await);
    let mut other = ground.session().await;
    other.execute("BEGIN; SELECT FROM plant_leases WHERE role = 'reader' FOR UPDATE").await.unwrap();
    let held = [(key("reader"), reader.epoch), (key("floor"), floor.epoch)];
    assert_eq!(a.store.renew(&held).await.unwrap(), [Renewal::Skipped, Renewal::Confirmed]);
    other.execute("COMMIT").await.unwrap();
    assert_eq!(a.store.renew(&held).await.unwrap(), [Renewal::Confirmed, Renewal::Confirmed]);
}

#[tokio::test]
async fn a_renewal_does_not_wait_for_a_commit_that_holds_the_fence() {
    let ground = Ground::new().await.with_work().await;
    let a = ground.node("a");
    let grant = a.take("reader").await;
    let mut commit = ground.begun().await;
    let fence = format!("SELECT plant_fence('reader', '', 1, {}, '{}')", grant.epoch.number, a.me.boot);
    sqlx::raw_sql(sqlx::AssertSqlSafe(fence)).execute(&mut commit).await.unwrap();
    assert_eq!(a.store.renew(&[(key("reader"), grant.epoch)]).await.unwrap(), [Renewal::Confirmed]);
}

#[tokio::test]
async fn only_a_lease_with_another_holder_or_epoch_is_lost() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let (reader, floor) = (a.take("reader").await, a.take("floor").await);
    ground.run("UPDATE plant_leases SET expires_at = now() WHERE role = 'reader'").await;
    b.take("reader").await;
    let held = [(key("floor"), floor.epoch), (key("reader"), reader.epoch)];
    assert_eq!(a.store.renew(&held).await.unwrap(), [Renewal::Confirmed, Renewal::Lost]);
}

#[tokio::test]
async fn a_lease_that_was_not_asked_for_is_not_renewed() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let reader = a.take("reader").await;
    a.take("floor").await;
    let before = a.observe("floor").await.renewed_at_us;
    assert_eq!(a.store.renew(&[(key("reader"), reader.epoch)]).await.unwrap(), [Renewal::Confirmed]);
    assert_eq!(a.observe("floor").await.renewed_at_us, before);
}

#[tokio::test]
async fn a_lease_that_ran_out_is_lost_though_nobody_took_it() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let grant = a.take("reader").await;
    ground.expire().await;
    assert_eq!(a.store.renew(&[(key("reader"), grant.epoch)]).await.unwrap(), [Renewal::Lost]);
    assert!(a.observe("reader").await.expires_in_ms < 0, "and it stays so");
}

#[tokio::test]
async fn a_renewal_for_a_released_lease_brings_nothing_back() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let grant = a.take("reader").await;
    a.store.release(&key("reader"), grant.epoch, true, Cause::Release).await.unwrap();
    assert_eq!(a.store.renew(&[(key("reader"), grant.epoch)]).await.unwrap(), [Renewal::Lost]);
    assert_eq!(a.observe("reader").await.holder, None);
}
