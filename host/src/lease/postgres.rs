//! The lease store `postgres`: a row for each lease, a row for each fence, and every decision inside the database.
//!
//! Renewals have a connection of their own, so that nothing else can make them late. Everything else (acquire, release, heartbeat) has
//! a second one, and the wait for a release a third.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgListener, PgRow};
use sqlx::{PgConnection, Row};
use tokio::sync::Mutex;

use super::session::{Session, unavailable};
use super::{Acquired, Cause, Grant, LeaseError, LeaseStore, Renewal, Seen};
use crate::clock::BootInstant;
use crate::config;
use crate::identity::{BootId, Epoch, Holder, NodeName, RoleKey};
use crate::store::{Bounds, StoreError, session};

/// What a node says of itself.
#[derive(Debug, Clone)]
pub struct Me {
    /// Name and boot.
    pub holder: Holder,
    /// How others reach it.
    pub address: String,
}

/// Leases in PostgreSQL.
pub struct PostgresStore {
    me: Me,
    lease: Option<Duration>,
    renewing: Session,
    working: Session,
    servers: Vec<PgConnectOptions>,
    listener: Mutex<Option<PgListener>>,
}

/// The longest that a statement on a lease may take: well inside the quarter of a lease that is left after the self-fence.
fn deadline(lease: Option<Duration>) -> Duration {
    lease.map_or(Duration::from_secs(5), |lease| (lease / 4).clamp(Duration::from_millis(250), Duration::from_secs(2)))
}

impl PostgresStore {
    /// A store for the plant's database; `lease` is how long a lease lasts, `None` for ever. Connects when it is used.
    ///
    /// # Errors
    /// [`StoreError::Configuration`] when a URL can not be read.
    pub fn new(store: &config::Store, me: Me, lease: Option<Duration>) -> Result<Self, StoreError> {
        let config::Store::Postgres { urls, .. } = store else {
            return Err(StoreError::Configuration(
                "leases need PostgreSQL: give `store.url` as postgres://…, or leave out [redundancy]".to_owned(),
            ));
        };
        let at_most = deadline(lease);
        let bounds = Bounds { statement: at_most, lock: at_most, ..Bounds::within_lease(lease) };
        let name = format!("{}:{}", me.holder.boot, me.holder.node);
        let servers: Vec<PgConnectOptions> =
            session::options(urls, &bounds)?.into_iter().map(|server| server.application_name(&name)).collect();
        // Opening a connection takes several round trips.
        let with_opening = at_most.saturating_mul(2);
        Ok(Self {
            me,
            lease,
            renewing: Session::new(servers.clone(), at_most),
            working: Session::new(servers.clone(), with_opening),
            servers,
            listener: Mutex::new(None),
        })
    }

    fn lease_ms(&self) -> Option<i64> {
        self.lease.map(|lease| i64::try_from(lease.as_millis()).unwrap_or(i64::MAX))
    }

    /// Makes this node known where its lock has proved that it is the only one: another boot's row is of a process that is gone.
    pub(super) async fn register_alone(&self) -> Result<(), LeaseError> {
        self.working.run(async |connection| sqlx::query("DELETE FROM plant_nodes").execute(connection).await).await?;
        self.register().await
    }

    async fn acquire_or_restart(
        &self,
        key: &RoleKey,
        seen: Option<(Epoch, i64)>,
        restart: bool,
    ) -> Result<Acquired, LeaseError> {
        let sent = BootInstant::now();
        let row = self
            .working
            .run(async |connection| {
                let query = sqlx::query("SELECT * FROM plant_acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)")
                    .bind(key.role.as_str())
                    .bind(&key.partition)
                    .bind(self.me.holder.node.as_str())
                    .bind(self.me.holder.boot.0)
                    .bind(self.lease_ms())
                    .bind(seen.map(|(epoch, _)| number(epoch)))
                    .bind(seen.map(|(_, renewed_at_us)| renewed_at_us))
                    .bind(0_i64)
                    .bind(restart)
                    .bind(None::<String>);
                query.fetch_one(connection).await
            })
            .await?;
        acquired(key, sent, &row).map_err(|error| unavailable(&error))
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
        let lease_ms = self.lease_ms().unwrap_or(10_000);
        let (me, address) = (&self.me.holder, &self.me.address);
        let refused = self.working.run(async |connection| register(connection, me, address, lease_ms).await).await?;
        match refused {
            None => Ok(()),
            Some(twin) => Err(LeaseError::Refused(twin)),
        }
    }

