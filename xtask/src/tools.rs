//! What the tests need beside Rust: found if it is there, else installed through the usual package managers, at pinned versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::bail;

use crate::{command, layout};

const NEXTEST: &str = "0.9.143";
const DENY: &str = "0.20.2";

/// Python with the peers' packages, and what came with them.
pub struct Peers {
    /// The Python interpreter.
    pub python: PathBuf,
    /// The NATS server.
    pub nats_server: PathBuf,
}

/// A part of the system that tests need.
struct Part {
    /// What it is, for people.
    name: &'static str,
    /// The Debian packages that it comes from.
    packages: &'static [&'static str],
    there: fn() -> bool,
    /// The tests that need it say so and are skipped without it.
    spared: bool,
}

/// All of them. A compiler for C is not among them: without it nobody gets so far.
const PARTS: [Part; 5] = [
    Part { name: "setpriv", packages: &["util-linux"], there: || answers("setpriv", &["--version"]), spared: false },
    Part {
        name: "Python with venv",
        packages: &["python3", "python3-venv"],
        there: || answers("python3", &["-c", "import ensurepip, venv"]),
        spared: false,
    },
    Part { name: "PostgreSQL's server", packages: &["postgresql"], there: has_postgresql, spared: false },
    Part { name: "ip", packages: &["iproute2"], there: || answers("ip", &["-Version"]), spared: true },
    Part {
        name: "faketime",
        packages: &["faketime"],
        there: || answers("faketime", &["-f", "+1s", "true"]),
        spared: true,
    },
];

fn answers(program: &str, arguments: &[&str]) -> bool {
    command::succeeds(Command::new(program).args(arguments))
}

fn has_postgresql() -> bool {
    let versions = fs::read_dir("/usr/lib/postgresql");
    let there = |mut versions: fs::ReadDir| {
        versions.any(|version| version.is_ok_and(|version| version.path().join("bin/postgres").exists()))
    };
    std::env::var_os("PLANT_PG_BIN").is_some() || versions.is_ok_and(there)
}

/// Installs what the system lacks, if we may; else says how it is done by hand, and fails unless the tests can spare it.
pub fn system() -> anyhow::Result<()> {
    let missing: Vec<&Part> = PARTS.iter().filter(|part| !(part.there)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().flat_map(|part| part.packages).copied().collect();
    let installed = if command::may_install() { command::apt_install(&packages) } else { Ok(()) };
    let still = || missing.iter().filter(|part| !(part.there)());
    if still().next().is_none() {
        return Ok(());
    }
    let names: Vec<&str> = still().map(|part| part.name).collect();
    let (names, packages) = (names.join(", "), packages.join(" "));
    let sentence = if command::may_install() {
        format!("{names} does not run here, also after apt-get was asked for {packages}: have it run, then start again")
    } else {
        format!(
            "{names} is missing, and only root may install it here: run `sudo apt-get install {packages}` (or your system's own \
             way), then start again"
        )
    };
    if still().all(|part| part.spared) {
        println!("{sentence}; until then the tests that need it are skipped");
        return Ok(());
    }
    installed?;
    bail!("{sentence}")
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
    command::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(environment))?;
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

/// `cargo nextest run`: the one there is, else our own.
pub fn nextest() -> anyhow::Result<Command> {
    let mut cargo = command::cargo()?;
    if !command::succeeds(command::cargo()?.args(["nextest", "--version"])) {
        cargo.env("PATH", with_own("cargo-nextest", NEXTEST, &[])?);
    }
    cargo.args(["nextest", "run"]);
    Ok(cargo)
}

/// `cargo deny`: the one there is, else our own. It looks at a few hundred manifests, so that it is not optimised: building it takes
/// less than half as long.
pub fn deny() -> anyhow::Result<Command> {
    let mut cargo = command::cargo()?;
    if !command::succeeds(command::cargo()?.args(["deny", "--version"])) {
        cargo.env("PATH", with_own("cargo-deny", DENY, &["--debug", "--no-default-features"])?);
    }
    cargo.arg("deny");
    Ok(cargo)
}

/// A `PATH` with a tool of cargo's on it, which is installed into the target directory unless it is there in this version.
fn with_own(tool: &str, version: &str, how: &[&str]) -> anyhow::Result<String> {
    let tools = layout::tools()?;
    let stamp = tools.join(format!("{tool}-{version}"));
    if !stamp.exists() {
        println!("building {tool} {version} (once)");
        let mut install = command::cargo()?;
        // Its own target directory: sharing ours would hold its lock.
        install.env("CARGO_TARGET_DIR", tools.join("built")).env("CARGO_PROFILE_DEV_DEBUG", "false");
        install.args(["install", "--quiet", "--locked", "--force", tool, "--version", version, "--root"]).arg(&tools);
        command::run(install.args(how))?;
        fs::remove_dir_all(tools.join("built"))?;
        fs::write(stamp, "")?;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    Ok(format!("{}:{path}", tools.join("bin").display()))
}
