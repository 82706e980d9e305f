//! Watches the other nodes' locks: one that is let go shows that its node has died, milliseconds after it did.
//!
//! A grant proves a death only to a session that saw the lock held first and lived until the grant: when the database restarts every
//! session ends, and whoever comes back first would be granted the lock of a node that lives. So a lock that is free at first sight proves
//! nothing, and its node's leases run out as they would have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::identity::{Holder, NodeName};
use crate::lease::LeaseError;
use crate::lease::session::unavailable;
use crate::store::session;

/// A wait for a lock is given up by the server after this and begun again: a statement that waits holds back the vacuum of every table.
const WAIT: &str = "10s";
/// A server that has not given the wait up by then has lost the session.
const WAIT_AT_MOST: Duration = Duration::from_secs(15);
/// So many nodes watch each node, however many there are.
const WATCHERS: usize = 2;

/// Another node, and the lock that shows that it lives.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Other {
    pub(super) holder: Holder,
    pub(super) lock_key: i64,
}

/// Who is watched from here.
pub(super) struct Watch {
    me: NodeName,
    servers: Vec<PgConnectOptions>,
    again: Duration,
    died: Arc<Notify>,
    watched: Mutex<HashMap<Other, JoinHandle<()>>>,
}

impl Watch {
    /// Watches nobody yet. `again` is the pause after a look that told nothing.
    pub(super) fn new(me: NodeName, servers: Vec<PgConnectOptions>, again: Duration) -> Self {
        let waiting = |server: PgConnectOptions| server.options([("statement_timeout", "0"), ("lock_timeout", WAIT)]);
        let servers = servers.into_iter().map(waiting).collect();
        Self { me, servers, again, died: Arc::default(), watched: Mutex::default() }
    }

    /// Returns when a node that was watched has died.
    pub(super) async fn died(&self) {
        self.died.notified().await;
    }

    /// Watches those of `others` that are this node's to watch, and nobody else.
    pub(super) fn follow(&self, others: &[Other]) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let mine: Vec<&Other> = others.iter().filter(|other| self.is_mine(other, others)).collect();
        watched.retain(|other, task| {
            let stays = mine.contains(&other) && !task.is_finished();
            if !stays {
                task.abort();
            }
            stays
        });
        for other in mine {
            watched.entry(other.clone()).or_insert_with(|| {
                tokio::spawn(watch(self.servers.clone(), other.clone(), self.again, self.died.clone()))
            });
        }
    }

    /// Rendezvous hashing: everyone finds the same two watchers for each node, and few change when one comes or goes.
    fn is_mine(&self, watched: &Other, others: &[Other]) -> bool {
        let mine = weight(&self.me, &watched.holder.node);
        let heavier = others.iter().filter(|other| {
            other.holder.node != watched.holder.node && weight(&other.holder.node, &watched.holder.node) > mine
        });
        heavier.count() < WATCHERS
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.follow(&[]);
    }
}

fn weight(watcher: &NodeName, watched: &NodeName) -> [u8; 32] {
    Sha256::new().chain_update(watcher.as_str()).chain_update([0]).chain_update(watched.as_str()).finalize().into()
}

/// Watches one boot of a node until it is dead.
async fn watch(servers: Vec<PgConnectOptions>, other: Other, again: Duration, died: Arc<Notify>) {
    loop {
        match wait_for_death(&servers, &other).await {
            Ok(true) => {
                tracing::warn!(node = %other.holder.node, boot = %other.holder.boot, "a node has died");
                return died.notify_one();
            }
            Ok(false) => {}
            Err(error) => tracing::debug!(node = %other.holder.node, %error, "a node cannot be watched just now"),
        }
        // Not in step with the other watcher.
        sleep(again.mul_f64(0.25 + fastrand::f64() / 4.0)).await;
    }
}

/// Waits for the lock and, once it is granted, marks the boot dead; `false` when nothing is proved.
async fn wait_for_death(servers: &[PgConnectOptions], other: &Other) -> Result<bool, LeaseError> {
    let opened = session::open(servers).await.map_err(|error| LeaseError::Unavailable(error.to_string()))?;
    let mut connection = opened.0.connection;
    let proved = timeout(WAIT_AT_MOST, see_held(&mut connection, other)).await;
    if !proved.map_err(|_| silent())?.map_err(|error| unavailable(&error))? {
        let _ = connection.close().await;
        return Ok(false);
    }
    loop {
        // In shared mode: a watcher that is frozen keeps no other one waiting.
        let waiting = sqlx::query("SELECT pg_advisory_lock_shared($1)").bind(other.lock_key).execute(&mut connection);
        match timeout(WAIT_AT_MOST, waiting).await.map_err(|_| silent())? {
            Ok(_) => {
                let marked = timeout(WAIT_AT_MOST, mark_dead(&mut connection, other)).await.map_err(|_| silent())?;
                // The lock goes with the session: the boot does not come back.
                let _ = connection.close().await;
                return marked.map_err(|error| unavailable(&error));
            }
            Err(error) if is_lock_timeout(&error) => {}
            Err(error) => return Err(unavailable(&error)),
        }
    }
}

fn silent() -> LeaseError {
    LeaseError::Unavailable("the session that waits for a node's lock is gone".to_owned())
}

/// Whether its lock is held just now; a lock that is free is let go again.
async fn see_held(connection: &mut PgConnection, other: &Other) -> Result<bool, sqlx::Error> {
    let free: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock_shared($1)")
        .bind(other.lock_key)
        .fetch_one(&mut *connection)
        .await?;
    if free {
        sqlx::query("SELECT pg_advisory_unlock_shared($1)").bind(other.lock_key).execute(connection).await?;
    }
    Ok(!free)
}

/// A transaction of its own; whether the boot was the node's, and had not left in an orderly way.
async fn mark_dead(connection: &mut PgConnection, other: &Other) -> Result<bool, sqlx::Error> {
    const MARK: &str = "
        WITH gone AS (SELECT node, boot_id FROM plant_nodes WHERE node = $1 AND boot_id = $2),
             marked AS (INSERT INTO plant_deaths (boot_id, node, died_at) SELECT boot_id, node, clock_timestamp() FROM gone
                        ON CONFLICT DO NOTHING)
        SELECT EXISTS (SELECT FROM gone)";
    let Holder { node, boot } = &other.holder;
    sqlx::query_scalar(MARK).bind(node.as_str()).bind(boot.0).fetch_one(connection).await
}

fn is_lock_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|answer| answer.code().as_deref() == Some("55P03"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::BootId;

    fn others(names: &[&str]) -> Vec<Other> {
        let other =
            |name: &&str| Other { holder: Holder { node: name.parse().unwrap(), boot: BootId::random() }, lock_key: 1 };
        names.iter().map(other).collect()
    }

    #[test]
    fn every_node_is_watched_by_two_others_and_in_a_pair_by_the_one_there_is() {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        for (nodes, wanted) in [(7, 2), (3, 2), (2, 1)] {
            for watched in &names[..nodes] {
                let watchers = names[..nodes].iter().filter(|watcher| *watcher != watched).filter(|watcher| {
                    let rest: Vec<&str> = names[..nodes].iter().copied().filter(|name| name != *watcher).collect();
                    let others = others(&rest);
                    let watched = others.iter().find(|other| other.holder.node.as_str() == *watched).unwrap();
                    Watch::new(watcher.parse().unwrap(), Vec::new(), Duration::ZERO).is_mine(watched, &others)
                });
                assert_eq!(watchers.count(), wanted, "{watched} of {nodes}");
            }
        }
    }
}
