//! From a file to a [`Config`], or to everything that is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use toml::de::DeTable;

use super::findings::{ConfigErrors, Finding, Findings};
use super::raw::{Document, Section};
use super::{Config, alerts, bus, connections, database, later, machines, node, redundancy, roles, sections, suggest};

const SECTIONS: [&str; 12] =
    ["plant", "store", "serve", "redundancy", "opc", "bus", "roles", "machines", "tags", "reasons", "series", "alerts"];

impl Config {
    /// Reads and checks a `plant.toml`; secrets come from this process's environment.
    ///
    /// # Errors
    /// Everything that is wrong with the file, in its order.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        Self::load_with(path, &|name| std::env::var(name).ok())
    }

    /// Like [`Config::load`], with the environment's variables from `environment`.
    ///
    /// # Errors
    /// Everything that is wrong with the file, in its order.
    pub fn load_with(path: &Path, environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigErrors> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let hint = "name the plant's file with --config FILE";
            ConfigErrors::whole_file(path.to_owned(), format!("the file cannot be read ({error}): {hint}"))
        })?;
        let (table, syntax) = DeTable::parse_recoverable(&text);
        let document = Document { findings: Findings::of(&text), environment };
        for error in &syntax {
            let at = error.span().unwrap_or(0..0);
            document.findings.error(&at, format!("this is not TOML: {}", one_line(error.message())));
        }
        // What does not parse was recovered by guessing: checking the guess would blame the reader for it.
        let config = if syntax.is_empty() { checked(path, &Section::root(table.get_ref(), &document)) } else { None };
        let (errors, warnings) = document.findings.sorted();
        match config {
            Some(config) if errors.is_empty() => {
                let (sections, warnings) = (sections::hashes(&text), sentences(path, &warnings));
                Ok(Self { sections, warnings, ..config })
            }
            _ => Err(ConfigErrors { file: path.to_owned(), errors, warnings }),
        }
    }
}

fn one_line(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join(", ")
}

fn sentences(path: &Path, warnings: &[Finding]) -> Vec<String> {
    warnings.iter().map(|warning| warning.in_file(&path.display().to_string())).collect()
}

/// `None` only when an error was reported.
fn checked(path: &Path, root: &Section<'_>) -> Option<Config> {
    unknown_sections(root);
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let plant = node::plant(root);
    let store = database::store(root, directory);
    let serve = node::serve(root);
    let buses = bus::buses(root, directory);
    let redundancy = redundancy::redundancy(root, store.as_ref(), serve.as_ref(), &buses);
    let alerts = alerts::alerts(root, &buses);
    bus::unused(root, redundancy.as_ref(), &alerts);
    let roles = roles::roles(root, plant.as_ref());
    let opc = connections::opc(root, directory, &roles);
    let connections: BTreeSet<&str> =
        root.section("opc").iter().flat_map(|all| all.children()).map(|(name, _)| name).collect();
    let machines = machines::machines(root, &connections);
    let tags = machines::tags(root, &connections);
    let reasons = machines::reasons(root);
    later::accepted(root);
    Some(Config {
        directory: directory.to_owned(),
        plant: plant?,
        store: store?,
        serve: serve?,
        redundancy,
        opc,
        roles,
        machines,
        tags,
        reasons,
        alerts,
        sections: BTreeMap::new(),
        warnings: Vec::new(),
    })
}

fn unknown_sections(root: &Section<'_>) {
    let known = || SECTIONS.into_iter();
    for (name, _) in root.names().filter(|(name, _)| known().all(|known| known != *name)) {
        let hint = match suggest::nearest(name, known()) {
            Some(near) => format!("did you mean [{near}]?"),
            None => format!("known are {}", known().collect::<Vec<_>>().join(", ")),
        };
        root.wrong(name, format!("is no section of a plant: {hint}"));
    }
}
