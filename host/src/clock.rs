//! The one clock inside a process: `CLOCK_BOOTTIME`, which goes on while the box is suspended.
//!
//! A box that slept must notice the time it slept, so no deadline of a lease is kept on `std::time::Instant`
//! (`CLOCK_MONOTONIC` stands still during a suspend). Timers that only wake somebody up may use tokio's; whoever wakes looks here.

use std::ops::Add;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment on `CLOCK_BOOTTIME`, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(u64);

impl BootInstant {
    /// Later than every moment: the deadline of what never ends.
    pub const NEVER: Self = Self(u64::MAX);

    /// Now.
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    /// Nanoseconds since the box started.
    #[must_use]
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment so many nanoseconds after the box started.
    #[must_use]
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// How long from `earlier` until this moment; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How long until this moment; zero when it is past.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.since(Self::now())
    }

    /// Whether this moment is past.
    #[must_use]
    pub fn is_past(self) -> bool {
        Self::now() >= self
    }
}

impl Add<Duration> for BootInstant {
    type Output = Self;
    fn add(self, more: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(more.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Nanoseconds since the Unix epoch by this box's clock: for what people read, never for a decision about a lease.
#[must_use]
pub fn wall_nanos() -> i64 {
    chrono::Utc::now().timestamp_nanos_opt().unwrap_or(0)
}
