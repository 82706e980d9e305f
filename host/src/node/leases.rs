//! Which lease store a plant has, and the keeper as the supervisor sees it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::config::{Config, Leases as Kept, Redundancy, Store};
use crate::identity::RoleKey;
use crate::lease::keeper::KeeperHandle;
use crate::lease::lock::LockStore;
use crate::lease::nats::NatsStore;
use crate::lease::postgres::{Me, PostgresStore};
use crate::lease::single::{SinglePostgres, SingleSqlite};
use crate::lease::{Held, LeaseStore, Placed};
use crate::role::supervisor::{Keeper, Release, RestartError};
use crate::store::{Pool, StoreError};

/// The store that the configuration asks for.
pub(super) fn store(config: &Config, me: Me, pool: &Pool) -> Result<Arc<dyn LeaseStore>, StoreError> {
    Ok(match (&config.redundancy, &config.store, pool) {
        (Some(redundancy), store, _) => redundant(redundancy, store, me)?,
        (None, Store::Sqlite { path }, Pool::Sqlite(pool)) => Arc::new(SingleSqlite::new(me, path, pool.clone())),
        (None, store, _) => Arc::new(SinglePostgres::new(store, me)?),
    })
}

fn redundant(redundancy: &Redundancy, store: &Store, me: Me) -> Result<Arc<dyn LeaseStore>, StoreError> {
    let lease = redundancy.lease;
    Ok(match &redundancy.leases {
        Kept::Postgres => Arc::new(PostgresStore::new(store, me, Some(lease))?),
        Kept::PostgresLock { key } => Arc::new(LockStore::new(store, me, lease, *key)?),
        Kept::Nats { bus, bucket } => Arc::new(NatsStore::new(store, me, lease, bus.clone(), bucket.clone())?),
    })
}

/// The longest that a transaction may be left open, for the store's bounds.
pub(super) fn lease(config: &Config) -> Option<Duration> {
    config.redundancy.as_ref().map(|redundancy| redundancy.lease)
}

/// The keeper, as the supervisor sees it.
pub(super) struct Leases(pub(super) Arc<KeeperHandle>);

#[async_trait]
impl Keeper for Leases {
    async fn restart(&self, held: &Held) -> Result<Held, RestartError> {
        self.0.restart(held).await
    }

    async fn release(&self, held: &Held, release: Release) {
        tracing::info!(role = %held.key(), reason = release.reason, "giving the lease back");
        self.0.release(held, release.clean, release.cause, release.cool_down).await;
    }

    fn has_others(&self, key: &RoleKey) -> bool {
        let snapshot = self.0.snapshot();
        let now = snapshot.borrow();
        let flapping = now.placed(key).is_some_and(Placed::is_flapping);
        // Whether one of them can run this role shows when nobody takes what was given up: this one then takes it again. In a pair no
        // role goes anywhere alone, and one that has gone round often enough stays.
        now.others > 0 && !now.is_pair && !flapping
    }
}
