//! What the rows say when a lease changes hands, and who can not make one change hands.

use host::lease::{Acquired, Cause, LeaseError, LeaseStore, Renewal};
use sqlx::{Connection, Executor, PgConnection};

use crate::ground::{Ground, key};
use crate::proxy::Proxy;

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
async fn a_restart_of_a_lease_that_ran_out_is_refused() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let grant = a.take("reader").await;
    ground.expire().await;
    assert!(matches!(a.store.restart(&key("reader"), grant.epoch).await.unwrap(), Acquired::Taken(_)));
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
        "SELECT plant_acquire('reader', '', 'x', gen_random_uuid(), 1000, NULL, NULL, NULL, 0, false, NULL)",
        "SELECT plant_release('reader', '', 'x', gen_random_uuid(), 1, 1, 1000, true, 'release')",
    ] {
        let refused = guest.execute(call).await.unwrap_err().into_database_error().unwrap();
        assert_eq!(refused.code().as_deref(), Some("42501"), "{call}");
    }
}
