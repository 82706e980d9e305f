//! A plant whose API is served on a real socket, over a real database.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::Postgres;
use host::api::{AppState, Buffer, Ha, HaDetail, HaRole, Local, Metrics};
use host::config::Config;
use host::identity::{BootId, Epoch, Holder, RoleKey};
use host::role::{Report, State};
use host::store::Pool;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub const TOKEN: &str = "a-token-that-is-long-enough";

const PLANT: &str = r#"
[plant]
name = "bottling"
[serve]
secret_key_env = "PLANT_SECRET"
token_env = "PLANT_TOKEN"
[opc.line]
endpoint = "opc.tcp://127.0.0.1:4840"
[roles.reader]
[roles.housekeeping]
[[machines]]
code = "FILL01"
line = "line-1"
connection = "line"
good = { node = "nsu=urn:plc;s=Good", max_rate = 20.0 }
scrap = { node = "nsu=urn:plc;s=Scrap", max_rate = 20.0 }
"#;

/// A configuration of the test plant; `lease` makes it redundant.
pub fn config(lease: Option<u64>, token: bool) -> Arc<Config> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plant.toml");
    let mut text = PLANT.to_owned();
    if let Some(seconds) = lease {
        text += "[store]\nurl = \"postgres://postgres@127.0.0.1/postgres\"\n";
        text += &format!("[redundancy]\nlease_seconds = {seconds}\n");
    }
    if !token {
        text = text.replace("token_env = \"PLANT_TOKEN\"\n", "");
    }
    std::fs::write(&file, text).unwrap();
    let variable = |name: &str| Some(if name == "PLANT_TOKEN" { TOKEN } else { "0123456789abcdef" }.to_owned());
    Arc::new(Config::load_with(&file, &variable).unwrap_or_else(|errors| panic!("{errors}")))
}

/// What one process knows, set by the test.
pub struct Known {
    pub reports: Mutex<Vec<Report>>,
    pub ha: Mutex<Ha>,
}

impl Local for Known {
    fn reports(&self) -> Vec<Report> {
        self.reports.lock().unwrap().clone()
    }
    fn ha(&self) -> Ha {
        self.ha.lock().unwrap().clone()
    }
    fn buffers(&self) -> Vec<Buffer> {
        let (role, partition) = ("reader".to_owned(), String::new());
        vec![Buffer { role, partition, waiting: 3, capacity: 1000, coalesced: 7, dropped: 0 }]
    }
}

pub fn standby(node: &str) -> Ha {
    Ha::enabled(HaDetail {
        role: HaRole::Standby,
        node_id: node.to_owned(),
        leader: Some("a".to_owned()),
        backend: "postgres".to_owned(),
        serving: true,
        since_ms: 1,
        last_renew_ms: 0,
        takeovers: 0,
        demotions: 0,
        lease_ttl_secs: 4.0,
        renew_secs: 1.333,
        last_error: None,
    })
}

pub fn report(role: &str, state: State) -> Report {
    Report {
        key: RoleKey { role: role.parse().unwrap(), partition: String::new() },
        state,
        reason: format!("{role} says {state:?}"),
        epoch: Some(Epoch { timeline: 1, number: 7 }),
        instances: u32::from(state == State::Running),
        module_version: Some("1.0.0".to_owned()),
        module_sha256: Some("ab".repeat(32)),
        last_reading_at: Some(1_767_225_600_123_456_789),
    }
}

/// One node's API on a free port.
pub struct Node {
    pub url: String,
    pub me: Holder,
    pub known: Arc<Known>,
    stop: CancellationToken,
}

impl Node {
    pub async fn start(name: &str, config: Arc<Config>, pool: Pool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let me = Holder { node: name.parse().unwrap(), boot: BootId::random() };
        let ha = if config.redundancy.is_some() { standby(name) } else { Ha::disabled() };
        let known = Arc::new(Known { reports: Mutex::default(), ha: Mutex::new(ha) });
        let state = AppState::new(me.clone(), url.clone(), config, pool, known.clone(), Metrics::new());
        let stop = CancellationToken::new();
        let app = host::api::app(state);
        tokio::spawn(host::api::serve(listener, move || app.clone(), stop.clone()));
        Self { url, me, known, stop }
    }

