//! What guests may do: one folder for each WIT package, all of one shape.
//!
//! Each has the WIT implementation (`host`), the client it drives, and the grant that says what of it one role may use. Every call of
//! a guest begins with the lease: when it is gone, the answer is `lease-lost`, or the instance ends where the signature has no error.
//! An error that a guest can do something about is a value; what means that the instance must end is a trap.

pub mod bindings;
pub mod config;
pub mod db;
pub mod kind;
pub mod lease;
pub mod log;
pub mod metrics;
pub mod opc;
pub mod timer;

use std::collections::BTreeSet;
use std::sync::Arc;

use wasmtime::component::{HasSelf, Linker, ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use self::log::stdio::Lines;
use self::log::{Level, Log};
use crate::engine::GuestLimits;
use crate::lease::Held;
use crate::role::manifest::Ask;
use crate::role::module::Module;
use crate::role::reports::Alive;

/// The most resources that a guest may hold at once (pollables, streams, transactions).
const RESOURCES: usize = 10_000;

/// What one role may use. Deny by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grants {
    /// The database.
    pub db: db::Grant,
    /// The OPC UA connections.
    pub opc: opc::Grant,
}

impl Grants {
    /// Nothing: such a role can compute and log.
    #[must_use]
    pub fn nothing() -> Self {
        Self { db: db::Grant::Nothing, opc: opc::Grant::Nothing }
    }

    /// What a role that comes with the host has.
    #[must_use]
    pub fn bundled() -> Self {
        Self { db: db::Grant::Plant, opc: opc::Grant::All }
    }

    /// What a module has: of what its manifest asks for, a role that comes with the host gets all, and any other nothing.
    #[must_use]
    pub fn of(module: &Module) -> Self {
        let bundled = matches!(module.name.as_str(), "reader" | "floor" | "housekeeping" | "erp-sync" | "uns");
        if bundled { Self::bundled().asked_for(&module.manifest.asks) } else { Self::nothing() }
    }

    fn asked_for(self, asks: &BTreeSet<Ask>) -> Self {
        let Self { db, opc } = Self::nothing();
        Self {
            db: if asks.contains(&Ask::Db) { self.db } else { db },
            opc: if asks.contains(&Ask::Opc) { self.opc } else { opc },
        }
    }
}

/// What the store of one instance holds: all that its guest can reach. Dropping it ends everything the guest has begun.
pub struct GuestState {
    pub(crate) held: Held,
    pub(crate) log: Arc<Log>,
    pub(crate) config: config::Texts,
    pub(crate) metrics: metrics::Series,
    pub(crate) db: db::Db,
    pub(crate) opc: opc::Opc,
    pub(crate) limits: GuestLimits,
    pub(crate) table: ResourceTable,
    wasi: WasiCtx,
    _alive: Alive,
}

/// What a [`GuestState`] is made of.
pub(crate) struct Means {
    pub(crate) config: config::Texts,
    pub(crate) metrics: metrics::Series,
    pub(crate) db: db::Db,
    pub(crate) opc: opc::Opc,
    pub(crate) alive: Alive,
}

impl GuestState {
    /// For the instance that exists under this lease.
    pub(crate) fn new(held: Held, memory_bytes: usize, means: Means) -> Self {
        let log = Arc::new(Log::new(&held));
        // Clocks, random numbers and what is printed. No environment, arguments, directories or sockets: those are denied by default.
        let wasi = WasiCtx::builder()
            .stdout(Lines::new(log.clone(), Level::Info))
            .stderr(Lines::new(log.clone(), Level::Warn))
            .build();
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES);
        let Means { config, metrics, db, opc, alive } = means;
        let limits = GuestLimits::new(memory_bytes);
        Self { held, log, config, metrics, db, opc, limits, table, wasi, _alive: alive }
    }

    /// Ends what a call has left behind; whether a transaction was open.
    pub(crate) fn end_of_call(&mut self) -> bool {
        self.db.roll_back_left_open(&mut self.table)
    }
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

// Types alone: there is nothing to call.
impl bindings::imports::plant::types::types::Host for GuestState {}

/// A linker with everything that the host offers, for any guest.
///
/// # Errors
/// When two of the interfaces have one name, which is a mistake in the host.
pub fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<GuestState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    bindings::imports::Imports::add_to_linker::<_, HasSelf<GuestState>>(&mut linker, |state| state)?;
    Ok(linker)
}
