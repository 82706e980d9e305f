//! The instance of a role: one task that owns the guest's store.
//!
//! It takes what comes next (samples, a connection's change, a tick), calls the guest, and handles the outcome. Nobody else touches the
//! store, and when this task returns the store is dropped, and with it everything that the guest had begun.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use wasmtime::Store;

use super::State;
use super::call::Caller;
use super::ending::Ending;
use super::figures::RoleFigures;
use super::handlers::{Event, Handlers};
use super::reports::Reporter;
use super::runnable::Runnable;
use crate::capability::db::{Db, Fate};
use crate::capability::metrics::Series;
use crate::capability::opc::{Opc, Sessions};
use crate::capability::timer::{Schedule, Tick};
use crate::capability::{GuestState, Means};
use crate::clock::{BootInstant, wall_nanos};
use crate::lease::Held;
use crate::opc::queue::Losses;
use crate::store::Database;

/// The most samples of one call. A guest that refuses so many is given half as many, and twice as many again once it takes them.
const MOST_SAMPLES: usize = 10_000;
/// The pause after a guest refused a batch; it doubles up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A timer that is far away is looked at again after this: a box may sleep, and tokio's clock with it.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// What an instance is made of.
pub(super) struct Job {
    pub(super) runnable: Arc<Runnable>,
    pub(super) held: Held,
    pub(super) database: Arc<dyn Database>,
    pub(super) opc: Sessions,
    pub(super) reporter: Reporter,
    pub(super) figures: RoleFigures,
    /// How long `stop`, and a call in hand when a drain begins, may take.
    pub(super) grace: Duration,
}

/// Runs one instance from its instantiation to its end; when this returns, its store is dropped.
pub(super) async fn run(job: Job) -> Ending {
    match Instance::begin(job).await {
        Ok(mut instance) => match instance.work().await {
            Ok(never) => match never {},
            Err(ending) => ending,
        },
        Err(ending) => ending,
    }
}

struct Instance {
    store: Store<GuestState>,
    handlers: Handlers,
    schedule: Schedule,
    kept: Option<Kept>,
    most_samples: usize,
    counted: Losses,
    caller: Caller,
    runnable: Arc<Runnable>,
    held: Held,
    opc: Sessions,
    reporter: Reporter,
    figures: RoleFigures,
    grace: Duration,
}

/// What a guest refused, to be given to it again.
struct Kept {
    event: Event,
    pause: Duration,
    again: BootInstant,
}

impl Instance {
    async fn begin(job: Job) -> Result<Self, Ending> {
        let Job { runnable, held, database, opc, reporter, figures, grace } = job;
        held.check().map_err(|_| Ending::Lost)?;
        let terms = &runnable.terms;
        let means = Means {
            config: terms.texts.clone(),
            metrics: Series::new(terms.metrics.clone(), held.key().partition.clone()),
            db: Db::new(database, terms.grants.db),
            opc: Opc::new(opc.connections.clone(), terms.grants.opc.clone(), runnable.exports.samples.is_some()),
            alive: reporter.instance(),
        };
        let caller = Caller::new(held.clone(), figures.clone(), grace);
        let state = GuestState::new(held.clone(), terms.limits.memory_bytes, means);
        let mut store = Store::new(runnable.engine.wasmtime(), state);
        runnable.engine.prepare_store(&mut store, |state| &mut state.limits, caller.deadline());
        figures.started();
        let handlers = Handlers::instantiate(&caller, &mut store, &runnable).await?;
        let mut instance = Self {
            store,
            handlers,
            schedule: Schedule::default(),
            kept: None,
            most_samples: MOST_SAMPLES,
            counted: Losses::default(),
            caller,
            runnable,
            held,
            opc,
            reporter,
            figures,
            grace,
        };
        instance.start().await?;
        Ok(instance)
    }

    async fn start(&mut self) -> Result<(), Ending> {
        let at_most = self.runnable.terms.limits.start;
        let answer = self.handlers.start(&self.caller, at_most, &mut self.store).await?;
        self.settle()?;
        answer.map_err(Ending::StartFailed)?;
        if self.handlers.timers() {
            self.schedule = Schedule::new(self.runnable.terms.timers.iter().cloned(), BootInstant::now());
        }
        self.reporter.state(State::Running, "it works", Some(self.held.epoch()));
        Ok(())
    }

