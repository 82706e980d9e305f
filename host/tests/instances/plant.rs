//! A plant in a temporary directory, whose roles all run the probe.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use async_trait::async_trait;
use host::capability::opc::{Opener, Sessions};
use host::capability::{self, Grants, GuestState, metrics::SharedRegistry};
use host::clock::BootInstant;
use host::config::Config;
use host::engine::{Compiler, Engine};
use host::identity::{BootId, Epoch, Holder, RoleKey, RoleName};
use host::lease::{Held, HeldControl};
use host::opc::EventQueue;
use host::role::backoff::Budget;
use host::role::module::{Module, Origin, Source};
use host::role::reports::Reports;
use host::role::runnable::{Runnable, Terms};
use host::role::supervisor::{Keeper, Means, Release, RestartError, Supervisor};
use host::role::{Report, State};
use sqlx::Connection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use tokio::sync::mpsc;
use wasmtime::component::Linker;

/// Whatever a test waits for happens within this, also on a slow machine.
const AT_MOST: Duration = Duration::from_secs(60);

/// A running plant; dropping it ends everything.
pub struct Plant {
    pub leases: Arc<Leases>,
    pub queues: Arc<Queues>,
    pub reports: Reports,
    registry: SharedRegistry,
    supervisor: Option<Supervisor>,
    _directory: tempfile::TempDir,
}

/// How a plant differs from the ordinary one.
pub struct Wishes {
    pub grants: Grants,
    pub budget: Budget,
    /// How long `start` and every other call may take.
    pub at_most: Duration,
    /// Whether another node could take roles over.
    pub others: bool,
}

impl Default for Wishes {
    fn default() -> Self {
        let budget = Budget { pause: Duration::from_millis(10), ..Budget::default() };
        Self { grants: Grants::bundled(), budget, at_most: Duration::from_secs(2), others: false }
    }
}

impl Plant {
    /// Roles by name, each with the configuration of its probe (a TOML table).
    pub async fn start(roles: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::start_with(roles, Wishes::default()).await
    }

