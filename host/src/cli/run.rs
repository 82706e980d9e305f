//! `host run`: configuration, build, run, drain.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use super::EXIT_CONFIGURATION;
use super::arguments::Run;
use crate::config::Config;
use crate::identity::NodeName;
use crate::node::{self, Ended, Places, Settings, StartError};

/// Runs a node until SIGTERM or SIGINT; a second one ends it at once. A node that others took for dead goes on as another boot.
pub async fn run(arguments: Run) -> ExitCode {
    let mut settings = match settings(arguments) {
        Ok(settings) => settings,
        Err(sentences) => {
            eprintln!("{sentences}");
            return ExitCode::from(EXIT_CONFIGURATION);
        }
    };
    loop {
        match run_one_boot(&mut settings).await {
            Some(code) => return code,
            None => tracing::warn!("the node goes on as another boot"),
        }
    }
}

/// Runs one boot to its end; `None` when another is to follow.
async fn run_one_boot(settings: &mut Settings) -> Option<ExitCode> {
    let started = tokio::select! {
        started = node::start(settings.clone()) => started,
        () = asked_to_end() => return Some(ExitCode::SUCCESS),
    };
    let mut node = match started {
        Ok(node) => node,
        Err(error) => {
            eprintln!("{error}");
            let code = if matches!(error, StartError::Configuration(_)) { EXIT_CONFIGURATION } else { 1 };
            return Some(ExitCode::from(code));
        }
    };
    // The next boot is found where this one was.
    settings.config.serve.api_port = node.port();
    let ended = tokio::select! {
        () = asked_to_end() => None,
        ended = node.ended_by_itself() => Some(ended),
    };
    if let Some(Ended::Dead(sentence)) = &ended {
        tracing::warn!("{sentence}");
    }
    tokio::select! {
        () = node.end() => {}
        () = asked_to_end() => {
            eprintln!("ended before the drain was over: leases that were not released run out by themselves");
            return Some(ExitCode::FAILURE);
        }
    }
    match ended {
        None => Some(ExitCode::SUCCESS),
        Some(Ended::Dead(_)) => None,
        Some(Ended::Failed(sentence)) => {
            eprintln!("{sentence}");
            Some(ExitCode::FAILURE)
        }
    }
}

fn settings(arguments: Run) -> Result<Settings, String> {
    let path = &arguments.config.config;
    let mut config = Config::load(path).map_err(|errors| errors.to_string())?;
    for warning in &config.warnings {
        tracing::warn!("{}: {warning}", path.display());
    }
    if let Some(port) = arguments.api_port {
        config.serve.api_port = port;
    }
    config.serve.advertise = arguments.advertise.or(config.serve.advertise);
    let name = arguments.node.unwrap_or_else(host_name);
    let node: NodeName = name.parse().map_err(|error| format!("{error}; give a name with `--node`"))?;
    let places = Places { guests: arguments.guests, cache: arguments.cache, dev: arguments.dev };
    Ok(Settings { config, node, places })
}

fn host_name() -> String {
    // Where it cannot be read, the empty name is refused with what to do.
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Returns at the next SIGTERM or SIGINT.
async fn asked_to_end() {
    let Ok((mut terminate, mut interrupt)) =
        signal(SignalKind::terminate()).and_then(|t| signal(SignalKind::interrupt()).map(|i| (t, i)))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
