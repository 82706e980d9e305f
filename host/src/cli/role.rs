//! `host role list`: which modules this host knows, and whether it can run them.

use std::fmt::Write;

use crate::role::directory::Catalogue;

/// How much of a hash is shown: enough to tell two builds apart.
const HASH_CHARS: usize = 12;

/// The catalogue as a table for people: name, version, hash, origin, and `runnable` or why not; then the warnings.
#[must_use]
pub fn list(catalogue: &Catalogue) -> String {
    let rows: Vec<[String; 5]> = catalogue
        .iter()
        .map(|(name, found)| match found {
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
        })
        .collect();
    let mut text = table(["ROLE", "VERSION", "SHA-256", "FROM", "STATE"].map(str::to_owned), &rows);
    if rows.is_empty() {
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

fn short(hash: &str) -> String {
    hash.chars().take(HASH_CHARS).collect()
}

fn table(head: [String; 5], rows: &[[String; 5]]) -> String {
    let all = || std::iter::once(&head).chain(rows);
    let widths: [usize; 5] = std::array::from_fn(|column| {
        all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    });
    let mut text = String::new();
    for row in all() {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing into a string cannot fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_modules_says_how_to_get_some() {
        assert!(list(&Catalogue::default()).contains("cargo xtask guests"));
    }
}
