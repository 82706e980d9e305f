//! The lease store `postgres-lock`: one session-level advisory lock decides which node works, for the whole plant.
//!
//! The lock replaces one thing, the decision who may ask: no node asks for a lease that does not have it, so that all roles run on one
//! node and move together. Everything that protects a commit stays as in the store `postgres`, because a lock protects nothing that is
//! already on its way: the epochs in `plant_fences`, the rows in `plant_leases` with their expiry, the hold-back, the self-fence at three
//! quarters of a lease, and the proof of a death by the node's own lock.
//!
//! So a freeze between any two steps costs time and never a commit: a node that lost the lock while it asked for a row is granted the row
//! or is not, by the row alone; and whoever has the lock then waits until that row is free, has run out, or its holder is dead. A holder
//! that hangs for a lease loses both, the lock because the server ends its session, the row because it was not renewed.

mod leadership;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use self::leadership::{Leader, Leadership};
use super::postgres::{Me, PostgresStore, deadline, servers};
use super::{Acquired, Cause, LeaseError, LeaseStore, Placed, Renewal, Seen};
use crate::config;
use crate::identity::{Epoch, Holder, RoleKey};
use crate::store::StoreError;

/// Leases under one advisory lock.
pub struct LockStore {
    me: Holder,
    lease: Duration,
    lock: Leadership,
    rows: PostgresStore,
    /// Whoever holds nothing does not lead.
    held: Mutex<HashMap<RoleKey, Epoch>>,
}

impl LockStore {
    /// A store for the plant's database; `key` is the number of the plant's lock. Connects when it is used.
    ///
    /// # Errors
    /// [`StoreError::Configuration`] when a URL can not be read.
    pub fn new(store: &config::Store, me: Me, lease: Duration, key: i64) -> Result<Self, StoreError> {
        let holder = me.holder.clone();
        // The same as a renewal has, with time to open the session where it has ended.
        let at_most = deadline(Some(lease)) * 3 / 2;
        let lock = Leadership::new(servers(store, &holder, Some(lease))?, key, lease, at_most);
        Ok(Self { me: holder, lease, lock, rows: PostgresStore::new(store, me, Some(lease))?, held: Mutex::default() })
    }

    fn held<T>(&self, change: impl FnOnce(&mut HashMap<RoleKey, Epoch>) -> T) -> T {
        change(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Not held any more, if it was at this epoch.
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

    /// Asks for the row, as the leader. What was granted is held only if the lock still is: a process can freeze between the two.
    async fn ask(&self, key: &RoleKey, unchanged: Option<&Seen>) -> Result<Acquired, LeaseError> {
        let answer = self.rows.acquire(key, unchanged).await?;
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

    /// The lease as somebody sees it who may not ask for it.
    async fn led_by(&self, key: &RoleKey, leader: Option<Holder>) -> Result<Seen, LeaseError> {
        let seen = self.rows.row(key).await?;
        Ok(Seen { holder: seen.holder.or(leader), ..seen })
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
        self.lock.connect().await?;
        self.rows.register().await
    }

    async fn heartbeat(&self) -> Result<u64, LeaseError> {
        self.rows.heartbeat().await
    }

    async fn observe(&self, keys: &[RoleKey]) -> Result<Vec<Seen>, LeaseError> {
        self.rows.observe(keys).await
    }

    async fn acquire(&self, key: &RoleKey, unchanged: Option<&Seen>) -> Result<Acquired, LeaseError> {
        // Whoever may not have the row does not take the lock from whoever may.
        if self.rows.is_barred(key).await? {
            return Ok(Acquired::Taken(self.led_by(key, None).await?));
        }
        if let Leader::Other(leader) = self.lock.take().await? {
            return Ok(Acquired::Taken(self.led_by(key, leader).await?));
        }
        let answer = self.ask(key, unchanged).await;
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

    async fn placements(&self, keys: &[RoleKey]) -> Result<Vec<Placed>, LeaseError> {
        self.rows.placements(keys).await
    }

    async fn released(&self, at_most: Duration) {
        // Where another node leads there is nothing to be had before it has let go of the lock, its last act. A wait that fails is a
        // wait: whoever called looks at the leases in any case.
        if !self.lock.wait(at_most).await.unwrap_or(false) {
            self.rows.released(at_most).await;
        }
    }

    async fn leave(&self) -> Result<(), LeaseError> {
        self.held(HashMap::clear);
        self.lock.end().await;
        self.rows.leave().await
    }
}
