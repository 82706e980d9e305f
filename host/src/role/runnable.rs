//! A role that could start at once: compiled, linked and probed, with everything that its instances share.
//!
//! Every node that may run a role keeps one of these, so that a take-over pays for an instantiation and for nothing else. Nothing
//! here compiles.

use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::{InstancePre, Linker};

use super::module::{Handlers, Module};
use crate::capability::bindings::connections::ConnectionsIndices;
use crate::capability::bindings::lifecycle::LifecycleIndices;
use crate::capability::bindings::samples::SamplesIndices;
use crate::capability::bindings::timers::TimersIndices;
use crate::capability::config::Texts;
use crate::capability::metrics::{RoleMetrics, SharedRegistry};
use crate::capability::{Grants, GuestState};
use crate::config::{Config, Limits, Role};
use crate::engine::Engine;
use crate::identity::RoleName;

/// Why a module can not be run as a role.
#[derive(Debug, thiserror::Error)]
pub enum RunnableError {
    /// It exports a handler of another shape than this host's.
    #[error("module {module} {version} cannot be run: {cause}; build it against the packages in wit/")]
    Exports {
        /// The module's name.
        module: String,
        /// The module's version.
        version: String,
        /// What wasmtime says, which names the export.
        cause: String,
    },
    /// The plant's configuration has a figure that has no JSON form.
    #[error("the configuration cannot be shown to the role {role}: {cause}; use finite numbers")]
    Configuration {
        /// The role.
        role: RoleName,
        /// What could not be written.
        cause: serde_json::Error,
    },
}

/// What a role's instances share beside its module.
#[derive(Debug, Clone)]
pub struct Terms {
    /// What it may use.
    pub grants: Grants,
    /// How much of it.
    pub limits: Limits,
    /// Its timers, by name.
    pub timers: Vec<(String, Duration)>,
    /// What it may read of the configuration.
    pub texts: Texts,
    /// Its metrics.
    pub metrics: Arc<RoleMetrics>,
}

impl Terms {
    /// What the plant's configuration and the module's manifest agree on. Registers the role's metrics, so only once for each role.
    ///
    /// # Errors
    /// [`RunnableError::Configuration`].
    pub fn new(
        plant: &Config,
        name: &RoleName,
        role: &Role,
        module: &Module,
        grants: Grants,
        registry: &SharedRegistry,
    ) -> Result<Self, RunnableError> {
        let texts =
            Texts::new(plant, role).map_err(|cause| RunnableError::Configuration { role: name.clone(), cause })?;
        let every = |(timer, every): (&String, &Duration)| (timer.clone(), *role.timers.get(timer).unwrap_or(every));
        Ok(Self {
            grants,
            limits: role.limits,
            timers: module.manifest.timers.iter().map(every).collect(),
            texts,
            metrics: RoleMetrics::register(registry, name, &module.manifest.metrics),
        })
    }
}

/// Where the exports are that the host calls; a handler that a guest does not export is `None`.
#[derive(Clone)]
pub(super) struct Exports {
    pub(super) lifecycle: LifecycleIndices,
    pub(super) timers: Option<TimersIndices>,
    pub(super) samples: Option<SamplesIndices>,
    pub(super) connections: Option<ConnectionsIndices>,
}

/// A role that could start at once.
pub struct Runnable {
    pub(super) engine: Engine,
    pub(super) module: Arc<Module>,
    pub(super) terms: Terms,
    pub(super) pre: InstancePre<GuestState>,
    pub(super) exports: Exports,
}

impl Runnable {
    /// Links a compiled module to the capabilities (`linker` is [`crate::capability::linker`]'s) and finds the handlers it exports.
    ///
    /// # Errors
    /// [`RunnableError::Exports`].
    pub fn new(
        engine: &Engine,
        linker: &Linker<GuestState>,
        module: Arc<Module>,
        terms: Terms,
    ) -> Result<Self, RunnableError> {
        let linked = linker.instantiate_pre(&module.component).and_then(|pre| Ok((Exports::find(&pre, &module)?, pre)));
        match linked {
            Ok((exports, pre)) => Ok(Self { engine: engine.clone(), module, terms, pre, exports }),
            Err(cause) => Err(RunnableError::Exports {
                module: module.name.clone(),
                version: module.manifest.version.clone(),
                cause: format!("{cause:#}"),
            }),
        }
    }

    /// The module it runs.
    #[must_use]
    pub fn module(&self) -> &Module {
        &self.module
    }
}

impl Exports {
    fn find(pre: &InstancePre<GuestState>, module: &Module) -> wasmtime::Result<Self> {
        // A handler that is exported must have the host's shape: else a guest would wait for calls that never come.
        let Handlers { timers, samples, connections } = module.exports;
        Ok(Self {
            lifecycle: LifecycleIndices::new(pre)?,
            timers: timers.then(|| TimersIndices::new(pre)).transpose()?,
            samples: samples.then(|| SamplesIndices::new(pre)).transpose()?,
            connections: connections.then(|| ConnectionsIndices::new(pre)).transpose()?,
        })
    }
}
