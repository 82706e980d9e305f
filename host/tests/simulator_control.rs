//! The simulator's control address, over HTTP.

#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::time::Duration;

use harness::process::wait_until;
use host::simulator::{Beginning, Settings, Simulator};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

async fn simulator(paused: bool) -> Simulator {
    Simulator::start(Settings {
        listen: "opc.tcp://127.0.0.1:0".parse().unwrap(),
        control: "127.0.0.1:0".to_owned(),
        beginning: Beginning { seed: 1, speed: 20.0, paused, counters: 0, first: None },
        rate: 20,
    })
    .await
    .unwrap()
}

/// The status and the document of one request, made on a thread that may wait.
async fn ask(simulator: &Simulator, method: &str, path: &str, body: &str) -> (u16, Value) {
    let (url, method, body) = (format!("{}{path}", simulator.control_url()), method.to_owned(), body.to_owned());
    let answer = tokio::task::spawn_blocking(move || {
        let limits =
            ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(20))).http_status_as_error(false);
        let agent = ureq::Agent::new_with_config(limits.build());
        let mut answer = if method == "GET" { agent.get(url).call() } else { agent.post(url).send(body) }.unwrap();
        (answer.status().as_u16(), answer.body_mut().read_json().unwrap())
    });
    answer.await.unwrap()
}

async fn truth(simulator: &Simulator) -> Value {
    ask(simulator, "GET", "/truth", "").await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn the_truth_begins_at_zero_and_stands_still_while_paused() {
    let line = simulator(true).await;
    let nothing = truth(&line).await;
    let machines: Vec<&String> = nothing.as_object().unwrap().keys().collect();
    assert_eq!(machines, ["CAP01", "FILL01", "LABEL01", "LOAD01", "PACK01", "RINSE01"]);
    assert!(nothing.as_object().unwrap().values().all(|made| *made == json!({ "good": 0, "scrap": 0 })), "{nothing}");

    assert_eq!(ask(&line, "POST", "/resume", "").await, (200, json!({ "paused": false })));
    let mut made = nothing.clone();
    let before = tokio::time::Instant::now();
    while made["PACK01"]["good"] == 0 {
        assert!(before.elapsed() < PATIENCE, "nothing was made: {made}");
        made = truth(&line).await;
    }
    assert_eq!(ask(&line, "POST", "/pause", "").await, (200, json!({ "paused": true })));
    let paused = truth(&line).await;
    let (_, health) = ask(&line, "GET", "/health", "").await;
    assert_eq!(truth(&line).await, paused);
    assert_eq!((&health["paused"], &health["opc"]), (&json!(true), &json!(line.url())));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_does_not_understand_it_refuses_in_one_sentence() {
    let line = simulator(true).await;
    let wrong = [
        ("/fault", "", "the body is no fault"),
        ("/fault", "{", "send one like {"),
        ("/fault", r#"{"machine":"FILL01","counter":"good"}"#, "missing field `kind`"),
        ("/fault", r#"{"machine":"FILL01","counter":"good","kind":"melt"}"#, "unknown variant `melt`"),
        ("/fault", r#"{"machine":"FILL01","counter":"State","kind":"bad"}"#, "unknown variant `State`"),
        ("/fault", r#"{"machine":"FILL01","kind":"bad","for":1}"#, "unknown field `for`"),
        ("/fault", r#"{"machine":"FILL01","kind":"bad","for_ms":-1}"#, "invalid value"),
        ("/fault", r#"{"machine":"FILL01","kind":"bad","for_ms":0}"#, "for_ms is 0"),
        ("/fault", r#"{"machine":"FILL01","kind":"jump","size":0}"#, "size is 0"),
        (
            "/fault",
            r#"{"machine":"FILL09","kind":"bad"}"#,
            "there is no machine \"FILL09\" in the line: name one of LOAD01, ",
        ),
        ("/server", "{}", "missing field `down_ms`"),
        ("/server", r#"{"down_ms":999999999999}"#, "from 1 to"),
    ];
    for (path, body, sentence) in wrong {
        let (status, problem) = ask(&line, "POST", path, body).await;
        assert_eq!((status, &problem["code"]), (400, &json!("bad_request")), "{path} {body}");
        assert!(problem["detail"].as_str().unwrap().contains(sentence), "{path} {body}: {problem}");
    }
    for (method, path) in [("GET", "/fault"), ("POST", "/truth"), ("GET", "/")] {
        let (status, problem) = ask(&line, method, path, "").await;
        assert_eq!((status, &problem["code"]), (404, &json!("not_found")), "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_is_refused_in_one_sentence() {
    let line = simulator(true).await;
    let mut settings = Settings {
        listen: line.url().parse().unwrap(),
        control: "127.0.0.1:0".to_owned(),
        beginning: Beginning { seed: 1, speed: 1.0, paused: true, counters: 0, first: None },
        rate: 20,
    };
    let refused = Simulator::start(settings.clone()).await.err().unwrap().to_string();
    assert!(refused.starts_with(&format!("cannot listen on {}", line.url())), "{refused}");
    settings.listen.port = 0;
    settings.control = line.control_url().trim_start_matches("http://").to_owned();
    let refused = Simulator::start(settings).await.err().unwrap().to_string();
    assert!(refused.contains("end what listens there"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_opc_ua_server_goes_away_and_comes_back_on_the_same_port() {
    let line = simulator(true).await;
    let port = line.url().parse::<host::simulator::Address>().unwrap().port;
    let accepts = move || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    assert!(accepts());
    assert_eq!(ask(&line, "POST", "/server", r#"{"down_ms":600000}"#).await.0, 200);
    assert!(!accepts(), "nobody listens when the answer is there");
    assert_eq!(ask(&line, "GET", "/health", "").await.1["opc_up"], false);
    // While it is away, the time begins anew.
    assert_eq!(ask(&line, "POST", "/server", r#"{"down_ms":1}"#).await.0, 200);
    let back = tokio::task::spawn_blocking(move || wait_until("it is back", PATIENCE, || Ok(accepts())));
    back.await.unwrap().unwrap();
}
