//! `plant:db`: transactions on the plant's database.
//!
//! The client it drives is [`crate::store::Database`], which opens, fences and commits. This side keeps three promises to the rest of the
//! host: at most one transaction is open per instance; none outlives the call it was opened in; and when the answer to a COMMIT was lost, or the
//! fence said that the role has moved on, the actor hears of it whatever the guest makes of the error.

mod convert;
pub mod grant;
mod host;

use std::sync::Arc;

use wasmtime::component::{Resource, ResourceTable};

pub use grant::Grant;

use crate::clock::wall_nanos;
use crate::store::{Database, DbError, Transaction};

/// What people are told of this capability.
pub const ABOUT: super::kind::About = super::kind::About {
    package: "plant:db",
    kind: super::kind::Kind::Fenced,
    what: "reads and writes the plant's database in transactions",
};

/// The host's side of a guest's `transaction`; rolled back when dropped.
pub struct OpenTransaction {
    // None once it was committed or rolled back.
    open: Option<Box<dyn Transaction>>,
    now: i64,
}

/// What an instance may do with the database, and what it has open.
pub struct Db {
    database: Arc<dyn Database>,
    grant: Grant,
    open: Option<u32>,
    fate: Fate,
    ahead: i64,
}

/// What the actor must know of the transactions of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// All of them ended in a way that is known.
    Known,
    /// The answer to a COMMIT was lost.
    OutcomeUnknown,
    /// The database says that the lease is somebody else's, or has run out.
    LeaseLost,
}

impl Db {
    /// A database for one instance.
    #[must_use]
    pub fn new(database: Arc<dyn Database>, grant: Grant) -> Self {
        Self { database, grant, open: None, fate: Fate::Known, ahead: 0 }
    }

    /// What became of this instance's transactions so far.
    #[must_use]
    pub fn fate(&self) -> Fate {
        self.fate
    }

    /// How far the database's clock was ahead of this box's when a transaction began last, in nanoseconds; 0 before the first.
    ///
    /// Guests are told times by the database's clock: a box's own may be minutes off, and nobody would know.
    #[must_use]
    pub fn clock_ahead(&self) -> i64 {
        self.ahead
    }

    /// Rolls back what a call left open; whether there was anything.
    pub fn roll_back_left_open(&mut self, table: &mut ResourceTable) -> bool {
        let Some(open) = self.open.take() else { return false };
        match table.get_mut(&Resource::<OpenTransaction>::new_borrow(open)) {
            Ok(transaction) => transaction.open.take().is_some(),
            Err(_) => false,
        }
    }

    /// The database said `now` between then, `asked_at` by this box's clock, and now.
    fn compare_clocks(&mut self, asked_at: i64, now: i64) {
        let half = wall_nanos().saturating_sub(asked_at).max(0) / 2;
        self.ahead = now.saturating_sub(asked_at.saturating_add(half));
    }

    fn note(&mut self, error: &DbError) {
        match error {
            DbError::OutcomeUnknown => self.fate = Fate::OutcomeUnknown,
            DbError::LeaseLost if self.fate == Fate::Known => self.fate = Fate::LeaseLost,
            _ => {}
        }
    }
}
