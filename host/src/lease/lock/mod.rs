//! The lease store `postgres-lock`: one session-level advisory lock decides which node works, for the whole plant.
//!
//! The lock replaces one thing, the decision who may hold: no node asks for a lease that does not have it. Everything that protects a
//! commit stays as in the store `postgres`, because a lock protects nothing that is already on its way: the epochs in `plant_fences`, the
//! rows in `plant_leases` with their expiry, the hold-back, and the self-fence at three quarters of a lease.
//!
//! Whoever gets the lock takes a role at once when its row is free or has run out; or when the row's holder is the boot that this very
//! session saw leading and that has lost the lock since. A lock that is free at first sight proves nothing.

mod leadership;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

use self::leadership::{Lead, Leader, Leadership, locked};
use super::postgres::{Me, PostgresStore, deadline, servers};
use super::session::Session;
use super::{Acquired, Cause, LeaseError, LeaseStore, Renewal, Seen};
use crate::config;
use crate::identity::{Epoch, Holder, RoleKey};
use crate::store::StoreError;

/// Leases under one advisory lock.
pub struct LockStore {
    me: Holder,
    key: i64,
    lease: Duration,
    lock: Leadership,
    rows: PostgresStore,
    /// For the rows of a holder that is gone: waiting for its last commit must not make a renewal late.
    freeing: Session,
    held: Mutex<HashMap<RoleKey, Epoch>>,
}

impl LockStore {
    /// A store for the plant's database; `key` is the number of the plant's lock. Connects when it is used.
    ///
    /// # Errors
    /// [`StoreError::Configuration`] when a URL can not be read.
    pub fn new(store: &config::Store, me: Me, lease: Duration, key: i64) -> Result<Self, StoreError> {
        let (holder, at_most) = (me.holder.clone(), deadline(Some(lease)));
        let servers = servers(store, &holder, Some(lease))?;
        // Opening a connection takes several round trips.
        let with_opening = at_most.saturating_mul(2);
        Ok(Self {
            me: holder,
            key,
            lease,
            lock: Leadership::new(servers.clone(), key, lease, at_most),
            rows: PostgresStore::new(store, me, Some(lease))?,
            freeing: Session::new(servers, with_opening),
            held: Mutex::default(),
        })
    }

    fn held<T>(&self, change: impl FnOnce(&mut HashMap<RoleKey, Epoch>) -> T) -> T {
        change(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Not held any more, if it was at this epoch. Whoever holds nothing does not lead.
    async fn drop_lease(&self, key: &RoleKey, epoch: Epoch) {
        self.held(|held| {
            if held.get(key) == Some(&epoch) {
                held.remove(key);
            }
        });
        self.let_go_if_idle().await;
    }

    async fn let_go_if_idle(&self) {
        if self.held(|held| held.is_empty()) {
            self.lock.let_go().await;
        }
    }

    /// Asks for the row, as the leader.
    async fn ask(&self, key: &RoleKey, unchanged: Option<&Seen>, lead: Lead) -> Result<Acquired, LeaseError> {
        let answer = self.rows.acquire(key, unchanged).await?;
        let Acquired::Taken(seen) = answer else { return Ok(answer) };
        let of_the_gone = seen.holder.as_ref().is_some_and(|holder| Some(holder.boot) == lead.before);
        if of_the_gone && self.free(&seen, lead.pid).await? {
            return self.rows.acquire(key, None).await;
        }
        // The proof was of no use: it is waited for the expiry.
        self.lock.forget().await;
        Ok(Acquired::Taken(seen))
    }

    /// Frees a row whose holder has lost the lock to us; uncleanly, so that effects are held back. The statement does nothing when we
    /// have lost the lock in our turn: a process can freeze before it.
    async fn free(&self, gone: &Seen, pid: i32) -> Result<bool, LeaseError> {
        const FREE: &str = concat!(
            "SELECT plant_release($3, $4, $5, $6, $7, $8, $9, false, 'death') WHERE EXISTS (SELECT FROM pg_locks l WHERE l.pid = $2 AND ",
            locked!(),
            ")"
        );
        let Some(holder) = &gone.holder else { return Ok(false) };
        let lease_ms = i64::try_from(self.lease.as_millis()).unwrap_or(i64::MAX);
        let timeline = i32::try_from(gone.epoch.timeline).unwrap_or(i32::MAX);
        let number = i64::try_from(gone.epoch.number).unwrap_or(i64::MAX);
        self.freeing
            .run(async |connection| {
                let query = sqlx::query_scalar(FREE).bind(self.key).bind(pid);
                let query = query.bind(gone.key.role.as_str()).bind(&gone.key.partition);
                let query = query.bind(holder.node.as_str()).bind(holder.boot.0).bind(timeline).bind(number);
                let freed: Option<bool> = query.bind(lease_ms).fetch_optional(connection).await?;
                Ok(freed.unwrap_or(false))
            })
            .await
    }

    /// The lease as somebody sees it who may not ask for it.
    async fn others(&self, key: &RoleKey, leader: Option<Holder>) -> Result<Seen, LeaseError> {
        let seen = self.rows.observe(std::slice::from_ref(key)).await?.into_iter().next();
        let unknown = Seen {
            key: key.clone(),
            holder: None,
            epoch: Epoch { timeline: 0, number: 0 },
            renewed_at_us: 0,
            expires_in_ms: 0,
        };
        let seen = seen.unwrap_or(unknown);
        Ok(Seen { holder: seen.holder.clone().or(leader), ..seen })
    }

    /// What was granted is held only if the lock still is: a process can freeze between the two.
    async fn confirm(&self, answer: Acquired) -> Result<Acquired, LeaseError> {
        let Acquired::Granted(grant) = &answer else { return Ok(answer) };
        match self.lock.keep().await {
            Ok(true) => {
                self.held(|held| held.insert(grant.key.clone(), grant.epoch));
                Ok(answer)
            }
            lost => {
                // No instance was started.
                self.rows.release(&grant.key, grant.epoch, true, Cause::Release).await?;
                lost.and(Err(LeaseError::Unavailable("the plant's lock was lost while a lease was taken".to_owned())))
            }
        }
    }
}

#[async_trait]
impl LeaseStore for LockStore {
    fn name(&self) -> &'static str {
        "postgres-lock"
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.lease)
    }

