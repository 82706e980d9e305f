//! A simulated bottling line: an OPC UA server, deterministic by seed, that can be made to fail.
//!
//! It is what the plant is tested and shown with, so it promises two things. What it really made is known exactly (`/truth`), whatever
//! its counters show; and the same seed and number of ticks make the same bottles. It needs no database and no lease.
//!
//! From the inside out: `stations` are what stands there, `line` is bottles in motion, `counter` what a PLC makes of them, `simulation`
//! all of it moved on by a clock, `board` what the nodes show, `nodes` and `server` OPC UA, `control` the HTTP side.

mod address;
mod board;
mod control;
mod counter;
mod line;
mod nodes;
mod server;
mod simulation;
mod stations;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

pub use address::{Address, AddressError};
pub use board::NAMESPACE;
pub use line::{Made, TICK};
use server::OpcServer;
pub use simulation::Beginning;
use simulation::{Simulation, Trouble};

/// What the server has missed to tell (a value that changed while a subscription was being made) it tells within this time.
const TELL_ALL_EVERY: Duration = Duration::from_secs(1);

/// What is simulated, and where it listens.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the OPC UA server listens; port 0 is a free one.
    pub listen: Address,
    /// Where the control address listens, as `host:port`; port 0 is a free one.
    pub control: String,
    /// How the line begins.
    pub beginning: Beginning,
    /// How many times a second values change; 1 to 100.
    pub rate: u32,
}

/// Why there is no simulator (any more).
#[derive(Debug, thiserror::Error)]
pub enum SimulatorError {
    /// An address is not to be had.
    #[error("cannot listen on {address} ({source}): end what listens there, or choose another port")]
    Listen {
        /// The address, as it was given.
        address: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The OPC UA server does not start, or ended by itself.
    #[error("the OPC UA server has ended: {0}")]
    Server(String),
    /// The HTTP server ended by itself.
    #[error("the control address does not answer any more: {0}")]
    Control(std::io::Error),
}

/// A running simulator; dropping it ends it at once.
pub struct Simulator {
    core: Arc<Core>,
    control: SocketAddr,
    tasks: JoinSet<Result<(), SimulatorError>>,
}

/// What the tasks share.
struct Core {
    simulation: Mutex<Simulation>,
    opc: Arc<OpcServer>,
    began: Instant,
}

impl Simulator {
    /// Starts it; clients can connect when this returns.
    ///
    /// # Errors
    /// When an address is in use or the OPC UA server cannot be set up.
    pub async fn start(settings: Settings) -> Result<Self, SimulatorError> {
        let refused = |source| SimulatorError::Listen { address: settings.control.clone(), source };
        let simulation = Simulation::new(&settings.beginning);
        let (opc, bound) = OpcServer::bind(settings.listen, simulation.board().clone()).await?;
        let listener = TcpListener::bind(&settings.control).await.map_err(refused)?;
        let control = listener.local_addr().map_err(refused)?;
        let opc = Arc::new(opc);
        let core = Arc::new(Core { simulation: Mutex::new(simulation), opc: opc.clone(), began: Instant::now() });
        let mut tasks = JoinSet::new();
        tasks.spawn(opc.serve(bound));
        let app = control::app(core.clone());
        tasks.spawn(async move { axum::serve(listener, app).await.map_err(SimulatorError::Control) });
        tasks.spawn(drive(core.clone(), settings.rate));
        Ok(Self { core, control, tasks })
    }

    /// The OPC UA server's address, with the real port.
    #[must_use]
    pub fn url(&self) -> String {
        self.core.opc_address()
    }

    /// The control address, with the real port.
    #[must_use]
    pub fn control_url(&self) -> String {
        format!("http://{}", self.control)
    }

    /// Waits until it ends by itself, which it does only when something is wrong.
    ///
    /// # Errors
    /// What was wrong.
    pub async fn ended(&mut self) -> Result<(), SimulatorError> {
        match self.tasks.join_next().await {
            None => Ok(()),
            Some(Ok(outcome)) => outcome,
            Some(Err(error)) => Err(SimulatorError::Server(error.to_string())),
        }
    }
}

impl Core {
    fn simulation(&self) -> MutexGuard<'_, Simulation> {
        self.simulation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn truth(&self) -> BTreeMap<String, Made> {
        self.simulation().truth()
    }

    fn progress(&self) -> (u64, bool) {
        let simulation = self.simulation();
        (simulation.ticks(), simulation.paused())
    }

    fn pause(&self, paused: bool) {
        self.simulation().pause(paused, self.began.elapsed());
    }

    /// Whether there is such a machine.
    fn suffer(&self, code: &str, trouble: Trouble) -> bool {
        let changed = self.simulation().suffer(code, trouble, self.began.elapsed());
        self.opc.tell(changed.iter().flatten().copied());
        changed.is_some()
    }

    async fn server_down(&self, down: Duration) {
        self.opc.go_away(down).await;
    }

    fn opc_address(&self) -> String {
        self.opc.address().to_string()
    }

    fn opc_up(&self) -> bool {
        self.opc.up()
    }
}

/// Moves the line on by the clock.
async fn drive(core: Arc<Core>, rate: u32) -> Result<(), SimulatorError> {
    let mut steps = interval(Duration::from_secs(1) / rate.max(1));
    // What was missed is made up for by the line's own time.
    steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told_all = Instant::now();
    loop {
        steps.tick().await;
        let (changed, all) = {
            let mut simulation = core.simulation();
            (simulation.step(core.began.elapsed()), simulation.board().nodes().len())
        };
        core.opc.tell(changed.iter().copied());
        if told_all.elapsed() >= TELL_ALL_EVERY {
            core.opc.tell(0..all);
            told_all = Instant::now();
        }
    }
}
