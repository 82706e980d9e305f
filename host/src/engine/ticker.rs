//! The clock that interrupts guests.
//!
//! It is a thread of the operating system and not a task: a guest that hogs the worker which drives the runtime's timers would
//! otherwise stop the very clock that is meant to interrupt it.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often guests are looked at.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// A running clock; dropping it ends its thread.
#[derive(Debug)]
pub(super) struct Ticker {
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    pub(super) fn start(engine: &wasmtime::Engine) -> std::io::Result<Self> {
        let engine = engine.weak();
        let (alive, ended) = channel::<()>();
        let thread = std::thread::Builder::new().name("guest-clock".into()).spawn(move || {
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                let Some(engine) = engine.upgrade() else { return };
                engine.increment_epoch();
            }
        })?;
        Ok(Self { alive: Some(alive), thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // It only counts: there is no panic to pass on.
            let _ = thread.join();
        }
    }
}
