//! Nodes: real `host run` processes, asked over their API and ended by real signals.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::namespace::Namespace;
use crate::process::{beside_the_host, bound_to_this_thread, free_port, host_binary, wait_until};

/// A node of a plant; killed when dropped.
pub struct Node {
    name: String,
    host: String,
    port: u16,
    log: PathBuf,
    process: Child,
}

impl Node {
    /// Starts `host run --node NAME` in the plant's directory, which holds its `plant.toml`; its log is `NAME.log` there.
    ///
    /// # Errors
    /// When the host was not built or cannot be started.
    pub fn start(plant: &Path, name: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let command = bound_to_this_thread("KILL", host_binary()?);
        Self::start_by(command, "127.0.0.1", plant, name, arguments)
    }

    /// The same in a network of its own; `[serve] bind` has to let the other side in.
    ///
    /// # Errors
    /// The same.
    pub fn start_in(network: &Namespace, plant: &Path, name: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let mut command = bound_to_this_thread("KILL", "ip");
        command.args(network.inside()).arg(host_binary()?);
        Self::start_by(command, &network.far(), plant, name, arguments)
    }

    /// The same with a wall clock of its own: `clock` is a file with what `faketime` is to make of the time, which is read again and again.
    /// What only runs and is never set (`CLOCK_BOOTTIME`) is left alone.
    ///
    /// # Errors
    /// The same.
    pub fn start_with_clock(clock: &Path, plant: &Path, name: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let mut command = bound_to_this_thread("KILL", host_binary()?);
        command.env("LD_PRELOAD", faketime_library()?).env("FAKETIME_TIMESTAMP_FILE", clock);
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Self::start_by(command, "127.0.0.1", plant, name, arguments)
    }

    fn start_by(
        mut command: Command,
        host: &str,
        plant: &Path,
        name: &str,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let port = free_port()?;
        let log = plant.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log)?;
        command
            .args(["run", "--config", "plant.toml", "--node", name, "--api-port", &port.to_string()])
            .args(arguments);
        in_environment(&mut command)?;
        command.env("HOST_STATE", plant.join("state"));
        command.current_dir(plant).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let process = command.spawn().with_context(|| format!("cannot start node {name}"))?;
        Ok(Self { name: name.to_owned(), host: host.to_owned(), port, log, process })
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it serves.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}:{}", self.host, self.port)
    }

    /// The document at a path of its API, like `/api/status`.
    ///
    /// # Errors
    /// When it does not answer within two seconds, or not with JSON.
    pub fn get(&self, path: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.text(path)?)?)
    }

    /// The text at a path of its API, like `/metrics`.
    ///
    /// # Errors
    /// When it does not answer within two seconds.
    pub fn text(&self, path: &str) -> anyhow::Result<String> {
        let limits = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(2))).build();
        let agent = ureq::Agent::new_with_config(limits);
        Ok(agent.get(format!("{}{path}", self.url())).call()?.body_mut().read_to_string()?)
    }

    /// Sends a document to a path of its API, with the plant's token; the answer's status and document.
    ///
    /// # Errors
    /// When it does not answer within two seconds, or not with JSON.
    pub fn post(&self, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        let mut answer = self.posted(path, body)?;
        Ok((answer.status().as_u16(), answer.body_mut().read_json()?))
    }

    /// Where the answer to the same says that it is to be sent.
    ///
    /// # Errors
    /// When it does not answer within two seconds.
    pub fn location(&self, path: &str, body: &Value) -> anyhow::Result<Option<String>> {
        let answer = self.posted(path, body)?;
        Ok(answer.headers().get("location").and_then(|place| place.to_str().ok()).map(str::to_owned))
    }

    fn posted(&self, path: &str, body: &Value) -> anyhow::Result<ureq::http::Response<ureq::Body>> {
        let request = asking().post(format!("{}{path}", self.url())).header("Authorization", "Bearer for tests");
        Ok(request.send_json(body)?)
    }

    /// Status and document at a path of its API, whatever the status is.
    ///
    /// # Errors
    /// When it does not answer within two seconds, or not with JSON.
    pub fn answer(&self, path: &str) -> anyhow::Result<(u16, Value)> {
        let mut answer = asking().get(format!("{}{path}", self.url())).call()?;
        Ok((answer.status().as_u16(), answer.body_mut().read_json()?))
    }

    /// How many instances of a role it has, by its own metrics.
    ///
    /// # Errors
    /// When it does not answer within two seconds.
    pub fn instances(&self, role: &str) -> anyhow::Result<u64> {
        Ok(instances(&self.text("/metrics")?, role))
    }

    /// Waits until the node serves.
    ///
    /// # Errors
    /// When it does not in time; its log is in the error.
    pub fn wait_until_healthy(&mut self) -> anyhow::Result<()> {
        let name = self.name.clone();
        let waited = wait_until(&format!("node {name} serves"), Duration::from_secs(60), || {
            if let Some(status) = self.process.try_wait()? {
                bail!("node {name} ended by itself: {status}");
            }
            Ok(self.get("/api/health").is_ok())
        });
        waited.with_context(|| self.log())
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process(self.pid()?, signal)?)
    }

    /// Its process id.
    ///
    /// # Errors
    /// Never for a process that was started.
    pub fn pid(&self) -> anyhow::Result<Pid> {
        i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).context("a process without an id")
    }

    /// Waits until it has ended; its exit code, `None` after a signal.
    ///
    /// # Errors
    /// When it does not end within `at_most`.
    pub fn wait(&mut self, at_most: Duration) -> anyhow::Result<Option<i32>> {
        let mut code = None;
        let what = format!("node {} ends", self.name);
        wait_until(&what, at_most, || {
            let ended = self.process.try_wait()?;
            code = ended.and_then(|status| status.code());
            Ok(ended.is_some())
        })?;
        Ok(code)
    }
}

