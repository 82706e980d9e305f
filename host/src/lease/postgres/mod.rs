//! The lease store `postgres`: a row for each lease, a row for each fence, and every decision inside the database.
//!
//! Renewals have a connection of their own, which also shows that this node lives, so that nothing else can make them late. Everything else (acquire, release, heartbeat) has
//! a second one, and the wait for a release a third. All of it is bounded on both sides: the server gives a statement up as early as we
//! stop waiting for it.

mod hearing;
mod life;
mod nodes;
pub(super) mod placement;
mod renewal;
mod rows;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgConnectOptions;
use sqlx::{PgConnection, Row};

use self::hearing::Hearing;
use self::life::Life;
use self::nodes::Beat;
use self::rows::{acquired, columns, number, seen, timeline};
use self::watch::Watch;
use super::session::{Session, unavailable};
use super::{Acquired, Cause, Grant, LeaseError, LeaseStore, Placed, Renewal, Seen, backends};
use crate::clock::BootInstant;
use crate::config;
use crate::identity::{BootId, Epoch, Holder, RoleKey, RoleName};
use crate::store::{Bounds, StoreError, session};

/// For how long a heartbeat is fresh where leases never expire.
const FRESH_WITHOUT_LEASE: Duration = Duration::from_secs(10);

/// What a node says of itself.
#[derive(Debug, Clone)]
pub struct Me {
    /// Name and boot.
    pub holder: Holder,
    /// How others reach it.
    pub address: String,
    /// The SHA-256 of the module that it runs for each role.
    pub modules: BTreeMap<RoleName, String>,
    /// Earlier boots of its name that are proved to be gone: what they held is free at once.
    pub gone: Vec<BootId>,
}

/// Leases in PostgreSQL.
pub struct PostgresStore {
    me: Me,
    lease: Option<Duration>,
    life: Life,
    watch: Watch,
    working: Session,
    hearing: Hearing,
    /// The highest number of each role's epochs that this process has seen: a fail-over that lost the last writes does not lower it.
    issued: Mutex<HashMap<RoleKey, u64>>,
}

/// The longest that a statement on a lease may take: well inside the quarter of a lease that is left after the self-fence.
pub(super) fn deadline(lease: Option<Duration>) -> Duration {
    lease.map_or(Duration::from_secs(5), |lease| (lease / 4).clamp(Duration::from_millis(250), Duration::from_secs(2)))
}

/// The plant's servers, as a lease store connects to them: named after this boot, and bounded by the lease.
pub(super) fn servers(
    store: &config::Store,
    me: &Holder,
    lease: Option<Duration>,
) -> Result<Vec<PgConnectOptions>, StoreError> {
    let config::Store::Postgres { urls, .. } = store else {
        return Err(StoreError::Configuration(
            "leases need PostgreSQL: give `store.url` as postgres://…, or leave out [redundancy]".to_owned(),
        ));
    };
    let at_most = deadline(lease);
    let bounds = Bounds { statement: at_most, lock: at_most, ..Bounds::within_lease(lease) };
    // The boot first: the server cuts names at 63 bytes.
    let name = format!("{}:{}", me.boot, me.node);
    let told = |server: PgConnectOptions| {
        // A waiter must see what was committed while it waited, whatever the database's default is.
        server.application_name(&name).options([("default_transaction_isolation", "read committed")])
    };
    Ok(session::options(urls, &bounds)?.into_iter().map(told).collect())
}

impl PostgresStore {
    /// A store for the plant's database; `lease` is how long a lease lasts, `None` for ever. Connects when it is used.
    ///
    /// # Errors
    /// [`StoreError::Configuration`] when a URL can not be read.
    pub fn new(store: &config::Store, me: Me, lease: Option<Duration>) -> Result<Self, StoreError> {
        let at_most = deadline(lease);
        let servers = servers(store, &me.holder, lease)?;
        // Opening a connection takes several round trips.
        let with_opening = at_most.saturating_mul(2);
        let node = me.holder.node.clone();
        let working = if lease.is_some() { Session::sharing } else { Session::new };
        Ok(Self {
            me,
            lease,
            life: Life::new(servers.clone(), at_most, lease.map(|lease| lease / 3)),
            watch: Watch::new(node, servers.clone(), lease.unwrap_or(FRESH_WITHOUT_LEASE) / 3),
            working: working(servers.clone(), with_opening),
            hearing: Hearing::new(servers, at_most),
            issued: Mutex::default(),
        })
    }

    fn lease_ms(&self) -> Option<i64> {
        self.lease.map(|lease| i64::try_from(lease.as_millis()).unwrap_or(i64::MAX))
    }

