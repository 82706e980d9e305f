//! How an instance can end.

use std::time::Duration;

/// Why an instance has ended; its store is dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Ending {
    /// It was drained: stopped in an orderly way.
    #[error("it was drained")]
    Stopped,
    /// The lease is gone.
    #[error("the lease was lost")]
    Lost,
    /// The database says that the lease is somebody else's, though nobody has told this node yet.
    #[error("the database refused its commit: the lease is somebody else's or has run out")]
    Fenced,
    /// The answer to a COMMIT was lost, so that what the instance remembers may be wrong.
    #[error("the answer to a COMMIT was lost, so that a new instance must read again what is booked")]
    OutcomeUnknown,
    /// `start` answered an error.
    #[error("its start failed: {0}")]
    StartFailed(String),
    /// It could not be instantiated.
    #[error("it could not be instantiated: {0}")]
    NotInstantiated(String),
    /// The guest trapped.
    #[error("it trapped in {export}: {cause}")]
    Trapped {
        /// The export that was called.
        export: &'static str,
        /// What happened there.
        cause: String,
    },
    /// A call took longer than it may.
    #[error("its {export} took longer than {limit:?} and was interrupted")]
    Overrun {
        /// The export that was called.
        export: &'static str,
        /// How long it may take.
        limit: Duration,
    },
    /// The host failed, not the guest.
    #[error("the host failed: {0}")]
    Host(String),
}

impl Ending {
    /// One word for the metrics.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Lost | Self::Fenced => "lost",
            Self::OutcomeUnknown => "outcome-unknown",
            Self::StartFailed(_) | Self::NotInstantiated(_) => "failed-start",
            Self::Trapped { .. } => "trapped",
            Self::Overrun { .. } => "overrun",
            Self::Host(_) => "host",
        }
    }
}