/// The library that `faketime` loads into what it starts: in a program of many threads, the one for those.
fn faketime_library() -> anyhow::Result<PathBuf> {
    let libraries = ["/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/lib/faketime"];
    let found = libraries.iter().map(|folder| Path::new(folder).join("libfaketimeMT.so.1")).find(|file| file.exists());
    found.context("libfaketimeMT.so.1 is nowhere: install faketime")
}

/// Takes every status for an answer.
fn asking() -> ureq::Agent {
    let limits = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(2)));
    // A redirection is for the test to look at.
    ureq::Agent::new_with_config(limits.http_status_as_error(false).max_redirects(0).build())
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How many instances of a role a node's metrics say it has; none where they do not speak of it.
#[must_use]
pub fn instances(metrics: &str, role: &str) -> u64 {
    let role = format!("role=\"{role}\"");
    let line = metrics.lines().find(|line| line.starts_with("host_role_instances") && line.contains(&role));
    line.and_then(|line| line.rsplit(' ').next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// What a subcommand that came to its end has said.
#[derive(Debug)]
pub struct Said {
    /// Its exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Its standard output.
    pub output: String,
    /// Its standard error: sentences for people, and the log.
    pub errors: String,
}

/// Runs `host` with these arguments in a plant's directory until it ends by itself.
///
/// # Errors
/// When the host was not built, or does not end within two minutes; what it has said is in the error.
pub fn host(plant: &Path, arguments: &[&str]) -> anyhow::Result<Said> {
    host_within(plant, arguments, Duration::from_secs(120))
}

/// The same for a subcommand that may take longer.
///
/// # Errors
/// When the host was not built, or does not end within `at_most`; what it has said is in the error.
pub fn host_within(plant: &Path, arguments: &[&str], at_most: Duration) -> anyhow::Result<Said> {
    let mut command = bound_to_this_thread("KILL", host_binary()?);
    command.args(arguments).current_dir(plant).stdin(Stdio::null()).env("HOST_STATE", plant.join("state"));
    in_environment(&mut command)?;
    let [mut output, mut errors] = [tempfile::tempfile()?, tempfile::tempfile()?];
    let mut process = command.stdout(output.try_clone()?).stderr(errors.try_clone()?).spawn()?;
    let mut status = None;
    let ended = wait_until(&format!("host {arguments:?} ends"), at_most, || {
        status = process.try_wait()?;
        Ok(status.is_some())
    });
    if ended.is_err() {
        process.kill()?;
        process.wait()?;
    }
    let read = |file: &mut File| -> anyhow::Result<String> {
        let mut text = String::new();
        file.rewind()?;
        file.read_to_string(&mut text)?;
        Ok(text)
    };
    let said =
        Said { code: status.and_then(|status| status.code()), output: read(&mut output)?, errors: read(&mut errors)? };
    ended.with_context(|| format!("{said:?}"))?;
    Ok(said)
}

/// The variables that the tests' plants name.
fn in_environment(command: &mut Command) -> anyhow::Result<()> {
    let cache = cache()?;
    command.env("PLANT_SECRET", "for tests").env("PLANT_TOKEN", "for tests").env("LINE_PASSWORD", "for tests");
    command.env("OTHER_SECRET", "for other tests");
    command.env("XDG_CACHE_HOME", &cache).env("HOST_CACHE", cache).env_remove("HOST_LOG");
    Ok(())
}

/// Compiled modules are shared by all the tests of a run.
fn cache() -> anyhow::Result<PathBuf> {
    Ok(beside_the_host()?.join("test-module-cache"))
}
