//! What a node says of its roles reaches the database, and not more than once a second.

use std::time::Instant;

use host::identity::{BootId, Holder};
use host::role::State;
use host::store::{Pool, queries, reports};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::plant;

async fn written(pool: Pool) {
    let me = Holder { node: "a".parse().unwrap(), boot: BootId::random() };
    let (say, said) = watch::channel(vec![plant::report("reader", State::Promoting)]);
    let stop = CancellationToken::new();
    let begun = Instant::now();
    let writing = tokio::spawn(reports::keep_written(pool.clone(), me.clone(), said, stop.clone()));
    let mut changes = 0_u64;
    loop {
        changes += 1;
        let mut report = plant::report("reader", State::Running);
        report.reason = format!("change {changes}");
        say.send(vec![report]).unwrap();
        let rows = queries::reports(&pool, reports::FORGOTTEN).await.unwrap();
        if rows.iter().any(|row| row.state == "running" && row.reason != "change 1") && changes > 50 {
            break;
        }
        assert!(begun.elapsed().as_secs() < 30, "{rows:?}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let last = format!("change {changes}");
    let ask = || async { json!(queries::reports(&pool, reports::FORGOTTEN).await.unwrap()[0].reason) };
    plant::wait_until("the last word is written", ask, |reason| reason == &json!(last)).await;
    let row = queries::reports(&pool, reports::FORGOTTEN).await.unwrap().remove(0);
    assert_eq!((row.boot_id, row.last_reading_at), (me.boot.to_string(), Some(1_767_225_600_123_456)));
    let most = begun.elapsed().as_secs() + 2;
    let sql = "SELECT count(*) FROM written";
    let writes: i64 = match &pool {
        Pool::Postgres(pool) => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
        Pool::Sqlite(pool) => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
    };
    assert!(writes.unsigned_abs() <= most, "{writes} writes in {:?} for {changes} changes", begun.elapsed());
    stop.cancel();
    writing.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_written_at_most_once_a_second_on_sqlite() {
    let (_directory, pool) = plant::sqlite().await;
    plant::run(
        &pool,
        "CREATE TABLE written (n INTEGER);
         CREATE TRIGGER count_insert AFTER INSERT ON plant_role_reports BEGIN INSERT INTO written VALUES (1); END;
         CREATE TRIGGER count_update AFTER UPDATE ON plant_role_reports BEGIN INSERT INTO written VALUES (1); END;",
    )
    .await;
    written(pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_written_at_most_once_a_second_on_postgres() {
    let (_server, pool) = plant::postgres().await;
    plant::run(
        &pool,
        "CREATE TABLE written (n int);
         CREATE FUNCTION count_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO written VALUES (1); RETURN NULL; END $$;
         CREATE TRIGGER count_it AFTER INSERT OR UPDATE ON plant_role_reports FOR EACH ROW EXECUTE FUNCTION count_it();",
    )
    .await;
    written(pool).await;
}
