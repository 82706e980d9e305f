//! A plant to measure on: its configuration, its modules compiled in this process, and a keeper that never takes a lease away.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use async_trait::async_trait;
use host::capability::metrics::SharedRegistry;
use host::capability::{self, Grants, GuestState};
use host::clock::BootInstant;
use host::config::Config;
use host::engine::{Compiler, Engine};
use host::identity::{BootId, Epoch, Holder, RoleKey};
use host::lease::{Held, HeldControl};
use host::role::module::{Module, Origin, Source};
use host::role::runnable::{Runnable, Terms};
use host::role::supervisor::{Keeper, Release, RestartError};
use wasmtime::component::Linker;

/// Nobody listens there.
pub const NOWHERE: &str = "opc.tcp://127.0.0.1:1";

/// The code of the machine with this number, as the simulator has it.
#[must_use]
pub fn code(number: usize) -> String {
    format!("LOAD{number:04}")
}

/// The node of that machine's counter.
#[must_use]
pub fn node(number: usize) -> String {
    format!("nsu=urn:plant:simulator;s={}.Count", code(number))
}

/// A `plant.toml` with so many machines of one counter each; `roles` is text that follows.
#[must_use]
pub fn plant(store: &str, endpoint: &str, counters: usize, roles: &str) -> String {
    let mut text = format!(
        "[plant]\nname = \"bench\"\nenterprise = \"acme\"\nsite = \"kc1\"\ntimezone = \"UTC\"\nsimulated = true\n\n\
         [store]\nurl = \"{store}\"\n\n[serve]\nbind = \"127.0.0.1\"\n\n\
         [opc.line]\nendpoint = \"{endpoint}\"\npublish = \"100ms\"\nsampling = \"50ms\"\n\n{roles}\n"
    );
    for number in 1..=counters {
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "[[machines]]\ncode = \"{}\"\nline = \"load\"\nconnection = \"line\"\ngood = {{ node = \"{}\" }}\n",
            code(number),
            node(number)
        );
    }
    text
}

/// The checked configuration of a `plant.toml` in `directory`.
///
/// # Errors
/// What is wrong with it.
pub fn configuration(directory: &Path, text: &str) -> anyhow::Result<Config> {
    let file = directory.join("plant.toml");
    std::fs::write(&file, text)?;
    Config::load(&file).map_err(|errors| anyhow::anyhow!("{errors}"))
}

/// Compiles and links modules.
pub struct Workshop {
    engine: Engine,
    linker: Linker<GuestState>,
}

impl Workshop {
    /// Keeps what it compiles in `cache`.
    ///
    /// # Errors
    /// When `cache` is not usable.
    pub fn new(cache: &Path) -> anyhow::Result<Self> {
        let engine = Engine::with_compiler(cache, Compiler::InProcess)?;
        let linker = capability::linker(engine.wasmtime()).map_err(|error| anyhow::anyhow!("{error:#}"))?;
        Ok(Self { engine, linker })
    }

    /// The reader that is part of the host.
    ///
    /// # Errors
    /// When the host was built without it.
    pub async fn reader(&self) -> anyhow::Result<Arc<Module>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests/reader.wasm");
        let wasm =
            std::fs::read(&path).with_context(|| format!("cannot read {}: run `cargo xtask bench`", path.display()))?;
        self.module("reader", &wasm, Origin::Bundled).await
    }

    /// The guest that misbehaves as it is told.
    ///
    /// # Errors
    /// When it was not built.
    pub async fn probe(&self) -> anyhow::Result<Arc<Module>> {
        let path = std::env::var_os("PLANT_PROBE").context("PLANT_PROBE names no module: run `cargo xtask bench`")?;
        let wasm = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        self.module("probe", &wasm, Origin::File(path.into())).await
    }

    async fn module(&self, name: &str, wasm: &[u8], origin: Origin) -> anyhow::Result<Arc<Module>> {
        let source = Source { name: name.to_owned(), wasm: wasm.into(), beside: None, origin };
        Ok(Arc::new(source.load(&self.engine, &self.linker).await?))
    }

    /// A role of the configuration, ready to be instantiated.
    ///
    /// # Errors
    /// When the configuration has no such role, or it does not fit its module.
    pub fn runnable(
        &self,
        config: &Config,
        role: &str,
        module: &Arc<Module>,
        registry: &SharedRegistry,
    ) -> anyhow::Result<Arc<Runnable>> {
        let (name, settings) =
            config.roles.iter().find(|(name, _)| name.as_str() == role).with_context(|| format!("no role {role}"))?;
        let terms = Terms::new(config, name, settings, module, Grants::bundled(), registry)?;
        Ok(Arc::new(Runnable::new(&self.engine, &self.linker, module.clone(), terms)?))
    }
}

/// A role's only partition.
///
/// # Errors
/// When it is no role's name.
pub fn key(role: &str) -> anyhow::Result<RoleKey> {
    Ok(RoleKey { role: role.parse()?, partition: String::new() })
}

/// This process.
///
/// # Errors
/// Never: the name is right.
pub fn me() -> anyhow::Result<Holder> {
    Ok(Holder { node: "bench".parse()?, boot: BootId::random() })
}

/// A lease out of nothing, which lasts until its control ends it: for a database that has no fence.
///
/// # Errors
/// When `role` is no role's name.
pub fn lease(role: &str, number: u64) -> anyhow::Result<(Held, HeldControl)> {
    let epoch = Epoch { timeline: 0, number };
    Ok(Held::new(key(role)?, me()?, epoch, BootInstant::NEVER, BootInstant::from_nanos(0)))
}

/// A keeper for tenures that are begun and ended by the benchmark: it gives nothing again.
#[derive(Debug, Clone, Copy)]
pub struct Once;

#[async_trait]
impl Keeper for Once {
    async fn restart(&self, _: &Held) -> Result<Held, RestartError> {
        Err(RestartError::Lost)
    }

    async fn release(&self, _: &Held, _: Release) {}

    fn has_others(&self, _: &RoleKey) -> bool {
        false
    }
}

/// Waits until something is so, looking every millisecond.
///
/// # Errors
/// When it is not within a minute.
pub async fn until(what: &str, so: impl Fn() -> bool) -> anyhow::Result<()> {
    let began = Instant::now();
    while !so() {
        if began.elapsed() > Duration::from_secs(60) {
            bail!("waited a minute for: {what}");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
