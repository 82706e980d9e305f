//! Under which conditions a drill's figures were taken: without them they say nothing.

use chrono::{SecondsFormat, Utc};
use sqlx::PgPool;

use crate::cli::check::kept;
use crate::config::{Config, Redundancy, Scope};
use crate::identity::RoleKey;

use super::nodes::Node;

/// What was drilled, and on what.
///
/// # Errors
/// When the database does not answer.
pub async fn conditions(
    config: &Config,
    redundancy: &Redundancy,
    nodes: &[Node],
    key: &RoleKey,
    pool: &PgPool,
) -> anyhow::Result<Vec<(&'static str, String)>> {
    let names: Vec<String> = nodes.iter().map(|node| node.name().to_string()).collect();
    let scope = match redundancy.scope {
        Scope::Role => "each role by itself",
        Scope::Node => "all roles together, as an active-standby pair",
    };
    let mut conditions = vec![
        ("date", Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true)),
        ("host", build().to_owned()),
        ("nodes", format!("{}, all on this machine", names.join(", "))),
        ("role", format!("{key}; {scope}")),
        ("lease", format!("{} s {}", redundancy.lease.as_secs(), kept(&redundancy.leases))),
        ("database", database(pool).await?),
        ("machine", machine()),
    ];
    if !config.opc.is_empty() {
        let endpoints: Vec<&str> = config.opc.values().map(|opc| opc.endpoint.as_str()).collect();
        conditions.push(("line", endpoints.join(", ")));
    }
    Ok(conditions)
}

/// The version, and whether it was built to be fast.
fn build() -> &'static str {
    if cfg!(debug_assertions) {
        concat!(env!("CARGO_PKG_VERSION"), ", debug build")
    } else {
        concat!(env!("CARGO_PKG_VERSION"), ", release build")
    }
}

async fn database(pool: &PgPool) -> anyhow::Result<String> {
    let mut said = Vec::new();
    for setting in ["server_version", "fsync", "synchronous_commit"] {
        let value: String = sqlx::query_scalar("SELECT current_setting($1)").bind(setting).fetch_one(pool).await?;
        said.push(if setting == "server_version" { value } else { format!("{setting} {value}") });
    }
    Ok(format!("PostgreSQL {}", said.join(", ")))
}

fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("unknown").to_owned();
    format!("{cpus} CPUs, load {load} in the minute before the first round")
}
