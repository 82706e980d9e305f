//! From the configured roles to what can be instantiated at once.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::capability::config::Texts;
use crate::capability::metrics::{Declared, Kind, RoleMetrics, SharedRegistry};
use crate::capability::{Grants, linker};
use crate::config::{Config, Role};
use crate::engine::{Engine, EngineError};
use crate::identity::RoleName;
use crate::role::bundled::BUNDLED;
use crate::role::directory::{Catalogue, Directory};
use crate::role::manifest::{Metric, MetricKind};
use crate::role::module::Module;
use crate::role::runnable::{ModuleId, Runnable, Terms};

/// Where compiled modules are kept unless told otherwise: the user's cache, else beside the configuration.
#[must_use]
pub fn cache_directory(config: &Config) -> PathBuf {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let user = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    user.map_or_else(|| config.directory.join("cache"), |cache| cache.join("plant-host/modules"))
}

/// Every module that this node finds, compiled or refused.
///
/// # Errors
/// When the engine's own interfaces can not be linked.
pub async fn catalogue(
    config: &Config,
    engine: &Engine,
    guests: Option<&Path>,
    dev: bool,
    only_used: bool,
) -> Result<Catalogue, EngineError> {
    let linker = linker(engine.wasmtime()).map_err(|error| EngineError::Start(format!("{error:#}")))?;
    let beside = config.directory.join("guests");
    let path = Some(guests.unwrap_or(&beside));
    let directory = Directory { path, bundled: BUNDLED, roles: &config.roles, dev, only_used };
    Ok(directory.load(engine, &linker).await)
}

/// The configured roles that can run here, and a sentence for each that can not.
pub(super) fn runnables(
    config: &Config,
    engine: &Engine,
    catalogue: &Catalogue,
    registry: &SharedRegistry,
) -> (BTreeMap<RoleName, Arc<Runnable>>, Vec<String>) {
    let mut ready = BTreeMap::new();
    let mut refused = Vec::new();
    for (name, role) in &config.roles {
        match catalogue.for_role(name, role).and_then(|module| runnable(config, engine, name, role, &module, registry)) {
            Ok(runnable) => {
                ready.insert(name.clone(), Arc::new(runnable));
            }
            Err(sentence) => refused.push(sentence),
        }
    }
    (ready, refused)
}

fn runnable(
    config: &Config,
    engine: &Engine,
    name: &RoleName,
    role: &Role,
    module: &Module,
    registry: &SharedRegistry,
) -> Result<Runnable, String> {
    let sentence = |reason: String| format!("role {name} cannot run: {reason}");
    let texts = Texts::new(config, role).map_err(|error| sentence(format!("its configuration has no JSON form: {error}")))?;
    let declared: Vec<Declared> = module.manifest.metrics.iter().map(|(name, metric)| declared(name, metric)).collect();
    let terms = Terms {
        grants: Grants::of_module(&module.name),
        limits: role.limits,
        timers: timers(role, module).map_err(sentence)?,
        texts,
        metrics: RoleMetrics::register(registry, name, &declared),
    };
    let id = ModuleId {
        name: module.name.clone(),
        version: module.manifest.version.clone(),
        sha256: module.sha256.clone(),
    };
    Runnable::new(engine, name.clone(), id, &module.component, terms).map_err(|error| sentence(error.to_string()))
}

/// The manifest's timers, with what `plant.toml` says of them instead.
fn timers(role: &Role, module: &Module) -> Result<Vec<(String, Duration)>, String> {
    let of_manifest = &module.manifest.timers;
    if let Some(unknown) = role.timers.keys().find(|name| !of_manifest.contains_key(*name)) {
        let known: Vec<&str> = of_manifest.keys().map(String::as_str).collect();
        return Err(format!(
            "`timers.{unknown}` is no timer of module {}, which has: {}",
            module.name,
            if known.is_empty() { "none".to_owned() } else { known.join(", ") }
        ));
    }
    Ok(of_manifest.iter().map(|(name, every)| (name.clone(), role.timers.get(name).copied().unwrap_or(*every))).collect())
}

fn declared(name: &str, metric: &Metric) -> Declared {
    let kind = match metric.kind {
        MetricKind::Counter => Kind::Counter,
        MetricKind::Gauge => Kind::Gauge,
        MetricKind::Histogram => Kind::Histogram,
    };
    Declared { name: name.to_owned(), kind, help: metric.help.clone() }
}
