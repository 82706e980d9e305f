//! `host check`: every mistake in a configuration, without running anything.

use std::path::Path;
use std::process::ExitCode;

use crate::config::Config;

use super::EXIT_CONFIGURATION;

/// Reads a `plant.toml`, prints what is wrong to standard error and what it means to standard output.
///
/// Ends with 0 when the plant can run, also with warnings, and 64 when it can not.
#[must_use]
pub fn run(config: &Path) -> ExitCode {
    match Config::load(config) {
        Ok(checked) => {
            for warning in &checked.warnings {
                eprintln!("warning: {warning}");
            }
            println!("{}: {}", config.display(), summary(&checked));
            ExitCode::SUCCESS
        }
        Err(errors) => {
            let file = config.display().to_string();
            for warning in &errors.warnings {
                eprintln!("warning: {}", warning.in_file(&file));
            }
            for error in &errors.errors {
                eprintln!("error: {}", error.in_file(&file));
            }
            eprintln!("{} cannot run: {}", file, counted(errors.errors.len(), "error", "errors"));
            ExitCode::from(EXIT_CONFIGURATION)
        }
    }
}

fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn summary(config: &Config) -> String {
    let redundancy = match &config.redundancy {
        Some(redundancy) => format!("leases of {} s", redundancy.lease.as_secs()),
        None => "one node, no leases".to_owned(),
    };
    format!(
        "plant {:?} is good: {}, {}, {}, {}, {redundancy}, {}",
        config.plant.name,
        counted(config.roles.len(), "role", "roles"),
        counted(config.opc.len(), "OPC UA connection", "OPC UA connections"),
        counted(config.machines.len(), "machine", "machines"),
        counted(config.tags.len(), "tag", "tags"),
        counted(config.warnings.len(), "warning", "warnings"),
    )
}
