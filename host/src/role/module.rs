//! One module: from bytes that a stranger may have written to something that this host can instantiate, or one sentence why not.
//!
//! Everything is decided without running any of it: the shape and the manifest are read from the bytes before they are compiled, the
//! imports are compared with what the host offers. A module that is refused takes no other with it.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use sha2::{Digest, Sha256};
use wasmparser::{Parser, Payload};
use wasmtime::component::types::{ComponentInstance, ComponentItem, Type};
use wasmtime::component::{Component, Linker};

use super::manifest::{Manifest, SECTION};
use crate::engine::{Engine, cache::hex};

/// Where a module comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It is part of this program.
    Bundled,
    /// A file.
    File(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bundled => f.write_str("bundled"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// A module's bytes, not yet looked at.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    /// The name that `plant.toml` knows it by: its file's, without `.wasm`.
    pub name: String,
    /// The component.
    pub wasm: Cow<'a, [u8]>,
    /// The manifest in the file beside it, for a module that was built without one.
    pub beside: Option<Vec<u8>>,
    /// Where it comes from.
    pub origin: Origin,
}

/// Which handlers a module exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Handlers {
    /// `plant:timer/timers`.
    pub timers: bool,
    /// `plant:opc/samples`.
    pub samples: bool,
    /// `plant:opc/connections`.
    pub connections: bool,
}

/// A module that this host can instantiate.
#[derive(Debug, Clone)]
pub struct Module {
    /// The name that `plant.toml` knows it by.
    pub name: String,
    /// Its identity, lower-case hex: the hash of the component, or of the component and the manifest beside it, one after the other.
    pub sha256: String,
    /// What it says of itself.
    pub manifest: Manifest,
    /// Where it comes from.
    pub origin: Origin,
    /// Ready to be linked and instantiated.
    pub component: Component,
    /// Which handlers it exports.
    pub exports: Handlers,
}

/// A module that this host can not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("module {name} ({origin}) is refused: {reason}")]
pub struct Refusal {
    /// The name that `plant.toml` knows it by.
    pub name: String,
    /// The version, if its manifest could be read.
    pub version: Option<String>,
    /// Its identity, if its bytes could be read.
    pub sha256: Option<String>,
    /// Where it comes from.
    pub origin: Origin,
    /// What is wrong and what to do; a part of a sentence.
    pub reason: String,
}

/// What the host's world offers to guests, besides WASI's clocks, random numbers and standard streams.
fn offered() -> impl Iterator<Item = &'static str> {
    let world = include_str!("../../../wit/world.wit");
    world.lines().filter_map(|line| line.trim().strip_prefix("import ")?.strip_suffix(';'))
}

impl Source<'_> {
    /// The module's identity, lower-case hex.
    #[must_use]
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(&self.wasm);
        // A manifest inside is part of the component already, and the one beside is then not used.
        if let (Some(beside), false) =
            (&self.beside, Shape::read(&self.wasm).is_ok_and(|shape| shape.manifest.is_some()))
        {
            hash.update(beside);
        }
        hex(&hash.finalize())
    }

    /// Looks at the bytes, compiles them (or finds them in the cache) and compares their imports with what `linker` has.
    ///
    /// # Errors
    /// Why this host can not run it.
    pub async fn load<T: 'static>(self, engine: &Engine, linker: &Linker<T>) -> Result<Module, Refusal> {
        let sha256 = self.sha256();
        let mut version = None;
        match self.check(&sha256, &mut version, engine, linker).await {
            Ok(module) => Ok(module),
            Err(reason) => Err(Refusal { name: self.name, version, sha256: Some(sha256), origin: self.origin, reason }),
        }
    }

    async fn check<T: 'static>(
        &self,
        sha256: &str,
        version: &mut Option<String>,
        engine: &Engine,
        linker: &Linker<T>,
    ) -> Result<Module, String> {
        let shape = Shape::read(&self.wasm)?;
        let manifest = self.manifest(&shape)?;
        *version = Some(manifest.version.clone());
        if !shape.exports("plant:role/lifecycle") {
            return Err("it does not export `plant:role/lifecycle@1.0.0`, which every role does: build it for a world of plant:role".into());
        }
        let component = engine.compile(&self.wasm).await.map_err(|e| e.to_string())?;
        linker.instantiate_pre(&component).map_err(|e| missing_import(&shape, &e))?;
        check_lifecycle(&component)?;
        Ok(Module {
            name: self.name.clone(),
            sha256: sha256.to_owned(),
            manifest,
            origin: self.origin.clone(),
            exports: Handlers {
                timers: shape.exports("plant:timer/timers"),
                samples: shape.exports("plant:opc/samples"),
                connections: shape.exports("plant:opc/connections"),
            },
            component,
        })
    }

    fn manifest(&self, shape: &Shape<'_>) -> Result<Manifest, String> {
        let beside = self.beside.as_deref();
        let bytes = shape.manifest.or(beside).ok_or_else(|| {
            format!(
                "it has no manifest: add one as its custom section `{SECTION}`, or put {}.toml beside it",
                self.name
            )
        })?;
        let manifest = Manifest::read(bytes).map_err(|e| e.to_string())?;
        if manifest.name == self.name {
            Ok(manifest)
        } else {
            Err(format!("its manifest calls it {:?} and its file {:?}: give both one name", manifest.name, self.name))
        }
    }
}

/// What can be read from a component's outermost sections.
#[derive(Debug, Default)]
struct Shape<'a> {
    imports: Vec<&'a str>,
    exports: Vec<&'a str>,
    manifest: Option<&'a [u8]>,
}

