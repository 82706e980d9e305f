//! What these tests stand on: a migrated database, whatever else a store needs, nodes that ask it for leases, and commits under them.

use std::collections::BTreeMap;
use std::time::Duration;

use host::clock::BootInstant;
use host::config::{Bus, Store};
use host::identity::{BootId, Epoch, Holder, RoleKey};
use host::lease::lock::LockStore;
use host::lease::nats::NatsStore;
use host::lease::postgres::{Me, PostgresStore};
use host::lease::single::SinglePostgres;
use host::lease::{Acquired, Cause, Grant, LeaseStore, Renewal, Seen};
use host::store;
use sqlx::{Executor, PgPool};

/// So long that no slow machine lets one run out; a test that wants it to be over says so.
pub const LEASE: Duration = Duration::from_secs(60);
/// The shortest that a plant may have, for what has to run out by itself.
pub const SHORT: Duration = Duration::from_secs(2);
/// How long a test waits for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The plant's lock.
pub const LOCK: i64 = 42 << 32 | 4711;
/// The plant's bucket.
pub const BUCKET: &str = "leases";

/// Which store is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    PostgresLock,
    Nats,
    /// One node, on PostgreSQL.
    Single,
}

/// The servers that a store needs.
pub struct Ground {
    pub kind: Kind,
    pub server: harness::Postgres,
    pub nats: Option<harness::Nats>,
    pub pool: PgPool,
}

/// One boot of one node. When it is dropped its sessions end, as when its process dies.
pub struct Node {
    pub me: Holder,
    pub store: Box<dyn LeaseStore>,
}

pub fn reader() -> RoleKey {
    RoleKey { role: "reader".parse().unwrap(), partition: String::new() }
}

pub fn me(name: &str) -> Me {
    let holder = Holder { node: name.parse().unwrap(), boot: BootId::random() };
    Me { holder, address: format!("http://plant-{name}:8080"), modules: BTreeMap::new(), gone: Vec::new() }
}

pub fn bus(nats: &harness::Nats) -> Bus {
    Bus { name: "main".to_owned(), url: nats.url(), login: None, creds_file: None, ca_file: None }
}

impl Ground {
    pub async fn of(kind: Kind) -> Self {
        let server = harness::Postgres::start().unwrap();
        store::migrate(&Store::Postgres { urls: vec![server.url()], migrate_url: None }).await.unwrap();
        let pool = PgPool::connect(&server.url()).await.unwrap();
        harness::postgres::mutate(&pool).await.unwrap();
        pool.execute("CREATE TABLE work (what text)").await.unwrap();
        let nats = (kind == Kind::Nats).then(|| harness::Nats::start().unwrap());
        Self { kind, server, nats, pool }
    }

    pub fn database(&self) -> Store {
        Store::Postgres { urls: vec![self.server.url()], migrate_url: None }
    }

    /// A new boot of the node.
    pub fn node(&self, name: &str) -> Node {
        self.node_with(name, LEASE)
    }

