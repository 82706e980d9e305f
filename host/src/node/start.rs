//! From a checked configuration to a running node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::alerting::{self, Alerting};
use super::boots::Boots;
use super::local::LocalView;
use super::machines;
use super::metrics::{self as measure, LeaseMetrics};
use super::modules::{Modules, Places};
use super::standing::{Standing, Told, facts};
use super::{Front, Node, leases};
use crate::api::{AppState, Metrics};
use crate::capability::opc::PlantOpc;
use crate::clock::BootInstant;
use crate::config::{Config, OnDemotion, PAIR, Scope};
use crate::identity::{BootId, Holder, NodeName, RoleKey, RoleName};
use crate::lease::Unfit;
use crate::lease::keeper::{self, KeeperHandle};
use crate::lease::postgres::Me;
use crate::role::backoff::Budget;
use crate::role::manifest::Ask;
use crate::role::reports::Reports;
use crate::role::runnable::Runnable;
use crate::role::supervisor::{GRACE, Means, Supervisor};
use crate::store::standing::Proof;
use crate::store::{self, Bounds, Database, Pool, StoreError};

/// The pause before the database is tried again, while it does not answer.
const AGAIN: Duration = Duration::from_secs(1);
const WARM_AGAIN: Duration = Duration::from_secs(20);
const WARM_WITHIN: Duration = Duration::from_secs(5);
/// So many changes of leases are kept for a listener that is late.
const EVENTS: usize = 256;

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration, a module or the schema can not be used.
    #[error("{0}")]
    Configuration(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// Why a node ended by itself.
#[derive(Debug)]
pub enum Ended {
    /// It can not go on; a sentence.
    Failed(String),
    /// Others take this boot for dead: it is to be started again, as another boot.
    Dead(String),
    /// It was active and is not any more, and the plant wants such a process to end.
    Demoted(String),
}

/// What a node is started with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The plant.
    pub config: Config,
    /// This node's name.
    pub node: NodeName,
    /// Where modules come from.
    pub places: Places,
    /// The earlier boots of its name on this box.
    pub boots: Arc<Boots>,
}