    async fn heartbeat(&self) -> Result<(), LeaseError> {
        const BEAT: &str = "UPDATE plant_nodes SET heartbeat_at = clock_timestamp() WHERE node = $1 AND boot_id = $2";
        let me = &self.me.holder;
        let beaten = self
            .working
            .run(async |connection| {
                sqlx::query(BEAT).bind(me.node.as_str()).bind(me.boot.0).execute(connection).await
            })
            .await?;
        if beaten.rows_affected() == 1 {
            return Ok(());
        }
        // The row is another boot's, or was deleted.
        self.register().await
    }

    async fn observe(&self, keys: &[RoleKey]) -> Result<Vec<Seen>, LeaseError> {
        const OBSERVE: &str = "
            SELECT l.role, l.partition, l.node, l.boot_id, l.epoch, f.timeline,
                   round(extract(epoch FROM l.renewed_at) * 1000000)::bigint AS renewed_us,
                   plant_milliseconds_until(l.expires_at, clock_timestamp()) AS expires_in_ms
              FROM unnest($1::text[], $2::text[]) AS w(role, partition)
              JOIN plant_leases l USING (role, partition) JOIN plant_fences f USING (role, partition)";
        let (roles, partitions) = columns(keys.iter());
        let rows = self
            .working
            .run(async |connection| sqlx::query(OBSERVE).bind(&roles).bind(&partitions).fetch_all(connection).await)
            .await?;
        rows.iter().map(seen).collect::<Result<_, _>>().map_err(|error| unavailable(&error))
    }

    async fn acquire(&self, key: &RoleKey, unchanged: Option<&Seen>) -> Result<Acquired, LeaseError> {
        self.acquire_or_restart(key, unchanged.map(|seen| (seen.epoch, seen.renewed_at_us)), false).await
    }

    async fn restart(&self, key: &RoleKey, epoch: Epoch) -> Result<Acquired, LeaseError> {
        self.acquire_or_restart(key, Some((epoch, 0)), true).await
    }

