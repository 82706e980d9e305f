//! The simulated bottling line: a real `host simulate` process, which knows what it really made and fails on demand.

use std::fs::File;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::plant::Counts;
use crate::process::{bound_to_this_thread, host_binary, wait_until};

/// A running line on free ports; killed when dropped.
pub struct Simulator {
    process: Child,
    url: String,
    control: String,
    directory: TempDir,
}

impl Simulator {
    /// Starts `host simulate` with these arguments (like `["--speed", "20", "--paused"]`); clients can connect when this returns.
    ///
    /// # Errors
    /// When the host was not built or does not start; its log is in the error.
    pub fn start(arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_at("127.0.0.1", arguments)
    }

    /// The same, with the OPC UA server at an address of this machine.
    ///
    /// # Errors
    /// The same.
    pub fn start_at(address: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("plant-line-")?;
        let ready = directory.path().join("ready");
        let mut command = bound_to_this_thread("KILL", host_binary()?);
        command.args(["simulate", "--listen", &format!("opc.tcp://{address}:0"), "--control", "127.0.0.1:0"]);
        command.args(arguments);
        command.current_dir(directory.path()).stdin(Stdio::null());
        command.stdout(File::create(&ready)?).stderr(File::create(directory.path().join("log"))?);
        let process = command.spawn().context("cannot start the simulated line")?;
        let mut line = Self { process, url: String::new(), control: String::new(), directory };
        let waited = wait_until("the simulated line is ready", Duration::from_secs(60), || {
            if let Some(status) = line.process.try_wait()? {
                bail!("the simulated line ended by itself: {status}");
            }
            let said = std::fs::read_to_string(&ready)?;
            let Some((url, control)) = said.strip_suffix('\n').and_then(|line| line.split_once(" control ")) else {
                return Ok(false);
            };
            (line.url, line.control) = (url.to_owned(), control.to_owned());
            Ok(true)
        });
        waited.with_context(|| line.log())?;
        Ok(line)
    }

    /// The OPC UA server's endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The control address.
    #[must_use]
    pub fn control_url(&self) -> String {
        self.control.clone()
    }

    /// What was really made since the start, whatever the counters show.
    ///
    /// # Errors
    /// When the line does not answer as it should.
    pub fn truth(&self) -> anyhow::Result<Counts> {
        let truth: Value = agent().get(format!("{}/truth", self.control)).call()?.body_mut().read_json()?;
        let mut counts = Counts::new();
        for (machine, made) in truth.as_object().context("the truth is no object")? {
            for (counter, count) in made.as_object().with_context(|| format!("{machine} made {made}"))? {
                let count = count.as_u64().with_context(|| format!("{machine} made {made}"))?;
                counts.insert((machine.clone(), counter.clone()), count);
            }
        }
        Ok(counts)
    }

    /// Lets the counters stand still; the server goes on. When this returns, nothing more is made.
    ///
    /// # Errors
    /// When the line does not answer.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.post("/pause", &json!({}))
    }

    /// Lets the line go on.
    ///
    /// # Errors
    /// When the line does not answer.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.post("/resume", &json!({}))
    }

    /// Lets a fault begin, of a `kind` that `host simulate` knows; `for_ms` and `size` count where the kind has a use for them.
    ///
    /// # Errors
    /// What the line does not understand, in its own words.
    pub fn fault(&self, machine: &str, counter: &str, kind: &str, for_ms: u64, size: u64) -> anyhow::Result<()> {
        let fault = json!({ "machine": machine, "counter": counter, "kind": kind, "for_ms": for_ms, "size": size });
        self.post("/fault", &fault)
    }

    /// Makes the OPC UA server go away for so long. When this returns, it is gone.
    ///
    /// # Errors
    /// When the line does not answer.
    pub fn server_down(&self, down_ms: u64) -> anyhow::Result<()> {
        self.post("/server", &json!({ "down_ms": down_ms }))
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn post(&self, path: &str, body: &Value) -> anyhow::Result<()> {
        let mut answer = agent().post(format!("{}{path}", self.control)).send_json(body)?;
        if answer.status() != 200 {
            bail!("POST {path} {body}: {}", answer.body_mut().read_to_string()?);
        }
        Ok(())
    }
}

fn agent() -> ureq::Agent {
    let limits = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(10)));
    ureq::Agent::new_with_config(limits.http_status_as_error(false).build())
}

impl Drop for Simulator {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