/// Starts a node, behind the HTTP side of an earlier boot where there was one. Waits for a database that does not answer yet: two PCs and their database may all have lost their power.
///
/// # Errors
/// [`StartError`]; one sentence each.
pub async fn start(settings: Settings, front: Option<Front>) -> Result<Node, StartError> {
    let Settings { config, node, places, boots } = settings;
    let config = Arc::new(config);
    let me = Holder { node, boot: BootId::random() };
    let mut front = match front {
        Some(front) => front,
        None => Front::listen(&config.serve).await?,
    };
    let address = config.serve.advertise.clone().unwrap_or_else(|| format!("http://{}", front.address()));

    let metrics = Metrics::new();
    let modules = Modules::load(&config, &places, true).await.map_err(|error| StartError::Failed(error.to_string()))?;
    modules.catalogue.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let (runnables, refused) = modules.runnables(&config, &metrics.registry());
    refused.iter().for_each(|sentence| tracing::error!("{sentence}"));

    let pool = open(&config).await?;
    let database = store::open(&config.store, Bounds::within_lease(leases::lease(&config))).map_err(store_error)?;
    let hash = |(role, runnable): (&RoleName, &Arc<Runnable>)| (role.clone(), runnable.module().sha256.clone());
    let modules = runnables.iter().map(hash).collect();
    boots.begin(me.boot);
    let of_me = Me { holder: me.clone(), address: address.clone(), modules, gone: boots.gone() };
    let lease_store = leases::store(&config, of_me, &pool);
    let opc = Arc::new(PlantOpc::new(config.opc.clone(), tokio::runtime::Handle::current()));
    let standing = standing(&config, &me, &address, &pool, &opc, &refused).await?;
    let reports = Reports::default();
    let keys = keys(&config, &runnables, &reports);
    let store = lease_store.map_err(store_error)?;
    let pair = pair(&config)?;
    let all_keys: Vec<RoleKey> = keys.iter().chain(&pair).cloned().collect();
    let alerts = alerting::alerts(&config).map_err(StartError::Configuration)?;
    // Whoever is to hear of everything subscribes before the keeper starts.
    let (events, heard) = broadcast::channel(EVENTS);
    let (told, shown) = shown();
    let unfit = shown.unfit.clone();
    let leases = keeper::Settings { store, me: me.clone(), roles: keys, pair: pair.clone(), unfit, events };
    let (keeper, granted) =
        keeper::start(leases).map_err(|error| StartError::Failed(format!("no thread for the leases: {error}")))?;
    let keeper = Arc::new(keeper);
    let (refusing, warmed) = (database.clone(), database.clone());
    let means = Means {
        keeper: Arc::new(leases::Leases(keeper.clone())),
        database,
        opc: opc.clone(),
        registry: metrics.registry(),
        reports: reports.clone(),
        budget: Budget::default(),
        grace: GRACE,
    };
    let supervisor = Supervisor::start(means, runnables, granted)
        .map_err(|error| StartError::Failed(format!("no threads for the guests: {error}")))?;

    let stop = CancellationToken::new();
    if let Some((pool, _)) = redundant(&config, &pool) {
        tokio::spawn(measure::measure(pool, me.clone(), metrics.clone(), stop.clone()));
        tokio::spawn(keep_warm(warmed, stop.clone()));
    }
    tokio::spawn(store::reports::keep_written(
        pool.clone(),
        me.clone(),
        machines::listed(reports.clone(), opc.clone()),
        stop.clone(),
    ));
    // Where there is one node, nothing is to be found out; the channels stay as they are.
    if let Some(standing) = standing {
        tokio::spawn(standing.keep(told, keeper.snapshot(), stop.clone()));
    }
    let Shown { proof, conflict, .. } = shown;
    let measured = LeaseMetrics { keys: all_keys, leases: keeper.snapshot(), database: refusing, proof: proof.clone() };
    measure::register(&metrics, measured);
    machines::register(&metrics, opc.clone());
    let alerting = alerts.map(|alerts| {
        metrics.register(|registry| alerts.register(registry));
        let (config, node, leases) = (config.clone(), me.node.clone(), keeper.snapshot());
        let plant = redundant(&config, &pool);
        let telling = Alerting { config, node, pair: pair.clone(), leases, plant, alerts: alerts.clone() };
        (alerts, tokio::spawn(telling.keep(heard, stop.clone())))
    });
    let local = LocalView { node: me.node.clone(), reports, leases: keeper.snapshot(), pair, opc, refused, proof };
    let ends_when_demoted = config.redundancy.as_ref().is_some_and(|r| r.on_demotion == OnDemotion::Exit);
    let state = AppState::new(me.clone(), address.clone(), config, pool, Arc::new(local), metrics);
    front.show(state);
    tracing::info!(node = %me.node, boot = %me.boot, address, "the node serves");
    Ok(Node { supervisor, keeper, front, stop, ends_when_demoted, conflict, alerting })
}

/// What this node finds out about itself.
struct Shown {
    proof: watch::Receiver<Option<Proof>>,
    conflict: watch::Receiver<Option<String>>,
    unfit: watch::Receiver<Unfit>,
}

/// Where there are several nodes: their database, and how long a lease lasts.
fn redundant(config: &Config, pool: &Pool) -> Option<(PgPool, Duration)> {
    match (leases::lease(config), pool) {
        (Some(lease), Pool::Postgres(pool)) => Some((pool.clone(), lease)),
        _ => None,
    }
}

/// Refuses to be beside a node that is of another plant, or is reached at the same address.
async fn standing(
    config: &Arc<Config>,
    me: &Holder,
    address: &str,
    pool: &Pool,
    opc: &Arc<PlantOpc>,
    refused: &[String],
) -> Result<Option<Standing>, StartError> {
    let Some((pool, lease)) = redundant(config, pool) else { return Ok(None) };
    let standing = Standing {
        pool,
        me: me.clone(),
        facts: facts(config, address),
        lease,
        config: config.clone(),
        opc: opc.clone(),
        refused: refused.to_vec(),
        proved: Mutex::new(BootInstant::now()),
        prove_now: Notify::new(),
    };
    match standing.conflict().await {
        Some(sentence) => Err(StartError::Failed(sentence)),
        None => Ok(Some(standing)),
    }
}