    /// Status, content type and body of an answer.
    pub async fn send(&self, method: &str, path: &str, token: Option<&str>, body: Vec<u8>) -> (u16, String, String) {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(body).unwrap();
        let asked = tokio::task::spawn_blocking(move || {
            let limits = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(20)));
            let limits = limits.http_status_as_error(false).allow_non_standard_methods(true).build();
            let mut answer = ureq::Agent::new_with_config(limits).run(request).unwrap();
            let kind = answer.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
            let text = answer.body_mut().read_to_string().unwrap();
            (answer.status().as_u16(), kind.unwrap_or_default(), text)
        });
        asked.await.unwrap()
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        let (status, _, text) = self.send("GET", path, None, Vec::new()).await;
        (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path} answered {text}")))
    }

    pub async fn post(&self, path: &str, token: Option<&str>, body: Value) -> (u16, Value) {
        let (status, _, text) = self.send("POST", path, token, body.to_string().into_bytes()).await;
        (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path} answered {text}")))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn migrations(dialect: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations").join(dialect);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|kind| kind == "sql")).collect();
    files.sort();
    files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

/// A PostgreSQL server with the plant's tables.
pub async fn postgres() -> (Postgres, Pool) {
    let server = Postgres::start().unwrap();
    let options = sqlx::postgres::PgPoolOptions::new().max_connections(4).acquire_timeout(Duration::from_secs(5));
    let pool = options.connect(&server.url()).await.unwrap();
    for file in migrations("postgres") {
        sqlx::raw_sql(sqlx::AssertSqlSafe(file)).execute(&pool).await.unwrap();
    }
    (server, Pool::Postgres(pool))
}

/// A SQLite file with the plant's tables.
pub async fn sqlite() -> (TempDir, Pool) {
    let directory = tempfile::tempdir().unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(directory.path().join("plant.db"));
    let pool = sqlx::SqlitePool::connect_with(options.create_if_missing(true)).await.unwrap();
    for file in migrations("sqlite") {
        sqlx::raw_sql(sqlx::AssertSqlSafe(file)).execute(&pool).await.unwrap();
    }
    (directory, Pool::Sqlite(pool))
}

/// Runs statements; `NOW` stands for the database's clock, in the form that its tables keep.
pub async fn run(pool: &Pool, sql: &str) {
    match pool {
        Pool::Postgres(pool) => {
            let sql = sql.replace("NOW", "clock_timestamp()");
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(pool).await.map(drop).unwrap();
        }
        Pool::Sqlite(pool) => {
            let sql = sql.replace("NOW", "CAST(unixepoch('subsec') * 1000000 AS INTEGER)");
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(pool).await.map(drop).unwrap();
        }
    }
}

/// A machine with a good counter at 1234, one anomaly that waits for a person (1) and one that is a note (2).
pub async fn counted(pool: &Pool) {
    run(
        pool,
        "INSERT INTO machines (code, line, connection) VALUES ('FILL01', 'line-1', 'line');
         INSERT INTO counter_baselines
             (machine_id, counter, sequence, moved_from, value, value_type, booked, owed, read_by, seen_at, last_reading_at)
             VALUES (1, 0, 5, 4, '18446744073709551615', 1, 1234, 2, 0, NOW, NOW);
         INSERT INTO counter_anomalies (machine_id, counter, sequence, kind, baseline, reading, quantity, detail, seen_at, needs_decision)
             VALUES (1, 0, 5, 'jump', 1234, 9999, 8765, 'a jump of 8765 units', NOW, TRUE),
                    (1, 0, 5, 'reset', 1234, 0, NULL, 'the counter was reset', NOW, FALSE);",
    )
    .await;
}

/// Asks until it is so, or fails with what was seen last.
pub async fn wait_until<F: Future<Output = Value>>(
    what: &str,
    ask: impl Fn() -> F,
    so: impl Fn(&Value) -> bool,
) -> Value {
    let begun = std::time::Instant::now();
    loop {
        let seen = ask().await;
        if so(&seen) {
            return seen;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "waited for: {what}; last seen: {seen}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
