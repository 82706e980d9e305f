//! The binary `host`: arguments, log, and the subcommand that was asked for.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use host::cli::arguments::{Arguments, Command, ConfigFile, Role};
use host::cli::{self, EXIT_CONFIGURATION};
use host::config::Config;
use host::engine::{Addressing, compile_child};
use host::node::{Modules, Places};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // The compiler's process has an empty environment and a small memory: it gets no runtime and no log.
    if let Command::CompileModule(compile) = &arguments.command {
        let addressing = if compile.checked { Addressing::Checked } else { Addressing::Reserved };
        return compile_child(&compile.output, compile.memory_mib, addressing);
    }
    if let Err(sentence) = start_log(&arguments) {
        eprintln!("{sentence}");
        return ExitCode::from(2);
    }
    match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime.block_on(command(arguments.command)),
        Err(error) => {
            eprintln!("the system gives no threads: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn command(command: Command) -> ExitCode {
    match command {
        Command::Run(arguments) => cli::run::run(arguments).await,
        Command::Simulate(arguments) => outcome(cli::simulate::simulate(arguments).await),
        Command::Status(asked) => {
            let status = move || cli::status::run(asked.url.as_deref(), &asked.config.config, asked.json);
            tokio::task::spawn_blocking(status).await.unwrap_or(ExitCode::FAILURE)
        }
        Command::Takeovers(asked) => {
            tokio::task::spawn_blocking(move || cli::takeovers::run(&asked)).await.unwrap_or(ExitCode::FAILURE)
        }
        Command::Drill(arguments) => cli::drill::run(arguments).await,
        Command::Check(file) => cli::check::run(&file.config, &Places::default()).await,
        Command::Migrate(file) => match configured(&file) {
            Ok(config) => outcome(cli::migrate::migrate(&config).await),
            Err(code) => code,
        },
        Command::Role(Role::List { config, guests }) => {
            let places = Places { guests, ..Places::default() };
            match configured(&config) {
                Ok(config) => outcome(list_roles(&config, &places).await),
                Err(code) => code,
            }
        }
        Command::Role(Role::Inspect { role, config, guests }) => {
            let places = Places { guests, ..Places::default() };
            match configured(&config) {
                Ok(config) => outcome(inspect_role(&role, &config, &places).await),
                Err(code) => code,
            }
        }
        Command::Audit(asked) => outcome(cli::audit::run(&asked).await),
        Command::Role(Role::Order(order)) => outcome(cli::place::role(order).await),
        Command::Node(order) => outcome(cli::place::node_command(order).await),
        Command::Opc(command) => outcome(cli::opc::run(command).await),
        Command::Init(arguments) => outcome(cli::init::run(arguments).await),
        Command::CompileModule(_) => ExitCode::FAILURE,
    }
}

async fn list_roles(config: &Config, places: &Places) -> anyhow::Result<()> {
    let modules = Modules::load(config, places, false).await?;
    print!("{}", cli::role::list(&modules.catalogue));
    Ok(())
}

async fn inspect_role(role: &str, config: &Config, places: &Places) -> anyhow::Result<()> {
    let modules = Modules::load(config, places, false).await?;
    print!("{}", cli::role::inspect(&modules.catalogue, config, role)?);
    Ok(())
}

fn configured(file: &ConfigFile) -> Result<Config, ExitCode> {
    Config::load(&file.config).map_err(|errors| {
        eprintln!("{errors}");
        ExitCode::from(EXIT_CONFIGURATION)
    })
}

fn outcome(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Logs go to standard error: human by default, JSON by flag.
fn start_log(arguments: &Arguments) -> Result<(), String> {
    let filter = EnvFilter::try_new(&arguments.log).map_err(|error| {
        format!("`--log {}` is no filter ({error}): write a level like `info`, or `host=debug`", arguments.log)
    })?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if arguments.log_json {
        log.json().init();
    } else {
        log.with_ansi(std::io::stderr().is_terminal()).with_target(false).init();
    }
    Ok(())
}
