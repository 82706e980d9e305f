//! A NATS server with JetStream of its own for each test that wants one.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use tempfile::TempDir;

use crate::process::{bound_to_this_thread, free_port, wait_until};

/// A running server on a free port of 127.0.0.1; killed when dropped.
pub struct Nats {
    directory: TempDir,
    server: Option<Child>,
    port: u16,
    arguments: Vec<String>,
}

impl Nats {
    /// Starts a server that stands alone.
    ///
    /// # Errors
    /// When there is no `nats-server`, or it does not start; its log is in the error.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(&[])
    }

    /// Starts a server with further arguments.
    ///
    /// # Errors
    /// When there is no `nats-server`, or it does not start; its log is in the error.
    pub fn start_with(arguments: &[String]) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("plant-nats-")?;
        let mut server = Self { directory, server: None, port: 0, arguments: arguments.to_vec() };
        // A port that was free a moment ago may be another test's by now.
        for _ in 0..5 {
            server.port = free_port()?;
            match server.run() {
                Err(error) if format!("{error:#}").contains("address already in use") => {}
                outcome => return outcome.map(|()| server),
            }
        }
        bail!("five ports in a row were taken by others before NATS could listen there")
    }

    /// Starts so many servers that are one cluster; it may take some seconds to choose its leader.
    ///
    /// # Errors
    /// When there is no `nats-server`, or one does not start; its log is in the error.
    pub fn cluster(size: usize) -> anyhow::Result<Vec<Self>> {
        let ports: Vec<u16> = (0..size).map(|_| free_port()).collect::<anyhow::Result<_>>()?;
        let routes: Vec<String> = ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
        let server = |own: &String| {
            let arguments = ["--cluster_name", "plant", "--server_name", own, "--cluster", own, "--routes"];
            let arguments = arguments.into_iter().map(str::to_owned).chain([routes.join(",")]);
            Self::start_with(&arguments.collect::<Vec<_>>())
        };
        routes.iter().map(server).collect()
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// What a plant with its leases here has at the end of `[redundancy]`.
    #[must_use]
    pub fn redundancy(&self) -> String {
        format!("store = \"nats\"\nbucket = \"bottling\"\n\n[bus.main]\nurl = \"{}\"\n", self.url())
    }

    /// Begins to listen to a subject.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn listen(&self, subject: &str) -> anyhow::Result<Listener> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut listener = Listener { stream: BufReader::new(stream) };
        listener.say(&format!("CONNECT {{\"verbose\":false}}\r\nSUB {subject} 1\r\nPING\r\n"))?;
        // When the server has answered it has subscribed.
        while listener.line()? != "PONG" {}
        Ok(listener)
    }

    /// Ends the server the hard way: no client is told.
    ///
    /// # Errors
    /// When it was not running.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        let mut server = self.server.take().context("NATS is not running")?;
        server.kill()?;
        server.wait()?;
        Ok(())
    }

    /// Starts the server again, on the same port and data.
    ///
    /// # Errors
    /// When it does not start; its log is in the error.
    pub fn run(&mut self) -> anyhow::Result<()> {
        let path = self.directory.path();
        let log = File::create(path.join("log"))?;
        let mut command = bound_to_this_thread("KILL", binary());
        command.args(["--addr", "127.0.0.1", "--port", &self.port.to_string(), "--jetstream", "--store_dir"]);
        command.arg(path.join("data")).args(&self.arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = command.spawn().context("nats-server: run the tests by `cargo xtask test`")?;
        let (port, log) = (self.port, path.join("log"));
        let ready = wait_until("NATS accepts connections", Duration::from_secs(60), || {
            if let Some(status) = child.try_wait()? {
                bail!("NATS ended: {status}");
            }
            // Its own word first: on the port another server might answer.
            let said = std::fs::read_to_string(&log)?.contains("Listening for client connections");
            Ok(said && TcpStream::connect(("127.0.0.1", port)).is_ok())
        });
        self.server = Some(child);
        ready.with_context(|| std::fs::read_to_string(&log).unwrap_or_default())
    }
}

/// Somebody who listens to one subject.
pub struct Listener {
    stream: BufReader<TcpStream>,
}

impl Listener {
    /// The next message.
    ///
    /// # Errors
    /// When none comes within a minute.
    pub fn message(&mut self) -> anyhow::Result<String> {
        loop {
            let line = self.line()?;
            if line == "PING" {
                self.say("PONG\r\n")?;
            } else if line.starts_with("MSG ") {
                let length = line.rsplit(' ').next().context("a message without its length")?;
                let mut body = vec![0; length.parse()?];
                self.stream.read_exact(&mut body)?;
                return Ok(String::from_utf8(body)?);
            }
        }
    }

    fn say(&mut self, text: &str) -> anyhow::Result<()> {
        Ok(self.stream.get_mut().write_all(text.as_bytes())?)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            bail!("NATS has ended the connection");
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // It may have ended already.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// The server's program: `PLANT_NATS_SERVER`, which `cargo xtask test` sets, else the one on the path.
fn binary() -> PathBuf {
    std::env::var_os("PLANT_NATS_SERVER").map_or_else(|| PathBuf::from("nats-server"), PathBuf::from)
}
