//! What these tests stand on: a migrated database with one held role, and short ways to say values.

use std::time::Duration;

use host::clock::BootInstant;
use host::config::Store;
use host::identity::{BootId, Epoch, Holder, RoleKey};
use host::lease::{Held, HeldControl};
use host::store::postgres::PostgresDatabase;
use host::store::{self, Array, Bounds, ColumnData, Database, DbError, Options, Params, Statement, Transaction, Value};

/// The epoch at which the role is held.
pub const EPOCH: u64 = 7;

/// A PostgreSQL server with the plant's schema, where the role `reader` is held.
pub struct Ground {
    pub server: harness::Postgres,
    pub pool: sqlx::PgPool,
    pub database: PostgresDatabase,
    pub held: Held,
    pub control: HeldControl,
}

/// Where a role is held, as this process sees it.
pub fn held_for(timeline: u32, remaining: Duration) -> (Held, HeldControl) {
    let key = RoleKey { role: "reader".parse().unwrap(), partition: String::new() };
    let holder = Holder { node: "a".parse().unwrap(), boot: BootId::random() };
    let epoch = Epoch { timeline, number: EPOCH };
    Held::new(key, holder, epoch, BootInstant::now() + remaining, BootInstant::from_nanos(0))
}

pub fn postgres_store(server: &harness::Postgres) -> Store {
    Store::Postgres { urls: vec![server.url()], migrate_url: None }
}

impl Ground {
    pub async fn new() -> Self {
        Self::with(Bounds::default()).await
    }

    pub async fn with(bounds: Bounds) -> Self {
        Self::on(harness::Postgres::start().unwrap(), bounds).await
    }

    pub async fn on(server: harness::Postgres, bounds: Bounds) -> Self {
        store::migrate(&postgres_store(&server)).await.unwrap();
        let pool = sqlx::PgPool::connect(&server.url()).await.unwrap();
        let (held, control) = held_for(1, Duration::from_secs(600));
        let boot = held.holder().boot.0;
        sqlx::query("INSERT INTO plant_fences (role, partition, timeline, epoch, node, boot_id) VALUES ('reader', '', 1, 7, 'a', $1)")
            .bind(boot)
            .execute(&pool)
            .await
            .unwrap();
        sqlx::query(
            "INSERT INTO plant_leases (role, partition, node, boot_id, epoch, acquired_at, renewed_at, expires_at) \
             VALUES ('reader', '', 'a', $1, 7, now(), now(), now() + interval '1 hour')",
        )
        .bind(boot)
        .execute(&pool)
        .await
        .unwrap();
        sqlx::raw_sql(
            "CREATE TABLE counts (machine integer PRIMARY KEY, sequence bigint NOT NULL, value numeric(20) NOT NULL, note text, \
             at timestamptz NOT NULL DEFAULT now())",
        )
        .execute(&pool)
        .await
        .unwrap();
        let database = PostgresDatabase::new(&[server.url()], bounds).unwrap();
        Self { server, pool, database, held, control }
    }

    pub async fn begin(&self) -> Box<dyn Transaction> {
        self.database.begin(&self.held, Options::default()).await.unwrap()
    }

    /// One row, inserted in an open transaction.
    pub async fn begin_with_a_row(&self) -> Box<dyn Transaction> {
        let mut transaction = self.begin().await;
        assert_eq!(transaction.execute(vec![insert(1, 10)]).await.unwrap(), [1]);
        transaction
    }

    /// A number that the database answers to anybody.
    pub async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    pub async fn rows(&self) -> i64 {
        self.number("SELECT count(*) FROM counts").await
    }

    /// Waits until a query answers what is wanted.
    pub async fn until(&self, sql: &'static str, wanted: i64) {
        harness::postgres::wait_for_answer(&self.pool, sql, wanted).await.unwrap();
    }
}

pub fn insert(machine: i64, value: i64) -> Statement {
    row(
        "INSERT INTO counts (machine, sequence, value) VALUES ($1, 1, $2)",
        vec![Value::Int(machine), Value::Int(value)],
    )
}

pub fn row(sql: &str, values: Vec<Value>) -> Statement {
    Statement { sql: sql.to_owned(), params: Params::Row(values) }
}

pub fn columns(sql: &str, columns: Vec<Array>) -> Statement {
    let columns = columns.into_iter().map(|values| ColumnData { values, nulls: Vec::new() }).collect();
    Statement { sql: sql.to_owned(), params: Params::Columns(columns) }
}

pub fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

pub fn decimal(value: &str) -> Value {
    Value::Decimal(value.to_owned())
}

/// The SQLSTATE of an error that the database, or the store in its name, answered.
pub fn sqlstate(error: &DbError) -> &str {
    match error {
        DbError::Database { code, .. } => code,
        other => panic!("{other:?} has no SQLSTATE"),
    }
}
