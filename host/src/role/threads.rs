//! The threads that guests run on: a runtime of their own, at a lower priority than everything else in the process.
//!
//! A guest may compute for as long as its call's deadline allows. It gives way at every tick of the engine, so guests share these
//! threads; and renewals, the API and the OPC UA sessions do not run here at all.

use std::future::Future;
use std::io;
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};
use tokio_util::task::AbortOnDropHandle;

/// How much nicer than the rest of the process these threads are.
const NICE: i32 = 5;
/// One guest that computes must leave a thread for the others.
const FEWEST: usize = 2;

/// The guests' runtime.
#[derive(Debug)]
pub struct Threads(Option<Runtime>);

impl Threads {
    /// Starts them.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn start() -> io::Result<Self> {
        let workers = available_parallelism().map_or(FEWEST, usize::from).max(FEWEST);
        let runtime = Builder::new_multi_thread()
            .worker_threads(workers)
            .thread_name("guest")
            // By default a busy worker looks at timers and sockets after every 61st step, and a step of a guest that computes is a
            // whole tick: others would wait for their timers for half a second.
            .event_interval(1)
            .global_queue_interval(1)
            .on_thread_start(lower_priority)
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// Runs a task here; it ends when the handle is dropped.
    pub fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Option<AbortOnDropHandle<T>> {
        let runtime = self.0.as_ref()?;
        Some(AbortOnDropHandle::new(runtime.spawn(task)))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A runtime that is dropped inside another one waits for its tasks, and panics.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn lower_priority() {
    // On Linux the priority of "this process" is that of the calling thread.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::warn!(%error, "guests run at the same priority as the host");
    }
}
