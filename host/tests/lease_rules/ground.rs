//! What these tests stand on: a migrated PostgreSQL, nodes that ask it for leases, and transactions under them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use harness::Postgres;
use host::clock::BootInstant;
use host::config::Store;
use host::identity::{BootId, Epoch, Holder, RoleKey};
use host::lease::postgres::{Me, PostgresStore};
use host::lease::{Acquired, Grant, Held, LeaseStore, Renewal, Seen};
use host::store::postgres::PostgresDatabase;
use host::store::{self, Bounds, Database, DbError, Options, Params, Statement, Transaction};

/// How long a lease lasts: so long that no slow machine lets one run out; a test that wants it to be over says so to the database.
pub const LEASE: Duration = Duration::from_secs(60);
/// How long a test waits for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The role that is fought for.
pub const READER: &str = "reader";

/// A PostgreSQL server with the plant's schema.
pub struct Ground {
    pub server: Postgres,
    pub pool: sqlx::PgPool,
}

/// One boot of a node, as far as the database sees it.
pub struct Node {
    pub me: Holder,
    pub leases: PostgresStore,
}

pub fn key(role: &str) -> RoleKey {
    RoleKey { role: role.parse().unwrap(), partition: String::new() }
}

pub fn me(node: &str) -> Me {
    let holder = Holder { node: node.parse().unwrap(), boot: BootId::random() };
    Me { holder, address: format!("http://{node}.example:8080"), modules: BTreeMap::new(), gone: Vec::new() }
}

pub fn at(url: String) -> Store {
    Store::Postgres { urls: vec![url], migrate_url: None }
}

impl Ground {
    pub async fn new() -> Self {
        let server = Postgres::start().unwrap();
        store::migrate(&at(server.url())).await.unwrap();
        let pool = sqlx::PgPool::connect(&server.url()).await.unwrap();
        harness::postgres::mutate(&pool).await.unwrap();
        let table = "CREATE TABLE counts (machine integer PRIMARY KEY)";
        sqlx::raw_sql(table).execute(&pool).await.unwrap();
        Self { server, pool }
    }

    /// A new boot of the node.
    pub fn node(&self, name: &str) -> Node {
        let me = me(name);
        let leases = PostgresStore::new(&at(self.server.url()), me.clone(), Some(LEASE)).unwrap();
        Node { me: me.holder, leases }
    }

    pub async fn run(&self, sql: &'static str) -> u64 {
        sqlx::raw_sql(sql).execute(&self.pool).await.unwrap().rows_affected()
    }

    pub async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    /// Waits until a query answers what is wanted.
    pub async fn until(&self, sql: &'static str, wanted: i64) {
        let start = Instant::now();
        loop {
            let found = self.number(sql).await;
            if found == wanted {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{sql}: {found}, not {wanted}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Lets every lease run out by the database's clock.
    pub async fn expire(&self) {
        self.run("UPDATE plant_leases SET expires_at = clock_timestamp() - interval '1 ms'").await;
    }

    /// A transaction of the node's role, with a row in it, not committed yet.
    pub async fn working(&self, node: &Node, epoch: Epoch) -> Box<dyn Transaction> {
        let mut transaction = self.begin(node, epoch, Options::default()).await.unwrap();
        assert_eq!(transaction.execute(vec![statement("INSERT INTO counts VALUES (1)")]).await.unwrap(), [1]);
        transaction
    }

    pub async fn begin(&self, node: &Node, epoch: Epoch, options: Options) -> Result<Box<dyn Transaction>, DbError> {
        self.begin_for(READER, node, epoch, options).await
    }

    pub async fn begin_for(
        &self,
        role: &str,
        node: &Node,
        epoch: Epoch,
        options: Options,
    ) -> Result<Box<dyn Transaction>, DbError> {
        let database = PostgresDatabase::new(&[self.server.url()], Bounds::default()).unwrap();
        // As a process sees it that was frozen since its last renewal: for all it knows the lease holds.
        let (held, _) = Held::new(key(role), node.me.clone(), epoch, BootInstant::NEVER, BootInstant::from_nanos(0));
        database.begin(&held, options).await
    }

    pub async fn rows(&self) -> i64 {
        self.number("SELECT count(*) FROM counts").await
    }

    /// A COMMIT in flight: its fence has let it through and holds the row, and the COMMIT itself is not done.
    pub async fn commit_in_flight(&self, node: &Node, epoch: Epoch) -> sqlx::Transaction<'_, sqlx::Postgres> {
        let mut transaction = self.pool.begin().await.unwrap();
        sqlx::raw_sql("INSERT INTO counts VALUES (7)").execute(&mut *transaction).await.unwrap();
        fence(&mut transaction, node, epoch).await.unwrap();
        transaction
    }
}

/// Calls the fence as a commit does.
pub async fn fence(connection: &mut sqlx::PgConnection, node: &Node, epoch: Epoch) -> Result<(), sqlx::Error> {
    let call = sqlx::query("SELECT plant_fence($1, '', $2, $3, $4)").bind(READER);
    let call = call.bind(i32::try_from(epoch.timeline).unwrap()).bind(i64::try_from(epoch.number).unwrap());
    call.bind(node.me.boot.0).execute(connection).await.map(drop)
}

impl Node {
    /// The lease, which has to be granted.
    pub async fn take(&self) -> Grant {
        self.take_seen(None).await
    }

    /// Takes the lease and ends no session of whoever held it, as when that is out of reach: for what the fence does by itself.
    pub async fn take_alone(&self, ground: &Ground) -> Epoch {
        const TAKE: &str =
            "SELECT timeline, epoch FROM plant_acquire($1, '', $2, $3, 60000, NULL, NULL, NULL, 0, false, NULL)";
        let asking = sqlx::query_as(TAKE).bind(READER).bind(self.me.node.as_str()).bind(self.me.boot.0);
        let (timeline, number): (i32, i64) = asking.fetch_one(&ground.pool).await.unwrap();
        Epoch { timeline: timeline.try_into().unwrap(), number: number.try_into().unwrap() }
    }

    pub async fn take_seen(&self, unchanged: Option<&Seen>) -> Grant {
        granted(self.leases.acquire(&key(READER), unchanged).await.unwrap())
    }

    /// The lease, which has to be refused.
    pub async fn see_taken(&self, unchanged: Option<&Seen>) -> Seen {
        match self.leases.acquire(&key(READER), unchanged).await.unwrap() {
            Acquired::Taken(seen) => seen,
            Acquired::Granted(grant) => panic!("granted: {grant:?}"),
        }
    }

    pub async fn renew(&self, epoch: Epoch) -> Renewal {
        let answers = self.leases.renew(&[(key(READER), epoch)]).await.unwrap();
        assert_eq!(answers.len(), 1);
        answers[0]
    }
}

pub fn granted(answer: Acquired) -> Grant {
    match answer {
        Acquired::Granted(grant) => grant,
        Acquired::Taken(seen) => panic!("not granted: {seen:?}"),
    }
}

pub fn statement(sql: &str) -> Statement {
    Statement { sql: sql.to_owned(), params: Params::Row(Vec::new()) }
}

/// Sessions that wait for a lock inside `plant_acquire`.
pub const ACQUIRE_WAITS: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%plant_acquire(%'";
