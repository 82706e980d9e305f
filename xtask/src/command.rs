//! Running other programs, and saying which one failed.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::layout;

/// Runs a command; its output goes where ours goes.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

/// Runs a command and answers what it printed.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Whether a command can be run at all and succeeds, in silence.
pub fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// Cargo, in the repository's root, as if it was called from there by hand.
///
/// Cargo describes the package that it runs (this one) in its environment. Build scripts that look there would take our call for
/// another than one by hand, and what they build would be compiled anew, with all that depends on it, at every change between the two.
pub fn cargo() -> anyhow::Result<Command> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(layout::root()?);
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|package| name.to_string_lossy().starts_with(package)) {
            cargo.env_remove(name);
        }
    }
    Ok(cargo)
}

/// Whether packages can be installed here by this user.
pub fn may_install() -> bool {
    rustix::process::geteuid().is_root() && Path::new("/usr/bin/apt-get").exists()
}

/// Installs Debian packages.
pub fn apt_install(packages: &[&str]) -> anyhow::Result<()> {
    println!("installing {}", packages.join(", "));
    run(Command::new("apt-get").args(["-q", "update"]))?;
    let mut install = Command::new("apt-get");
    install.env("DEBIAN_FRONTEND", "noninteractive").args(["-q", "-y", "install", "--no-install-recommends"]);
    run(install.args(packages))
}
