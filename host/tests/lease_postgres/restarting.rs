//! A new instance of the same tenure: what an earlier one left in flight lands before it, or not at all.

use host::lease::{Acquired, LeaseStore};
use sqlx::Executor;

use crate::ground::{Ground, assert_lease_lost, granted, key};

#[tokio::test]
async fn a_commit_of_an_earlier_instance_fails_after_a_restart() {
    let ground = Ground::new().await.with_work().await;
    let a = ground.node("a");
    let first = a.take("reader").await;
    let mut session = ground.begun().await;
    let second = granted(a.store.restart(&key("reader"), first.epoch).await.unwrap());
    assert!(second.epoch > first.epoch);
    assert_lease_lost(a.commit("reader", first.epoch, &mut session).await);
    a.commit("reader", second.epoch, &mut ground.begun().await).await.unwrap();
    assert_eq!(ground.committed().await, 1);
}

#[tokio::test]
async fn a_restart_waits_for_a_commit_in_flight() {
    let ground = Ground::new().await.with_work().await;
    let a = ground.node("a");
    let first = a.take("reader").await;
    // The fence has answered and COMMIT is still on its way.
    let mut session = ground.begun().await;
    let fence = format!("SELECT plant_fence('reader', '', 1, {}, '{}')", first.epoch.number, a.me.boot);
    sqlx::raw_sql(sqlx::AssertSqlSafe(fence)).execute(&mut session).await.unwrap();
    let (reader, restart) = (key("reader"), async |a: &crate::ground::Node, k: &_, e| a.store.restart(k, e).await);
    let committing = async {
        ground
            .until(
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%plant_acquire%' AND wait_event_type = 'Lock'",
                1,
            )
            .await;
        session.execute("COMMIT").await.unwrap();
    };
    let read_after = async {
        let answer = restart(&a, &reader, first.epoch).await.unwrap();
        (answer, ground.committed().await)
    };
    let ((answer, seen), ()) = tokio::join!(read_after, committing);
    granted(answer);
    assert_eq!(seen, 1, "state that is read after the raise has it");
}

#[tokio::test]
async fn a_restart_of_an_epoch_that_has_passed_is_refused() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let first = a.take("reader").await;
    let second = granted(a.store.restart(&key("reader"), first.epoch).await.unwrap());
    assert!(matches!(a.store.restart(&key("reader"), first.epoch).await.unwrap(), Acquired::Taken(_)));
    assert_eq!(a.observe("reader").await.epoch, second.epoch);
}

#[tokio::test]
async fn a_restart_of_a_lease_that_ran_out_is_refused() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let grant = a.take("reader").await;
    ground.expire().await;
    assert!(matches!(a.store.restart(&key("reader"), grant.epoch).await.unwrap(), Acquired::Taken(_)));
}
