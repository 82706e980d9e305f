//! `host check`: every mistake in a configuration and its modules, without running anything.

use std::path::Path;
use std::process::ExitCode;

use crate::config::{Config, Leases};
use crate::node::{Modules, Places};

use super::EXIT_CONFIGURATION;

/// Reads a `plant.toml` and the modules of its roles, prints what is wrong to standard error and what it means to standard output.
///
/// Ends with 0 when the plant can run, also with warnings, and 64 when it can not.
pub async fn run(config: &Path, places: &Places) -> ExitCode {
    match Config::load(config) {
        Ok(checked) => {
            for warning in &checked.warnings {
                eprintln!("warning: {warning}");
            }
            let refused = modules(&checked, places).await;
            for sentence in &refused {
                eprintln!("error: {sentence}");
            }
            if !refused.is_empty() {
                return ExitCode::from(EXIT_CONFIGURATION);
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

/// A sentence for each role that can not run here.
async fn modules(config: &Config, places: &Places) -> Vec<String> {
    match Modules::load(config, places, true).await {
        Ok(modules) => modules.refusals(config),
        Err(error) => vec![error.to_string()],
    }
}

pub(super) fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Where leases are kept, and that their fences are in the database whichever it is.
pub(super) fn kept(leases: &Leases) -> String {
    match leases {
        Leases::Postgres => "in PostgreSQL".to_owned(),
        Leases::PostgresLock { key } => format!("in PostgreSQL under the one lock {key}"),
        Leases::Nats { bus, bucket } => {
            format!(
                "in the bucket {bucket} of NATS at {} and their fences in PostgreSQL, so that both are needed",
                bus.shown()
            )
        }
    }
}

fn summary(config: &Config) -> String {
    let redundancy = match &config.redundancy {
        Some(redundancy) => format!("leases of {} s {}", redundancy.lease.as_secs(), kept(&redundancy.leases)),
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
