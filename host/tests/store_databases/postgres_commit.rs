//! The end of a transaction on PostgreSQL: fenced, answered honestly, and never left open.

use std::time::Duration;

use host::store::{Bounds, Database, DbError, Options, Value};

use crate::ground::{Ground, held_for, insert, row, sqlstate};

/// Transactions that are open on the server, other than the one that asks.
const OPEN: &str = "SELECT count(*) FROM pg_stat_activity \
                    WHERE backend_type = 'client backend' AND state LIKE 'idle in transaction%' AND pid <> pg_backend_pid()";
/// Commits that wait for the fence's row.
const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'SELECT %plant_fence%'";

#[tokio::test]
async fn a_holder_commits_what_it_did() {
    let ground = Ground::new().await;
    ground.begin_with_a_row().await.commit().await.unwrap();
    assert_eq!(ground.rows().await, 1);
    ground.until(OPEN, 0).await;
}

#[tokio::test]
async fn a_commit_after_the_role_has_moved_on_is_lease_lost_and_changes_nothing() {
    let ground = Ground::new().await;
    let transaction = ground.begin_with_a_row().await;
    sqlx::raw_sql("UPDATE plant_fences SET epoch = 8").execute(&ground.pool).await.unwrap();
    assert!(matches!(transaction.commit().await, Err(DbError::LeaseLost)));
    assert_eq!(ground.rows().await, 0);
    ground.until(OPEN, 0).await;
}

#[tokio::test]
async fn a_commit_that_waits_for_a_takeover_loses_to_it() {
    let ground = Ground::new().await;
    let transaction = ground.begin_with_a_row().await;
    let mut takeover = ground.pool.begin().await.unwrap();
    sqlx::raw_sql("UPDATE plant_fences SET epoch = 8").execute(&mut *takeover).await.unwrap();
    let committing = tokio::spawn(transaction.commit());
    ground.until(WAITING, 1).await;
    takeover.commit().await.unwrap();
    assert!(matches!(committing.await.unwrap(), Err(DbError::LeaseLost)));
    assert_eq!(ground.rows().await, 0);
}

#[tokio::test]
async fn another_boot_of_the_same_name_commits_nothing() {
    let ground = Ground::new().await;
    let (twin, _control) = held_for(1, Duration::from_secs(600));
    let mut transaction = ground.database.begin(&twin, Options::default()).await.unwrap();
    transaction.execute(vec![insert(1, 10)]).await.unwrap();
    assert!(matches!(transaction.commit().await, Err(DbError::LeaseLost)));
    assert_eq!(ground.rows().await, 0);
}

#[tokio::test]
async fn a_lease_that_ran_out_by_the_databases_clock_commits_nothing() {
    let ground = Ground::new().await;
    let transaction = ground.begin_with_a_row().await;
    sqlx::raw_sql("UPDATE plant_leases SET expires_at = now() - interval '1 ms'").execute(&ground.pool).await.unwrap();
    assert!(matches!(transaction.commit().await, Err(DbError::LeaseLost)));
    assert_eq!(ground.rows().await, 0);
}

#[tokio::test]
async fn a_lease_that_this_process_gave_up_allows_nothing_more() {
    let ground = Ground::new().await;
    let mut transaction = ground.begin_with_a_row().await;
    ground.control.end();
    assert!(matches!(transaction.execute(vec![insert(2, 10)]).await, Err(DbError::LeaseLost)));
    assert!(matches!(transaction.query("SELECT 1", vec![]).await, Err(DbError::LeaseLost)));
    assert!(matches!(transaction.commit().await, Err(DbError::LeaseLost)));
    let begun = ground.database.begin(&ground.held, Options::default()).await;
    assert!(matches!(begun.map(drop), Err(DbError::LeaseLost)));
    assert_eq!(ground.rows().await, 0);
}

#[tokio::test]
async fn a_commit_whose_server_dies_has_an_unknown_outcome() {
    let mut ground = Ground::new().await;
    let transaction = ground.begin_with_a_row().await;
    let mut blocker = ground.pool.begin().await.unwrap();
    sqlx::raw_sql("SELECT 1 FROM plant_fences FOR UPDATE").execute(&mut *blocker).await.unwrap();
    let committing = tokio::spawn(transaction.commit());
    ground.until(WAITING, 1).await;
    ground.server.kill().unwrap();
    let outcome = committing.await.unwrap();
    assert!(matches!(outcome, Err(DbError::OutcomeUnknown)), "{outcome:?}");
}

