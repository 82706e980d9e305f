//! The lease store `nats`: a key for each lease in a JetStream bucket, whose keys live for one lease; the fences stay in PostgreSQL.
//!
//! NATS decides who may hold a lease. Whoever has its key asks PostgreSQL for its row as well, and holds the lease only with both: the
//! row is what a commit is fenced by, and nothing outside the database could be checked in the transaction that it protects. The epoch is
//! the key's revision, or one more than the last where that is higher, because a bucket can be made anew.
//!
//! What a freeze between any two steps does:
//! - *The key is ours and the row is not.* The key runs out after a lease, or we find it ours when we ask again. Nobody started anything.
//! - *Another has taken the key, and we are granted the row after that.* The self-fence counts from before the key was asked for and has
//!   passed, so nothing is started and the row is given back; the other waits for the row meanwhile. Only one of us has it.
//! - *The key is renewed and the row is not, or the other way round.* The renewal is not confirmed. The self-fence comes before either can
//!   run out.
//! - *Before a COMMIT.* Its fence asks the row, as with the store `postgres`, and there is one row.
//!
//! Keys run out by the clock of NATS, which may step: one that runs out too early is had by another, who waits for the row all the same;
//! one that runs out too late is waited for.
//!
//! A key that another has is taken from it only when the database proves its holder dead, and then against its revision.

mod bucket;

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;

use self::bucket::{Bucket, Entry};
use super::postgres::{Me, PostgresStore, deadline};
use super::{Acquired, Cause, Grant, LeaseError, LeaseStore, Placed, Renewal, Seen};
use crate::clock::BootInstant;
use crate::config::{self, Bus};
use crate::identity::{Epoch, Holder, RoleKey};
use crate::store::StoreError;

/// How soon a key is looked for again that should have run out: NATS lets keys run out up to 255 ms late.
const LATE_MS: i64 = 50;

/// Leases in NATS, with their fences in PostgreSQL.
pub struct NatsStore {
    me: Holder,
    lease: Duration,
    bucket: Bucket,
    rows: PostgresStore,
    held: Mutex<HashMap<RoleKey, Tenure>>,
}

/// A lease that is held, and the revision that its key is at.
#[derive(Debug, Clone, Copy)]
struct Tenure {
    epoch: Epoch,
    revision: u64,
}

impl NatsStore {
    /// A store for the plant's database and a bucket of `bus`. Connects when it is used.
    ///
    /// # Errors
    /// [`StoreError::Configuration`] when a URL of the database can not be read.
    pub fn new(store: &config::Store, me: Me, lease: Duration, bus: Bus, bucket: String) -> Result<Self, StoreError> {
        let holder = me.holder.clone();
        let bucket = Bucket::new(bus, bucket, format!("{}:{}", holder.boot, holder.node), lease, deadline(Some(lease)));
        Ok(Self {
            me: holder,
            lease,
            bucket,
            rows: PostgresStore::new(store, me, Some(lease))?,
            held: Mutex::default(),
        })
    }

