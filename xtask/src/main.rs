//! `cargo xtask`: everything that is done to this repository, each by one command that does its own set-up.

mod command;
mod demo;
mod guests;
mod layout;
mod mutants;
mod skipped;
mod test;
mod toolchain;
mod tools;

use clap::{Parser, Subcommand};

/// Build, run and test the plant host.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Start the simulated bottling line and a node that counts it; Ctrl-C ends both
    Demo(demo::Ports),
    /// Set up what the tests need, then run them all
    Test {
        /// What is handed to `cargo nextest run`, for example a part of a test's name
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// What continuous integration runs: lint, then all tests, then those that a plain `cargo test` runs
    Ci,
    /// Break each rule of the leases in turn: the tests have to notice (about ten minutes)
    Mutants {
        /// Only the rules with this in their name
        only: Option<String>,
    },
    /// Measure takeovers: builds optimised, then kills, stops, freezes and cuts off the holder so many times each
    Figures {
        /// How often each
        #[arg(default_value_t = 30)]
        rounds: u32,
    },
    /// Build the guests and the host as a plant gets it, optimised and stripped; the last line is the binary's path
    Build,
    /// Build the guests for WebAssembly into guests/
    Guests,
    /// Format check, clippy, and the licences and sources of all dependencies
    Lint,
    /// Measure: throughput, latencies, memory
    Bench {
        /// Which benchmark; all of them when left out
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Demo(ports) => demo::demo(ports),
        Task::Test { arguments } => test::test(&arguments),
        Task::Ci => test::ci(),
        Task::Mutants { only } => mutants::mutants(only.as_deref()),
        Task::Figures { rounds } => test::figures(rounds),
        Task::Build => {
            guests::build_all()?;
            command::run(command::cargo()?.args(["build", "--profile", "shipped", "--package", "host"]))?;
            println!("{}", layout::target()?.join("shipped/host").display());
            Ok(())
        }
        Task::Guests => guests::build_all().map(|_| ()),
        Task::Lint => test::lint(),
        Task::Bench { arguments } => test::bench(&arguments),
    }
}
