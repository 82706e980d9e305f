//! Commit: the fence is the last word, and it raises.

use host::lease::{Cause, LeaseStore};
use host::store::{DbError, Options};

use crate::ground::{Ground, READER, fence, granted, key, statement};

// Nobody may have taken over, or the role may be on hold: the epoch is unchanged, and only the clock of the database tells.
#[tokio::test]
async fn a_holder_that_froze_past_its_lease_commits_nothing_though_nobody_took_over() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let held = a.take().await;
    let transaction = ground.working(&a, held.epoch).await;
    ground.expire().await;
    assert!(matches!(transaction.commit().await, Err(DbError::LeaseLost)));
    assert_eq!(ground.rows().await, 0);
}

#[tokio::test]
async fn a_holder_that_froze_until_another_took_over_commits_nothing() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let held = a.take().await;
    let transaction = ground.working(&a, held.epoch).await;
    ground.expire().await;
    let taken = b.take_alone(&ground).await;
    assert!(matches!(transaction.commit().await, Err(DbError::LeaseLost)));
    assert_eq!(ground.rows().await, 0);
    ground.working(&b, taken).await.commit().await.unwrap();
}

// Under the same epoch, what an instance left in flight when it trapped would land after its successor has read the state.
#[tokio::test]
async fn what_an_earlier_instance_left_in_flight_fails_after_the_restart() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let held = a.take().await;
    let transaction = ground.working(&a, held.epoch).await;
    let again = granted(a.leases.restart(&key(READER), held.epoch).await.unwrap());
    assert!(matches!(transaction.commit().await, Err(DbError::LeaseLost)));
    assert_eq!(ground.rows().await, 0);
    ground.working(&a, again.epoch).await.commit().await.unwrap();
}

// A replica that lost the last takeover issues its epoch again, to another boot.
#[tokio::test]
async fn another_boot_at_the_same_epoch_commits_nothing() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let held = a.take().await;
    let transaction = ground.working(&b, held.epoch).await;
    assert!(matches!(transaction.commit().await, Err(DbError::LeaseLost)));
    assert_eq!(ground.rows().await, 0);
}

// Each row alone can be older than the other: one was restored by hand, or its table was.
#[tokio::test]
async fn a_commit_needs_both_the_fence_and_the_lease_to_name_its_boot_and_epoch() {
    const WRONG: [(&str, &str); 4] = [
        (
            "UPDATE plant_fences SET boot_id = gen_random_uuid()",
            "UPDATE plant_fences f SET boot_id = l.boot_id FROM plant_leases l",
        ),
        (
            "UPDATE plant_leases SET boot_id = gen_random_uuid()",
            "UPDATE plant_leases l SET boot_id = f.boot_id FROM plant_fences f",
        ),
        ("UPDATE plant_fences SET epoch = epoch + 1", "UPDATE plant_fences SET epoch = epoch - 1"),
        ("UPDATE plant_leases SET epoch = epoch + 1", "UPDATE plant_leases SET epoch = epoch - 1"),
    ];
    let ground = Ground::new().await;
    let a = ground.node("a");
    let held = a.take().await;
    for (wrong, right) in WRONG {
        let transaction = ground.working(&a, held.epoch).await;
        ground.run(wrong).await;
        assert!(matches!(transaction.commit().await, Err(DbError::LeaseLost)), "{wrong}");
        ground.run(right).await;
    }
    assert_eq!(ground.rows().await, 0);
    ground.working(&a, held.epoch).await.commit().await.unwrap();
}

// A check that only finds nothing lets the COMMIT that stands behind it in the same message go through.
#[tokio::test]
async fn the_fence_raises_and_takes_the_commit_behind_it_along() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let held = a.take().await;
    let mut epoch = held.epoch;
    epoch.number += 1;
    let mut connection = ground.pool.acquire().await.unwrap();
    sqlx::raw_sql("BEGIN; INSERT INTO counts VALUES (1)").execute(&mut *connection).await.unwrap();
    let error = fence(&mut connection, &a, epoch).await.unwrap_err();
    let answer = error.as_database_error().unwrap();
    assert_eq!(answer.code().unwrap(), "40001");
    assert!(answer.message().starts_with("lease-lost"), "{answer}");
    // A ROLLBACK is still owed: a COMMIT is answered without an error, and does the same.
    sqlx::raw_sql("COMMIT").execute(&mut *connection).await.unwrap();
    assert_eq!(ground.rows().await, 0);
}

// Outside a transaction each statement has committed by itself; the fence behind them would say that all is well.
#[tokio::test]
async fn no_statement_of_a_guest_ends_the_transaction_that_the_fence_guards() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let held = a.take().await;
    for end in ["COMMIT", "ROLLBACK", "END", "ABORT", "SELECT 1; COMMIT"] {
        let mut transaction = ground.begin(&a, held.epoch, Options::default()).await.unwrap();
        let refused = transaction.execute(vec![statement(end)]).await;
        assert!(matches!(refused, Err(DbError::Denied(_))), "{end}: {refused:?}");
    }
}

// PostgreSQL refuses the fence's lock there: with a fence, no read-only transaction would ever end well.
#[tokio::test]
async fn a_read_only_transaction_has_no_fence() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let held = a.take().await;
    let options = Options { read_only: true, serializable: false };
    let mut reading = ground.begin(&a, held.epoch, options).await.unwrap();
    reading.query("SELECT count(*) FROM counts", vec![]).await.unwrap();
    a.leases.release(&key(READER), held.epoch, true, Cause::Release).await.unwrap();
    reading.commit().await.unwrap();
    let mut connection = ground.pool.acquire().await.unwrap();
    sqlx::raw_sql("BEGIN READ ONLY").execute(&mut *connection).await.unwrap();
    let error = fence(&mut connection, &a, held.epoch).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().unwrap(), "25006");
    sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await.unwrap();
}

// A temporary table of the fence's name comes first in every search path that does not say otherwise.
#[tokio::test]
async fn a_callers_temporary_tables_do_not_stand_in_for_the_fence() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let held = a.take().await;
    let mut connection = ground.pool.acquire().await.unwrap();
    let forge = "CREATE TEMP TABLE plant_fences AS SELECT * FROM public.plant_fences; \
                 CREATE TEMP TABLE plant_leases AS SELECT * FROM public.plant_leases";
    sqlx::raw_sql(forge).execute(&mut *connection).await.unwrap();
    ground.expire().await;
    b.take().await;
    let error = fence(&mut connection, &a, held.epoch).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().unwrap(), "40001");
}
