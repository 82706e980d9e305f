//! A role that could start at once: compiled, linked and probed, with everything that its instances share.
//!
//! Every node that may run a role keeps one of these, so that a take-over pays for an instantiation and for nothing else. Nothing
//! here compiles.

use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::{Component, InstancePre};

use crate::capability::bindings::connections::ConnectionsIndices;
use crate::capability::bindings::lifecycle::LifecycleIndices;
use crate::capability::bindings::samples::SamplesIndices;
use crate::capability::bindings::timers::TimersIndices;
use crate::capability::metrics::RoleMetrics;
use crate::capability::{self, Grants, GuestState};
use crate::config::Limits;
use crate::engine::Engine;
use crate::identity::RoleName;

/// Why a module can not be run as a role.
#[derive(Debug, thiserror::Error)]
pub enum RunnableError {
    /// It imports what this host does not offer.
    #[error("module {module} {version} cannot be linked: {cause}; this host offers the packages in wit/ and WASI 0.2")]
    Link {
        /// The module's name.
        module: String,
        /// The module's version.
        version: String,
        /// What wasmtime says, which names the import.
        cause: String,
    },
    /// It does not export what every role exports, or exports a handler of another shape.
    #[error("module {module} {version} cannot be run: {cause}; build it against the packages in wit/")]
    Exports {
        /// The module's name.
        module: String,
        /// The module's version.
        version: String,
        /// What wasmtime says, which names the export.
        cause: String,
    },
}

/// The module a role runs.
#[derive(Debug, Clone)]
pub struct ModuleId {
    /// Its name.
    pub name: String,
    /// Its version, from its manifest.
    pub version: String,
    /// Its hash, lower-case hex.
    pub sha256: String,
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
    pub texts: capability::config::Texts,
    /// Its metrics.
    pub metrics: Arc<RoleMetrics>,
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
    pub(super) role: RoleName,
    pub(super) module: ModuleId,
    pub(super) terms: Terms,
    pub(super) engine: Engine,
    pub(super) pre: InstancePre<GuestState>,
    pub(super) exports: Exports,
}

impl Runnable {
    /// Links a compiled module to the capabilities and looks for the handlers it exports.
    ///
    /// # Errors
    /// When it imports something else, or does not export `plant:role/lifecycle`.
    pub fn new(
        engine: &Engine,
        role: RoleName,
        module: ModuleId,
        component: &Component,
        terms: Terms,
    ) -> Result<Self, RunnableError> {
        let link = |cause: wasmtime::Error| RunnableError::Link {
            module: module.name.clone(),
            version: module.version.clone(),
            cause: format!("{cause:#}"),
        };
        let pre =
            capability::linker(engine.wasmtime()).and_then(|linker| linker.instantiate_pre(component)).map_err(link)?;
        let exports = Exports::probe(&pre).map_err(|cause| RunnableError::Exports {
            module: module.name.clone(),
            version: module.version.clone(),
            cause: format!("{cause:#}"),
        })?;
        Ok(Self { role, module, terms, engine: engine.clone(), pre, exports })
    }

    /// Which role.
    #[must_use]
    pub fn role(&self) -> &RoleName {
        &self.role
    }

    /// The module it runs.
    #[must_use]
    pub fn module(&self) -> &ModuleId {
        &self.module
    }
}

impl Exports {
    fn probe(pre: &InstancePre<GuestState>) -> wasmtime::Result<Self> {
        // A handler that is exported must have the host's shape: else a guest would wait for calls that never come.
        let has = |interface: &str| pre.component().get_export_index(None, interface).is_some();
        Ok(Self {
            lifecycle: LifecycleIndices::new(pre)?,
            timers: has("plant:timer/timers@1.0.0").then(|| TimersIndices::new(pre)).transpose()?,
            samples: has("plant:opc/samples@1.0.0").then(|| SamplesIndices::new(pre)).transpose()?,
            connections: has("plant:opc/connections@1.0.0").then(|| ConnectionsIndices::new(pre)).transpose()?,
        })
    }
}
