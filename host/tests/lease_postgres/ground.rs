//! What these tests stand on: a migrated database, nodes that ask it for leases, and the fence as a commit asks it.

use std::collections::BTreeMap;
use std::time::Duration;

use host::config::Store;
use host::identity::{BootId, Epoch, Holder, RoleKey};
use host::lease::postgres::{Me, PostgresStore};
use host::lease::{Acquired, Grant, LeaseStore, Seen};
use host::store;
use sqlx::{Connection, Executor, PgConnection, PgPool};

/// Long enough that nothing expires by itself in a test.
pub const LEASE: Duration = Duration::from_secs(60);

pub struct Ground {
    pub server: harness::Postgres,
    pub pool: PgPool,
}

/// One boot of one node.
pub struct Node {
    pub store: PostgresStore,
    pub me: Holder,
}

pub fn key(role: &str) -> RoleKey {
    RoleKey { role: role.parse().unwrap(), partition: String::new() }
}

impl Ground {
    pub async fn new() -> Self {
        let server = harness::Postgres::start().unwrap();
        store::migrate(&Store::Postgres { urls: vec![server.url()], migrate_url: None }).await.unwrap();
        let pool = PgPool::connect(&server.url()).await.unwrap();
        harness::postgres::mutate(&pool).await.unwrap();
        Self { server, pool }
    }

    /// A new boot of the node.
    pub fn node(&self, name: &str) -> Node {
        self.node_at(name, &self.server.url(), Some(LEASE))
    }

    /// The same boot, on connections of its own: the old ones may have ended with a server.
    pub fn node_of(&self, node: &Node) -> Node {
        let me = node.me.clone();
        Node { store: store_at(&self.server.url(), me.clone(), Some(LEASE)), me }
    }

    pub fn node_at(&self, name: &str, url: &str, lease: Option<Duration>) -> Node {
        let me = Holder { node: name.parse().unwrap(), boot: BootId::random() };
        Node { store: store_at(url, me.clone(), lease), me }
    }

    /// Lets the lease of `reader` run out, a long time ago.
    pub async fn expire(&self) {
        self.run("UPDATE plant_leases SET renewed_at = now() - interval '1 day', expires_at = now() - interval '1 day' + interval '1 minute'")
            .await;
    }

    pub async fn run(&self, sql: &'static str) {
        self.pool.execute(sql).await.unwrap();
    }

    pub async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    /// Waits until a query answers what is wanted.
    pub async fn until(&self, sql: &'static str, wanted: i64) {
        harness::postgres::wait_for_answer(&self.pool, sql, wanted).await.unwrap();
    }

    pub async fn session(&self) -> PgConnection {
        PgConnection::connect(&self.server.url()).await.unwrap()
    }

    /// A table for what roles commit.
    pub async fn with_work(self) -> Self {
        self.run("CREATE TABLE work (what text)").await;
        self
    }

    /// A transaction of the holder that has done something and has not committed.
    pub async fn begun(&self) -> PgConnection {
        let mut session = self.session().await;
        session.execute("BEGIN; INSERT INTO work VALUES ('a piece')").await.unwrap();
        session
    }

    /// Two histories: forgets what was written since `kept`, and goes on as a promoted standby does.
    pub async fn fail_over(&mut self, kept: &Copy) {
        self.pool.close().await;
        self.server.kill().unwrap();
        kept.put_back(&self.server);
        self.promote().await;
    }

    /// The server goes on, on a new timeline.
    pub async fn promote(&mut self) {
        // A running server has been ended by the caller, or is by this.
        let _ = self.server.kill();
        shell("touch", &[self.server.path().join("data/standby.signal").to_str().unwrap()]);
        shell("chown", &["postgres", self.server.path().join("data/standby.signal").to_str().unwrap()]);
        self.server.run().unwrap();
        self.pool = PgPool::connect(&self.server.url()).await.unwrap();
        let promoted: bool = sqlx::query_scalar("SELECT pg_promote(true, 60)").fetch_one(&self.pool).await.unwrap();
        assert!(promoted);
    }

    /// The data as it is now: what a standby has received when the primary dies.
    pub async fn copy(&mut self) -> Copy {
        self.run("CHECKPOINT").await;
        self.pool.close().await;
        self.server.kill().unwrap();
        let copy = Copy { place: tempfile::tempdir().unwrap() };
        let data = self.server.path().join("data");
        shell("cp", &["-a", data.to_str().unwrap(), copy.place.path().to_str().unwrap()]);
        self.server.run().unwrap();
        self.pool = PgPool::connect(&self.server.url()).await.unwrap();
        copy
    }
}

pub fn store_at(url: &str, holder: Holder, lease: Option<Duration>) -> PostgresStore {
    let address = format!("http://plant-{}:8080", holder.node);
    let store = Store::Postgres { urls: vec![url.to_owned()], migrate_url: None };
    PostgresStore::new(&store, Me { holder, address, modules: BTreeMap::new(), gone: Vec::new() }, lease).unwrap()
}

/// A server's data at one time.
pub struct Copy {
    place: tempfile::TempDir,
}

impl Copy {
    fn put_back(&self, server: &harness::Postgres) {
        let data = server.path().join("data");
        shell("rm", &["-rf", data.to_str().unwrap()]);
        shell("cp", &["-a", self.place.path().join("data").to_str().unwrap(), server.path().to_str().unwrap()]);
    }
}

fn shell(program: &str, arguments: &[&str]) {
    let done = std::process::Command::new(program).args(arguments).status().unwrap();
    assert!(done.success(), "{program} {arguments:?}: {done}");
}

impl Node {
    pub async fn acquire(&self, role: &str) -> Acquired {
        self.store.acquire(&key(role), None).await.unwrap()
    }

    /// Takes a lease that is there to be taken.
    pub async fn take(&self, role: &str) -> Grant {
        granted(self.acquire(role).await)
    }

    pub async fn observe(&self, role: &str) -> Seen {
        self.store.observe(&[key(role)]).await.unwrap().pop().unwrap()
    }

    /// The fence, as the last message of a transaction of this node asks it; the SQLSTATE and the message when it raises.
    pub async fn commit(&self, role: &str, epoch: Epoch, session: &mut PgConnection) -> Result<(), (String, String)> {
        let (timeline, number, boot) = (epoch.timeline, epoch.number, self.me.boot);
        let message = format!("SELECT plant_fence('{role}', '', {timeline}, {number}, '{boot}'); COMMIT");
        let answer = sqlx::raw_sql(sqlx::AssertSqlSafe(message)).execute(session).await;
        answer.map(drop).map_err(|error| {
            let error = error.into_database_error().unwrap();
            (error.code().unwrap().into_owned(), error.message().to_owned())
        })
    }
}

pub fn granted(answer: Acquired) -> Grant {
    match answer {
        Acquired::Granted(grant) => grant,
        Acquired::Taken(seen) => panic!("{seen:?}"),
    }
}

/// The commit was refused by the fence.
pub fn assert_lease_lost(outcome: Result<(), (String, String)>) {
    let (code, message) = outcome.unwrap_err();
    assert_eq!(code, "40001");
    assert!(message.starts_with("lease-lost"), "{message}");
}
