//! Running the tests, the checks and the benchmarks.

use std::process::Command;
use std::time::Instant;

use crate::skipped::Skipped;
use crate::{command, guests, layout, tools};

/// One set of packages for every build: another set would unify features differently and compile the dependencies again.
pub const PACKAGES: [&str; 3] = ["--workspace", "--exclude", "plant-benches"];

/// Every test, also those that a plain `cargo test` leaves out.
const TARGETS: [&str; 4] = ["--lib", "--bins", "--test", "*"];

/// One set of packages for everything that is measured, so that nothing is compiled twice.
const MEASURED: [&str; 4] = ["--package", "host", "--package", "plant-benches"];

/// The names that `cargo xtask bench` knows, in the order in which they are run.
const ALL_BENCHMARKS: [&str; 5] = ["booking", "end_to_end", "guest", "interrupt", "takeover"];

/// Sets up what the tests need, builds, and runs them; in the end it says which of them this machine can not run.
pub fn test(arguments: &[String]) -> anyhow::Result<()> {
    tools::system()?;
    let mut nextest = tools::nextest()?;
    with_peers(&mut nextest, "debug")?;
    run_and_tell(nextest.args(PACKAGES).args(TARGETS).args(arguments))
}

fn run_and_tell(nextest: &mut Command) -> anyhow::Result<()> {
    let skipped = Skipped::of(nextest)?;
    let outcome = command::run(nextest);
    skipped.tell()?;
    outcome
}

/// Those tests that a plain `cargo test` runs, as on a machine that has no servers, from what [`test`] has built.
fn plain() -> anyhow::Result<()> {
    let mut nextest = tools::nextest()?;
    for variable in ["PLANT_PYTHON", "PLANT_NATS_SERVER", "PLANT_PROMTOOL", "PLANT_PROBE", "PLANT_HOST"] {
        nextest.env_remove(variable);
    }
    nextest.env("PLANT_PG_BIN", "/nowhere").args(PACKAGES);
    command::run(nextest.args(["-E", "package(host)"]))
}

/// All that a change has to pass, with the time that each part took.
pub fn ci() -> anyhow::Result<()> {
    let parts: [(&str, &dyn Fn() -> anyhow::Result<()>); 3] =
        [("lint", &lint), ("test", &|| test(&[])), ("test without servers", &plain)];
    let mut took = Vec::new();
    for (name, part) in parts {
        let start = Instant::now();
        part()?;
        took.push(format!("{name} {} s", start.elapsed().as_secs()));
    }
    println!("passed: {}", took.join(", "));
    Ok(())
}

/// Runs those tests that a nextest filter names, which need no other program than PostgreSQL; ends with the first that fails.
pub fn nextest_of(filter: &str) -> anyhow::Result<Command> {
    tools::system()?;
    let mut nextest = tools::nextest()?;
    nextest.args(PACKAGES).args(TARGETS).args(["-E", filter]);
    Ok(nextest)
}

/// Ends the holders of an optimised host so many times in each way, and prints what each takeover took.
pub fn figures(rounds: u32) -> anyhow::Result<()> {
    const SERIES: &str = "binary(failover) + binary(failover_stores) + binary(cut) + binary(clocks) + binary(restarts)";
    tools::system()?;
    let mut nextest = tools::nextest()?;
    with_peers(&mut nextest, "release")?;
    command::run(command::cargo()?.args(["build", "--release"]).args(MEASURED))?;
    nextest.env("PLANT_ROUNDS", rounds.to_string()).args(PACKAGES).args(TARGETS);
    run_and_tell(nextest.args(["--profile", "figures", "--no-capture", "-E", SERIES]))
}

/// Tells tests and benchmarks where the programs are that they start.
fn with_peers(command: &mut Command, profile: &str) -> anyhow::Result<()> {
    let peers = tools::peers()?;
    let for_tests = guests::build_all()?;
    command.env("PLANT_PYTHON", peers.python).env("PLANT_NATS_SERVER", peers.nats_server);
    command.env("PLANT_PROMTOOL", tools::promtool()?);
    command.env("PLANT_PROBE", for_tests.join("probe.wasm"));
    command.env("PLANT_HOST", layout::target()?.join(profile).join("host"));
    Ok(())
}

/// Formatting, clippy, and what `deny.toml` says of the dependencies.
pub fn lint() -> anyhow::Result<()> {
    command::run(command::cargo()?.args(["fmt", "--all", "--check"]))?;
    // The host embeds them: built later, they would have it checked twice.
    guests::build_all()?;
    command::run(command::cargo()?.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    command::run(tools::deny()?.args(["check", "bans", "licenses", "sources"]))
}

/// Builds optimised and measures. Leading arguments are names of benchmarks; what follows them goes to the benchmarks.
pub fn bench(arguments: &[String]) -> anyhow::Result<()> {
    tools::system()?;
    let mut cargo = command::cargo()?;
    with_peers(&mut cargo, "release")?;
    command::run(command::cargo()?.args(["build", "--release"]).args(MEASURED))?;
    cargo.arg("bench").args(MEASURED);
    let named = arguments.iter().take_while(|argument| !argument.starts_with('-')).count();
    let (names, others) = arguments.split_at(named);
    let all = || ALL_BENCHMARKS.map(str::to_owned).to_vec();
    for name in if names.is_empty() { all() } else { names.to_vec() } {
        cargo.args(["--bench", &name]);
    }
    command::run(cargo.args(others))
}
