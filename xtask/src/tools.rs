//! What the tests need beside Rust: found if it is there, else installed through the usual package managers, at pinned versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{command, layout};

const NEXTEST: &str = "0.9.143";

/// Python with the peers' packages, and what came with them.
pub struct Peers {
    /// The Python interpreter.
    pub python: PathBuf,
    /// The NATS server.
    pub nats_server: PathBuf,
}

/// PostgreSQL's server programs, in whatever version the system has.
pub fn postgresql() -> anyhow::Result<()> {
    let there = || {
        fs::read_dir("/usr/lib/postgresql").is_ok_and(|mut versions| {
            versions.any(|version| version.is_ok_and(|v| v.path().join("bin/postgres").exists()))
        })
    };
    if !there() && std::env::var_os("PLANT_PG_BIN").is_none() {
        command::apt_install("PostgreSQL's server", &["postgresql"])?;
    }
    Ok(())
}

/// A virtual environment with `tests/peers/requirements.txt`, made anew when that file changes.
pub fn peers() -> anyhow::Result<Peers> {
    let environment = layout::tools()?.join("venv");
    let wanted = fs::read_to_string(layout::root()?.join("tests/peers/requirements.txt"))?;
    let installed = environment.join("requirements.txt");
    if !fs::read_to_string(&installed).is_ok_and(|there| there == wanted) {
        make_environment(&environment)?;
        fs::write(&installed, wanted)?;
    }
    let programs = environment.join("bin");
    Ok(Peers { python: programs.join("python"), nats_server: programs.join("nats-server") })
}

fn make_environment(environment: &Path) -> anyhow::Result<()> {
    println!("installing the tests' peers into {}", environment.display());
    let make = || {
        let mut python = Command::new("python3");
        python.args(["-m", "venv", "--clear"]).arg(environment);
        python
    };
    if !command::succeeds(&mut make()) {
        command::apt_install("Python's venv", &["python3", "python3-venv"])?;
        command::run(&mut make())?;
    }
    let requirements = layout::root()?.join("tests/peers/requirements.txt");
    let mut pip = Command::new(environment.join("bin/pip"));
    command::run(pip.args(["install", "--quiet", "--disable-pip-version-check", "--requirement"]).arg(requirements))
}

/// `promtool`, which checks what is written for Prometheus: the one there is, else the system's package, unpacked beside the other tools:
/// installed, it would start a server.
pub fn promtool() -> anyhow::Result<PathBuf> {
    let there = PathBuf::from("promtool");
    if command::succeeds(Command::new(&there).arg("--version")) {
        return Ok(there);
    }
    let tools = layout::tools()?.join("prometheus");
    let program = tools.join("usr/bin/promtool");
    if !program.exists() {
        fs::create_dir_all(&tools)?;
        let download = || {
            let mut apt = Command::new("apt-get");
            apt.args(["-q", "download", "prometheus"]).current_dir(&tools);
            apt
        };
        if !command::succeeds(&mut download()) {
            command::run(Command::new("apt-get").args(["-q", "update"]))?;
            command::run(&mut download())?;
        }
        for package in fs::read_dir(&tools)? {
            let package = package?.path();
            if package.extension().is_some_and(|extension| extension == "deb") {
                command::run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&tools))?;
                fs::remove_file(package)?;
            }
        }
    }
    Ok(program)
}

/// `cargo nextest`: the one there is, else our own.
pub fn nextest() -> anyhow::Result<Command> {
    let mut cargo = command::cargo()?;
    if !command::succeeds(command::cargo()?.args(["nextest", "--version"])) {
        let tools = layout::tools()?;
        let mut install = command::cargo()?;
        // Its own target directory: sharing ours would hold its lock.
        install.env("CARGO_TARGET_DIR", tools.join("built"));
        install.args(["install", "--quiet", "--locked", "cargo-nextest", "--version", NEXTEST, "--root"]).arg(&tools);
        command::run(&mut install)?;
        let path = std::env::var("PATH").unwrap_or_default();
        cargo.env("PATH", format!("{}:{path}", tools.join("bin").display()));
    }
    cargo.args(["nextest", "run"]);
    Ok(cargo)
}
