//! Any node answers for the plant, the same, and goes on answering while the database is away.

use std::time::{Duration, Instant};

use host::identity::Holder;
use host::role::State;
use host::store::{Pool, reports};
use serde_json::{Value, json};

use super::plant;

/// Two nodes, `a` holds the reader at epoch 7; the lease lasts a minute.
async fn held_by_a(pool: &Pool, a: &Holder, b: &Holder) {
    for (holder, port) in [(a, 1), (b, 2)] {
        let sql = format!(
            "INSERT INTO plant_nodes (node, boot_id, address, version, started_at, heartbeat_at)
             VALUES ('{}', '{}', 'http://127.0.0.1:{port}', '0.1.0', NOW, NOW)",
            holder.node, holder.boot
        );
        plant::run(pool, &sql).await;
    }
    let boot = a.boot;
    plant::run(
        pool,
        &format!(
            "INSERT INTO plant_fences (role, partition, timeline, epoch, node, boot_id) VALUES ('reader', '', 1, 7, 'a', '{boot}');
             INSERT INTO plant_leases (role, partition, node, boot_id, epoch, acquired_at, renewed_at, expires_at)
             VALUES ('reader', '', 'a', '{boot}', 7, NOW, NOW, NOW + interval '1 minute');
             INSERT INTO plant_takeovers (role, partition, from_node, to_node, from_epoch, to_epoch, cause, taken_at)
             VALUES ('reader', '', 'b', 'a', 6, 7, 'death', NOW)"
        ),
    )
    .await;
    reports::write(pool, a, &[plant::report("reader", State::Running)]).await.unwrap();
    reports::write(pool, b, &[plant::report("reader", State::Standby)]).await.unwrap();
}

fn without_what_may_differ(mut status: Value) -> Value {
    let document = status.as_object_mut().unwrap();
    for key in ["node", "boot_id", "ha", "age_ms", "database", "buffers", "connections", "why_not"] {
        document.remove(key);
    }
    for role in status["roles"].as_array_mut().unwrap() {
        let role = role.as_object_mut().unwrap();
        role.remove("here");
        role.remove("expires_in_ms");
    }
    status
}

