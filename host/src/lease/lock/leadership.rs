//! The plant's advisory lock, on a session of its own: who leads.
//!
//! The server ends the session of a leader that says nothing for a whole lease, as it ends one whose process has died, so that the lock
//! is let go of however its holder ended. That it is free proves nothing about whoever had it: after a restart of the database every lock
//! is free and every leader alive. What proves a death, and when a lease has run out, the rows say.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{PgConnection, Row};
use tokio::sync::{Mutex, MutexGuard};

use crate::identity::{BootId, Holder};
use crate::lease::LeaseError;
use crate::lease::session::{in_time, unavailable};
use crate::store::session;

/// How long the taking waits for watchers, who are handed the lock for a moment when it comes free.
const AMONG_WATCHERS: Duration = Duration::from_millis(200);

/// Who leads the plant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Leader {
    /// This session.
    Mine,
    /// Another one; its name, as far as the server knows it.
    Other(Option<Holder>),
}

struct Opened {
    connection: PgConnection,
    /// The server's process that serves it.
    pid: i32,
}

/// The way to the plant's lock.
pub(super) struct Leadership {
    servers: Vec<PgConnectOptions>,
    key: i64,
    lease: Duration,
    deadline: Duration,
    session: Mutex<Option<Opened>>,
}

impl Leadership {
    /// Connects by its first use. `deadline` bounds everything but the wait.
    pub(super) fn new(servers: Vec<PgConnectOptions>, key: i64, lease: Duration, deadline: Duration) -> Self {
        Self { servers, key, lease, deadline, session: Mutex::new(None) }
    }

    /// Sees that the server can be used for this, and takes nothing.
    ///
    /// # Errors
    /// [`LeaseError::Refused`] when the server would let a leader that hangs lead for ever.
    pub(super) async fn connect(&self) -> Result<(), LeaseError> {
        let connecting = async {
            let mut kept = self.session.lock().await;
            *kept = Some(self.opened(&mut kept).await?);
            Ok(())
        };
        in_time(self.deadline, connecting).await
    }

    /// Becomes the leader unless there is one.
    pub(super) async fn take(&self) -> Result<Leader, LeaseError> {
        let taking = async {
            let mut kept = self.session.lock().await;
            let mut opened = self.opened(&mut kept).await?;
            let leader = match self.look(&mut opened).await? {
                Some(leader) => leader,
                None => self.lock(&mut opened).await?,
            };
            // After an error, or when the caller gives up, the session is dropped, the lock with it.
            *kept = Some(opened);
            Ok(leader)
        };
        in_time(self.deadline, taking).await
    }

    /// Whether this node leads; takes the lock again where its session was lost and nobody was faster.
    pub(super) async fn keep(&self) -> Result<bool, LeaseError> {
        Ok(self.take().await? == Leader::Mine)
    }

    /// Lets go of the lock. When the server does not answer the session is dropped, and the lock with it.
    pub(super) async fn let_go(&self) {
        let letting_go = async {
            let mut kept = self.session.lock().await;
            let Some(mut opened) = kept.take() else { return Ok(()) };
            let unlock = sqlx::query("SELECT pg_advisory_unlock_all()");
            unlock.execute(&mut opened.connection).await.map_err(|error| unavailable(&error))?;
            *kept = Some(opened);
            Ok(())
        };
        // What was dropped has let go.
        let _ = in_time(self.deadline, letting_go).await;
    }

    /// Ends the session.
    pub(super) async fn end(&self) {
        self.let_go().await;
        self.session.lock().await.take();
    }

    /// Waits, for `at_most`, until another leader has let go; false, at once, where there is none to wait for.
    pub(super) async fn wait(&self, at_most: Duration) -> Result<bool, LeaseError> {
        let mut kept = self.session.lock().await;
        let mut opened = in_time(self.deadline, self.opened(&mut kept)).await?;
        let leader = in_time(self.deadline, self.look(&mut opened)).await?;
        let is_led = matches!(leader, Some(Leader::Other(_)));
        if is_led {
            // Shared, so that no watcher waits for another; and let go of in the same message, so that one that freezes keeps nothing.
            let wait = format!(
                "SET lock_timeout = {}; SELECT pg_advisory_lock_shared({key}); SELECT pg_advisory_unlock_shared({key})",
                at_most.as_millis().max(1),
                key = self.key
            );
            // The server gives it up; later than that it is silent.
            let waiting = sqlx::raw_sql(sqlx::AssertSqlSafe(wait)).execute(&mut opened.connection);
            let waited = in_time(at_most + self.deadline, async { Ok(waiting.await) }).await?;
            if let Some(error) = waited.err().filter(|error| !gave_up(error)) {
                return Err(unavailable(&error));
            }
        }
        *kept = Some(opened);
        Ok(is_led)
    }

