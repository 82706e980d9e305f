//! Where things are: the repository, and the target directory with all that is made or fetched.

use std::path::PathBuf;

use anyhow::Context;

/// The repository's root.
pub fn root() -> anyhow::Result<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("xtask is not in a repository")?.to_path_buf())
}

/// Cargo's target directory: `CARGO_TARGET_DIR`, else `target` in the root.
pub fn target() -> anyhow::Result<PathBuf> {
    Ok(match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => std::path::absolute(directory)?,
        None => root()?.join("target"),
    })
}

/// Tools that were fetched for the tests.
pub fn tools() -> anyhow::Result<PathBuf> {
    Ok(target()?.join("tools"))
}
