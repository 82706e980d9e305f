//! Opening the database: what works, and one clear sentence for each thing that does not.

use std::time::Duration;

use host::config::Store;
use host::store::{Pool, StoreError};

fn postgres(url: &str) -> Store {
    Store::Postgres { urls: vec![url.to_owned()], migrate_url: None }
}

async fn sentence(config: &Store) -> String {
    Pool::connect(config).await.map(drop).unwrap_err().to_string()
}

#[tokio::test]
async fn a_server_that_answers_has_a_clock_and_a_health() {
    let mut server = harness::Postgres::start().unwrap();
    let pool = Pool::connect(&postgres(&server.url())).await.unwrap();
    pool.ping().await.unwrap();
    let apart = pool.now().await.unwrap().abs_diff(host::clock::wall_nanos());
    assert!(apart < 60_000_000_000, "one box, one clock: {apart} ns apart");
    server.kill().unwrap();
    let error = pool.ping().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
}

#[tokio::test]
async fn every_session_is_told_its_timeouts() {
    let server = harness::Postgres::start().unwrap();
    let Pool::Postgres(pool) = Pool::connect(&postgres(&server.url())).await.unwrap() else { panic!("not PostgreSQL") };
    let read = "SELECT current_setting('statement_timeout') || ' ' || current_setting('lock_timeout') || ' ' \
                || current_setting('idle_in_transaction_session_timeout') || ' ' || current_setting('tcp_user_timeout')";
    let found: String = sqlx::query_scalar(read).fetch_one(&pool).await.unwrap();
    assert_eq!(found, "5s 2s 10s 5000");
}

#[tokio::test]
async fn each_mistake_in_a_url_has_its_sentence() {
    let server = harness::Postgres::start().unwrap();
    let port = server.port();
    let cases = [
        (
            "mysql://a@b/c".to_owned(),
            "[store] url begins with \"mysql\": write postgres://USER@HOST:PORT/DATABASE".to_owned(),
        ),
        (
            format!("postgres://postgres@127.0.0.1:{port}/absent"),
            format!(
                "there is no database \"absent\" at 127.0.0.1:{port}: create it (createdb absent) or correct [store] url"
            ),
        ),
        (
            format!("postgres://nobody@127.0.0.1:{port}/postgres"),
            format!("PostgreSQL at 127.0.0.1:{port} does not let user \"nobody\" in"),
        ),
        (
            "postgres://postgres@127.0.0.1:1/postgres".to_owned(),
            "nothing listens at 127.0.0.1:1: start PostgreSQL there or correct [store] url".to_owned(),
        ),
        ("postgres://postgres@127.0.0.1:notaport/x".to_owned(), "[store] url cannot be read".to_owned()),
    ];
    for (url, wanted) in cases {
        let found = sentence(&postgres(&url)).await;
        assert!(found.starts_with(&wanted), "{found}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_named_and_not_repeated() {
    let server = harness::Postgres::start().unwrap();
    let pool = sqlx::PgPool::connect(&server.url()).await.unwrap();
    // Version 13 stores a password for md5 unless it is told otherwise.
    let guarded = "SET password_encryption = 'scram-sha-256'; CREATE ROLE guarded LOGIN PASSWORD 'right'";
    sqlx::raw_sql(guarded).execute(&pool).await.unwrap();
    let rules = server.path().join("data/pg_hba.conf");
    let old = std::fs::read_to_string(&rules).unwrap();
    std::fs::write(&rules, format!("host all guarded 127.0.0.1/32 scram-sha-256\n{old}")).unwrap();
    sqlx::raw_sql("SELECT pg_reload_conf()").execute(&pool).await.unwrap();
    let url = |password: &str| format!("postgres://guarded:{password}@127.0.0.1:{}/postgres", server.port());
    let start = std::time::Instant::now();
    // The server reads its rules anew a moment after it was told to.
    let found = loop {
        match Pool::connect(&postgres(&url("wr0ng"))).await {
            Ok(_) => assert!(start.elapsed() < Duration::from_secs(20), "the rules were not read"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(found.contains("refused the password of user \"guarded\""), "{found}");
    assert!(!found.contains("wr0ng"), "{found}");
    Pool::connect(&postgres(&url("right"))).await.unwrap();
}

#[tokio::test]
async fn a_peer_that_accepts_and_says_nothing_is_given_up() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://postgres@{}/postgres", silent.local_addr().unwrap());
    let found = sentence(&postgres(&url)).await;
    assert!(found.contains("did not answer within 3 s"), "{found}");
}

#[tokio::test]
async fn of_several_servers_the_one_that_takes_writes_is_used() {
    let standby = harness::Postgres::start().unwrap();
    let primary = harness::Postgres::start().unwrap();
    let pool = sqlx::PgPool::connect(&standby.url()).await.unwrap();
    let read_only = "ALTER DATABASE postgres SET default_transaction_read_only = on";
    sqlx::raw_sql(read_only).execute(&pool).await.unwrap();
    let urls = vec!["postgres://postgres@127.0.0.1:1/postgres".to_owned(), standby.url(), primary.url()];
    let config = Store::Postgres { urls, migrate_url: None };
    let Pool::Postgres(pool) = Pool::connect(&config).await.unwrap() else { panic!("not PostgreSQL") };
    let port: i32 = sqlx::query_scalar("SELECT inet_server_port()").fetch_one(&pool).await.unwrap();
    assert_eq!(port, i32::from(primary.port()));
    drop(primary);
    let found = sentence(&config).await;
    assert!(found.starts_with("no server of [store] urls takes writes: "), "{found}");
    assert!(found.contains("takes no writes (a standby"), "{found}");
}

#[tokio::test]
async fn a_sqlite_file_is_made_with_the_settings_that_keep_it_safe() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plant.db");
    let Pool::Sqlite(pool) = Pool::connect(&Store::Sqlite { path }).await.unwrap() else { panic!("not SQLite") };
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&pool).await.unwrap();
    let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&pool).await.unwrap();
    let keys: i64 = sqlx::query_scalar("PRAGMA foreign_keys").fetch_one(&pool).await.unwrap();
    assert_eq!((mode.as_str(), synchronous, keys), ("wal", 2, 1));
}

#[tokio::test]
async fn each_mistake_with_a_sqlite_file_has_its_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| Store::Sqlite { path: directory.path().join(name) };
    let found = sentence(&at("absent/plant.db")).await;
    assert!(found.contains("absent of the SQLite file does not exist: create it or correct [store] url"), "{found}");
    std::fs::create_dir(directory.path().join("folder")).unwrap();
    let found = sentence(&at("folder")).await;
    assert!(found.contains("is a directory: [store] url wants a file"), "{found}");
    std::fs::write(directory.path().join("letter"), "Dear plant, this is no database. ".repeat(40)).unwrap();
    let found = sentence(&at("letter")).await;
    assert!(found.contains("letter is not a sound SQLite database"), "{found}");
}
