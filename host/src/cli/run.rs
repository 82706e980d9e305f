//! `host run`: configuration, build, run, drain.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::arguments::Run;
use super::{EXIT_CONFIGURATION, EXIT_DEMOTED};
use crate::config::{Config, host_name};
use crate::identity::NodeName;
use crate::node::{self, Boots, Ended, Front, Places, Settings, StartError};

/// For so long the last alerts are waited for, at the end of the process.
const LAST_ALERTS: Duration = Duration::from_secs(5);

/// Runs a node until SIGTERM or SIGINT; a second one ends it at once. A node that others took for dead goes on as another boot.
pub async fn run(arguments: Run) -> ExitCode {
    let settings = match settings(arguments) {
        Ok(settings) => settings,
        Err(sentences) => {
            eprintln!("{sentences}");
            return ExitCode::from(EXIT_CONFIGURATION);
        }
    };
    let mut front = None;
    loop {
        match run_one_boot(&settings, front.take()).await {
            Next::End(code) => return code,
            Next::AnotherBoot(kept) => front = Some(kept),
        }
        tracing::warn!("the node goes on as another boot");
    }
}

/// What comes after a boot.
enum Next {
    End(ExitCode),
    /// Another boot, behind the same HTTP side.
    AnotherBoot(Front),
}

/// Runs one boot to its end.
async fn run_one_boot(settings: &Settings, front: Option<Front>) -> Next {
    let started = tokio::select! {
        started = node::start(settings.clone(), front) => started,
        () = asked_to_end() => return Next::End(ExitCode::SUCCESS),
    };
    let mut node = match started {
        Ok(node) => node,
        Err(error) => {
            eprintln!("{error}");
            let code = if matches!(error, StartError::Configuration(_)) { EXIT_CONFIGURATION } else { 1 };
            return Next::End(ExitCode::from(code));
        }
    };
    let ended = tokio::select! {
        () = asked_to_end() => None,
        ended = node.ended_by_itself() => Some(ended),
    };
    if let Some(Ended::Dead(sentence)) = &ended {
        tracing::warn!("{sentence}");
    }
    let alerts = node.alerts();
    let front = tokio::select! {
        front = node.end() => front,
        () = asked_to_end() => {
            eprintln!("ended before the drain was over: leases that were not released run out by themselves");
            return Next::End(ExitCode::FAILURE);
        }
    };
    let code = match ended {
        None => ExitCode::SUCCESS,
        Some(Ended::Dead(_)) => return Next::AnotherBoot(front),
        Some(Ended::Demoted(sentence)) => {
            tracing::warn!("{sentence}: it ends, as redundancy.on_demotion = \"exit\" says");
            ExitCode::from(EXIT_DEMOTED)
        }
        Some(Ended::Failed(sentence)) => {
            eprintln!("{sentence}");
            ExitCode::FAILURE
        }
    };
    front.end().await;
    if let Some(alerts) = alerts {
        tokio::select! {
            () = alerts.settle(LAST_ALERTS) => {}
            () = asked_to_end() => {}
        }
    }
    Next::End(code)
}

fn settings(arguments: Run) -> Result<Settings, String> {
    let path = &arguments.config.config;
    let mut config = Config::load(path).map_err(|errors| errors.to_string())?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    if let Some(port) = arguments.api_port {
        config.serve.api_port = port;
    }
    config.serve.advertise = arguments.advertise.or(config.serve.advertise);
    let name = arguments.node.unwrap_or_else(host_name);
    let node: NodeName = name.parse().map_err(|error| format!("{error}; give a name with `--node`"))?;
    let places = Places { guests: arguments.guests, cache: arguments.cache, dev: arguments.dev };
    let state = arguments.state.unwrap_or_else(|| user_state(&config.directory));
    let boots = Arc::new(Boots::open(&state, &config.plant.name, &node));
    Ok(Settings { config, node, places, boots })
}

fn user_state(plant: &Path) -> PathBuf {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let user = env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(home);
    user.map_or_else(|| plant.join("state"), |state| state.join("plant-host"))
}

/// Returns at the next SIGTERM or SIGINT.
pub(super) async fn asked_to_end() {
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
