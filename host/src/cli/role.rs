//! `host role list|inspect`: which modules this host knows, whether it can run them, and what one of them can do.

use std::fmt::Write;

use anyhow::anyhow;

use super::status;
use crate::capability::kind;
use crate::config::Config;
use crate::identity::RoleName;
use crate::role::directory::Catalogue;
use crate::role::module::Module;

/// How much of a hash is shown: enough to tell two builds apart.
const HASH_CHARS: usize = 12;

/// The catalogue as a table for people: name, version, hash, origin, and `runnable` or why not; then the warnings.
#[must_use]
pub fn list(catalogue: &Catalogue) -> String {
    let mut rows = vec![["ROLE", "VERSION", "SHA-256", "FROM", "STATE"].map(str::to_owned).to_vec()];
    rows.extend(catalogue.iter().map(|(name, found)| {
        let row: [String; 5] = match found {
            Ok(module) => [
                name.into(),
                module.manifest.version.clone(),
                short(&module.sha256),
                module.origin.to_string(),
                "runnable".into(),
            ],
            Err(refusal) => [
                name.into(),
                refusal.version.clone().unwrap_or_else(|| "-".into()),
                refusal.sha256.as_deref().map_or_else(|| "-".into(), short),
                refusal.origin.to_string(),
                format!("refused: {}", refusal.reason),
            ],
        };
        row.to_vec()
    }));
    let mut text = status::table(&rows, &[]);
    if rows.len() == 1 {
        text = "This host knows no module: build the bundled roles with `cargo xtask guests` and then the host again, or put a component \
                into the folder `guests`.\n"
            .to_owned();
    }
    for warning in &catalogue.warnings {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

/// What the module of a configured role is, asks for and does, and what becomes of that at a takeover.
///
/// # Errors
/// A sentence when the plant has no such role, or its module can not be used.
pub fn inspect(catalogue: &Catalogue, config: &Config, role: &str) -> anyhow::Result<String> {
    let name: RoleName = role.parse()?;
    let known = || config.roles.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let configured =
        config.roles.get(&name).ok_or_else(|| anyhow!("the plant has no role {role}: it has {}", known()))?;
    let module = catalogue.for_role(&name, configured).map_err(anyhow::Error::msg)?;
    Ok(about(role, &module))
}

fn about(role: &str, module: &Module) -> String {
    let manifest = &module.manifest;
    let mut text = format!("{role}: module {} {} ({})\n", module.name, manifest.version, module.origin);
    if !manifest.description.is_empty() {
        text += &format!("{}\n", manifest.description);
    }
    text += &format!("SHA-256 {}\n\n", module.sha256);
    let types = module.component.component_type();
    let imports: Vec<String> = types.imports(module.component.engine()).map(|(name, _)| name.to_owned()).collect();
    let mut rows = vec![["CAPABILITY", "KIND", "WHAT IT DOES", "AFTER A TAKEOVER"].map(str::to_owned).to_vec()];
    for about in
        kind::ALL.iter().filter(|about| imports.iter().any(|import| import.starts_with(&format!("{}/", about.package))))
    {
        let (package, kind) = (about.package.to_owned(), about.kind.to_string());
        rows.push(vec![package, kind, about.what.to_owned(), about.kind.at_a_takeover().to_owned()]);
    }
    text += &status::table(&rows, &[]);
    if !manifest.timers.is_empty() {
        let timers: Vec<String> =
            manifest.timers.iter().map(|(name, every)| format!("{name} every {every:?}")).collect();
        text += &format!("\nTimers: {}\n", timers.join(", "));
    }
    text
}

fn short(hash: &str) -> String {
    hash.chars().take(HASH_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_modules_says_how_to_get_some() {
        assert!(list(&Catalogue::default()).contains("cargo xtask guests"));
    }
}
