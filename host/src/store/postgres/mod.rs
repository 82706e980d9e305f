//! Roles' transactions on PostgreSQL.
//!
//! The check of the fence and the COMMIT leave in one message, so that nothing can happen between them; a connection is used again
//! only when it is known to be outside a transaction; and a batch of any size costs one round trip.

mod connections;
mod decode;
mod encode;
mod kind;
mod notes;
mod plan;
mod transaction;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use sqlx::Row;
use tokio::time::timeout;

use super::error::StoreError;
use super::{Bounds, Database, DbError, Options, Transaction, session};
use crate::lease::{Held, backends};
use connections::{Connections, Lent};
use notes::Notes;
use plan::Plans;
use transaction::PostgresTransaction;

/// Opens transactions on PostgreSQL, on connections that belong to this object alone.
#[derive(Debug, Clone)]
pub struct PostgresDatabase(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    connections: Connections,
    bounds: Bounds,
    plans: Plans,
    notes: Notes,
    fence_refusals: AtomicU64,
}

impl PostgresDatabase {
    /// A database by its URLs: a primary and its standbys, in any order, with the login of whoever the transactions are for. Connects
    /// when the first transaction begins.
    ///
    /// # Errors
    /// [`StoreError::Configuration`] when a URL cannot be read.
    pub fn new(urls: &[String], bounds: Bounds) -> Result<Self, StoreError> {
        let servers = session::options(urls, &bounds)?;
        let connections = Connections::new(servers, bounds.transactions);
        Ok(Self(Arc::new(Shared {
            connections,
            bounds,
            plans: Plans::default(),
            notes: Notes::default(),
            fence_refusals: AtomicU64::new(0),
        })))
    }
}

impl Shared {
    /// A connection of this name with a transaction open on it, and the moment it was opened in microseconds since the Unix epoch.
    async fn begin(&self, begin: &'static str, name: &str) -> Result<(Lent, i64), DbError> {
        while let Some(mut lent) = self.connections.used(name) {
            // One that was kept may have lost its server meanwhile, and then says so here, where nothing is lost with it.
            if let Ok(now) = open(&mut lent, begin, name).await {
                return Ok((lent, now));
            }
            self.connections.forget();
        }
        let mut lent = self.connections.fresh().await?;
        let now = open(&mut lent, begin, name).await.map_err(|e| transaction::failure(&e))?;
        Ok((lent, now))
    }
}

async fn open(lent: &mut Lent, begin: &'static str, name: &str) -> Result<i64, sqlx::Error> {
    if lent.name != name {
        let naming = sqlx::query("SELECT set_config('application_name', $1, false)").bind(name);
        naming.execute(&mut lent.session.connection).await?;
        name.clone_into(&mut lent.name);
    }
    sqlx::raw_sql(begin).fetch_one(&mut lent.session.connection).await?.try_get(0)
}

/// BEGIN with the question for the database's clock: one message. The isolation and access modes are spelled out, so that no default
/// of the login or the database changes them.
fn begin_statement(options: Options) -> &'static str {
    macro_rules! begin {
        ($modes:literal) => {
            concat!("BEGIN ISOLATION LEVEL ", $modes, "; SELECT (extract(epoch FROM now()) * 1000000)::bigint")
        };
    }
    match (options.serializable, options.read_only) {
        (false, false) => begin!("READ COMMITTED, READ WRITE"),
        (false, true) => begin!("READ COMMITTED, READ ONLY"),
        (true, false) => begin!("SERIALIZABLE, READ WRITE"),
        (true, true) => begin!("SERIALIZABLE, READ ONLY"),
    }
}

#[async_trait]
impl Database for PostgresDatabase {
    async fn begin(&self, held: &Held, options: Options) -> Result<Box<dyn Transaction>, DbError> {
        held.check().map_err(|_| DbError::LeaseLost)?;
        let shared = &self.0;
        let name = backends::name(held.holder().boot, held.key());
        let opening = async {
            let permit = shared.connections.permit().await?;
            let (lent, now) = shared.begin(begin_statement(options), &name).await?;
            Ok::<_, DbError>((permit, lent, now))
        };
        let limit = shared.bounds.acquire.min(held.remaining());
        let (permit, lent, micros) = match timeout(limit, opening).await {
            Ok(opened) => opened?,
            Err(_) if held.check().is_err() => return Err(DbError::LeaseLost),
            Err(_) => return Err(DbError::Unavailable("no connection was free in time".to_owned())),
        };
        Ok(Box::new(PostgresTransaction::new(self.0.clone(), held.clone(), options, lent, permit, micros)))
    }

    async fn keep_warm(&self) {
        let connections = &self.0.connections;
        let lent = match connections.used("") {
            Some(lent) => Ok(lent),
            None => connections.fresh().await,
        };
        let Ok(mut lent) = lent else { return };
        // One whose server has gone is dropped; the next look opens another.
        if sqlx::raw_sql("SELECT 1").execute(&mut lent.session.connection).await.is_ok() {
            connections.give_back(lent);
        }
    }

    fn fence_refusals(&self) -> u64 {
        self.0.fence_refusals.load(Ordering::Relaxed)
    }
}
