//! The only place that touches Wasmtime's configuration: limits, deadlines and the cache of compiled modules.
//!
//! Everything that keeps a guest from harming its neighbours is decided here once: what it may use ([`limits`]), how long it may
//! run ([`deadline`]), and that its compilation happens early, in a process of its own, never on the way of a takeover
//! ([`compile`], [`cache`]).

pub mod cache;
pub mod compile;
pub mod deadline;
pub mod limits;
pub mod settings;
mod ticker;

use std::path::Path;
use std::sync::Arc;

use wasmtime::Store;
use wasmtime::component::Component;

pub use compile::{Compiler, compile_child};
pub use deadline::{CallDeadline, CallError, Stopped};
pub use limits::{GuestLimits, LimitHit};
pub use settings::Addressing;

use cache::Cache;
use ticker::Ticker;

/// What can go wrong with the engine or with a compilation.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The engine cannot be made at all: the host's fault.
    #[error("the WebAssembly engine cannot start: {0}")]
    Start(String),
    /// The directory for compiled modules is not usable; the sentence says why and what to do.
    #[error("{0}")]
    Cache(String),
    /// The module is not valid: its author's fault.
    #[error("it is not a valid component: {0}")]
    Invalid(String),
    /// The compilation did not come to an end: a time-out, a lack of memory, no process.
    #[error("it could not be compiled: {0}")]
    Compile(String),
}

/// Wasmtime, its ticker and the cache of compiled modules. Cheap to clone; the ticker ends with the last clone.
#[derive(Debug, Clone)]
pub struct Engine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    wasmtime: wasmtime::Engine,
    addressing: Addressing,
    cache: Cache,
    compiler: Compiler,
    _ticker: Ticker,
}

impl Engine {
    /// An engine that keeps compiled modules in `cache_dir` (made when it is missing, mode 0700) and compiles in a child process of
    /// this program.
    ///
    /// # Errors
    /// [`EngineError::Cache`] when others can write to the directory or it cannot be made; [`EngineError::Start`].
    pub fn new(cache_dir: &Path) -> Result<Self, EngineError> {
        Self::with_compiler(cache_dir, Compiler::this_program())
    }

    /// The same, with another way to compile.
    ///
    /// # Errors
    /// As for [`Engine::new`].
    pub fn with_compiler(cache_dir: &Path, compiler: Compiler) -> Result<Self, EngineError> {
        let cache = Cache::open(cache_dir)?;
        let (wasmtime, addressing) = settings::engine()?;
        let ticker =
            Ticker::start(&wasmtime).map_err(|e| EngineError::Start(format!("no thread for its clock: {e}")))?;
        Ok(Self(Arc::new(Inner { wasmtime, addressing, cache, compiler, _ticker: ticker })))
    }

    /// Wasmtime's engine, for linkers and stores.
    #[must_use]
    pub fn wasmtime(&self) -> &wasmtime::Engine {
        &self.0.wasmtime
    }

    /// A component that is ready to be instantiated: from the cache, or compiled and put there. Call it when the node starts.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] and [`EngineError::Compile`]. A cache that cannot be written costs a warning, not the module.
    pub async fn compile(&self, wasm: &[u8]) -> Result<Component, EngineError> {
        let key = cache::Key::of(wasm, &self.0.wasmtime);
        if let Some(component) = self.0.cache.load(&key, &self.0.wasmtime) {
            return Ok(component);
        }
        let draft = self.0.cache.draft();
        self.0.compiler.compile(wasm, self.0.addressing, &draft).await?;
        self.0.cache.adopt(&draft, &key, &self.0.wasmtime)
    }

    /// Puts a store under the guest's limits and its deadline. Every store needs it: without, guest code ends at once.
    pub fn prepare_store<T: 'static>(
        &self,
        store: &mut Store<T>,
        limits: impl (FnMut(&mut T) -> &mut GuestLimits) + Send + Sync + 'static,
        deadline: &CallDeadline,
    ) {
        let mut limits = limits;
        store.limiter(move |state| limits(state));
        deadline.install(store);
    }
}
