//! The simulated bottling line: `host simulate` as a process, with its controls.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use crate::plant::Counts;
use crate::process::{bound_to_this_thread, host_binary};

/// A running line; killed when dropped.
pub struct Simulator {
    process: Child,
    url: String,
    control: String,
}

impl Simulator {
    /// Starts a line on free ports, with further arguments of `host simulate`.
    ///
    /// # Errors
    /// When the host was not built or the line does not start.
    pub fn start(arguments: &[&str]) -> anyhow::Result<Self> {
        let mut command = bound_to_this_thread("KILL", host_binary()?);
        command.args(["simulate", "--listen", "opc.tcp://127.0.0.1:0", "--control", "127.0.0.1:0"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().context("cannot start the simulated line")?;
        let output = process.stdout.take().context("the simulated line has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let word = |scheme: &str| line.split_whitespace().find(|word| word.starts_with(scheme)).map(str::to_owned);
        let url = word("opc.tcp://").with_context(|| format!("no address in {line:?}"))?;
        let control = word("http://").with_context(|| format!("no control address in {line:?}"))?;
        Ok(Self { process, url, control })
    }

    /// Its OPC UA address.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// What was really made since the start.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn truth(&self) -> anyhow::Result<Counts> {
        let text = agent().get(format!("{}/truth", self.control)).call()?.body_mut().read_to_string()?;
        let machines: BTreeMap<String, BTreeMap<String, u64>> = serde_json::from_str(&text)?;
        let flat = machines.into_iter().flat_map(|(machine, counters)| {
            counters.into_iter().map(move |(counter, units)| ((machine.clone(), counter), units))
        });
        Ok(flat.collect())
    }

    /// The counters stand still.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.post("/pause", &json!({}))
    }

    /// The counters go on.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.post("/resume", &json!({}))
    }

    /// Something goes wrong with one counter; `kind` as `host simulate` names it.
    ///
    /// # Errors
    /// When it does not answer, or there is no such fault.
    pub fn fault(&self, machine: &str, counter: &str, kind: &str, for_ms: u64, size: u64) -> anyhow::Result<()> {
        let fault = json!({ "machine": machine, "counter": counter, "kind": kind, "for_ms": for_ms, "size": size });
        self.post("/fault", &fault)
    }

    /// The OPC UA server goes away and comes back.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn server_down(&self, down_ms: u64) -> anyhow::Result<()> {
        self.post("/server", &json!({ "down_ms": down_ms }))
    }

    fn post(&self, path: &str, body: &Value) -> anyhow::Result<()> {
        agent().post(format!("{}{path}", self.control)).send_json(body).map(drop).with_context(|| path.to_owned())
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::new_with_config(ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(5))).build())
}
