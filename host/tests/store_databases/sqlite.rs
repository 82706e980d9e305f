//! Transactions on a SQLite file.

use std::time::Duration;

use host::config::Store;
use host::lease::{Held, HeldControl};
use host::store::sqlite::SqliteDatabase;
use host::store::{self, Array, Bounds, Database, DbError, Options, Pool, Transaction, Value};

use crate::ground::{columns, decimal, held_for, insert, row, sqlstate, text};

struct File {
    directory: tempfile::TempDir,
    pool: sqlx::SqlitePool,
    database: SqliteDatabase,
    held: Held,
    control: HeldControl,
}

impl File {
    async fn new() -> Self {
        Self::with(Bounds::default()).await
    }

    async fn with(bounds: Bounds) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plant.db");
        let config = Store::Sqlite { path: path.clone() };
        store::migrate(&config).await.unwrap();
        let Pool::Sqlite(pool) = Pool::connect(&config).await.unwrap() else { panic!("not SQLite") };
        let (held, control) = held_for(0, Duration::from_secs(600));
        sqlx::query("INSERT INTO plant_fences (role, partition, timeline, epoch, node, boot_id) VALUES ('reader', '', 0, 7, 'a', $1)")
            .bind(held.holder().boot.to_string())
            .execute(&pool)
            .await
            .unwrap();
        sqlx::raw_sql(
            "CREATE TABLE counts (machine INTEGER PRIMARY KEY, sequence INTEGER NOT NULL, value BLOB NOT NULL, note TEXT, \
             at TIMESTAMP, fresh BOOLEAN)",
        )
        .execute(&pool)
        .await
        .unwrap();
        let database = SqliteDatabase::new(&path, bounds);
        Self { directory, pool, database, held, control }
    }

    async fn begin(&self) -> Box<dyn Transaction> {
        self.database.begin(&self.held, Options::default()).await.unwrap()
    }

    async fn rows(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM counts").fetch_one(&self.pool).await.unwrap()
    }
}

#[tokio::test]
async fn a_holder_commits_and_one_whose_role_moved_on_does_not() {
    let file = File::new().await;
    let mut transaction = file.begin().await;
    transaction.execute(vec![insert(1, 10)]).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(file.rows().await, 1);
    sqlx::raw_sql("UPDATE plant_fences SET epoch = 8").execute(&file.pool).await.unwrap();
    let mut transaction = file.begin().await;
    transaction.execute(vec![insert(2, 10)]).await.unwrap();
    assert!(matches!(transaction.commit().await, Err(DbError::LeaseLost)));
    assert_eq!(file.rows().await, 1);
    // The write lock is free again.
    sqlx::raw_sql("UPDATE plant_fences SET epoch = 9").execute(&file.pool).await.unwrap();
}

#[tokio::test]
async fn an_ended_lease_allows_nothing_more() {
    let file = File::new().await;
    let mut transaction = file.begin().await;
    file.control.end();
    assert!(matches!(transaction.execute(vec![insert(1, 10)]).await, Err(DbError::LeaseLost)));
    assert!(matches!(transaction.commit().await, Err(DbError::LeaseLost)));
    assert_eq!(file.rows().await, 0);
}

#[tokio::test]
async fn a_dropped_transaction_rolls_back_and_lets_the_next_writer_in() {
    let file = File::new().await;
    let mut transaction = file.begin().await;
    transaction.execute(vec![insert(1, 10)]).await.unwrap();
    drop(transaction);
    let mut transaction = file.begin().await;
    transaction.execute(vec![insert(1, 11)]).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(file.rows().await, 1);
}

#[tokio::test]
async fn a_cancelled_statement_stops_and_lets_the_next_writer_in() {
    let file = File::new().await;
    let mut transaction = file.begin().await;
    transaction.execute(vec![insert(1, 10)]).await.unwrap();
    let endless = endless();
    let running = tokio::spawn(async move { transaction.query(&endless, vec![]).await.map(drop) });
    tokio::task::yield_now().await;
    running.abort();
    let mut transaction = file.begin().await;
    transaction.execute(vec![insert(1, 11)]).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(file.rows().await, 1);
}

