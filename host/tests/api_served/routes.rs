//! Every route is described, every error has one shape, and no request can do harm.

use std::collections::BTreeSet;

use serde_json::Value;

use super::plant;

#[tokio::test(flavor = "multi_thread")]
async fn the_description_names_exactly_the_routes_there_are() {
    let (_directory, pool) = plant::sqlite().await;
    let node = plant::Node::start("a", plant::config(None, true), pool).await;
    let (status, document) = node.get("/api/openapi.json").await;
    assert_eq!(status, 200);
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            described.insert((method.clone(), path.clone()));
        }
    }
    let routed: BTreeSet<_> =
        host::api::ROUTES.iter().map(|(method, path)| (method.to_string(), path.to_string())).collect();
    assert_eq!(described, routed);
    for (method, path) in routed {
        let (status, _, body) = node.send(&method.to_uppercase(), &path.replace("{id}", "1"), None, Vec::new()).await;
        assert!(!matches!(status, 404 | 405 | 500), "{method} {path} answered {status}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_is_a_problem_with_a_code_and_a_sentence() {
    let (_directory, pool) = plant::sqlite().await;
    let node = plant::Node::start("a", plant::config(None, true), pool).await;
    let long = vec![b' '; 70_000];
    let deep = "[".repeat(30_000).into_bytes();
    let cases = [
        ("GET", "/nothing", None, vec![], 404, "not_found"),
        ("GET", "/api/%ff%00/..%2f", None, vec![], 404, "not_found"),
        ("DELETE", "/api/status", None, vec![], 405, "method_not_allowed"),
        ("GET", "/api/ready?role=%ff&role=x", None, vec![], 400, "bad_request"),
        ("GET", "/api/ready?role=nobody", None, vec![], 404, "not_found"),
        ("POST", "/api/corrections", None, vec![], 401, "unauthorized"),
        ("POST", "/api/corrections", Some("wrong"), vec![], 401, "unauthorized"),
        ("POST", "/api/corrections", Some(plant::TOKEN), vec![], 400, "bad_request"),
        ("POST", "/api/corrections", Some(plant::TOKEN), b"\xff\xfe".to_vec(), 400, "bad_request"),
        ("POST", "/api/corrections", Some(plant::TOKEN), deep, 400, "bad_request"),
        ("POST", "/api/corrections", Some(plant::TOKEN), long, 413, "too_large"),
        ("POST", "/api/anomalies/one", Some(plant::TOKEN), b"{}".to_vec(), 404, "not_found"),
        ("POST", "/api/anomalies/99999999999999999999", Some(plant::TOKEN), b"{}".to_vec(), 404, "not_found"),
        ("POST", "/api/anomalies/%ff", Some(plant::TOKEN), b"{}".to_vec(), 400, "bad_request"),
    ];
    for (method, path, token, body, wanted, code) in cases {
        let (status, kind, text) = node.send(method, path, token, body).await;
        assert_eq!((status, kind.as_str()), (wanted, "application/problem+json"), "{method} {path}: {text}");
        let problem: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(problem["code"], code, "{method} {path}: {text}");
        assert_eq!(problem["status"], wanted, "{method} {path}: {text}");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(' ')), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_loads_nothing_else_and_says_so_to_the_browser() {
    let (_directory, pool) = plant::sqlite().await;
    let node = plant::Node::start("a", plant::config(None, true), pool).await;
    let url = format!("{}/", node.url);
    let asked = tokio::task::spawn_blocking(move || {
        let mut answer = ureq::get(url).call().unwrap();
        let policy = answer.headers()["content-security-policy"].to_str().unwrap().to_owned();
        (policy, answer.body_mut().read_to_string().unwrap())
    });
    let (policy, page) = asked.await.unwrap();
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let nonce = policy.split("'nonce-").nth(1).and_then(|rest| rest.split('\'').next()).unwrap();
    assert_eq!(page.matches(&format!("nonce=\"{nonce}\"")).count(), 2, "one style and one script");
    assert!(page.contains("<html lang=\"en\">") && page.contains("prefers-color-scheme: dark"));
    for outside in ["http://", "https://", " style=", " onclick=", "innerHTML ="] {
        assert!(!page.contains(outside), "the page contains {outside}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_the_hosts_prefix_and_no_machines_names() {
    let (_directory, pool) = plant::sqlite().await;
    plant::counted(&pool).await;
    let node = plant::Node::start("a", plant::config(None, true), pool).await;
    *node.known.reports.lock().unwrap() = vec![plant::report("reader", host::role::State::Running)];
    node.get("/api/production").await;
    node.send("GET", "/made-up/path", None, Vec::new()).await;
    let (status, kind, text) = node.send("GET", "/metrics", None, Vec::new()).await;
    assert_eq!(status, 200);
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.starts_with("host_"), "{line}");
    }
    assert!(text.contains("host_http_requests_total{route=\"/api/production\",status=\"200\"} 1"), "{text}");
    assert!(text.contains("host_http_requests_total{route=\"other\",status=\"404\"} 1"), "{text}");
    assert!(text.contains("host_role_instances{role=\"reader\",partition=\"\"} 1"), "{text}");
    assert!(text.contains("host_database_reachable 1"), "{text}");
    assert!(!text.contains("FILL01") && !text.contains("made-up"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_half_a_request_keeps_nobody_waiting() {
    use tokio::io::AsyncWriteExt as _;
    let (_directory, pool) = plant::sqlite().await;
    let node = plant::Node::start("a", plant::config(None, true), pool).await;
    let address = node.url.trim_start_matches("http://").to_owned();
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        stream.write_all(b"POST /api/corrections HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n").await.unwrap();
        slow.push(stream);
    }
    let (status, _) = node.get("/api/health").await;
    assert_eq!(status, 200);
}