    fn held<T>(&self, change: impl FnOnce(&mut HashMap<RoleKey, Tenure>) -> T) -> T {
        change(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The tenure that a question is about; none when it comes late.
    fn tenure(&self, key: &RoleKey, epoch: Epoch) -> Option<Tenure> {
        self.held(|held| held.get(key).filter(|tenure| tenure.epoch == epoch).copied())
    }

    /// Brings the key to a new revision; `None` when it is not ours any more.
    ///
    /// An answer that was lost leaves it at a revision that we do not know: then it is looked at, and nobody else writes our boot.
    async fn advance(&self, key: &RoleKey, last: u64) -> Result<Option<u64>, LeaseError> {
        let name = name(key);
        if let Some(revision) = self.bucket.put(&name, &self.me, last).await? {
            return Ok(Some(revision));
        }
        match self.bucket.read(&name).await? {
            Some(Entry { revision, holder: Some(holder) }) if holder == self.me => {
                self.bucket.put(&name, &self.me, revision).await
            }
            _ => Ok(None),
        }
    }

    /// Gives the key back at that revision, so that nobody has to wait until it has run out.
    async fn give_back(&self, key: &RoleKey, last: u64) -> Result<(), LeaseError> {
        let name = name(key);
        if self.bucket.delete(&name, last).await? {
            return Ok(());
        }
        match self.bucket.read(&name).await? {
            Some(Entry { revision, holder: Some(holder) }) if holder == self.me => {
                self.bucket.delete(&name, revision).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// The key, if it is free or its holder is dead: the revision that it is ours at. Else what the lease is now.
    async fn take_key(&self, key: &RoleKey) -> Result<Result<u64, Seen>, LeaseError> {
        let name = name(key);
        let there = self.bucket.read(&name).await?;
        let last = there.as_ref().map_or(0, |entry| entry.revision);
        if let Some(other) = there.and_then(|entry| entry.holder).filter(|holder| *holder != self.me) {
            let seen = self.rows.row(key).await?;
            if !(seen.is_dead && seen.holder.as_ref() == Some(&other)) {
                return Ok(Err(Seen { holder: Some(other), is_dead: false, ..seen }));
            }
        }
        match self.bucket.put(&name, &self.me, last).await? {
            Some(revision) => Ok(Ok(revision)),
            None => Ok(Err(self.rows.row(key).await?)),
        }
    }

    /// The row, for whoever has the key. Without it the key is given back.
    async fn take_row(
        &self,
        key: &RoleKey,
        unchanged: Option<&Seen>,
        sent: BootInstant,
        revision: u64,
    ) -> Result<Acquired, LeaseError> {
        // The revision becomes the epoch, where the last epoch is not higher.
        self.rows.note(key, Epoch { timeline: 0, number: revision.saturating_sub(1) });
        let answer = self.rows.acquire(key, unchanged).await;
        match answer {
            Ok(Acquired::Granted(grant)) if BootInstant::now().since(sent) < self.lease * 3 / 4 => {
                self.held(|held| held.insert(key.clone(), Tenure { epoch: grant.epoch, revision }));
                Ok(Acquired::Granted(Grant { sent, ..grant }))
            }
            Ok(Acquired::Granted(grant)) => {
                // So much time has passed that the key may be another's. No instance was started.
                self.give_back(key, revision).await?;
                self.rows.release(key, grant.epoch, true, Cause::Release).await?;
                Err(LeaseError::Unavailable("taking a lease took nearly as long as it lasts".to_owned()))
            }
            other => {
                // Not where it is held already: then the key is that tenure's.
                if !self.held(|held| held.contains_key(key)) {
                    self.give_back(key, revision).await?;
                }
                other
            }
        }
    }

    /// One of the keys of a renewal.
    async fn renew_key(&self, key: &RoleKey, epoch: Epoch) -> Result<Renewal, LeaseError> {
        let Some(tenure) = self.tenure(key, epoch) else { return Ok(Renewal::Lost) };
        let advanced = self.advance(key, tenure.revision).await?;
        self.held(|held| {
            // It may have been released or restarted meanwhile.
            let Some(now) = held.get_mut(key).filter(|now| now.epoch == epoch) else { return };
            match advanced {
                Some(revision) => now.revision = revision.max(now.revision),
                None => {
                    held.remove(key);
                }
            }
        });
        Ok(if advanced.is_some() { Renewal::Confirmed } else { Renewal::Lost })
    }
}

/// A lease's key in the bucket: the role and its partition. What a key may not have in every place is written as its code.
fn name(key: &RoleKey) -> String {
    let mut name = String::new();
    let parts = [Some(key.role.as_str()), Some(key.partition.as_str()).filter(|partition| !partition.is_empty())];
    for (at, part) in parts.into_iter().flatten().enumerate() {
        if at > 0 {
            name.push('/');
        }
        for byte in part.bytes() {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
                name.push(char::from(byte));
            } else {
                // Writing to a string does not fail.
                let _ = write!(name, "={byte:02X}");
            }
        }
    }
    name
}

#[async_trait]
impl LeaseStore for NatsStore {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.lease)
    }

    async fn register(&self) -> Result<(), LeaseError> {
        self.bucket.open().await?;
        self.rows.register().await
    }

    async fn heartbeat(&self) -> Result<u64, LeaseError> {
        self.rows.heartbeat().await
    }

    async fn observe(&self, keys: &[RoleKey]) -> Result<Vec<Seen>, LeaseError> {
        let mut seen = self.rows.observe(keys).await?;
        for seen in &mut seen {
            // The row runs out just after the key should have. Whether it has, only the bucket knows.
            let is_over = seen.expires_in_ms <= 0 && !seen.is_dead && seen.holder.is_some();
            if is_over && seen.holder.as_ref() != Some(&self.me) {
                let holder = self.bucket.read(&name(&seen.key)).await?.and_then(|entry| entry.holder);
                if let Some(holder) = holder.filter(|holder| *holder != self.me) {
                    (seen.holder, seen.expires_in_ms) = (Some(holder), LATE_MS);
                }
            }
        }
        Ok(seen)
    }

    async fn acquire(&self, key: &RoleKey, unchanged: Option<&Seen>) -> Result<Acquired, LeaseError> {
        // Whoever may not have the row does not take the key from whoever may.
        if self.rows.is_barred(key).await? {
            return Ok(Acquired::Taken(self.rows.row(key).await?));
        }
        // The self-fence counts from before the key is asked for: it is the first to run out.
        let sent = BootInstant::now();
        match self.take_key(key).await? {
            Ok(revision) => self.take_row(key, unchanged, sent, revision).await,
            Err(seen) => Ok(Acquired::Taken(seen)),
        }
    }

    async fn restart(&self, key: &RoleKey, epoch: Epoch) -> Result<Acquired, LeaseError> {
        // The key first: it must not run out before what is counted from here.
        let sent = BootInstant::now();
        if self.renew_key(key, epoch).await? != Renewal::Confirmed {
            return Ok(Acquired::Taken(self.rows.row(key).await?));
        }
        let answer = self.rows.restart(key, epoch).await?;
        let Acquired::Granted(grant) = answer else { return Ok(answer) };
        self.held(|held| {
            if let Some(tenure) = held.get_mut(key) {
                tenure.epoch = grant.epoch;
            }
        });
        Ok(Acquired::Granted(Grant { sent, ..grant }))
    }

    async fn renew(&self, held: &[(RoleKey, Epoch)]) -> Result<Vec<Renewal>, LeaseError> {
        let keys = join_all(held.iter().map(|(key, epoch)| self.renew_key(key, *epoch))).await;
        let keys: Vec<Renewal> = keys.into_iter().collect::<Result<_, _>>()?;
        let ours: Vec<(RoleKey, Epoch)> = held
            .iter()
            .zip(&keys)
            .filter(|(_, key)| **key == Renewal::Confirmed)
            .map(|(asked, _)| asked.clone())
            .collect();
        let mut rows = self.rows.renew(&ours).await?.into_iter();
        // Only with both.
        let both = |key: Renewal| if key == Renewal::Confirmed { rows.next().unwrap_or(Renewal::Skipped) } else { key };
        Ok(keys.into_iter().map(both).collect())
    }

    async fn release(&self, key: &RoleKey, epoch: Epoch, clean: bool, cause: Cause) -> Result<(), LeaseError> {
        // The key first: the row's release tells whoever waits that it can be had.
        let tenure = self.tenure(key, epoch);
        let given_back = match tenure {
            Some(tenure) => {
                self.held(|held| held.remove(key));
                self.give_back(key, tenure.revision).await
            }
            None => Ok(()),
        };
        self.rows.release(key, epoch, clean, cause).await.and(given_back)
    }

    async fn placements(&self, keys: &[RoleKey]) -> Result<Vec<Placed>, LeaseError> {
        self.rows.placements(keys).await
    }

    async fn released(&self, at_most: Duration) {
        self.rows.released(at_most).await;
    }

    async fn leave(&self) -> Result<(), LeaseError> {
        self.held(HashMap::clear);
        self.bucket.close().await;
        self.rows.leave().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(role: &str, partition: &str) -> RoleKey {
        RoleKey { role: role.parse().unwrap(), partition: partition.to_owned() }
    }

    #[test]
    fn no_two_leases_have_one_key_and_every_key_is_one_that_nats_takes() {
        let keys = [
            key("a", ""),
            key("a.b", ""),
            key("a", "b"),
            key("a", "b."),
            key("a-b", ""),
            key("a_b", ""),
            key("a", "ü/=2E"),
        ];
        let mut names: Vec<String> = keys.iter().map(name).collect();
        assert_eq!(names[..4], ["a", "a=2Eb", "a/b", "a/b=2E"]);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_/=".contains(c);
        assert!(names.iter().all(|name| name.chars().all(plain)), "{names:?}");
        names.dedup();
        assert_eq!(names.len(), keys.len());
    }
}
