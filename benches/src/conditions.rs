//! Under which conditions a figure was taken.

use std::fs;
use std::thread::available_parallelism;

use sqlx::{Connection, PgConnection};

/// How the PostgreSQL of a benchmark is set, besides its defaults: as its documentation advises for a machine with 4 GB or more.
pub const POSTGRES: [&str; 2] = ["shared_buffers=1GB", "max_wal_size=4GB"];

/// Prints what is being measured and on what machine.
pub fn print(what: &str) {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).and_then(|rest| rest.split_once(": "));
    let cpus = available_parallelism().map_or(0, usize::from);
    println!("== {what}");
    println!("   {cpus} CPUs, {}; load before: {}", model.map_or("unknown", |(_, model)| model), load());
}

/// The load of the last minute, and of the last five.
#[must_use]
pub fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

/// Prints what PostgreSQL the figures were taken on.
///
/// # Errors
/// When the server cannot be asked.
pub async fn print_postgres(url: &str) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    let mut said = Vec::new();
    for setting in ["server_version", "fsync", "synchronous_commit", "shared_buffers", "max_wal_size"] {
        let value = sqlx::query_scalar("SELECT current_setting($1)").bind(setting);
        let value: String = value.fetch_one(&mut connection).await?;
        said.push(format!("{setting} {value}"));
    }
    println!("   PostgreSQL: {}", said.join(", "));
    Ok(connection.close().await?)
}