fn endless() -> String {
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n".to_owned()
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_interrupted() {
    let file = File::with(Bounds { statement: Duration::from_millis(300), ..Bounds::default() }).await;
    let error = file.begin().await.query(&endless(), vec![]).await.unwrap_err();
    assert!(matches!(error, DbError::Timeout), "{error}");
    file.begin().await.commit().await.unwrap();
}

#[tokio::test]
async fn counters_are_exact_over_the_whole_range_of_64_bits() {
    let file = File::new().await;
    let mut transaction = file.begin().await;
    let values = ["18446744073709551615", "9223372036854775807", "123456789012345678901234567890"];
    for (machine, value) in (1..).zip(values) {
        let sql = "INSERT INTO counts (machine, sequence, value) VALUES ($1, 1, $2)";
        transaction.execute(vec![row(sql, vec![Value::Int(machine), decimal(value)])]).await.unwrap();
    }
    let answer = transaction.query("SELECT value FROM counts ORDER BY machine", vec![]).await.unwrap();
    let wanted = [decimal(values[0]), Value::Int(i64::MAX), decimal(values[2])];
    assert_eq!(answer.rows.concat(), wanted);
}

#[tokio::test]
async fn values_come_back_by_their_declared_type() {
    let file = File::new().await;
    let mut transaction = file.begin().await;
    let sql = "INSERT INTO counts (machine, sequence, value, note, at, fresh) VALUES ($1, $2, $3, $4, $5, $6)";
    let uuid = Value::Uuid(0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210);
    let at = Value::Timestamp(1_700_000_000_123_456_000);
    let sent = vec![Value::Int(1), Value::Int(2), Value::Bytes(vec![0, 255]), uuid, at.clone(), Value::Boolean(true)];
    transaction.execute(vec![row(sql, sent)]).await.unwrap();
    let answer = transaction.query("SELECT value, note, at, fresh, NULL, 0.5 FROM counts", vec![]).await.unwrap();
    let uuid = text("01234567-89ab-cdef-fedc-ba9876543210");
    let wanted = vec![Value::Bytes(vec![0, 255]), uuid, at, Value::Boolean(true), Value::Null, Value::Real(0.5)];
    assert_eq!(answer.rows, [wanted]);
}

#[tokio::test]
async fn an_upsert_over_columns_counts_the_rows_whose_sequence_matches() {
    let file = File::new().await;
    let mut transaction = file.begin().await;
    let upsert = "INSERT INTO counts (machine, sequence, value) VALUES ($1, $2 + 1, $3) \
                  ON CONFLICT (machine) DO UPDATE SET sequence = excluded.sequence, value = excluded.value \
                  WHERE counts.sequence = excluded.sequence - 1";
    let batch = |sequences: Vec<i64>| {
        columns(upsert, vec![Array::Ints(vec![1, 2, 3]), Array::Ints(sequences), Array::Ints(vec![5, 6, 7])])
    };
    assert_eq!(transaction.execute(vec![batch(vec![0, 0, 0]), batch(vec![1, 9, 1])]).await.unwrap(), [3, 2]);
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn statements_that_leave_the_transaction_or_the_file_are_refused() {
    let file = File::new().await;
    let all =
        ["SELECT 1; DELETE FROM counts", "COMMIT", "PRAGMA query_only = 0", "ATTACH 'x' AS y", "VACUUM", "SELECT ?1"];
    for sql in all {
        let error = file.begin().await.execute(vec![row(sql, vec![])]).await.unwrap_err();
        assert!(matches!(error, DbError::Denied(_)), "{sql}: {error}");
    }
    let error = file.begin().await.query("SELECT $1", vec![]).await.unwrap_err();
    assert_eq!(error.to_string(), "the statement has 1 parameters and 0 came (SQLSTATE 42P02)");
}

#[tokio::test]
async fn a_violated_constraint_has_its_sqlstate() {
    let file = File::new().await;
    let mut transaction = file.begin().await;
    let error = transaction.execute(vec![insert(1, 1), insert(1, 2)]).await.unwrap_err();
    assert_eq!(sqlstate(&error), "23505");
    assert_eq!(sqlstate(&transaction.commit().await.unwrap_err()), "25P02");
    assert_eq!(file.rows().await, 0);
}

#[tokio::test]
async fn a_reader_sees_the_file_beside_a_writer_and_changes_nothing() {
    let file = File::new().await;
    let mut writer = file.begin().await;
    writer.execute(vec![insert(1, 1)]).await.unwrap();
    let options = Options { read_only: true, serializable: false };
    let mut reader = file.database.begin(&file.held, options).await.unwrap();
    let seen = reader.query("SELECT count(*) FROM counts", vec![]).await.unwrap();
    assert_eq!(seen.rows, [[Value::Int(0)]]);
    assert_eq!(sqlstate(&reader.execute(vec![insert(2, 2)]).await.unwrap_err()), "25006");
    writer.commit().await.unwrap();
    assert_eq!(file.rows().await, 1);
    assert!(file.directory.path().join("plant.db-wal").exists());
}