    async fn work(&mut self) -> Result<Infallible, Ending> {
        loop {
            self.held.check().map_err(|_| Ending::Lost)?;
            if self.held.draining() {
                return Err(self.stop().await);
            }
            let tick = self.schedule.next_due();
            let again = self.kept.as_ref().map(|kept| kept.again);
            // Not in a fixed order: neither a fast timer nor a flood of samples keeps the other from its turn.
            tokio::select! {
                () = self.held.gone() => {}
                () = self.held.drain_begun() => {}
                () = until(tick) => {
                    if let Some(tick) = self.schedule.take_due(BootInstant::now()) {
                        self.tick(tick).await?;
                    }
                }
                () = until(again.unwrap_or(BootInstant::NEVER)), if again.is_some() => self.deliver_again().await?,
                batch = self.opc.queue.next(self.most_samples), if again.is_none() => {
                    self.count_losses();
                    let event = Event::of(batch, self.store.data().db.clock_ahead());
                    self.deliver(event, SHORTEST_PAUSE).await?;
                }
            }
        }
    }

    async fn tick(&mut self, tick: Tick) -> Result<(), Ending> {
        let late = i64::try_from(BootInstant::now().since(tick.due).as_nanos()).unwrap_or(0);
        let due = wall_nanos().saturating_sub(late).saturating_add(self.store.data().db.clock_ahead());
        let at_most = self.runnable.terms.limits.call;
        let answer = self.handlers.on_timer(&self.caller, at_most, &mut self.store, &tick, due).await?;
        if let Err(reason) = answer {
            self.complain(&format!("timer {:?} answered an error: {reason}", tick.name));
        }
        self.settle()
    }

    async fn deliver_again(&mut self) -> Result<(), Ending> {
        match self.kept.take() {
            Some(kept) if kept.again.is_past() => {
                self.deliver(kept.event, kept.pause.saturating_mul(2).min(LONGEST_PAUSE)).await
            }
            kept => {
                self.kept = kept;
                Ok(())
            }
        }
    }

    /// Gives the guest an event, or as much of it as it may take at once; what it refuses is kept, and everything behind it waits, since the
    /// order is a promise.
    async fn deliver(&mut self, mut event: Event, pause: Duration) -> Result<(), Ending> {
        let rest = event.split_off(self.most_samples);
        let at_most = self.runnable.terms.limits.call;
        let answer = self.handlers.on_event(&self.caller, at_most, &mut self.store, &event).await?;
        self.settle()?;
        match answer {
            Ok(()) => {
                self.figures.delivered(event.samples());
                if let Some(newest) = event.newest_reading() {
                    self.reporter.reading(newest);
                }
                self.most_samples = self.most_samples.saturating_mul(2).min(MOST_SAMPLES);
                self.kept = rest.map(|event| Kept { event, pause: SHORTEST_PAUSE, again: BootInstant::now() });
            }
            Err(reason) => {
                let samples = usize::try_from(event.samples()).unwrap_or(MOST_SAMPLES);
                // It may have been too much for the time that a call or a statement may take.
                let again = match samples {
                    0 | 1 => "the same".to_owned(),
                    _ => {
                        self.most_samples = samples / 2;
                        format!("its {samples} samples in smaller parts")
                    }
                };
                self.complain(&format!("{} answered an error, and gets {again} again: {reason}", event.export()));
                self.kept = Some(Kept { event: event.with(rest), pause, again: BootInstant::now() + pause });
            }
        }
        Ok(())
    }

    fn count_losses(&mut self) {
        let Losses { coalesced, dropped } = self.opc.losses();
        let counted = std::mem::replace(&mut self.counted, Losses { coalesced, dropped });
        self.figures.queue(coalesced.saturating_sub(counted.coalesced), dropped.saturating_sub(counted.dropped));
    }

    async fn stop(&mut self) -> Ending {
        self.reporter.state(State::Draining, "it finishes what is in hand", Some(self.held.epoch()));
        match self.handlers.stop(&self.caller, self.grace, &mut self.store).await {
            Ok(()) => Ending::Stopped,
            Err(Ending::Lost) => Ending::Lost,
            Err(ending) => {
                // The role leaves in any case, and what it had open is rolled back.
                self.complain(&format!("it did not stop in an orderly way: {ending}"));
                Ending::Stopped
            }
        }
    }

    /// What must be looked at after every call, whatever the guest has made of it.
    fn settle(&mut self) -> Result<(), Ending> {
        let state = self.store.data_mut();
        let left_open = state.end_of_call();
        let fate = state.db.fate();
        if left_open {
            self.complain("it left a transaction open, which was rolled back: a transaction lives within one call");
        }
        match fate {
            Fate::Known => Ok(()),
            Fate::OutcomeUnknown => Err(Ending::OutcomeUnknown),
            Fate::LeaseLost => Err(Ending::Fenced),
        }
    }

    fn complain(&self, what: &str) {
        let (key, epoch, module) = (self.held.key(), self.held.epoch(), self.runnable.module());
        tracing::warn!(role = %key, %epoch, module = module.name, version = module.manifest.version, "{what}");
    }
}

async fn until(moment: BootInstant) {
    tokio::time::sleep(moment.remaining().min(LOOK_AGAIN)).await;
}
