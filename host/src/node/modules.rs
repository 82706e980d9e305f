//! From the configured roles to what can be instantiated at once.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wasmtime::component::Linker;

use crate::capability::metrics::SharedRegistry;
use crate::capability::{Grants, GuestState, linker};
use crate::config::{Config, Role};
use crate::engine::{Engine, EngineError};
use crate::identity::RoleName;
use crate::role::bundled::BUNDLED;
use crate::role::directory::{Catalogue, Directory};
use crate::role::runnable::{Runnable, Terms};

/// Where modules come from, and where they are kept compiled.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// Further modules; by default `guests` beside the configuration.
    pub guests: Option<PathBuf>,
    /// Compiled modules; by default in the user's cache.
    pub cache: Option<PathBuf>,
    /// A module in `guests` may take the place of a bundled role of its name.
    pub dev: bool,
}

/// Every module that was found, and what runs them.
pub struct Modules {
    engine: Engine,
    linker: Linker<GuestState>,
    /// Each compiled, or refused with its reason.
    pub catalogue: Catalogue,
}

impl Modules {
    /// Finds and compiles them. `only_used`: those that the configuration's roles use.
    ///
    /// # Errors
    /// When the engine can not be made, or the directory for compiled modules is not usable.
    pub async fn load(config: &Config, places: &Places, only_used: bool) -> Result<Self, EngineError> {
        let cache = places.cache.clone().unwrap_or_else(|| user_cache(&config.directory));
        let engine = Engine::new(&cache)?;
        let linker = linker(engine.wasmtime()).map_err(|error| EngineError::Start(format!("{error:#}")))?;
        let guests = places.guests.clone().unwrap_or_else(|| config.directory.join("guests"));
        let directory =
            Directory { path: Some(&guests), bundled: BUNDLED, roles: &config.roles, dev: places.dev, only_used };
        let catalogue = directory.load(&engine, &linker).await;
        Ok(Self { engine, linker, catalogue })
    }

    /// A sentence for each configured role whose module is missing, refused, not the one that is pinned, or not configured as it wants.
    #[must_use]
    pub fn refusals(&self, config: &Config) -> Vec<String> {
        config.roles.iter().filter_map(|(name, role)| self.catalogue.for_role(name, role).err()).collect()
    }

    /// The configured roles that can run here, and a sentence for each that can not.
    pub(super) fn runnables(
        &self,
        config: &Config,
        registry: &SharedRegistry,
    ) -> (BTreeMap<RoleName, Arc<Runnable>>, Vec<String>) {
        let mut ready = BTreeMap::new();
        let mut refused = Vec::new();
        for (name, role) in &config.roles {
            match self.runnable(config, name, role, registry) {
                Ok(runnable) => {
                    ready.insert(name.clone(), Arc::new(runnable));
                }
                Err(sentence) => refused.push(sentence),
            }
        }
        (ready, refused)
    }

    fn runnable(
        &self,
        config: &Config,
        name: &RoleName,
        role: &Role,
        registry: &SharedRegistry,
    ) -> Result<Runnable, String> {
        let module = self.catalogue.for_role(name, role)?;
        let terms = Terms::new(config, name, role, &module, Grants::of(&module), registry);
        let made = terms.and_then(|terms| Runnable::new(&self.engine, &self.linker, module, terms));
        made.map_err(|error| format!("role {name} cannot run: {error}"))
    }
}

fn user_cache(plant: &Path) -> PathBuf {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let user = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    user.map_or_else(|| plant.join("cache"), |cache| cache.join("plant-host/modules"))
}