fn reader(status: &Value) -> &Value {
    status["roles"].as_array().unwrap().iter().find(|role| role["role"] == "reader").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_answers_the_same_for_the_plant() {
    let (_server, pool) = plant::postgres().await;
    let config = plant::config(Some(60), true);
    let a = plant::Node::start("a", config.clone(), pool.clone()).await;
    let b = plant::Node::start("b", config, pool.clone()).await;
    held_by_a(&pool, &a.me, &b.me).await;
    let (_, by_a) = a.get("/api/status").await;
    let (_, by_b) = b.get("/api/status").await;
    assert_eq!(without_what_may_differ(by_a.clone()), without_what_may_differ(by_b.clone()));

    assert_eq!((reader(&by_a)["here"].as_bool(), reader(&by_b)["here"].as_bool()), (Some(true), Some(false)));
    let reader = reader(&by_b);
    assert_eq!((reader["holder"].as_str(), reader["epoch"].as_u64()), (Some("a"), Some(7)));
    assert_eq!((reader["state"].as_str(), reader["reason"].as_str()), (Some("running"), Some("reader says Running")));
    assert_eq!(reader["module"], json!({ "version": "1.0.0", "sha256": "ab".repeat(32) }));
    assert_eq!(reader["last_reading_at"], "2026-01-01T00:00:00.123456Z");
    let left = reader["expires_in_ms"].as_i64().unwrap();
    assert!((1..=60_000).contains(&left), "{left}");
    assert_eq!(by_b["roles"][0]["state"], "vacant", "housekeeping was never held");
    assert_eq!(by_b["nodes"].as_array().map(Vec::len), Some(2));
    assert_eq!(by_b["ha"]["leader"], "a");
    assert_eq!((by_b["stale"].as_bool(), by_b["database"]["reachable"].as_bool()), (Some(false), Some(true)));

    let (_, takeovers) = b.get("/api/takeovers").await;
    assert_eq!(takeovers[0]["from"], "b");
    assert_eq!((takeovers[0]["from_epoch"].as_i64(), takeovers[0]["to_epoch"].as_i64()), (Some(6), Some(7)));
    assert_eq!(takeovers[0]["cause"], "death");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_whose_lease_has_run_out_is_vacant() {
    let (_server, pool) = plant::postgres().await;
    let config = plant::config(Some(60), true);
    let a = plant::Node::start("a", config.clone(), pool.clone()).await;
    let b = plant::Node::start("b", config, pool.clone()).await;
    held_by_a(&pool, &a.me, &b.me).await;
    plant::run(
        &pool,
        "UPDATE plant_leases SET expires_at = NOW - interval '1 second';
         UPDATE plant_nodes SET heartbeat_at = NOW - interval '2 minutes' WHERE node = 'a'",
    )
    .await;
    let (_, status) = b.get("/api/status").await;
    assert_eq!(reader(&status)["holder"], Value::Null);
    assert_eq!(reader(&status)["state"], "vacant");
    assert_eq!(reader(&status)["epoch"], 7, "the epoch is never forgotten");
    assert_eq!((status["nodes"][0]["live"].as_bool(), status["nodes"][1]["live"].as_bool()), (Some(false), Some(true)));
    assert_eq!(status["nodes"][0]["could_take_over"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_never_expires_is_held_and_has_no_end() {
    let (_server, pool) = plant::postgres().await;
    let config = plant::config(Some(60), true);
    let a = plant::Node::start("a", config.clone(), pool.clone()).await;
    let b = plant::Node::start("b", config, pool.clone()).await;
    held_by_a(&pool, &a.me, &b.me).await;
    plant::run(&pool, "UPDATE plant_leases SET expires_at = 'infinity'").await;
    let (_, status) = b.get("/api/status").await;
    assert_eq!((reader(&status)["holder"].as_str(), &reader(&status)["expires_in_ms"]), (Some("a"), &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_is_away_the_last_known_is_answered_and_said_to_be_old() {
    let (mut server, pool) = plant::postgres().await;
    plant::counted(&pool).await;
    let a = plant::Node::start("a", plant::config(Some(60), true), pool.clone()).await;
    let b = plant::Node::start("b", plant::config(Some(60), true), pool.clone()).await;
    held_by_a(&pool, &a.me, &b.me).await;
    *a.known.reports.lock().unwrap() = vec![plant::report("reader", State::Running)];
    b.get("/api/status").await;
    b.get("/api/production").await;
    a.get("/api/status").await;
    server.kill().unwrap();

    let away = |status: &Value| status["stale"] == true;
    let status = plant::wait_until("b answers from before", || async { b.get("/api/status").await.1 }, away).await;
    assert_eq!(status["database"]["reachable"], false);
    assert!(status["database"]["error"].is_string() && status["database"]["since"].is_string(), "{status}");
    assert_eq!(reader(&status)["holder"], "a");
    let (code, production) = b.get("/api/production").await;
    assert_eq!(
        (code, production["stale"].as_bool(), production["machines"][0]["booked"].as_u64()),
        (200, Some(true), Some(1234))
    );
    assert_eq!(b.get("/api/health").await.0, 200);
    assert_eq!(b.get("/api/takeovers").await.1["code"], "database_unreachable", "nothing was known of these");

    *a.known.reports.lock().unwrap() = vec![plant::report("reader", State::Standby)];
    let status = plant::wait_until("a answers from before", || async { a.get("/api/status").await.1 }, away).await;
    assert_eq!(
        (reader(&status)["holder"].as_str(), reader(&status)["here"].as_bool()),
        (None, Some(false)),
        "a knows that it let go"
    );

    server.run().unwrap();
    let back = |status: &Value| status["stale"] == false;
    let status = plant::wait_until("the database is seen again", || async { b.get("/api/status").await.1 }, back).await;
    assert_eq!(
        (status["database"]["reachable"].as_bool(), status["database"]["error"].clone()),
        (Some(true), Value::Null)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_swallows_everything_delays_no_answer_beyond_its_bound() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://postgres@{}/postgres", silent.local_addr().unwrap());
    let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy(&url).unwrap();
    let node = plant::Node::start("a", plant::config(Some(60), true), Pool::Postgres(pool)).await;
    let begun = Instant::now();
    let (code, status) = node.get("/api/status").await;
    assert_eq!((code, status["stale"].as_bool(), status["age_ms"].clone()), (200, Some(true), Value::Null));
    assert_eq!(status["nodes"][0]["node"], "a", "a node always knows itself");
    let (code, problem) = node.get("/api/production").await;
    assert_eq!((code, problem["code"].as_str()), (503, Some("database_unreachable")));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_ready_for_a_role_only_where_the_role_runs() {
    let (_directory, pool) = plant::sqlite().await;
    let node = plant::Node::start("a", plant::config(Some(60), true), pool).await;
    let cases = [
        (State::Standby, 503, "standby"),
        (State::Promoting, 503, "promoting"),
        (State::Running, 200, "active"),
        (State::Draining, 200, "active"),
        (State::Held, 503, "standby"),
    ];
    for (state, code, role) in cases {
        *node.known.reports.lock().unwrap() = vec![plant::report("reader", state)];
        let (seen, ready) = node.get("/api/ready?role=reader").await;
        assert_eq!((seen, ready["role"].as_str(), ready["ready"].as_bool()), (code, Some(role), Some(code == 200)));
    }
    let (code, ready) = node.get("/api/ready").await;
    assert_eq!((code, ready["role"].as_str()), (200, Some("standby")), "a standby can serve");
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_beyond_64_bits_signed_are_exact_and_a_counter_that_was_never_read_is_named() {
    let (_directory, sqlite) = plant::sqlite().await;
    let (_server, postgres) = plant::postgres().await;
    for pool in [sqlite, postgres] {
        plant::counted(&pool).await;
        let node = plant::Node::start("a", plant::config(None, true), pool).await;
        let (_, _, text) = node.send("GET", "/api/production", None, Vec::new()).await;
        assert!(text.contains("\"baseline\":18446744073709551615"), "{text}");
        let production: Value = serde_json::from_str(&text).unwrap();
        let good = &production["machines"][0];
        assert_eq!((good["machine"].as_str(), good["counter"].as_str()), (Some("FILL01"), Some("good")));
        assert_eq!((good["booked"].as_u64(), good["owed"].as_u64()), (Some(1234), Some(2)));
        assert_eq!((good["anomalies"].as_u64(), good["undecided"].as_u64()), (Some(2), Some(1)));
        assert_eq!(good["state"], Value::Null, "unknown is not idle");
        assert_eq!(production["machines"].as_array().map(Vec::len), Some(1));
        assert_eq!(production["unread"], json!([{ "machine": "FILL01", "counter": "scrap" }]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_without_redundancy_answers_for_its_own_roles() {
    let (_directory, pool) = plant::sqlite().await;
    let node = plant::Node::start("a", plant::config(None, true), pool).await;
    *node.known.reports.lock().unwrap() = vec![plant::report("reader", State::Running)];
    let (_, status) = node.get("/api/status").await;
    assert_eq!(status["ha"], json!({ "enabled": false }));
    assert_eq!((status["stale"].as_bool(), status["nodes"][0]["live"].as_bool()), (Some(false), Some(true)));
    let reader = reader(&status);
    assert_eq!(
        (reader["holder"].as_str(), reader["here"].as_bool(), reader["epoch"].as_u64()),
        (Some("a"), Some(true), Some(7))
    );
    assert_eq!((reader["state"].as_str(), reader["expires_in_ms"].clone()), (Some("running"), Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_prints_what_the_node_answers() {
    let (_directory, pool) = plant::sqlite().await;
    plant::counted(&pool).await;
    let node = plant::Node::start("a", plant::config(None, true), pool).await;
    *node.known.reports.lock().unwrap() = vec![plant::report("reader", State::Running)];
    let url = node.url.clone();
    let printed = tokio::task::spawn_blocking(move || {
        let print = |json| host::cli::status::report(Some(&url), std::path::Path::new("plant.toml"), json).unwrap();
        (print(false), print(true))
    });
    let (table, document) = printed.await.unwrap();
    assert!(table.contains("bottling as node a sees it"), "{table}");
    assert!(
        table.lines().any(|line| line.starts_with("reader ") && line.contains(" a ") && line.contains("running")),
        "{table}"
    );
    assert!(table.lines().any(|line| line.starts_with("FILL01") && line.contains("1234")), "{table}");
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(reader(&document)["holder"], "a");
}