    async fn renew(&self, held: &[(RoleKey, Epoch)]) -> Result<Vec<Renewal>, LeaseError> {
        // Rows are locked in one order, and one that somebody else has locked is passed over: it is unconfirmed, not lost. What was
        // not locked is judged by what this statement saw when it began.
        const RENEW: &str = "
            WITH wanted AS (
                SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::integer[]) AS w(role, partition, epoch, timeline)
            ), mine AS (
                SELECT l.role, l.partition FROM plant_leases l JOIN wanted w USING (role, partition)
                 WHERE l.node = $5 AND l.boot_id = $6 AND l.epoch = w.epoch AND l.expires_at > clock_timestamp()
                   AND w.timeline = plant_timeline()
                 ORDER BY l.role, l.partition FOR UPDATE OF l SKIP LOCKED
            ), done AS (
                UPDATE plant_leases l
                   SET renewed_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => $7::bigint / 1000.0)
                  FROM mine m WHERE l.role = m.role AND l.partition = m.partition
                RETURNING l.role, l.partition
            )
            SELECT w.role, w.partition,
                   CASE WHEN EXISTS (SELECT FROM done d WHERE d.role = w.role AND d.partition = w.partition) THEN 'confirmed'
                        WHEN w.timeline = plant_timeline() AND EXISTS (
                            SELECT FROM plant_leases l WHERE l.role = w.role AND l.partition = w.partition AND l.node = $5
                               AND l.boot_id = $6 AND l.epoch = w.epoch AND l.expires_at > clock_timestamp()) THEN 'skipped'
                        ELSE 'lost' END AS became
              FROM wanted w";
        let Some(lease_ms) = self.lease_ms() else { return Ok(vec![Renewal::Confirmed; held.len()]) };
        let (roles, partitions) = columns(held.iter().map(|(key, _)| key));
        let epochs: Vec<i64> = held.iter().map(|(_, epoch)| number(*epoch)).collect();
        let timelines: Vec<i32> = held.iter().map(|(_, epoch)| timeline(*epoch)).collect();
        let rows = self
            .renewing
            .run(async |connection| {
                let query = sqlx::query(RENEW).bind(&roles).bind(&partitions).bind(&epochs).bind(&timelines);
                let query = query.bind(self.me.holder.node.as_str()).bind(self.me.holder.boot.0).bind(lease_ms);
                query.fetch_all(connection).await
            })
            .await?;
        let mut became = std::collections::HashMap::new();
        for row in &rows {
            let entry = renewal(row).map_err(|error| unavailable(&error))?;
            became.insert(entry.0, entry.1);
        }
        let of = |(key, _): &(RoleKey, Epoch)| {
            let found = became.get(&(key.role.as_str().to_owned(), key.partition.clone()));
            found.copied().unwrap_or(Renewal::Skipped)
        };
        Ok(held.iter().map(of).collect())
    }

    async fn release(&self, key: &RoleKey, epoch: Epoch, clean: bool, cause: Cause) -> Result<(), LeaseError> {
        let me = &self.me.holder;
        self.working
            .run(async |connection| {
                let query = sqlx::query("SELECT plant_release($1, $2, $3, $4, $5, $6, $7, $8)");
                let query = query.bind(key.role.as_str()).bind(&key.partition).bind(me.node.as_str()).bind(me.boot.0);
                let query = query.bind(number(epoch)).bind(self.lease_ms()).bind(clean).bind(cause.as_str());
                query.execute(connection).await.map(drop)
            })
            .await
    }

    async fn released(&self, at_most: Duration) {
        // A wait that fails is a wait: whoever called looks at the leases in any case.
        if tokio::time::timeout(at_most, self.hear()).await.is_ok_and(|heard| heard.is_err()) {
            *self.listener.lock().await = None;
            tokio::time::sleep(at_most).await;
        }
    }

    async fn leave(&self) -> Result<(), LeaseError> {
        let me = &self.me.holder;
        self.working
            .run(async |connection| {
                let query = sqlx::query("DELETE FROM plant_nodes WHERE node = $1 AND boot_id = $2");
                query.bind(me.node.as_str()).bind(me.boot.0).execute(connection).await.map(drop)
            })
            .await
    }
}

impl PostgresStore {
    /// Returns when a release was heard of.
    async fn hear(&self) -> Result<(), LeaseError> {
        let mut kept = self.listener.lock().await;
        if kept.is_none() {
            let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1).acquire_timeout(deadline(self.lease));
            let (_, server) = session::open(&self.servers).await.map_err(|e| LeaseError::Unavailable(e.to_string()))?;
            // The listener waits for hours: no statement of it may be timed out, and none holds a lock.
            let pool = pool.connect_with(server).await.map_err(|error| unavailable(&error))?;
            let mut listener = PgListener::connect_with(&pool).await.map_err(|error| unavailable(&error))?;
            listener.listen("plant_released").await.map_err(|error| unavailable(&error))?;
            *kept = Some(listener);
        }
        let Some(listener) = kept.as_mut() else { return Ok(()) };
        listener.recv().await.map(drop).map_err(|error| unavailable(&error))
    }
}