fn shown() -> (Told, Shown) {
    let (proof, proved) = watch::channel(None);
    let (conflict, found) = watch::channel(None);
    let (unfit, left) = watch::channel(Unfit::default());
    (Told { proof, conflict, unfit }, Shown { proof: proved, conflict: found, unfit: left })
}

/// The database with the schema that this binary needs.
async fn open(config: &Config) -> Result<Pool, StartError> {
    loop {
        match try_open(config).await {
            Ok(pool) => return Ok(pool),
            Err(StoreError::Unavailable(why)) => tracing::warn!("{why}; trying again"),
            Err(error) => return Err(store_error(error)),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn try_open(config: &Config) -> Result<Pool, StoreError> {
    let pool = Pool::connect(&config.store).await?;
    match store::check_schema(&pool).await {
        Ok(()) => return Ok(pool),
        // A new database, or one that an older host has left: brought up to date where this login may.
        Err(StoreError::Schema(_)) => {}
        Err(error) => return Err(error),
    }
    let done = store::migrate(&config.store).await?;
    tracing::info!(from = done.from, to = done.to, "the schema was brought up to date");
    store::check_schema(&pool).await?;
    Ok(pool)
}

fn store_error(error: StoreError) -> StartError {
    match error {
        StoreError::Configuration(sentence) | StoreError::Schema(sentence) => StartError::Configuration(sentence),
        StoreError::Refused(sentence) | StoreError::Unavailable(sentence) => StartError::Failed(sentence),
    }
}

/// The lease that all roles are under, where the plant is an active-standby pair.
fn pair(config: &Config) -> Result<Option<RoleKey>, StartError> {
    let is_pair = config.redundancy.as_ref().is_some_and(|redundancy| redundancy.scope == Scope::Node);
    let role = is_pair.then(|| PAIR.parse()).transpose();
    let role: Option<RoleName> = role.map_err(|error| StartError::Failed(format!("{error}")))?;
    Ok(role.map(|role| RoleKey { role, partition: String::new() }))
}

/// A standby has a connection for the first transaction after a takeover: to open one takes several round trips, and more with TLS.
async fn keep_warm(database: Arc<dyn Database>, stop: CancellationToken) {
    let warming = async {
        loop {
            // It has deadlines of its own where it connects; what hangs for longer is given up with its connection.
            let _ = timeout(WARM_WITHIN, database.keep_warm()).await;
            tokio::time::sleep(WARM_AGAIN).await;
        }
    };
    stop.run_until_cancelled(warming).await;
}

/// What this node competes for: every partition of the roles that can run here. Each is a standby until it is granted. Those that read
/// machines come first: what happens there while nobody looks is seen by nobody.
fn keys(config: &Config, runnables: &BTreeMap<RoleName, Arc<Runnable>>, reports: &Reports) -> Vec<RoleKey> {
    let mut keys = Vec::new();
    for (name, runnable) in runnables {
        let partitions = config.roles.get(name).map(|role| role.partitions.clone()).unwrap_or_default();
        for partition in partitions {
            let key = RoleKey { role: name.clone(), partition };
            let module = runnable.module();
            let _ = reports.of(key.clone(), Some(module.manifest.version.clone()), Some(module.sha256.clone()));
            keys.push((!module.manifest.asks.contains(&Ask::Opc), key));
        }
    }
    keys.sort();
    keys.into_iter().map(|(_, key)| key).collect()
}

impl Node {
    /// Returns when the node can not go on: it is refused, its HTTP side has failed, its boot is over, or it must not be beside another node.
    pub async fn ended_by_itself(&mut self) -> Ended {
        let keeper: Arc<KeeperHandle> = self.keeper.clone();
        let ends_when_demoted = self.ends_when_demoted;
        let conflict = async {
            match self.conflict.wait_for(Option::is_some).await.map(|sentence| sentence.clone()) {
                Ok(Some(sentence)) => sentence,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            // A refusal and a death end every lease as well: they say more.
            biased;
            sentence = keeper.refused() => Ended::Failed(sentence),
            sentence = keeper.dead() => Ended::Dead(sentence),
            sentence = conflict => Ended::Failed(sentence),
            sentence = keeper.demoted(), if ends_when_demoted => Ended::Demoted(sentence),
            error = self.front.failed() => Ended::Failed(format!("the HTTP side has failed: {error}")),
        }
    }
}