    /// For how long a heartbeat says that its node lives.
    fn fresh_ms(&self) -> i64 {
        i64::try_from(self.lease.unwrap_or(FRESH_WITHOUT_LEASE).as_millis()).unwrap_or(i64::MAX)
    }

    /// Makes this node known where its lock has proved that it is the only one: another boot's row is of a process that is gone.
    pub(super) async fn register_alone(&self) -> Result<(), LeaseError> {
        self.working.run(async |connection| sqlx::query("DELETE FROM plant_nodes").execute(connection).await).await?;
        self.register().await
    }

    fn at_least(&self, key: &RoleKey) -> i64 {
        let issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        i64::try_from(issued.get(key).copied().unwrap_or(0)).unwrap_or(i64::MAX)
    }

    /// What the lease of one role is now; free where it was never held.
    pub(super) async fn row(&self, key: &RoleKey) -> Result<Seen, LeaseError> {
        let seen = self.observe(std::slice::from_ref(key)).await?.into_iter().next();
        Ok(seen.unwrap_or_else(|| Seen {
            key: key.clone(),
            holder: None,
            epoch: Epoch { timeline: 0, number: 0 },
            renewed_at_us: 0,
            expires_in_ms: 0,
            is_dead: false,
        }))
    }

    /// Whether people do not want the role on this node. A store that has something to take before the row asks first.
    pub(super) async fn is_barred(&self, key: &RoleKey) -> Result<bool, LeaseError> {
        Ok(self.placements(std::slice::from_ref(key)).await?.iter().any(|placed| placed.barred.is_some()))
    }

    /// Notes an epoch's number: none that this store is granted later is as low.
    pub(super) fn note(&self, key: &RoleKey, epoch: Epoch) {
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        let highest = issued.entry(key.clone()).or_default();
        *highest = epoch.number.max(*highest);
    }

    async fn ask(&self, key: &RoleKey, seen: Option<(Epoch, i64)>, restart: bool) -> Result<Acquired, LeaseError> {
        // The self-fence counts from before the question is sent.
        let sent = BootInstant::now();
        let (epoch, renewed_at_us) = seen.unzip();
        let asking = async |connection: &mut PgConnection| {
            let query = sqlx::query("SELECT * FROM plant_acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)")
                .bind(key.role.as_str())
                .bind(&key.partition)
                .bind(self.me.holder.node.as_str())
                .bind(self.me.holder.boot.0)
                .bind(self.lease_ms())
                .bind(epoch.map(timeline))
                .bind(epoch.map(number))
                .bind(renewed_at_us)
                .bind(self.at_least(key))
                .bind(restart)
                .bind(self.me.modules.get(&key.role));
            let row = query.fetch_one(&mut *connection).await?;
            let answer = acquired(key, sent, &row)?;
            self.end_backends(connection, &answer, row.try_get("renewed_us")?).await;
            Ok(answer)
        };
        let answer = self.working.run(asking).await?;
        match &answer {
            Acquired::Granted(grant) => self.note(key, grant.epoch),
            Acquired::Taken(seen) => self.note(key, seen.epoch),
        }
        Ok(answer)
    }
}

impl PostgresStore {
    /// Ends what the holder before had begun, where it did not let go by itself. The lease is ours whether this succeeds or not: locks that
    /// stay behind end by the server's own timeouts.
    async fn end_backends(&self, connection: &mut PgConnection, answer: &Acquired, taken_us: i64) {
        let Acquired::Granted(Grant { key, previous: Some(previous), cause: Cause::Death | Cause::Expiry, .. }) =
            answer
        else {
            return;
        };
        if previous.boot == self.me.holder.boot {
            return;
        }
        match backends::end(connection, previous, key, taken_us).await {
            Ok(0) => {}
            Ok(ended) => {
                tracing::info!(role = %key, of = %previous.node, ended, "ended what the holder before had begun")
            }
            Err(error) => {
                tracing::warn!(role = %key, of = %previous.node, %error, "what the holder before had begun could not be ended")
            }
        }
    }
}