    pub fn node_with(&self, name: &str, lease: Duration) -> Node {
        let (me, database) = (me(name), self.database());
        let holder = me.holder.clone();
        let store: Box<dyn LeaseStore> = match self.kind {
            Kind::Postgres => Box::new(PostgresStore::new(&database, me, Some(lease)).unwrap()),
            Kind::PostgresLock => Box::new(LockStore::new(&database, me, lease, LOCK).unwrap()),
            Kind::Nats => {
                let bus = bus(self.nats.as_ref().unwrap());
                Box::new(NatsStore::new(&database, me, lease, bus, BUCKET.to_owned()).unwrap())
            }
            Kind::Single => Box::new(SinglePostgres::new(&database, me).unwrap()),
        };
        Node { me: holder, store }
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

    /// Does to the holder of a lease what time does to one that says nothing for a whole lease.
    pub async fn expire(&self) {
        self.run("UPDATE plant_leases SET expires_at = clock_timestamp() - interval '1 ms'").await;
        match self.kind {
            Kind::Postgres | Kind::Single => {}
            Kind::PostgresLock => self.end_leader().await,
            // What has run out leaves nothing behind, as what is purged.
            Kind::Nats => drop(self.stream().await.purge().await.unwrap()),
        }
    }

    /// Ends the session that has the plant's lock.
    pub async fn end_leader(&self) {
        const LEADER: &str = "FROM pg_locks WHERE locktype = 'advisory' AND classid = 42 AND objid = 4711";
        let end = sqlx::AssertSqlSafe(format!("SELECT pg_terminate_backend(pid) {LEADER}"));
        self.pool.execute(end).await.unwrap();
        self.until("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 42 AND objid = 4711", 0)
            .await;
    }

    /// Deletes everything that the store has kept of leases.
    pub async fn forget(&self) {
        if self.kind == Kind::PostgresLock {
            self.end_leader().await;
        }
        self.run("DELETE FROM plant_leases; DELETE FROM plant_fences").await;
        if self.kind == Kind::Nats {
            self.jetstream().await.delete_key_value(BUCKET).await.unwrap();
        }
    }

    pub async fn jetstream(&self) -> async_nats::jetstream::Context {
        let client = async_nats::connect(self.nats.as_ref().unwrap().url()).await.unwrap();
        async_nats::jetstream::new(client)
    }

    pub async fn stream(&self) -> async_nats::jetstream::stream::Stream {
        self.jetstream().await.get_stream(format!("KV_{BUCKET}")).await.unwrap()
    }

    /// What was committed.
    pub async fn pieces(&self) -> i64 {
        self.number("SELECT count(*) FROM work").await
    }

    /// Commits a piece of work under the lease; the SQLSTATE and the message when the fence refuses it.
    pub async fn commit(&self, node: &Node, epoch: Epoch) -> Result<(), (String, String)> {
        let mut session = self.pool.acquire().await.unwrap().detach();
        session.execute("BEGIN; INSERT INTO work VALUES ('a piece')").await.unwrap();
        let (timeline, number, boot) = (epoch.timeline, epoch.number, node.me.boot);
        let message = format!("SELECT plant_fence('reader', '', {timeline}, {number}, '{boot}'); COMMIT");
        let answer = sqlx::raw_sql(sqlx::AssertSqlSafe(message)).execute(&mut session).await;
        answer.map(drop).map_err(|error| {
            let error = error.into_database_error().unwrap();
            (error.code().unwrap().into_owned(), error.message().to_owned())
        })
    }

    /// A commit under that lease is refused, and nothing of it is left.
    pub async fn refuses(&self, node: &Node, epoch: Epoch) {
        let before = self.pieces().await;
        let (code, message) = self.commit(node, epoch).await.unwrap_err();
        assert_eq!(code, "40001");
        assert!(message.starts_with("lease-lost"), "{message}");
        assert_eq!(self.pieces().await, before);
    }
}

impl Node {
    /// Takes the lease, which has to be there to be taken.
    pub async fn take(&self) -> Grant {
        granted(self.store.acquire(&reader(), None).await.unwrap())
    }

    /// Takes it as soon as it can be had.
    pub async fn take_soon(&self) -> Grant {
        let start = BootInstant::now();
        loop {
            match self.store.acquire(&reader(), None).await {
                Ok(Acquired::Granted(grant)) => return grant,
                other => assert!(BootInstant::now().since(start) < PATIENCE, "{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Asks for the lease, which has to be somebody else's.
    pub async fn see_taken(&self) -> Seen {
        match self.store.acquire(&reader(), None).await.unwrap() {
            Acquired::Taken(seen) => seen,
            Acquired::Granted(grant) => panic!("granted: {grant:?}"),
        }
    }

    pub async fn renew(&self, epoch: Epoch) -> Renewal {
        let answers = self.store.renew(&[(reader(), epoch)]).await.unwrap();
        assert_eq!(answers.len(), 1);
        answers[0]
    }

    pub async fn restart(&self, epoch: Epoch) -> Acquired {
        self.store.restart(&reader(), epoch).await.unwrap()
    }

    pub async fn release(&self, epoch: Epoch, clean: bool, cause: Cause) {
        self.store.release(&reader(), epoch, clean, cause).await.unwrap();
    }
}

pub fn granted(answer: Acquired) -> Grant {
    match answer {
        Acquired::Granted(grant) => grant,
        Acquired::Taken(seen) => panic!("{seen:?}"),
    }
}
