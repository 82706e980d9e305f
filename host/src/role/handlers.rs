//! The exports of one guest, and what is given to them.

use std::time::Duration;

use wasmtime::Store;

use super::call::Caller;
use super::ending::Ending;
use super::runnable::Runnable;
use crate::capability::GuestState;
use crate::capability::bindings::connections::Connections;
use crate::capability::bindings::connections::exports::plant::opc::connections::Change;
use crate::capability::bindings::imports::plant::opc::opc::Sample;
use crate::capability::bindings::lifecycle::Lifecycle;
use crate::capability::bindings::samples::Samples;
use crate::capability::bindings::timers::Timers;
use crate::capability::opc::samples;
use crate::capability::timer::Tick;
use crate::clock::wall_nanos;
use crate::opc::{Batch, ConnectionChange};

/// What a guest answers: its own error is a text.
type Answer = Result<(), String>;

/// One thing of the queue, in the shape that guests see, so that it can be given to a guest twice.
pub(super) enum Event {
    Samples(Vec<Sample>),
    Change(Change),
}

impl Event {
    /// From the queue, which knows times of connections by this box's clock; the database's is ahead of it by `clock_ahead` nanoseconds.
    pub(super) fn of(batch: Batch, clock_ahead: i64) -> Self {
        match batch {
            Batch::Samples(batch) => Self::Samples(samples(batch)),
            Batch::Connection(change) => {
                let ConnectionChange { connection, connected, since, detected, reason } = change;
                let [since, detected] = [since, detected].map(|at| at.saturating_add(clock_ahead));
                Self::Change(Change { connection, connected, since, detected, reason })
            }
        }
    }

    /// Parts it behind the first `most` samples; a change is never parted.
    pub(super) fn split_off(&mut self, most: usize) -> Option<Self> {
        match self {
            Self::Samples(batch) if batch.len() > most => Some(Self::Samples(batch.split_off(most))),
            _ => None,
        }
    }

    /// The same event with what had been parted from it.
    pub(super) fn with(mut self, rest: Option<Self>) -> Self {
        if let (Self::Samples(batch), Some(Self::Samples(rest))) = (&mut self, rest) {
            batch.extend(rest);
        }
        self
    }

    pub(super) fn export(&self) -> &'static str {
        match self {
            Self::Samples(_) => "on-samples",
            Self::Change(_) => "on-connection",
        }
    }

    pub(super) fn samples(&self) -> u64 {
        match self {
            Self::Samples(batch) => batch.len().try_into().unwrap_or(u64::MAX),
            Self::Change(_) => 0,
        }
    }

    /// When the newest reading was taken, by the server's or else the source's clock, but not later than now.
    pub(super) fn newest_reading(&self) -> Option<i64> {
        let Self::Samples(batch) = self else { return None };
        let now = wall_nanos();
        batch.iter().map(|sample| sample.server.or(sample.source).map_or(now, |at| at.min(now))).max()
    }
}

/// The exports of one instance.
pub(super) struct Handlers {
    lifecycle: Lifecycle,
    timers: Option<Timers>,
    samples: Option<Samples>,
    connections: Option<Connections>,
}

impl Handlers {
    /// Instantiates the guest, whose start functions may run code of it, and finds its exports.
    pub(super) async fn instantiate(
        caller: &Caller,
        store: &mut Store<GuestState>,
        runnable: &Runnable,
    ) -> Result<Self, Ending> {
        let at_most = runnable.terms.limits.start;
        let instance = caller
            .call("instantiate", at_most, store, async |store| runnable.pre.instantiate_async(store).await)
            .await?;
        let exports = &runnable.exports;
        let find = |store: &mut Store<GuestState>| -> wasmtime::Result<Self> {
            Ok(Self {
                lifecycle: exports.lifecycle.load(&mut *store, &instance)?,
                timers: exports.timers.as_ref().map(|found| found.load(&mut *store, &instance)).transpose()?,
                samples: exports.samples.as_ref().map(|found| found.load(&mut *store, &instance)).transpose()?,
                connections: exports
                    .connections
                    .as_ref()
                    .map(|found| found.load(&mut *store, &instance))
                    .transpose()?,
            })
        };
        find(store).map_err(|error| Ending::NotInstantiated(format!("{error:#}")))
    }

    /// Whether it takes ticks.
    pub(super) fn timers(&self) -> bool {
        self.timers.is_some()
    }

    pub(super) async fn start(
        &self,
        caller: &Caller,
        at_most: Duration,
        store: &mut Store<GuestState>,
    ) -> Result<Answer, Ending> {
        let guest = self.lifecycle.plant_role_lifecycle();
        caller.call("start", at_most, store, async |store| guest.call_start(store).await).await
    }

    pub(super) async fn stop(
        &self,
        caller: &Caller,
        at_most: Duration,
        store: &mut Store<GuestState>,
    ) -> Result<(), Ending> {
        let guest = self.lifecycle.plant_role_lifecycle();
        caller.call("stop", at_most, store, async |store| guest.call_stop(store).await).await
    }

    pub(super) async fn on_timer(
        &self,
        caller: &Caller,
        at_most: Duration,
        store: &mut Store<GuestState>,
        tick: &Tick,
        due: i64,
    ) -> Result<Answer, Ending> {
        let Some(timers) = &self.timers else { return Ok(Ok(())) };
        let guest = timers.plant_timer_timers();
        caller
            .call("on-timer", at_most, store, async |store| {
                guest.call_on_timer(store, &tick.name, due, tick.missed).await
            })
            .await
    }

    /// A guest without the handler has taken the event.
    pub(super) async fn on_event(
        &self,
        caller: &Caller,
        at_most: Duration,
        store: &mut Store<GuestState>,
        event: &Event,
    ) -> Result<Answer, Ending> {
        match (event, &self.samples, &self.connections) {
            (Event::Samples(batch), Some(samples), _) => {
                let guest = samples.plant_opc_samples();
                caller.call("on-samples", at_most, store, async |store| guest.call_on_samples(store, batch).await).await
            }
            (Event::Change(change), _, Some(connections)) => {
                let guest = connections.plant_opc_connections();
                caller
                    .call("on-connection", at_most, store, async |store| guest.call_on_connection(store, change).await)
                    .await
            }
            (Event::Samples(_), None, _) | (Event::Change(_), _, None) => Ok(Ok(())),
        }
    }
}
