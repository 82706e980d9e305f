//! The modules of a node: those in this program and those in the folder `guests`, each loaded or refused by name.
//!
//! A file never takes the place of a bundled role by accident: only when a developer says so, or `plant.toml` names its hash.
//! A module that is refused stops only the roles that use it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use wasmtime::component::Linker;

use super::bundled::Roles;
use super::module::{Module, Origin, Refusal, Source};
use crate::config;
use crate::engine::Engine;
use crate::identity::RoleName;

/// The largest module, in bytes. Componentized Python has 18 MB.
const MODULE_BYTES: u64 = 256 << 20;

/// Where modules are looked for, and which are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Directory<'a> {
    /// The folder with further `*.wasm`; one that does not exist holds none.
    pub path: Option<&'a Path>,
    /// The roles that come with the host: [`super::bundled::BUNDLED`].
    pub bundled: Roles<'a>,
    /// The configured roles, for the hashes they pin.
    pub roles: &'a BTreeMap<RoleName, config::Role>,
    /// A file may replace a bundled role of the same name.
    pub dev: bool,
    /// Load only what the configured roles use.
    pub only_used: bool,
}

/// The modules that were found.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    modules: BTreeMap<String, Result<Arc<Module>, Refusal>>,
    /// What is allowed and probably not meant; each a sentence.
    pub warnings: Vec<String>,
}

impl Directory<'_> {
    /// Finds, compiles and checks every module; what is wrong with one is in its place of the catalogue.
    pub async fn load<T: 'static>(&self, engine: &Engine, linker: &Linker<T>) -> Catalogue {
        let mut catalogue = Catalogue::default();
        let mut sources = self.files(&mut catalogue);
        for name in self.bundled.names {
            self.refuse_stranger(name, &mut sources, &mut catalogue);
        }
        for bundled in self.bundled.modules {
            let ours = Source {
                name: bundled.name.to_owned(),
                wasm: Cow::Borrowed(bundled.wasm),
                beside: None,
                origin: Origin::Bundled,
            };
            let file = sources.remove(bundled.name);
            sources.insert(bundled.name.to_owned(), self.choose(ours, file, &mut catalogue.warnings));
        }
        let used: BTreeSet<&str> = self.roles.values().map(|role| role.module.as_str()).collect();
        for (name, source) in sources {
            if self.only_used && !used.contains(name.as_str()) {
                tracing::info!(module = name, from = %source.origin, "no role uses this module, so it is not loaded");
                continue;
            }
            let loaded = source.load(engine, linker).await.map(Arc::new);
            catalogue.modules.insert(name, loaded);
        }
        catalogue
    }

    /// A bundled role, or the file of its name.
    fn choose<'s>(&self, ours: Source<'s>, file: Option<Source<'s>>, warnings: &mut Vec<String>) -> Source<'s> {
        let Some(file) = file else { return ours };
        let (its, own) = (file.sha256(), ours.sha256());
        if its == own {
            return ours;
        }
        if self.allows(&ours.name, &its) {
            return file;
        }
        warnings.push(format!(
            "{} is ignored, since {} is a bundled role: delete the file, or set `sha256 = \"{its}\"` in the role's section of plant.toml \
             to use it (or start with --dev)",
            file.origin, ours.name
        ));
        ours
    }

    /// A file that goes by the name of a role that comes with the host, in a host that was built without it.
    fn refuse_stranger(&self, name: &str, sources: &mut BTreeMap<String, Source<'_>>, catalogue: &mut Catalogue) {
        if self.bundled.modules.iter().any(|bundled| bundled.name == name) {
            return;
        }
        let Some(file) = sources.remove(name) else { return };
        let its = file.sha256();
        if self.allows(name, &its) {
            sources.insert(name.to_owned(), file);
            return;
        }
        let reason = format!(
            "{name} is a role that comes with the host, and this one was built without it: build it with `cargo xtask guests` and then \
             the host again, or set `sha256 = \"{its}\"` in the role's section of plant.toml to use the file (or start with --dev)"
        );
        let refusal = Refusal { name: name.to_owned(), version: None, sha256: Some(its), origin: file.origin, reason };
        catalogue.modules.insert(name.to_owned(), Err(refusal));
    }

    /// Whether a file of this hash may go by the name of a role that comes with the host.
    fn allows(&self, name: &str, sha256: &str) -> bool {
        self.dev || self.pins(name).any(|pin| pin.eq_ignore_ascii_case(sha256))
    }

    fn pins<'s>(&'s self, module: &'s str) -> impl Iterator<Item = &'s str> {
        self.roles.values().filter(move |role| role.module == module).filter_map(|role| role.sha256.as_deref())
    }

    fn files(&self, catalogue: &mut Catalogue) -> BTreeMap<String, Source<'static>> {
        let mut found = BTreeMap::new();
        let Some(folder) = self.path else { return found };
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return found,
            Err(e) => {
                catalogue
                    .warnings
                    .push(format!("the folder {} cannot be read, so its modules are not used: {e}", folder.display()));
                return found;
            }
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_none_or(|extension| extension != "wasm") {
                continue;
            }
            let Some(name) = path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned) else {
                catalogue.warnings.push(format!("{} is not used: give it a name in UTF-8", path.display()));
                continue;
            };
            match read_source(&name, &path) {
                Ok(source) => drop(found.insert(name, source)),
                Err(reason) => {
                    let origin = Origin::File(path);
                    let refusal = Refusal { name: name.clone(), version: None, sha256: None, origin, reason };
                    catalogue.modules.insert(name, Err(refusal));
                }
            }
        }
        found
    }
}

