//! The schema's migrations: once, however many run them, and never over a schema that is newer.

use host::config::Store;
use host::store::{self, Pool, StoreError};

use crate::ground::postgres_store;
use crate::pooler::TransactionPooler;

#[tokio::test]
async fn eight_nodes_that_migrate_at_once_all_succeed_on_postgresql() {
    let server = harness::Postgres::start().unwrap();
    let config = postgres_store(&server);
    let all = (0..8).map(|_| store::migrate(&config));
    let done = futures::future::try_join_all(all).await.unwrap();
    assert_eq!(done.iter().filter(|d| d.from < d.to).count(), 1, "{done:?}");
    let pool = Pool::connect(&config).await.unwrap();
    store::check_schema(&pool).await.unwrap();
}

#[tokio::test]
async fn eight_processes_that_migrate_at_once_all_succeed_on_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let config = Store::Sqlite { path: directory.path().join("plant.db") };
    let all = (0..8).map(|_| store::migrate(&config));
    let done = futures::future::try_join_all(all).await.unwrap();
    assert_eq!(done.iter().filter(|d| d.from < d.to).count(), 1, "{done:?}");
    let pool = Pool::connect(&config).await.unwrap();
    store::check_schema(&pool).await.unwrap();
}

#[tokio::test]
async fn a_schema_newer_than_the_binary_is_refused() {
    let server = harness::Postgres::start().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let sqlite = Store::Sqlite { path: directory.path().join("plant.db") };
    for config in [postgres_store(&server), sqlite] {
        store::migrate(&config).await.unwrap();
        let pool = Pool::connect(&config).await.unwrap();
        let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                     VALUES (9999, 'later', TRUE, 'x', 0)";
        match &pool {
            Pool::Postgres(pool) => drop(sqlx::query(newer).execute(pool).await.unwrap()),
            Pool::Sqlite(pool) => drop(sqlx::query(newer).execute(pool).await.unwrap()),
        }
        for error in [store::migrate(&config).await.map(drop), store::check_schema(&pool).await] {
            let error = error.unwrap_err();
            assert!(matches!(error, StoreError::Schema(_)));
            assert!(error.to_string().starts_with("the schema is at version 9999 and this host knows only"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_schema_that_is_missing_says_what_to_run() {
    let server = harness::Postgres::start().unwrap();
    let pool = Pool::connect(&postgres_store(&server)).await.unwrap();
    let error = store::check_schema(&pool).await.unwrap_err().to_string();
    assert!(error.ends_with("run `host migrate`"), "{error}");
}

#[tokio::test]
async fn a_login_of_its_own_migrates() {
    let server = harness::Postgres::start().unwrap();
    let pool = sqlx::PgPool::connect(&server.url()).await.unwrap();
    // Before version 15 everybody may create tables in the schema `public`.
    let everyday = "CREATE ROLE everyday LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC";
    sqlx::raw_sql(everyday).execute(&pool).await.unwrap();
    let url = server.url().replace("postgres@", "everyday@");
    let without = Store::Postgres { urls: vec![url.clone()], migrate_url: None };
    let error = store::migrate(&without).await.unwrap_err();
    assert!(error.to_string().contains("user \"everyday\" may not do this"), "{error}");
    let with = Store::Postgres { urls: vec![url], migrate_url: Some(server.url()) };
    store::migrate(&with).await.unwrap();
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_refused_and_a_way_past_it_is_taken() {
    let server = harness::Postgres::start().unwrap();
    let pooler = TransactionPooler::before(server.port()).await;
    let behind = Store::Postgres { urls: vec![pooler.url()], migrate_url: None };
    let error = store::migrate(&behind).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused(_)), "{error}");
    assert!(
        error.to_string().starts_with("a connection pooler in transaction mode stands before PostgreSQL at"),
        "{error}"
    );
    let past = Store::Postgres { urls: vec![pooler.url()], migrate_url: Some(server.url()) };
    store::migrate(&past).await.unwrap();
}
