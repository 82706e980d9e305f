//! How long one call into a guest may take, and how it is ended.
//!
//! At each tick of the engine's clock a running guest is asked twice: has its call run out of time, and is its lease over? If neither,
//! it lets the other tasks of its runtime go first and continues. A call that waits in the host instead of computing is ended by the
//! runtime's timer. Both ways end in the same error, and the store must be dropped after either.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wasmtime::{Store, UpdateDeadline};

use crate::clock::BootInstant;

/// Why the host ended a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// It took longer than it may.
    #[error(
        "the call took longer than the {0:?} it may take: make its batches smaller, or raise the role's `limits.call`"
    )]
    Overrun(Duration),
    /// The lease is over: nothing may be done under it any more.
    #[error("the lease is lost")]
    LeaseLost,
    /// Guest code ran outside of [`CallDeadline::call`]: the host's own mistake.
    #[error("guest code ran without a deadline")]
    Unbounded,
}

/// How a call into a guest ended badly. Drop the store after any of them.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The host ended it.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The guest trapped, or the host's side of an import failed.
    #[error("{0:#}")]
    Trap(wasmtime::Error),
}

impl From<wasmtime::Error> for CallError {
    fn from(error: wasmtime::Error) -> Self {
        match error.downcast_ref::<Stopped>() {
            Some(stopped) => Self::Stopped(*stopped),
            None => Self::Trap(error),
        }
    }
}

/// The deadline of one store's calls. Cheap to clone.
#[derive(Clone)]
pub struct CallDeadline(Arc<Inner>);

struct Inner {
    /// The end of the call in hand, on `CLOCK_BOOTTIME`; 0 between calls.
    until: AtomicU64,
    /// How long the call in hand may take, in nanoseconds; for the error.
    at_most: AtomicU64,
    lease_over: Box<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for CallDeadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallDeadline").field("until", &self.0.until).finish_non_exhaustive()
    }
}

impl CallDeadline {
    /// A deadline for the calls of one store. `lease_over` is asked at every tick of a running call, so it must be quick:
    /// `move || held.check().is_err()`.
    pub fn new(lease_over: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let inner = Inner { until: AtomicU64::new(0), at_most: AtomicU64::new(0), lease_over: Box::new(lease_over) };
        Self(Arc::new(inner))
    }

    /// Runs one call (or the instantiation) of the store and ends it after `at_most`, or soon after the lease is over while it computes.
    ///
    /// One call at a time. While it waits in an import, the end of the lease is not noticed here: imports watch the lease themselves.
    ///
    /// # Errors
    /// Every [`CallError`]; the store is of no use after one.
    pub async fn call<R>(
        &self,
        at_most: Duration,
        call: impl Future<Output = wasmtime::Result<R>>,
    ) -> Result<R, CallError> {
        if (self.0.lease_over)() {
            return Err(Stopped::LeaseLost.into());
        }
        let _running = self.begin(at_most);
        match tokio::time::timeout(at_most, call).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) if (self.0.lease_over)() => Err(Stopped::LeaseLost.into()),
            Err(_) => Err(Stopped::Overrun(at_most).into()),
        }
    }

    fn begin(&self, at_most: Duration) -> Running<'_> {
        let nanos = u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX);
        self.0.at_most.store(nanos, Ordering::Relaxed);
        self.0.until.store((BootInstant::now() + at_most).as_nanos(), Ordering::Release);
        Running(self)
    }

    fn verdict(&self) -> Result<(), Stopped> {
        if (self.0.lease_over)() {
            return Err(Stopped::LeaseLost);
        }
        match self.0.until.load(Ordering::Acquire) {
            0 => Err(Stopped::Unbounded),
            until if BootInstant::from_nanos(until).is_past() => {
                Err(Stopped::Overrun(Duration::from_nanos(self.0.at_most.load(Ordering::Relaxed))))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn install<T: 'static>(&self, store: &mut Store<T>) {
        let deadline = self.clone();
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(move |_| {
            deadline.verdict()?;
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
        });
    }
}

/// A call in hand; dropping it, also by cancellation, ends the guest's right to run.
struct Running<'a>(&'a CallDeadline);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.0.until.store(0, Ordering::Release);
    }
}
