//! The fence: what a commit is asked, and by whom it can not be fooled.

use host::lease::{Cause, LeaseStore};
use sqlx::{Connection, Executor, PgConnection};

use crate::ground::{Ground, assert_lease_lost, key};

#[tokio::test]
async fn a_holder_commits() {
    let ground = Ground::new().await.with_work().await;
    let a = ground.node("a");
    let grant = a.take("reader").await;
    a.commit("reader", grant.epoch, &mut ground.begun().await).await.unwrap();
    assert_eq!(ground.committed().await, 1);
}

#[tokio::test]
async fn the_fence_raises_rather_than_finding_nothing() {
    let ground = Ground::new().await.with_work().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let grant = a.take("reader").await;
    let mut session = ground.begun().await;
    ground.expire().await;
    b.take("reader").await;
    assert_lease_lost(a.commit("reader", grant.epoch, &mut session).await);
    session.execute("ROLLBACK").await.unwrap();
    assert_eq!(ground.committed().await, 0);
}

#[tokio::test]
async fn a_holder_whose_lease_ran_out_commits_nothing_though_nobody_took_over() {
    let ground = Ground::new().await.with_work().await;
    let a = ground.node("a");
    let grant = a.take("reader").await;
    ground.expire().await;
    assert_lease_lost(a.commit("reader", grant.epoch, &mut ground.begun().await).await);
    assert_eq!(ground.committed().await, 0);
}

#[tokio::test]
async fn a_commit_that_is_sent_after_the_release_of_its_lease_fails() {
    let ground = Ground::new().await.with_work().await;
    let a = ground.node("a");
    let grant = a.take("reader").await;
    let mut session = ground.begun().await;
    a.store.release(&key("reader"), grant.epoch, true, Cause::Release).await.unwrap();
    assert_lease_lost(a.commit("reader", grant.epoch, &mut session).await);
    assert!(ground.number("SELECT epoch FROM plant_fences").await > i64::try_from(grant.epoch.number).unwrap());
}

#[tokio::test]
async fn the_fence_of_another_boot_at_the_same_epoch_fails() {
    let ground = Ground::new().await.with_work().await;
    let (a, twin) = (ground.node("a"), ground.node("a"));
    let grant = a.take("reader").await;
    assert_lease_lost(twin.commit("reader", grant.epoch, &mut ground.begun().await).await);
}

#[tokio::test]
async fn a_commit_fails_when_the_lease_row_is_gone() {
    let ground = Ground::new().await.with_work().await;
    let a = ground.node("a");
    let grant = a.take("reader").await;
    ground.run("DELETE FROM plant_leases").await;
    assert_lease_lost(a.commit("reader", grant.epoch, &mut ground.begun().await).await);
}

#[tokio::test]
async fn a_temporary_table_of_the_same_name_does_not_fool_the_fence() {
    let ground = Ground::new().await.with_work().await;
    let a = ground.node("a");
    let grant = a.take("reader").await;
    let mut session = ground.begun().await;
    session
        .execute(
            "CREATE TEMP TABLE plant_fences AS SELECT * FROM public.plant_fences; \
             CREATE TEMP TABLE plant_leases AS SELECT * FROM public.plant_leases",
        )
        .await
        .unwrap();
    ground.expire().await;
    ground.node("b").take("reader").await;
    assert_lease_lost(a.commit("reader", grant.epoch, &mut session).await);
}

#[tokio::test]
async fn another_login_can_read_the_timeline_and_can_take_no_lease() {
    let ground = Ground::new().await;
    ground.run("CREATE ROLE guest LOGIN").await;
    let url = ground.server.url().replace("postgres@", "guest@");
    let mut guest = PgConnection::connect(&url).await.unwrap();
    let timeline: i32 = sqlx::query_scalar("SELECT plant_timeline()").fetch_one(&mut guest).await.unwrap();
    assert_eq!(timeline, 1);
    for call in [
        "SELECT plant_acquire('reader', '', 'x', gen_random_uuid(), 1000, NULL, NULL, NULL, 0, false)",
        "SELECT plant_release('reader', '', 'x', gen_random_uuid(), 1, 1, 1000, true, 'release')",
    ] {
        let refused = guest.execute(call).await.unwrap_err().into_database_error().unwrap();
        assert_eq!(refused.code().as_deref(), Some("42501"), "{call}");
    }
}