impl<'a> Shape<'a> {
    fn read(wasm: &'a [u8]) -> Result<Self, String> {
        if wasm.is_empty() {
            return Err("the file is empty: build it again".into());
        }
        if !wasm.starts_with(b"\0asm") {
            return Err("it is no WebAssembly: put a component here".into());
        }
        if Parser::is_core_wasm(wasm) {
            return Err("it is a core module and must be a component: build it for wasm32-wasip2, or with the component tools of its \
                        language"
                .into());
        }
        if !Parser::is_component(wasm) {
            return Err("it is WebAssembly of an unknown version: build it with tools of this host's age".into());
        }
        Self::read_sections(wasm)
    }

    fn read_sections(wasm: &'a [u8]) -> Result<Self, String> {
        let damaged = |e: wasmparser::BinaryReaderError| format!("it is damaged or cut short: {e}");
        let mut shape = Self::default();
        let mut depth = 0_usize;
        for payload in Parser::new(0).parse_all(wasm) {
            match payload.map_err(damaged)? {
                Payload::Version { .. } => depth += 1,
                // The parser itself takes the end of the bytes for the end of what is nested.
                Payload::ModuleSection { unchecked_range: inner, .. }
                | Payload::ComponentSection { unchecked_range: inner, .. }
                    if inner.end > wasm.len() =>
                {
                    return Err(format!("it is damaged or cut short: {} bytes are missing", inner.end - wasm.len()));
                }
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(section) if depth == 1 => {
                    for import in section {
                        shape.imports.push(import.map_err(damaged)?.name.name);
                    }
                }
                Payload::ComponentExportSection(section) if depth == 1 => {
                    for export in section {
                        shape.exports.push(export.map_err(damaged)?.name.name);
                    }
                }
                Payload::CustomSection(section) if depth == 1 && section.name() == SECTION => {
                    shape.manifest = Some(section.data());
                }
                _ => {}
            }
        }
        Ok(shape)
    }

    /// Whether it exports the interface in a version that this host speaks.
    fn exports(&self, interface: &str) -> bool {
        self.exports.iter().any(|name| is_version_one(name, interface))
    }
}

fn is_version_one(name: &str, interface: &str) -> bool {
    name.strip_prefix(interface).is_some_and(|rest| rest.starts_with("@1."))
}

/// The major version of an interface's name, `1` of `plant:db/db@1.4.0`.
fn major(name: &str) -> Option<&str> {
    name.split('@').nth(1)?.split('.').next()
}

/// Turns what Wasmtime says of an import into a sentence that says which it is, what the host has, and what to do.
fn missing_import(shape: &Shape<'_>, error: &wasmtime::Error) -> String {
    let said = error.to_string();
    let Some(import) = shape.imports.iter().find(|import| said.contains(&format!("`{import}`"))) else {
        return format!("its imports do not fit this host: {error:#}");
    };
    let interface = import.split('@').next().unwrap_or(import);
    let Some(ours) = offered().find(|ours| ours.split('@').next() == Some(interface)) else {
        let all: Vec<&str> = offered().collect();
        return format!(
            "it imports `{import}`, which this host does not have: it has {} and WASI 0.2's clocks, random numbers and standard \
             streams; build the module without that import, or use a newer host",
            all.join(", ")
        );
    };
    // Of another major version nothing is expected to fit; of the same one, the function that does not says what to look at.
    let details = if major(import) == major(ours) {
        let causes: Vec<String> = error.chain().skip(1).map(|cause| cause.to_string()).collect();
        format!(" ({})", causes.join(": "))
    } else {
        String::new()
    };
    format!(
        "it imports `{import}` and this host has `{ours}`, which does not fit{details}: use a newer host, or build the module against that version"
    )
}

/// The host calls `start` and `stop` by their types: a module with others would fail at its first take-over.
fn check_lifecycle(component: &Component) -> Result<(), String> {
    let engine = component.engine();
    let exports = component.component_type();
    let lifecycle = exports.exports(engine).find_map(|(name, item)| match item.ty {
        ComponentItem::ComponentInstance(instance) if is_version_one(name, "plant:role/lifecycle") => Some(instance),
        _ => None,
    });
    let find = |instance: &ComponentInstance, function| match instance.get_export(engine, function)?.ty {
        ComponentItem::ComponentFunc(found) if found.params().len() == 0 => Some(found.results().collect::<Vec<_>>()),
        _ => None,
    };
    let starts = |results: Option<Vec<Type>>| match results.as_deref() {
        Some([Type::Result(result)]) => result.ok().is_none() && result.err() == Some(Type::String),
        _ => false,
    };
    match lifecycle {
        Some(instance) if starts(find(&instance, "start")) && find(&instance, "stop") == Some(Vec::new()) => Ok(()),
        _ => Err("its `plant:role/lifecycle` has not the functions `start: func() -> result<_, string>` and `stop: func()`: build it \
                  for a world of plant:role"
            .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_offers_is_what_its_world_imports() {
        let offered: Vec<&str> = offered().collect();
        assert!(offered.contains(&"plant:db/db@1.0.0"), "{offered:?}");
        assert!(offered.iter().all(|name| name.starts_with("plant:") && name.contains('@')), "{offered:?}");
    }

    #[test]
    fn a_newer_minor_version_of_an_export_is_found_and_a_newer_major_one_is_not() {
        assert!(is_version_one("plant:role/lifecycle@1.3.0", "plant:role/lifecycle"));
        assert!(!is_version_one("plant:role/lifecycle@2.0.0", "plant:role/lifecycle"));
        assert!(!is_version_one("plant:role/lifecycles@1.0.0", "plant:role/lifecycle"));
    }
}