#[tokio::test]
async fn a_commit_that_is_not_answered_in_time_has_an_unknown_outcome_and_its_connection_is_closed() {
    let ground = Ground::with(Bounds { statement: Duration::from_secs(3), ..Bounds::default() }).await;
    let mut transaction = ground.begin_with_a_row().await;
    let answer = transaction.query("SELECT pg_backend_pid()", vec![]).await.unwrap();
    let Value::Int(backend) = answer.rows[0][0] else { panic!("{answer:?}") };
    let process = rustix::process::Pid::from_raw(i32::try_from(backend).unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    let outcome = transaction.commit().await;
    rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    assert!(matches!(outcome, Err(DbError::OutcomeUnknown)), "{outcome:?}");
    // It wakes and commits, or not; nobody uses it any more.
    ground.until("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT %.plant_fence(%; COMMIT'", 0).await;
    assert_ne!(self::backend(&ground).await, Value::Int(backend));
}

#[tokio::test]
async fn a_dropped_transaction_leaves_nothing_open_and_its_connection_is_used_again() {
    let ground = Ground::new().await;
    let first = backend(&ground).await;
    drop(ground.begin_with_a_row().await);
    ground.until(OPEN, 0).await;
    assert_eq!(ground.rows().await, 0);
    assert_eq!(backend(&ground).await, first);
}

async fn backend(ground: &Ground) -> Value {
    let mut transaction = ground.begin().await;
    let mut answer = transaction.query("SELECT pg_backend_pid()", vec![]).await.unwrap();
    transaction.commit().await.unwrap();
    answer.rows.remove(0).remove(0)
}

#[tokio::test]
async fn a_cancelled_statement_takes_its_connection_with_it() {
    const SLEEPING: &str =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'";
    let ground = Ground::new().await;
    let mut transaction = ground.begin_with_a_row().await;
    let running = tokio::spawn(async move { transaction.query("SELECT pg_sleep(4)", vec![]).await.map(drop) });
    ground.until(SLEEPING, 1).await;
    running.abort();
    ground.until(SLEEPING, 0).await;
    ground.until(OPEN, 0).await;
    assert_eq!(ground.rows().await, 0);
    ground.begin_with_a_row().await.commit().await.unwrap();
}

#[tokio::test]
async fn after_a_failed_statement_nothing_is_committed() {
    let ground = Ground::new().await;
    let mut transaction = ground.begin_with_a_row().await;
    let error = transaction.execute(vec![insert(1, 11)]).await.unwrap_err();
    assert_eq!(sqlstate(&error), "23505");
    assert!(matches!(&error, DbError::Database { constraint: Some(name), .. } if name == "counts_pkey"));
    assert_eq!(sqlstate(&transaction.commit().await.unwrap_err()), "25P02");
    assert_eq!(ground.rows().await, 0);
    ground.until(OPEN, 0).await;
}

#[tokio::test]
async fn a_constraint_that_is_checked_at_commit_fails_the_commit() {
    let ground = Ground::new().await;
    let table = "CREATE TABLE later (a integer UNIQUE DEFERRABLE INITIALLY DEFERRED)";
    sqlx::raw_sql(table).execute(&ground.pool).await.unwrap();
    let mut transaction = ground.begin().await;
    let twice = "INSERT INTO later (a) VALUES (1), (1)";
    assert_eq!(transaction.execute(vec![row(twice, vec![])]).await.unwrap(), [2]);
    assert_eq!(sqlstate(&transaction.commit().await.unwrap_err()), "23505");
    assert_eq!(ground.number("SELECT count(*) FROM later").await, 0);
}

#[tokio::test]
async fn a_serialization_conflict_is_not_taken_for_a_lost_lease() {
    let ground = Ground::new().await;
    let options = Options { serializable: true, read_only: false };
    let mut one = ground.database.begin(&ground.held, options).await.unwrap();
    let mut two = ground.database.begin(&ground.held, options).await.unwrap();
    for transaction in [&mut one, &mut two] {
        transaction.query("SELECT count(*) FROM counts", vec![]).await.unwrap();
    }
    one.execute(vec![insert(1, 1)]).await.unwrap();
    two.execute(vec![insert(2, 1)]).await.unwrap();
    one.commit().await.unwrap();
    assert_eq!(sqlstate(&two.commit().await.unwrap_err()), "40001");
    assert_eq!(ground.rows().await, 1);
}

#[tokio::test]
async fn a_read_only_transaction_has_no_fence_and_changes_nothing() {
    let ground = Ground::new().await;
    sqlx::raw_sql("UPDATE plant_fences SET epoch = 8").execute(&ground.pool).await.unwrap();
    let options = Options { read_only: true, serializable: false };
    let mut transaction = ground.database.begin(&ground.held, options).await.unwrap();
    transaction.query("SELECT 1", vec![]).await.unwrap();
    transaction.commit().await.unwrap();
    let mut transaction = ground.database.begin(&ground.held, options).await.unwrap();
    assert_eq!(sqlstate(&transaction.execute(vec![insert(1, 1)]).await.unwrap_err()), "25006");
}

#[tokio::test]
async fn a_kept_connection_whose_server_was_restarted_is_replaced() {
    let mut ground = Ground::new().await;
    ground.begin_with_a_row().await.commit().await.unwrap();
    ground.server.kill().unwrap();
    let error = ground.database.begin(&ground.held, Options::default()).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("nothing listens at 127.0.0.1"), "{error}");
    ground.server.run().unwrap();
    ground.begin().await.commit().await.unwrap();
}

#[tokio::test]
async fn a_transactions_clock_is_the_databases() {
    let ground = Ground::new().await;
    let mut transaction = ground.begin().await;
    let answer = transaction.query("SELECT now()", vec![]).await.unwrap();
    assert_eq!(answer.rows, [[Value::Timestamp(transaction.now())]]);
}
