//! One role's time with its lease on this node: instances one after the other, until it is released or lost.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::State;
use super::backoff::{Failures, LONGEST};
use super::ending::Ending;
use super::figures::RoleFigures;
use super::instance::{self, Job};
use super::reports::Reporter;
use super::runnable::Runnable;
use super::supervisor::{Means, Release, RestartError};
use super::threads::Threads;
use crate::clock::BootInstant;
use crate::lease::{Cause, Held};

/// How long sessions may take to close: a server that does not answer does not keep a role from moving.
const CLOSING: Duration = Duration::from_secs(3);
/// A new instance after an unknown COMMIT waits so long: the database that lost the answer is likely just coming back.
const AFTER_UNKNOWN: Duration = Duration::from_millis(100);

pub(super) struct Tenure {
    means: Means,
    runnable: Arc<Runnable>,
    threads: Arc<Threads>,
    figures: RoleFigures,
    reporter: Reporter,
    drain: CancellationToken,
    held: Held,
    failures: Failures,
}

/// What comes after an instance.
enum Next {
    /// Another instance, after a pause.
    Again { pause: Duration, reason: String },
    /// The lease is given back.
    Release(Release),
    /// The lease is somebody else's.
    Lost,
}

impl Tenure {
    pub(super) fn new(
        means: Means,
        runnable: Arc<Runnable>,
        threads: Arc<Threads>,
        figures: RoleFigures,
        drain: CancellationToken,
        held: Held,
    ) -> Self {
        let module = runnable.module();
        let reporter =
            means.reports.of(held.key().clone(), Some(module.manifest.version.clone()), Some(module.sha256.clone()));
        let failures = Failures::none(means.budget);
        Self { means, runnable, threads, figures, reporter, drain, held, failures }
    }

    pub(super) async fn run(mut self) {
        loop {
            let next = self.one_instance().await;
            let next = match next {
                Next::Again { pause, reason } => self.again(pause, reason).await,
                other => other,
            };
            match next {
                Next::Again { .. } => {}
                Next::Lost => {
                    self.reporter.state(State::Standby, "the lease was lost", None);
                    return;
                }
                Next::Release(release) => {
                    self.reporter.state(State::Standby, release.reason.clone(), None);
                    self.means.keeper.release(&self.held, release).await;
                    return;
                }
            }
        }
    }

    /// Runs one instance. When this returns its store is dropped and its sessions are closed.
    async fn one_instance(&mut self) -> Next {
        let (held, epoch) = (self.held.clone(), self.held.epoch());
        self.reporter.state(State::Promoting, "its instance is starting", Some(epoch));
        let opc = self.means.opc.open(&held);
        let job = Job {
            runnable: self.runnable.clone(),
            held,
            database: self.means.database.clone(),
            opc: opc.clone(),
            reporter: self.reporter.clone(),
            figures: self.figures.clone(),
            grace: self.means.grace,
        };
        let ending = self.await_end(job).await;
        if tokio::time::timeout(CLOSING, opc.connections.close()).await.is_err() {
            tracing::warn!(role = %self.held.key(), "its OPC UA sessions did not close in {CLOSING:?}");
        }
        self.figures.ended(ending.word());
        self.after(ending)
    }

    async fn await_end(&self, job: Job) -> Ending {
        let Some(mut running) = self.threads.spawn(instance::run(job)) else {
            return Ending::Host("its threads have ended".to_owned());
        };
        let outcome = tokio::select! {
            outcome = &mut running => outcome,
            () = self.drain.cancelled() => {
                self.held.drain(Cause::Release);
                running.await
            }
        };
        outcome.unwrap_or_else(|error| Ending::Host(error.to_string()))
    }

    fn after(&mut self, ending: Ending) -> Next {
        let (key, epoch) = (self.held.key(), self.held.epoch());
        let module = self.runnable.module();
        let (name, version) = (&module.name, &module.manifest.version);
        match ending {
            Ending::Lost => {
                tracing::info!(role = %key, %epoch, "the lease was lost, its instance is gone");
                Next::Lost
            }
            Ending::Stopped => {
                tracing::info!(role = %key, %epoch, "it was drained, its instance is gone");
                self.drained()
            }
            Ending::OutcomeUnknown | Ending::Fenced => {
                tracing::warn!(role = %key, %epoch, module = name, version, "a new instance is started: {ending}");
                Next::Again { pause: AFTER_UNKNOWN, reason: ending.to_string() }
            }
            failure => {
                let pause = self.failures.count(BootInstant::now());
                let reason = format!("{name} {version}: {failure}");
                tracing::error!(role = %key, %epoch, module = name, version, "its instance ended: {failure}");
                self.after_failure(pause, reason)
            }
        }
    }

    fn after_failure(&self, pause: Duration, reason: String) -> Next {
        if !self.failures.spent() {
            return Next::Again { pause, reason };
        }
        if self.means.keeper.has_others(self.held.key()) {
            let cool_down = Some(self.means.budget.cool_down);
            return Next::Release(given(Cause::Yield, format!("it failed too often here, last: {reason}"), cool_down));
        }
        let reason = format!("it fails again and again, and no other node could run it: {reason}");
        Next::Again { pause: LONGEST, reason }
    }

    fn drained(&self) -> Next {
        let cause = self.held.drain_cause().unwrap_or(Cause::Release);
        let reason = if cause == Cause::Move { "it was moved away on purpose" } else { "it was drained" };
        Next::Release(given(cause, reason.to_owned(), None))
    }

    /// Waits for the pause and asks for a new epoch; gives up on the way when the role is drained or the lease lost.
    async fn again(&mut self, pause: Duration, reason: String) -> Next {
        self.reporter.state(State::Backoff, reason.clone(), Some(self.held.epoch()));
        let mut pause = pause;
        loop {
            tokio::select! {
                () = self.held.gone() => return Next::Lost,
                () = self.held.drain_begun() => return self.drained(),
                () = self.drain.cancelled() => return self.drained(),
                () = tokio::time::sleep(pause) => {}
            }
            match self.means.keeper.restart(&self.held).await {
                Ok(held) => {
                    self.held = held;
                    return Next::Again { pause, reason };
                }
                Err(RestartError::Lost) => return Next::Lost,
                Err(error @ RestartError::Unavailable(_)) => {
                    self.reporter.state(State::Backoff, format!("{reason}; and {error}"), Some(self.held.epoch()));
                    pause = pause.saturating_mul(2).min(LONGEST);
                }
            }
        }
    }
}

fn given(cause: Cause, reason: String, cool_down: Option<Duration>) -> Release {
    Release { cause, reason, clean: true, cool_down }
}