/// Makes this boot the node's; answers a sentence when another boot of the name is alive.
///
/// Whether it is alive only shows in time: a heartbeat that was fresh when its process died stays fresh for a whole lease. Until it is
/// old, the answer is that nothing is known yet.
async fn register(
    connection: &mut PgConnection,
    me: &Holder,
    address: &str,
    lease_ms: i64,
) -> Result<Option<String>, sqlx::Error> {
    const REGISTER: &str = "
        INSERT INTO plant_nodes AS n (node, boot_id, address, version, started_at, heartbeat_at)
             VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp())
        ON CONFLICT (node) DO UPDATE
             SET boot_id = excluded.boot_id, address = excluded.address, version = excluded.version,
                 started_at = excluded.started_at, heartbeat_at = excluded.heartbeat_at
           WHERE n.boot_id = excluded.boot_id OR n.heartbeat_at <= clock_timestamp() - make_interval(secs => $5::bigint / 1000.0)";
    const TWIN: &str = "
        SELECT address, to_char(started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') FROM plant_nodes WHERE node = $1";
    let query = sqlx::query(REGISTER).bind(me.node.as_str()).bind(me.boot.0).bind(address);
    let registered = query.bind(env!("CARGO_PKG_VERSION")).bind(lease_ms).execute(&mut *connection).await?;
    if registered.rows_affected() == 1 {
        return Ok(None);
    }
    let twin: Option<(String, String)> = sqlx::query_as(TWIN).bind(me.node.as_str()).fetch_optional(connection).await?;
    let (address, started) = twin.unwrap_or_default();
    Ok(Some(format!(
        "a node named {} is running already, at {address}, started {started} UTC: give this one another name with `--node`",
        me.node
    )))
}

fn columns<'k>(keys: impl Iterator<Item = &'k RoleKey>) -> (Vec<String>, Vec<String>) {
    keys.map(|key| (key.role.as_str().to_owned(), key.partition.clone())).unzip()
}

fn number(epoch: Epoch) -> i64 {
    i64::try_from(epoch.number).unwrap_or(i64::MAX)
}

fn timeline(epoch: Epoch) -> i32 {
    i32::try_from(epoch.timeline).unwrap_or(i32::MAX)
}

fn decode(what: String) -> sqlx::Error {
    sqlx::Error::Decode(what.into())
}

fn epoch(row: &PgRow) -> Result<Epoch, sqlx::Error> {
    let (timeline, number): (i32, i64) = (row.try_get("timeline")?, row.try_get("epoch")?);
    Ok(Epoch { timeline: u32::try_from(timeline).unwrap_or(0), number: u64::try_from(number).unwrap_or(0) })
}

fn holder(node: Option<String>, boot: Option<uuid::Uuid>) -> Result<Option<Holder>, sqlx::Error> {
    let (Some(node), Some(boot)) = (node, boot) else { return Ok(None) };
    let node: NodeName = node.parse().map_err(|error| decode(format!("{error}")))?;
    Ok(Some(Holder { node, boot: BootId(boot) }))
}

fn seen(row: &PgRow) -> Result<Seen, sqlx::Error> {
    let role: String = row.try_get("role")?;
    let role = role.parse().map_err(|error| decode(format!("{error}")))?;
    Ok(Seen {
        key: RoleKey { role, partition: row.try_get("partition")? },
        holder: holder(row.try_get("node")?, row.try_get("boot_id")?)?,
        epoch: epoch(row)?,
        renewed_at_us: row.try_get("renewed_us")?,
        expires_in_ms: row.try_get("expires_in_ms")?,
    })
}

fn renewal(row: &PgRow) -> Result<((String, String), Renewal), sqlx::Error> {
    let became: String = row.try_get("became")?;
    let became = match became.as_str() {
        "confirmed" => Renewal::Confirmed,
        "skipped" => Renewal::Skipped,
        _ => Renewal::Lost,
    };
    Ok(((row.try_get("role")?, row.try_get("partition")?), became))
}

fn acquired(key: &RoleKey, sent: BootInstant, row: &PgRow) -> Result<Acquired, sqlx::Error> {
    let previous = holder(row.try_get("holder")?, row.try_get("holder_boot")?)?;
    let epoch = epoch(row)?;
    if !row.try_get::<bool, _>("granted")? {
        return Ok(Acquired::Taken(Seen {
            key: key.clone(),
            holder: previous,
            epoch,
            renewed_at_us: row.try_get("renewed_us")?,
            expires_in_ms: row.try_get("expires_in_ms")?,
        }));
    }
    let hold_back: i64 = row.try_get("hold_back_us")?;
    let cause: String = row.try_get("cause")?;
    Ok(Acquired::Granted(Grant {
        key: key.clone(),
        epoch,
        sent,
        hold_back: Duration::from_micros(u64::try_from(hold_back).unwrap_or(0)),
        previous,
        cause: cause.parse().unwrap_or(Cause::Expiry),
    }))
}