#[async_trait]
impl LeaseStore for PostgresStore {
    fn name(&self) -> &'static str {
        if self.lease.is_some() { "postgres" } else { "single" }
    }

    fn lease(&self) -> Option<Duration> {
        self.lease
    }

    async fn register(&self) -> Result<(), LeaseError> {
        // The lock comes first: whoever finds the row may watch it.
        self.life.ping().await?;
        let (fresh_ms, lock_key) = (self.fresh_ms(), self.life.key());
        let registering = async |connection: &mut PgConnection| {
            nodes::forget_deaths(connection).await?;
            nodes::mark_gone(connection, &self.me.holder, &self.me.gone).await?;
            nodes::register(connection, &self.me, fresh_ms, lock_key).await
        };
        let refused = self.working.run(registering).await?;
        refused.map_or(Ok(()), |sentence| Err(LeaseError::Refused(sentence)))
    }

    async fn heartbeat(&self) -> Result<u64, LeaseError> {
        let fresh_ms = self.fresh_ms();
        let beat = async |connection: &mut PgConnection| nodes::beat(connection, &self.me.holder, fresh_ms).await;
        let found = self.working.run(beat).await?;
        let pinged = self.life.ping().await;
        if self.life.is_over() {
            return Err(LeaseError::Dead(
                "the session that shows that this node lives was gone for too long".to_owned(),
            ));
        }
        pinged?;
        match found {
            Beat::Present(others) => {
                if self.lease.is_some() {
                    self.watch.follow(&others);
                }
                Ok(u64::try_from(others.len()).unwrap_or(u64::MAX))
            }
            Beat::Absent => self.register().await.map(|()| 0),
            Beat::Dead => Err(LeaseError::Dead("this node was taken for dead: its session had ended".to_owned())),
        }
    }

    async fn observe(&self, keys: &[RoleKey]) -> Result<Vec<Seen>, LeaseError> {
        const OBSERVE: &str = "
            SELECT l.role, l.partition, l.node AS holder, l.boot_id AS holder_boot, l.epoch, f.timeline,
                   round(extract(epoch FROM l.renewed_at) * 1000000)::bigint AS renewed_us,
                   plant_milliseconds_until(l.expires_at, clock_timestamp()) AS expires_in_ms,
                   EXISTS (SELECT FROM plant_deaths d WHERE d.boot_id = l.boot_id) AS is_dead
              FROM unnest($1::text[], $2::text[]) AS w(role, partition)
              JOIN plant_leases l USING (role, partition) JOIN plant_fences f USING (role, partition)";
        let (roles, partitions) = columns(keys.iter());
        let rows = self
            .working
            .run(async |connection| sqlx::query(OBSERVE).bind(&roles).bind(&partitions).fetch_all(connection).await)
            .await?;
        let seen: Vec<Seen> = rows.iter().map(seen).collect::<Result<_, _>>().map_err(|error| unavailable(&error))?;
        seen.iter().for_each(|seen| self.note(&seen.key, seen.epoch));
        Ok(seen)
    }

    async fn acquire(&self, key: &RoleKey, unchanged: Option<&Seen>) -> Result<Acquired, LeaseError> {
        if self.lease.is_some() && self.life.is_lost() {
            let what = "the session that shows that this node lives has ended and is not back yet";
            return Err(LeaseError::Unavailable(what.to_owned()));
        }
        self.ask(key, unchanged.map(|seen| (seen.epoch, seen.renewed_at_us)), false).await
    }

    async fn restart(&self, key: &RoleKey, epoch: Epoch) -> Result<Acquired, LeaseError> {
        self.ask(key, Some((epoch, 0)), true).await
    }

    async fn renew(&self, held: &[(RoleKey, Epoch)]) -> Result<Vec<Renewal>, LeaseError> {
        let (me, lease_ms) = (&self.me.holder, self.lease_ms());
        let renewed = self.life.run(async |connection| renewal::renew(connection, me, held, lease_ms).await).await;
        // Others take this boot for dead: nothing of it may go on.
        if self.life.is_over() { Ok(vec![Renewal::Lost; held.len()]) } else { renewed }
    }

    async fn release(&self, key: &RoleKey, epoch: Epoch, clean: bool, cause: Cause) -> Result<(), LeaseError> {
        let me = &self.me.holder;
        self.working
            .run(async |connection| {
                let query = sqlx::query("SELECT plant_release($1, $2, $3, $4, $5, $6, $7, $8, $9)");
                let query = query.bind(key.role.as_str()).bind(&key.partition).bind(me.node.as_str()).bind(me.boot.0);
                let query = query.bind(timeline(epoch)).bind(number(epoch)).bind(self.lease_ms());
                query.bind(clean).bind(cause.as_str()).execute(connection).await.map(drop)
            })
            .await
    }

    async fn placements(&self, keys: &[RoleKey]) -> Result<Vec<Placed>, LeaseError> {
        let Some(lease) = self.lease else { return Ok(Vec::new()) };
        let node = &self.me.holder.node;
        self.working.run(async |connection| placement::placements(connection, node, keys, lease).await).await
    }

    async fn released(&self, at_most: Duration) {
        tokio::select! {
            () = self.hearing.wait(at_most) => {}
            () = self.watch.died() => {}
        }
    }

    async fn leave(&self) -> Result<(), LeaseError> {
        self.watch.follow(&[]);
        let left = self.working.run(async |connection| nodes::leave(connection, &self.me.holder).await).await;
        self.life.end().await;
        left
    }
}
