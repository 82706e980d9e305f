//! Child processes that never outlive the test that started them, and free ports for them.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// A command that the kernel sends `signal` (a name like `KILL`) when the thread that started it ends.
#[must_use]
pub fn bound_to_this_thread(signal: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig").arg(signal).arg("--").arg(program);
    command
}

/// A TCP port on 127.0.0.1 that nobody listens on at the moment.
///
/// # Errors
/// When the kernel has none.
pub fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0)).context("no free port on 127.0.0.1")?.local_addr()?.port())
}

/// Asks `condition` until it is true; fails with `what` after `at_most`.
///
/// # Errors
/// When it did not become true in time, or `condition` itself failed.
pub fn wait_until(
    what: &str,
    at_most: Duration,
    mut condition: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let start = Instant::now();
    while !condition()? {
        if start.elapsed() > at_most {
            bail!("waited {at_most:?} for: {what}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The project's root.
#[must_use]
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from).unwrap_or_default()
}

/// The host's binary: `PLANT_HOST`, else the one that a plain `cargo build` makes.
///
/// # Errors
/// When it was not built.
pub fn host_binary() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PLANT_HOST").map_or_else(|| root().join("target/debug/host"), PathBuf::from);
    if path.exists() {
        Ok(path)
    } else {
        bail!("there is no host at {}: run the tests by `cargo xtask test`", path.display())
    }
}

/// The module that does what its configuration says: `PLANT_PROBE`, which `cargo xtask test` sets.
///
/// # Errors
/// When it is not set or not there.
pub fn probe() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PLANT_PROBE").map(PathBuf::from).filter(|path| path.exists());
    path.context("PLANT_PROBE names no module: run the tests by `cargo xtask test`")
}

/// The Python that has the peers' packages (`aiosmtpd`, `asyncua`, `psycopg`): `PLANT_PYTHON`, which `cargo xtask test` sets.
///
/// # Errors
/// When it is not set or not there.
pub fn python() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PLANT_PYTHON").map(PathBuf::from);
    path.filter(|path| path.exists()).context("PLANT_PYTHON names no Python: run the tests by `cargo xtask test`")
}