    async fn register(&self) -> Result<(), LeaseError> {
        self.rows.register().await
    }

    async fn heartbeat(&self) -> Result<u64, LeaseError> {
        self.rows.heartbeat().await
    }

    async fn observe(&self, keys: &[RoleKey]) -> Result<Vec<Seen>, LeaseError> {
        // The lock first: what is looked at afterwards is what the gone leader has left.
        let gone = self.lock.gone().await?;
        let mut seen = self.rows.observe(keys).await?;
        for seen in &mut seen {
            if gone.is_some() && seen.holder.as_ref().map(|holder| holder.boot) == gone {
                seen.expires_in_ms = 0;
            }
        }
        Ok(seen)
    }

    async fn acquire(&self, key: &RoleKey, unchanged: Option<&Seen>) -> Result<Acquired, LeaseError> {
        let lead = match self.lock.take().await? {
            Leader::Mine(lead) => lead,
            Leader::Other(leader) => return Ok(Acquired::Taken(self.others(key, leader).await?)),
            Leader::Nobody => return Ok(Acquired::Taken(self.others(key, None).await?)),
        };
        let answer = match self.ask(key, unchanged, lead).await {
            Ok(answer) => self.confirm(answer).await,
            Err(error) => Err(error),
        };
        self.let_go_if_idle().await;
        answer
    }

    async fn restart(&self, key: &RoleKey, epoch: Epoch) -> Result<Acquired, LeaseError> {
        let answer = self.rows.restart(key, epoch).await?;
        if let Acquired::Granted(grant) = &answer {
            self.held(|held| held.insert(key.clone(), grant.epoch));
        }
        Ok(answer)
    }

    async fn renew(&self, held: &[(RoleKey, Epoch)]) -> Result<Vec<Renewal>, LeaseError> {
        if !self.lock.keep().await? {
            tracing::warn!(node = %self.me.node, "another node has the plant's lock");
            self.held(HashMap::clear);
            return Ok(vec![Renewal::Lost; held.len()]);
        }
        let answers = self.rows.renew(held).await?;
        for ((key, epoch), answer) in held.iter().zip(&answers) {
            if *answer == Renewal::Lost {
                self.drop_lease(key, *epoch).await;
            }
        }
        Ok(answers)
    }

    async fn release(&self, key: &RoleKey, epoch: Epoch, clean: bool, cause: Cause) -> Result<(), LeaseError> {
        let released = self.rows.release(key, epoch, clean, cause).await;
        // The lock after the row: whoever waits for it finds the row free. Also when the row was not freed, which runs out by itself.
        self.drop_lease(key, epoch).await;
        released
    }

    async fn released(&self, at_most: Duration) {
        let waiting = async {
            if !self.lock.wait(at_most).await.unwrap_or(false) {
                self.rows.released(at_most).await;
            }
        };
        // Whoever called looks at the leases in any case.
        let _ = timeout(at_most, waiting).await;
    }

    async fn leave(&self) -> Result<(), LeaseError> {
        self.held(HashMap::clear);
        self.lock.let_go().await;
        self.rows.leave().await
    }
}
