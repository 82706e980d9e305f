//! Leases: which node may run which role, and since when.
//!
//! A lease store answers one question (may I?) and this module keeps what must be true whatever the store is: a holder stops itself
//! before its lease can expire for anyone else, and everything it does is stamped with the epoch it was granted.

mod apart;
pub(crate) mod backends;
pub mod decisions;
mod event;
pub mod held;
pub mod keeper;
pub mod lock;
pub mod nats;
pub mod placement;
pub mod postgres;
mod session;
pub mod single;
mod unfit;

use std::time::Duration;

use async_trait::async_trait;

use crate::clock::BootInstant;
use crate::identity::{Epoch, Holder, RoleKey};

pub use event::LeaseEvent;
pub use held::{Held, HeldControl, LeaseLost};
pub use placement::Placed;
pub use unfit::Unfit;

/// Why a role changed hands, or an instance was started anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// Nobody had held it.
    Start,
    /// The holder let go of it.
    Release,
    /// The holder's death was proved.
    Death,
    /// The holder's lease ran out.
    Expiry,
    /// A person moved it.
    Move,
    /// The holder gave it up for another node to try.
    Yield,
    /// The holder itself starts a new instance: after a trap, an overrun, or a COMMIT whose outcome is unknown.
    Restart,
}

impl Cause {
    /// The word that stands in the tables and in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Release => "release",
            Self::Death => "death",
            Self::Expiry => "expiry",
            Self::Move => "move",
            Self::Yield => "yield",
            Self::Restart => "restart",
        }
    }
}

impl std::str::FromStr for Cause {
    type Err = ();
    fn from_str(word: &str) -> Result<Self, ()> {
        const ALL: [Cause; 7] =
            [Cause::Start, Cause::Release, Cause::Death, Cause::Expiry, Cause::Move, Cause::Yield, Cause::Restart];
        ALL.into_iter().find(|cause| cause.as_str() == word).ok_or(())
    }
}

/// What the store says of one role's lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Which role.
    pub key: RoleKey,
    /// Who holds it; `None` when it was released or never held.
    pub holder: Option<Holder>,
    /// The epoch it is at.
    pub epoch: Epoch,
    /// An opaque mark that changes with every renewal (microseconds of the database's clock).
    pub renewed_at_us: i64,
    /// Until it expires by the database's clock; negative when it has.
    pub expires_in_ms: i64,
    /// Its holder has died, and that is proved.
    pub is_dead: bool,
}

/// A lease that was granted.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Which role.
    pub key: RoleKey,
    /// The epoch of the instance that may now be started.
    pub epoch: Epoch,
    /// When the request was sent: self-fences count from here.
    pub sent: BootInstant,
    /// How long unfenceable effects wait, counted from the receipt of this answer.
    pub hold_back: Duration,
    /// Who held it before.
    pub previous: Option<Holder>,
    /// Why it could be taken.
    pub cause: Cause,
}

/// The answer to a request for a lease.
#[derive(Debug, Clone)]
pub enum Acquired {
    /// It is ours.
    Granted(Grant),
    /// It is somebody else's, or changed since it was looked at; this is what it is now.
    Taken(Seen),
}

/// What became of one lease in a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// Confirmed: the self-fence counts from the sending of this renewal.
    Confirmed,
    /// Its row was locked by somebody: neither confirmed nor lost.
    Skipped,
    /// Another holder or epoch has it, or it has expired.
    Lost,
}

/// What can go wrong with a lease store.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The store did not answer in time, or at all; nothing is known.
    #[error("the lease store did not answer: {0}")]
    Unavailable(String),
    /// This node may not take part; the sentence says why and what to do.
    #[error("{0}")]
    Refused(String),
    /// This boot was taken for dead, or can not show that it lives: it must end everything and go on as another boot.
    #[error("{0}")]
    Dead(String),
}

/// Why the epoch of a lease was not raised, so that no new instance may be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestartError {
    /// The lease is somebody else's, or has run out.
    #[error("the lease is lost")]
    Lost,
    /// The lease store did not answer; the lease may still be held.
    #[error("the lease store did not answer: {0}")]
    Unavailable(String),
}

/// Where leases are kept. Every method has a deadline of its own and is called from the keeper's thread only.
#[async_trait]
pub trait LeaseStore: Send + Sync {
    /// The store's name in `plant.toml`.
    fn name(&self) -> &'static str;

    /// How long a lease lasts; `None` when it never expires (`single`).
    fn lease(&self) -> Option<Duration>;

    /// Makes this node known, and refuses a second live process of the same name.
    async fn register(&self) -> Result<(), LeaseError>;

    /// Says that this node lives, also without any lease; answers how many other nodes do.
    async fn heartbeat(&self) -> Result<u64, LeaseError>;

    /// What the leases of these roles are now.
    async fn observe(&self, keys: &[RoleKey]) -> Result<Vec<Seen>, LeaseError>;

    /// Takes the lease if it is free, expired by the database's clock, or unchanged since `unchanged` was seen one whole lease of this
    /// process's own clock ago.
    async fn acquire(&self, key: &RoleKey, unchanged: Option<&Seen>) -> Result<Acquired, LeaseError>;

    /// Raises the epoch of a lease that is held, for a new instance of the same tenure; waits for commits in flight.
    async fn restart(&self, key: &RoleKey, epoch: Epoch) -> Result<Acquired, LeaseError>;

    /// Renews all the leases that this node holds, in one statement; answers in the order of `held`.
    async fn renew(&self, held: &[(RoleKey, Epoch)]) -> Result<Vec<Renewal>, LeaseError>;

    /// Lets go. `clean`: the instance is dropped and every unfenceable effect was answered.
    async fn release(&self, key: &RoleKey, epoch: Epoch, clean: bool, cause: Cause) -> Result<(), LeaseError>;

    /// What people want of these roles, as it concerns this node. Where there is one node, nothing.
    async fn placements(&self, keys: &[RoleKey]) -> Result<Vec<Placed>, LeaseError> {
        let _ = keys;
        Ok(Vec::new())
    }

    /// Returns when somebody has let go of a lease, has died, or has said where a role is to run, or after `at_most`.
    async fn released(&self, at_most: Duration);

    /// Removes this node from the plant, at the end.
    async fn leave(&self) -> Result<(), LeaseError>;
}
