//! A person's decisions and corrections: only with the token, once, and with who and why.

use host::store::Pool;
use serde_json::json;

use super::plant;

async fn decisions(pool: Pool) {
    plant::counted(&pool).await;
    let node = plant::Node::start("a", plant::config(None, true), pool).await;
    let token = Some(plant::TOKEN);

    let (_, anomalies) = node.get("/api/anomalies").await;
    assert_eq!(anomalies[0]["id"], 1, "what waits for a person comes first: {anomalies}");
    assert_eq!(anomalies[0]["machine"], "FILL01");
    assert_eq!(anomalies[0]["counter"], "good");
    assert_eq!(anomalies[0]["quantity"], 8765);
    assert_eq!(anomalies[1]["quantity"], json!(null));
    assert!(anomalies[0]["seen_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{anomalies}");

    let accept = json!({ "decision": "accept", "why": "the sensor was blocked" });
    let (status, refused) = node.post("/api/anomalies/1", None, accept.clone()).await;
    assert_eq!((status, refused["code"].as_str()), (401, Some("unauthorized")));
    let (status, refused) = node.post("/api/anomalies/1", token, json!({ "decision": "maybe", "why": "x" })).await;
    assert_eq!((status, refused["code"].as_str()), (400, Some("bad_request")), "{refused}");
    let (status, refused) = node.post("/api/anomalies/1", token, json!({ "decision": "accept", "why": " " })).await;
    assert_eq!((status, refused["code"].as_str()), (400, Some("bad_request")), "{refused}");

    let (status, done) = node.post("/api/anomalies/1", token, accept.clone()).await;
    assert_eq!((status, done["state"].as_str()), (200, Some("recorded")), "{done}");
    let (status, again) = node.post("/api/anomalies/1", token, json!({ "decision": "reject", "why": "x" })).await;
    assert_eq!((status, again["code"].as_str()), (409, Some("already_decided")), "{again}");
    let (status, note) = node.post("/api/anomalies/2", token, accept.clone()).await;
    assert_eq!((status, note["code"].as_str()), (409, Some("nothing_to_decide")), "{note}");
    let (status, none) = node.post("/api/anomalies/77", token, accept).await;
    assert_eq!((status, none["code"].as_str()), (404, Some("not_found")), "{none}");

    let (_, anomalies) = node.get("/api/anomalies").await;
    let decided = anomalies.as_array().unwrap().iter().find(|anomaly| anomaly["id"] == 1).unwrap();
    assert_eq!(decided["decision"], "accept", "seen at once by whoever decided: {decided}");
    assert_eq!(decided["why"], "the sensor was blocked");
}

async fn corrections(pool: Pool) {
    plant::counted(&pool).await;
    let node = plant::Node::start("a", plant::config(None, true), pool.clone()).await;
    let body = |machine: &str, quantity: i64| json!({ "machine": machine, "counter": "good", "quantity": quantity, "who": "shift lead", "why": "counted by hand" });
    let (status, done) = node.post("/api/corrections", Some(plant::TOKEN), body("FILL01", -12)).await;
    assert_eq!((status, done["state"].as_str()), (201, Some("recorded")), "{done}");
    let (status, none) = node.post("/api/corrections", Some(plant::TOKEN), body("NOBODY", 1)).await;
    assert_eq!((status, none["code"].as_str()), (404, Some("not_found")), "{none}");
    let (status, zero) = node.post("/api/corrections", Some(plant::TOKEN), body("FILL01", 0)).await;
    assert_eq!((status, zero["code"].as_str()), (400, Some("bad_request")), "{zero}");
    let sql = "SELECT CAST(quantity AS text), who FROM corrections WHERE counter = 0";
    let rows: Vec<(String, String)> = match &pool {
        Pool::Postgres(pool) => sqlx::query_as(sql).fetch_all(pool).await.unwrap(),
        Pool::Sqlite(pool) => sqlx::query_as(sql).fetch_all(pool).await.unwrap(),
    };
    assert_eq!(rows, [("-12".to_owned(), "shift lead".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_needs_the_token_and_is_taken_once_on_postgres() {
    let (_server, pool) = plant::postgres().await;
    decisions(pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_needs_the_token_and_is_taken_once_on_sqlite() {
    let (_directory, pool) = plant::sqlite().await;
    decisions(pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_correction_is_added_with_who_and_why_on_postgres() {
    let (_server, pool) = plant::postgres().await;
    corrections(pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_correction_is_added_with_who_and_why_on_sqlite() {
    let (_directory, pool) = plant::sqlite().await;
    corrections(pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plant_without_a_token_takes_no_writes() {
    let (_directory, pool) = plant::sqlite().await;
    let node = plant::Node::start("a", plant::config(None, false), pool).await;
    let (status, refused) = node.post("/api/anomalies/1", Some(""), json!({})).await;
    assert_eq!((status, refused["code"].as_str()), (403, Some("writes_disabled")));
    assert!(refused["detail"].as_str().unwrap().contains("serve.token_env"), "{refused}");
}
