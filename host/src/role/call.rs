//! One call into a guest: with a deadline, under a lease.
//!
//! A guest that computes is interrupted by the engine's ticks, which look at the lease and at the deadline; one that waits for the host is
//! dropped by the `select` below. Either way the store is of no more use, and goes.

use std::time::Duration;

use wasmtime::Store;

use super::ending::Ending;
use super::figures::RoleFigures;
use crate::capability::GuestState;
use crate::clock::BootInstant;
use crate::engine::{CallDeadline, CallError, Stopped};
use crate::lease::Held;

/// What all the calls of one instance have in common.
pub(super) struct Caller {
    held: Held,
    deadline: CallDeadline,
    figures: RoleFigures,
    /// How much longer a call may take once a drain has begun.
    grace: Duration,
}

impl Caller {
    pub(super) fn new(held: Held, figures: RoleFigures, grace: Duration) -> Self {
        let watched = held.clone();
        let deadline = CallDeadline::new(move || watched.check().is_err());
        Self { held, deadline, figures, grace }
    }

    pub(super) fn deadline(&self) -> &CallDeadline {
        &self.deadline
    }

    /// Calls `export`. The answer is the guest's; an error is the end of the instance, whose store must then be dropped.
    pub(super) async fn call<T>(
        &self,
        export: &'static str,
        at_most: Duration,
        store: &mut Store<GuestState>,
        call: impl AsyncFnOnce(&mut Store<GuestState>) -> wasmtime::Result<T>,
    ) -> Result<T, Ending> {
        let began = BootInstant::now();
        let outcome = tokio::select! {
            biased;
            () = self.held.gone() => Err(Ending::Lost),
            () = self.grace_is_over() => Err(Ending::Stopped),
            answer = self.deadline.call(at_most, call(store)) => answer.map_err(|error| self.ending(export, error, store)),
        };
        let word = outcome.as_ref().map_or_else(Ending::word, |_| "returned");
        self.figures.call(export, word, BootInstant::now().since(began));
        outcome
    }

    /// What a bad end of a call means for the instance.
    fn ending(&self, export: &'static str, error: CallError, store: &Store<GuestState>) -> Ending {
        // A host function that finds the lease gone ends the call as well, and that is no fault of the guest.
        if self.held.check().is_err() {
            return Ending::Lost;
        }
        let cause = match error {
            CallError::Stopped(Stopped::LeaseLost) => return Ending::Lost,
            CallError::Stopped(Stopped::Overrun(limit)) => return Ending::Overrun { export, limit },
            CallError::Stopped(stopped @ Stopped::Unbounded) => return Ending::Host(stopped.to_string()),
            CallError::Trap(error) => match error.downcast_ref::<wasmtime::Trap>() {
                Some(trap) => trap.to_string(),
                None => error.root_cause().to_string(),
            },
        };
        match store.data().limits.hit() {
            Some(limit) => Ending::Trapped { export, cause: format!("{limit} ({cause})") },
            None => Ending::Trapped { export, cause },
        }
    }

    async fn grace_is_over(&self) {
        self.held.drain_begun().await;
        tokio::time::sleep(self.grace).await;
    }
}