    /// The session, taken out; a new one where there is none, or where the old one has ended.
    async fn opened(&self, kept: &mut MutexGuard<'_, Option<Opened>>) -> Result<Opened, LeaseError> {
        if let Some(mut opened) = kept.take()
            && sqlx::query("SELECT 1").execute(&mut opened.connection).await.is_ok()
        {
            return Ok(opened);
        }
        self.open().await
    }

    async fn open(&self) -> Result<Opened, LeaseError> {
        // A wait lasts longer than a statement may; and a leader that says nothing for a lease leads no more.
        const SETTLE: &str = "
            SELECT set_config('statement_timeout', '0', false), set_config('idle_session_timeout', $1, false), pg_backend_pid()
              FROM pg_settings WHERE name = 'idle_session_timeout'";
        let opened = session::open(&self.servers).await.map_err(|e| LeaseError::Unavailable(e.to_string()))?;
        let mut connection = opened.0.connection;
        let settle = sqlx::query(SETTLE).bind(format!("{}ms", self.lease.as_millis()));
        let settled = settle.fetch_optional(&mut connection).await.map_err(|error| unavailable(&error))?;
        let Some(settled) = settled else {
            return Err(LeaseError::Refused(
                "redundancy.store = \"postgres-lock\" needs PostgreSQL 14 or newer, which ends the session of a node that hangs: \
                 upgrade it, or use redundancy.store = \"postgres\""
                    .to_owned(),
            ));
        };
        let pid = settled.try_get(2).map_err(|error| unavailable(&error))?;
        Ok(Opened { connection, pid })
    }

    /// Who leads now, by the server's own table of locks.
    async fn look(&self, opened: &mut Opened) -> Result<Option<Leader>, LeaseError> {
        const LOOK: &str = "
            SELECT l.pid, a.application_name, n.node
              FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
              LEFT JOIN plant_nodes n ON n.boot_id::text = left(a.application_name, 36)
             WHERE l.locktype = 'advisory' AND l.granted AND l.mode = 'ExclusiveLock' AND l.objsubid = 1
               AND l.classid = (($1::bigint >> 32) & 4294967295)::oid AND l.objid = ($1::bigint & 4294967295)::oid
               AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let row = sqlx::query(LOOK).bind(self.key).fetch_optional(&mut opened.connection).await;
        let Some(row) = row.map_err(|error| unavailable(&error))? else { return Ok(None) };
        let pid: i32 = row.try_get(0).map_err(|error| unavailable(&error))?;
        if pid == opened.pid {
            return Ok(Some(Leader::Mine));
        }
        Ok(Some(Leader::Other(named(&row).map_err(|error| unavailable(&error))?)))
    }

    async fn lock(&self, opened: &mut Opened) -> Result<Leader, LeaseError> {
        let lock = format!("SET lock_timeout = {}; SELECT pg_advisory_lock({})", AMONG_WATCHERS.as_millis(), self.key);
        match sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut opened.connection).await {
            Ok(_) => Ok(Leader::Mine),
            // Another was faster; or the watchers were many, and it is asked again.
            Err(error) if gave_up(&error) => match self.look(opened).await? {
                None => Err(LeaseError::Unavailable("the plant's lock is passed around just now".to_owned())),
                Some(leader) => Ok(leader),
            },
            Err(error) => Err(unavailable(&error)),
        }
    }
}

/// A wait for a lock that the server has ended in time: the session is as it was.
fn gave_up(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "55P03")
}

/// Whoever is named in the row: `BOOT:NODE`, cut by the server at 63 bytes, and the node's whole name where it is known.
fn named(row: &PgRow) -> Result<Option<Holder>, sqlx::Error> {
    let (name, node): (Option<String>, Option<String>) = (row.try_get(1)?, row.try_get(2)?);
    let Some((boot, cut)) = name.as_deref().and_then(|name| name.split_once(':')) else { return Ok(None) };
    let boot = boot.parse().ok().map(BootId);
    let node = node.as_deref().unwrap_or(cut).parse().ok();
    Ok(boot.zip(node).map(|(boot, node)| Holder { node, boot }))
}