fn read_source(name: &str, path: &Path) -> Result<Source<'static>, String> {
    let bytes = fs::metadata(path).map_err(|e| format!("it cannot be read: {e}"))?.len();
    if bytes > MODULE_BYTES {
        return Err(format!("it has {} MiB and may have {}", bytes >> 20, MODULE_BYTES >> 20));
    }
    let wasm = fs::read(path).map_err(|e| format!("it cannot be read: {e}"))?;
    let beside = match fs::read(path.with_extension("toml")) {
        Ok(manifest) => Some(manifest),
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        Err(e) => return Err(format!("the manifest beside it cannot be read: {e}")),
    };
    Ok(Source { name: name.to_owned(), wasm: Cow::Owned(wasm), beside, origin: Origin::File(path.to_owned()) })
}

impl Catalogue {
    /// Every module that was found, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Result<Arc<Module>, Refusal>)> {
        self.modules.iter().map(|(name, module)| (name.as_str(), module))
    }

    /// The module of a configured role, if it is there, is what `plant.toml` pins, accepts the role's configuration,
    /// and has the timers that it overrides.
    ///
    /// # Errors
    /// One sentence why the role can not run here, and what to do.
    pub fn for_role(&self, name: &RoleName, role: &config::Role) -> Result<Arc<Module>, String> {
        let module = match self.modules.get(&role.module) {
            Some(Ok(module)) => module,
            Some(Err(refusal)) => return Err(format!("role {name} cannot run: {refusal}")),
            None => return Err(self.unknown(name, &role.module)),
        };
        if let Some(pin) = role.sha256.as_deref().filter(|pin| !pin.eq_ignore_ascii_case(&module.sha256)) {
            return Err(format!(
                "role {name} cannot run: `roles.{name}.sha256` is {pin} and the module {} ({}) has {}: put the module back, or pin the new one",
                module.name, module.origin, module.sha256
            ));
        }
        module.manifest.check_config(&role.config).map_err(|reason| format!("role {name} cannot run: {reason}"))?;
        let timers = &module.manifest.timers;
        if let Some(unknown) = role.timers.keys().find(|timer| !timers.contains_key(*timer)) {
            let known: Vec<&str> = timers.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(format!(
                "role {name} cannot run: `roles.{name}.timers.{unknown}` is no timer of module {}, which has: {known}",
                module.name
            ));
        }
        Ok(Arc::clone(module))
    }

    fn unknown(&self, role: &RoleName, module: &str) -> String {
        let known: Vec<&str> = self.modules.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none was found".to_owned() } else { format!("found: {}", known.join(", ")) };
        format!(
            "role {role} cannot run: there is no module {module:?} ({known}): put {module}.wasm into the folder `guests`, or build the \
             bundled ones with `cargo xtask guests` and then the host"
        )
    }
}