    pub async fn start_with(roles: &[(&str, &str)], wishes: Wishes) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let config = configuration(directory.path(), roles)?;
        let database = directory.path().join("plant.db");
        let (granted, arriving) = mpsc::channel(16);
        let leases = Arc::new(Leases::new(&database, granted, wishes.others).await?);
        let (queues, registry) = (Arc::new(Queues::default()), SharedRegistry::default());
        let engine = Engine::with_compiler(&cache(), Compiler::InProcess)?;
        let linker = linker(&engine)?;
        let module = Arc::new(probe(&engine).await?);
        let mut runnables = BTreeMap::new();
        for (name, role) in &config.roles {
            let mut terms = Terms::new(&config, name, role, &module, wishes.grants.clone(), &registry)?;
            (terms.limits.start, terms.limits.call) = (wishes.at_most, wishes.at_most);
            let runnable = Runnable::new(&engine, &linker, module.clone(), terms)?;
            runnables.insert(name.clone(), Arc::new(runnable));
        }
        let means = Means {
            keeper: leases.clone(),
            database: host::store::open(&config.store, host::store::Bounds::default())?,
            opc: queues.clone(),
            registry: registry.clone(),
            reports: Reports::default(),
            budget: wishes.budget,
            grace: Duration::from_secs(5),
        };
        let reports = means.reports.clone();
        let supervisor = Some(Supervisor::start(means, runnables, arriving)?);
        Ok(Self { leases, queues, reports, registry, supervisor, _directory: directory })
    }

    /// What the node says of a role.
    pub fn report(&self, role: &str) -> Option<Report> {
        self.reports.get(&key(role))
    }

    /// How many instances of a role exist.
    pub fn instances(&self, role: &str) -> u32 {
        self.report(role).map_or(0, |report| report.instances)
    }

    pub fn is(&self, role: &str, state: State) -> bool {
        self.report(role).is_some_and(|report| report.state == state)
    }

    /// A figure of the probe that runs as `role`.
    pub fn probe(&self, role: &str, metric: &str) -> u64 {
        self.figure(&format!("role_{role}_{metric}_total"))
    }

    /// The value of a series as `/metrics` would show it; 0 while it does not.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the tests' figures are small and whole"
    )]
    pub fn figure(&self, series: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry.lock().unwrap()).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse::<f64>().unwrap() as u64)
    }

    /// How often instances of a role ended for a reason.
    pub fn ended(&self, role: &str, why: &str) -> u64 {
        self.figure(&format!("host_instances_ended_total{{role=\"{role}\",partition=\"\",why=\"{why}\"}}"))
    }

    /// Waits until something is so.
    pub async fn until(&self, what: &str, so: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let start = Instant::now();
        while !so(self) {
            if start.elapsed() > AT_MOST {
                bail!("waited {AT_MOST:?} for: {what}; the reports are {:#?}", self.reports.all());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Stops the node as SIGTERM does.
    pub async fn drain(&mut self) -> anyhow::Result<()> {
        let supervisor = self.supervisor.take().context("it is drained already")?;
        Ok(tokio::time::timeout(AT_MOST, supervisor.drain()).await?)
    }
}

/// The leases of the plant, given and taken as a test says; the fences are those of the database.
pub struct Leases {
    database: PathBuf,
    holder: Holder,
    granted: mpsc::Sender<Held>,
    others: bool,
    controls: Mutex<BTreeMap<RoleKey, HeldControl>>,
    released: Mutex<Vec<(RoleKey, Release)>>,
}

impl Leases {
    async fn new(database: &Path, granted: mpsc::Sender<Held>, others: bool) -> anyhow::Result<Self> {
        let holder = Holder { node: "a".parse()?, boot: BootId::random() };
        let (controls, released) = (Mutex::default(), Mutex::default());
        let leases = Self { database: database.to_owned(), holder, granted, others, controls, released };
        let mut connection = leases.connect().await?;
        for statement in [
            "CREATE TABLE plant_fences (role TEXT, partition TEXT, timeline INTEGER, epoch INTEGER, boot_id TEXT)",
            "CREATE TABLE probe (epoch INTEGER)",
        ] {
            sqlx::query(statement).execute(&mut connection).await?;
        }
        Ok(leases)
    }

    async fn connect(&self) -> anyhow::Result<SqliteConnection> {
        let options = SqliteConnectOptions::new().filename(&self.database).create_if_missing(true);
        let options = options.journal_mode(sqlx::sqlite::SqliteJournalMode::Wal).busy_timeout(Duration::from_secs(20));
        Ok(SqliteConnection::connect_with(&options).await?)
    }

    /// Gives a role's lease to this node.
    pub async fn grant(&self, role: &str) -> anyhow::Result<Held> {
        self.grant_until(role, BootInstant::NEVER).await
    }

    /// The same, with a deadline that nobody prolongs.
    pub async fn grant_until(&self, role: &str, deadline: BootInstant) -> anyhow::Result<Held> {
        let held = self.raise(&key(role), deadline).await?;
        self.granted.send(held.clone()).await?;
        Ok(held)
    }

    /// Ends a lease, as a keeper does that finds it lost.
    pub fn lose(&self, role: &str) {
        if let Some(control) = self.controls.lock().unwrap().remove(&key(role)) {
            control.end();
        }
    }

    /// Another node takes the role over, and this one has not heard of it.
    pub async fn usurp(&self, role: &str) -> anyhow::Result<()> {
        let mut connection = self.connect().await?;
        let taken = sqlx::query("UPDATE plant_fences SET epoch = epoch + 1, boot_id = 'another' WHERE role = $1");
        taken.bind(role).execute(&mut connection).await?;
        self.controls.lock().unwrap().remove(&key(role));
        Ok(())
    }

    /// How many rows were committed.
    pub async fn rows(&self) -> anyhow::Result<i64> {
        let mut connection = self.connect().await?;
        Ok(sqlx::query_scalar("SELECT COUNT(*) FROM probe").fetch_one(&mut connection).await?)
    }

    /// How the leases were given back so far.
    pub fn released(&self) -> Vec<(RoleKey, Release)> {
        self.released.lock().unwrap().clone()
    }

    async fn raise(&self, key: &RoleKey, deadline: BootInstant) -> anyhow::Result<Held> {
        let mut connection = self.connect().await?;
        let mut raising = connection.begin_with("BEGIN IMMEDIATE").await?;
        let old = sqlx::query_scalar("SELECT COALESCE(MAX(epoch), 0) FROM plant_fences WHERE role = $1");
        let old: i64 = old.bind(key.role.as_str()).fetch_one(&mut *raising).await?;
        sqlx::query("DELETE FROM plant_fences WHERE role = $1").bind(key.role.as_str()).execute(&mut *raising).await?;
        let new = sqlx::query("INSERT INTO plant_fences VALUES ($1, $2, 0, $3, $4)");
        let new = new.bind(key.role.as_str()).bind(&key.partition).bind(old + 1).bind(self.holder.boot.to_string());
        new.execute(&mut *raising).await?;
        raising.commit().await?;
        let epoch = Epoch { timeline: 0, number: u64::try_from(old + 1)? };
        let (held, control) = Held::new(key.clone(), self.holder.clone(), epoch, deadline, BootInstant::from_nanos(0));
        self.controls.lock().unwrap().insert(key.clone(), control);
        Ok(held)
    }
}

#[async_trait]
impl Keeper for Leases {
    async fn restart(&self, held: &Held) -> Result<Held, RestartError> {
        let control = self.controls.lock().unwrap().remove(held.key()).ok_or(RestartError::Lost)?;
        control.end();
        self.raise(held.key(), BootInstant::NEVER).await.map_err(|error| RestartError::Unavailable(error.to_string()))
    }

    async fn release(&self, held: &Held, release: Release) {
        self.released.lock().unwrap().push((held.key().clone(), release));
        self.lose(held.key().role.as_str());
    }

    fn has_others(&self, _: &RoleKey) -> bool {
        self.others
    }
}

/// The queues of the instances, so that a test can put samples into them without a server.
#[derive(Default)]
pub struct Queues(Mutex<BTreeMap<RoleKey, Arc<EventQueue>>>);

impl Queues {
    pub fn of(&self, role: &str) -> Arc<EventQueue> {
        self.0.lock().unwrap()[&key(role)].clone()
    }
}

impl Opener for Queues {
    fn open(&self, held: &Held) -> Sessions {
        let sessions = Sessions::open(&BTreeMap::new(), tokio::runtime::Handle::current());
        self.0.lock().unwrap().insert(held.key().clone(), sessions.queue.clone());
        sessions
    }
}

pub fn key(role: &str) -> RoleKey {
    RoleKey { role: role.parse::<RoleName>().unwrap(), partition: String::new() }
}

fn configuration(directory: &Path, roles: &[(&str, &str)]) -> anyhow::Result<Config> {
    let mut text = String::from(
        "[plant]\nname = \"bottling\"\nenterprise = \"acme\"\nsite = \"kc1\"\ntimezone = \"America/Chicago\"\n\
         [store]\nurl = \"sqlite://plant.db\"\n",
    );
    for (name, config) in roles {
        text.push_str(&format!("[roles.{name}]\nmodule = \"probe\"\nconfig = {config}\n"));
    }
    let file = directory.join("plant.toml");
    std::fs::write(&file, text)?;
    Config::load(&file).map_err(|errors| anyhow::anyhow!("{errors}"))
}

async fn probe(engine: &Engine) -> anyhow::Result<Module> {
    let path =
        std::env::var_os("PLANT_PROBE").context("PLANT_PROBE names no module: run the tests by `cargo xtask test`")?;
    let source = Source {
        name: "probe".to_owned(),
        wasm: std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?.into(),
        beside: Some(std::fs::read(harness::process::root().join("tests/guests/probe/role.toml"))?),
        origin: Origin::File(path.into()),
    };
    Ok(source.load(engine, &linker(engine)?).await?)
}

fn linker(engine: &Engine) -> anyhow::Result<Linker<GuestState>> {
    capability::linker(engine.wasmtime()).map_err(|error| anyhow::anyhow!("{error:#}"))
}

/// One cache for all the tests, so that the probe is compiled once.
fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("compiled-guests")
}
