//! The line that the drill's plant counts: a simulated one of the drill's own where nothing listens, which knows what it made.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

use super::child::{Running, Start};
use crate::cli::status::ask;
use crate::config::Config;
use crate::simulator::Address;

const READY_WITHIN: Duration = Duration::from_secs(30);
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A simulated line that the drill has started; killed when dropped.
pub struct Line {
    connection: String,
    control: String,
    _process: Running,
}

impl Line {
    /// Starts a line, paused, for the connection of a simulated plant that is on loopback and answers nothing; `None` where there is none.
    ///
    /// # Errors
    /// When several connections are without a server, or the line does not start.
    pub async fn start_if_missing(config: &Config, speed: f64, scratch: &Path) -> anyhow::Result<Option<Self>> {
        let silent = config.opc.iter().filter(|(_, opc)| is_silent_loopback(&opc.endpoint));
        let silent: Vec<(&String, &str)> = silent.map(|(name, opc)| (name, opc.endpoint.as_str())).collect();
        let (name, endpoint) = match silent.as_slice() {
            [] => return Ok(None),
            [one] => *one,
            several => {
                let where_to: Vec<&str> = several.iter().map(|(_, endpoint)| *endpoint).collect();
                bail!(
                    "nothing listens at {}, and a drill starts one simulated line only: start the others by `host simulate`",
                    where_to.join(" and ")
                )
            }
        };
        let (ready, log) = (scratch.join("line.ready"), scratch.join("line.log"));
        let speed = speed.to_string();
        let arguments =
            ["simulate", "--listen", endpoint, "--control", "127.0.0.1:0", "--paused", "--speed", speed.as_str()];
        let arguments = arguments.map(str::to_owned);
        let start = Start { arguments: &arguments, output: Some(&ready), log: &log, clock: None };
        let mut process = Running::start(&start).context("the simulated line")?;
        let control = control_address(&mut process, &ready).await?;
        Ok(Some(Self { connection: name.clone(), control, _process: process }))
    }

    /// The connection that it is behind.
    #[must_use]
    pub fn connection(&self) -> &str {
        &self.connection
    }

    /// What was really made since the start: an object of machines, each with its counters.
    ///
    /// # Errors
    /// When the line does not answer.
    pub fn truth(&self) -> anyhow::Result<Value> {
        ask(&self.control, "/truth").context("the simulated line")
    }

    /// Lets the counters stand still. When this returns, nothing more is made.
    ///
    /// # Errors
    /// When the line does not answer.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.order("/pause")
    }

    /// Lets the line go on.
    ///
    /// # Errors
    /// When the line does not answer.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.order("/resume")
    }

    fn order(&self, path: &str) -> anyhow::Result<()> {
        let limits = ureq::Agent::config_builder().timeout_global(Some(ANSWERS_WITHIN)).build();
        let asked = ureq::Agent::new_with_config(limits).post(format!("{}{path}", self.control)).send_empty();
        asked.with_context(|| format!("the simulated line at {} does not answer", self.control))?;
        Ok(())
    }
}

/// The line says where it is controlled when clients can connect.
async fn control_address(process: &mut Running, ready: &Path) -> anyhow::Result<String> {
    let begun = Instant::now();
    loop {
        let said = std::fs::read_to_string(ready).unwrap_or_default();
        if let Some((_, control)) = said.strip_suffix('\n').and_then(|line| line.split_once(" control ")) {
            return Ok(control.to_owned());
        }
        if process.ended()?.is_some() || begun.elapsed() > READY_WITHIN {
            bail!("the simulated line does not start: {}", process.last_words());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Whether an endpoint is on this machine alone and nothing listens there.
fn is_silent_loopback(endpoint: &str) -> bool {
    let Ok(address) = endpoint.parse::<Address>() else { return false };
    let is_loopback = address.host.parse::<IpAddr>().map_or(address.host == "localhost", |ip| ip.is_loopback());
    let places = || (address.host.as_str(), address.port).to_socket_addrs().into_iter().flatten();
    let listens = |place: SocketAddr| TcpStream::connect_timeout(&place, CONNECT_WITHIN).is_ok();
    is_loopback && !places().any(listens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_missing_only_where_this_machine_alone_could_have_it() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let endpoint = format!("opc.tcp://{}/plant", listener.local_addr().unwrap());
        assert!(!is_silent_loopback(&endpoint));
        drop(listener);
        assert!(is_silent_loopback(&endpoint));
        assert!(!is_silent_loopback("opc.tcp://192.0.2.1:4840"));
        assert!(!is_silent_loopback("nowhere"));
    }
}
