//! `Held`: the proof that a lease is ours, which every effect takes by reference.
//!
//! Only the keeper makes one and only the keeper prolongs it. Everybody else can ask whether it still holds, and a question that is
//! asked after the deadline is answered without asking the store: a process that was frozen finds out before it does anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::BootInstant;
use crate::identity::{Epoch, Holder, RoleKey};
use crate::lease::Cause;

/// The lease is gone: nothing may be done under it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lease is lost")]
pub struct LeaseLost;

#[derive(Debug)]
struct Inner {
    key: RoleKey,
    holder: Holder,
    epoch: Epoch,
    deadline: AtomicU64,
    effects_from: BootInstant,
    draining: watch::Sender<Option<Cause>>,
    lost: watch::Sender<bool>,
}

/// A lease that is held, for one epoch. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Held(Arc<Inner>);

/// The keeper's side of a `Held`: prolongs and ends it.
#[derive(Debug, Clone)]
pub struct HeldControl(Arc<Inner>);

impl Held {
    /// A lease as it was granted: it holds until `deadline`, and its unfenceable effects wait until `effects_from`.
    #[must_use]
    pub fn new(
        key: RoleKey,
        holder: Holder,
        epoch: Epoch,
        deadline: BootInstant,
        effects_from: BootInstant,
    ) -> (Self, HeldControl) {
        let inner = Arc::new(Inner {
            key,
            holder,
            epoch,
            deadline: AtomicU64::new(deadline.as_nanos()),
            effects_from,
            draining: watch::Sender::new(None),
            lost: watch::Sender::new(false),
        });
        (Self(inner.clone()), HeldControl(inner))
    }

    /// Which role.
    #[must_use]
    pub fn key(&self) -> &RoleKey {
        &self.0.key
    }

    /// Who holds it: this process.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.0.holder
    }

    /// The epoch that everything done under it is stamped with.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.0.epoch
    }

    /// Whether it still holds, by this process's own clock; asks nobody.
    ///
    /// # Errors
    /// [`LeaseLost`] when the keeper has ended it or its self-fence deadline has passed.
    pub fn check(&self) -> Result<(), LeaseLost> {
        if *self.0.lost.borrow() || self.deadline().is_past() { Err(LeaseLost) } else { Ok(()) }
    }

    /// The moment at which this process fences itself if no renewal is confirmed.
    #[must_use]
    pub fn deadline(&self) -> BootInstant {
        BootInstant::from_nanos(self.0.deadline.load(Ordering::Acquire))
    }

    /// How long until then.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if *self.0.lost.borrow() { Duration::ZERO } else { self.deadline().remaining() }
    }

    /// How long unfenceable effects still wait; `None` when they need not.
    #[must_use]
    pub fn hold_back(&self) -> Option<Duration> {
        let left = self.0.effects_from.remaining();
        (!left.is_zero()).then_some(left)
    }

    /// Returns when the keeper has ended it.
    pub async fn lost(&self) {
        let mut lost = self.0.lost.subscribe();
        // The sender lives as long as `self`: this ends only when the value is true.
        let _ = lost.wait_for(|lost| *lost).await;
    }

    /// Whether the role is being drained: what is in hand is finished and nothing new begun.
    #[must_use]
    pub fn draining(&self) -> bool {
        self.drain_cause().is_some()
    }

    /// Why it is being drained, if it is.
    #[must_use]
    pub fn drain_cause(&self) -> Option<Cause> {
        *self.0.draining.borrow()
    }

    /// Begins to drain; what was said first of why stays.
    pub fn drain(&self, cause: Cause) {
        self.0.draining.send_if_modified(|draining| {
            let first = draining.is_none();
            draining.get_or_insert(cause);
            first
        });
    }

    /// Returns when somebody has begun to drain.
    pub async fn drain_begun(&self) {
        let mut draining = self.0.draining.subscribe();
        // The sender lives as long as `self`: this ends only when the value is true.
        let _ = draining.wait_for(Option::is_some).await;
    }

    /// Returns when it does not hold any more: the keeper has ended it, or its self-fence deadline has passed and the keeper, for whatever
    /// reason, has said nothing.
    pub async fn gone(&self) {
        while self.check().is_ok() {
            // The deadline moves with every renewal, so that this wakes about once in a lease and looks again.
            let nap = self.deadline().remaining().min(Duration::from_secs(60));
            tokio::select! {
                () = self.lost() => {}
                () = tokio::time::sleep(nap) => {}
            }
        }
    }
}

impl HeldControl {
    /// Moves the self-fence deadline forward; a deadline that is not later changes nothing.
    pub fn prolong(&self, deadline: BootInstant) {
        self.0.deadline.fetch_max(deadline.as_nanos(), Ordering::AcqRel);
    }

    /// Ends it, for everybody and for ever.
    pub fn end(&self) {
        self.0.lost.send_replace(true);
    }

    /// The other side.
    #[must_use]
    pub fn held(&self) -> Held {
        Held(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    use crate::identity::BootId;

    fn held(deadline: BootInstant) -> (Held, HeldControl) {
        let key = RoleKey { role: "reader".parse().unwrap(), partition: String::new() };
        let holder = Holder { node: "a".parse().unwrap(), boot: BootId(Uuid::nil()) };
        Held::new(key, holder, Epoch { timeline: 1, number: 1 }, deadline, BootInstant::from_nanos(0))
    }

    #[test]
    fn a_lease_past_its_deadline_is_lost_without_asking_anybody() {
        let (held, _control) = held(BootInstant::from_nanos(1));
        assert_eq!(held.check(), Err(LeaseLost));
    }

    #[test]
    fn a_lease_that_was_ended_is_not_revived_by_a_late_renewal() {
        let (held, control) = held(BootInstant::NEVER);
        control.end();
        control.prolong(BootInstant::NEVER);
        assert_eq!(held.check(), Err(LeaseLost));
    }

    #[tokio::test]
    async fn whoever_waits_is_woken_at_the_deadline_though_the_keeper_says_nothing() {
        let (held, _control) = held(BootInstant::now() + Duration::from_millis(20));
        held.gone().await;
        assert_eq!(held.check(), Err(LeaseLost));
    }

    #[tokio::test]
    async fn whoever_waits_for_the_loss_is_woken() {
        let (held, control) = held(BootInstant::NEVER);
        let waiting = tokio::spawn(async move { held.lost().await });
        control.end();
        waiting.await.unwrap();
    }
}
