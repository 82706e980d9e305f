//! An OPC UA server that is not this project's own: `peers/asyncua_server.py`, and a TCP proxy to put between it and a client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{bound_to_this_thread, free_port, python, root, wait_until};

/// The namespace of the server's nodes, when none is given.
pub const NAMESPACE: &str = "urn:plant:test";

/// How a server is set up.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Users and passwords; with any, they may log in beside anonymous clients.
    pub users: Vec<(String, String)>,
    /// Refuse anonymous clients.
    pub no_anonymous: bool,
    /// Offer encrypted endpoints beside the plain one.
    pub secure: bool,
    /// Namespace URIs, in the order of their indexes; the last one holds the nodes. Default: [`NAMESPACE`].
    pub namespaces: Vec<String>,
    /// How it misbehaves: an object with the keys of `peers/faults.py`. Null for not at all.
    pub faults: Value,
}

/// A running server; killed when dropped.
pub struct Asyncua {
    setup: Setup,
    port: u16,
    control_port: u16,
    directory: TempDir,
    server: Option<(Child, TcpStream)>,
}

impl Asyncua {
    /// Starts a server on a free port, with one namespace and no nodes.
    ///
    /// # Errors
    /// When Python or asyncua is missing, or the server does not start; its output is in the error.
    pub fn start(setup: Setup) -> anyhow::Result<Self> {
        let mut server = Self {
            setup,
            port: free_port()?,
            control_port: free_port()?,
            directory: TempDir::with_prefix("plant-opc-")?,
            server: None,
        };
        server.run()?;
        Ok(server)
    }

    /// Its endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        format!("opc.tcp://127.0.0.1:{}/", self.port)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes how it is set up the next time that it runs.
    pub fn set_up(&mut self, setup: Setup) {
        self.setup = setup;
    }

    /// Ends it the hard way.
    ///
    /// # Errors
    /// When it was not running.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        let (mut server, _) = self.server.take().context("the OPC UA server is not running")?;
        server.kill()?;
        server.wait()?;
        Ok(())
    }

    /// Starts it again on the same port, with the same certificate and without nodes.
    ///
    /// # Errors
    /// When it does not start.
    pub fn run(&mut self) -> anyhow::Result<()> {
        let log = self.directory.path().join("log");
        let output = std::fs::File::create(&log)?;
        let mut command = bound_to_this_thread("KILL", python()?);
        command.arg(root().join("tests/peers/asyncua_server.py"));
        command.args(["--port", &self.port.to_string(), "--control", &self.control_port.to_string()]);
        for (user, password) in &self.setup.users {
            command.args(["--user", &format!("{user}:{password}")]);
        }
        if self.setup.no_anonymous {
            command.arg("--no-anonymous");
        }
        if self.setup.secure {
            command.arg("--secure").arg(self.directory.path().join("secure"));
        }
        for namespace in &self.setup.namespaces {
            command.args(["--namespace", namespace]);
        }
        if !self.setup.faults.is_null() {
            command.args(["--faults", &self.setup.faults.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let mut server = command.spawn().context("python")?;
        let text = || std::fs::read_to_string(&log).unwrap_or_default();
        let ready = wait_until("the OPC UA server serves", Duration::from_secs(60), || {
            if let Some(status) = server.try_wait()? {
                bail!("it ended with {status}");
            }
            Ok(text().lines().any(|line| line == "ready"))
        });
        if let Err(error) = ready {
            let _ = server.kill();
            let _ = server.wait();
            return Err(error.context(text()));
        }
        let control = TcpStream::connect(("127.0.0.1", self.control_port))?;
        control.set_read_timeout(Some(Duration::from_secs(20)))?;
        control.set_nodelay(true)?;
        self.server = Some((server, control));
        Ok(())
    }

    /// Sends one command of `asyncua_server.py`.
    ///
    /// # Errors
    /// What the server answered, when it is not `ok`.
    pub fn command(&mut self, command: &Value) -> anyhow::Result<Value> {
        let (_, control) = self.server.as_mut().context("the OPC UA server is not running")?;
        control.write_all(format!("{command}\n").as_bytes())?;
        let mut answer = String::new();
        BufReader::new(control).read_line(&mut answer)?;
        let answer: Value = serde_json::from_str(&answer).context("no answer")?;
        if answer.get("ok") != Some(&Value::Bool(true)) {
            bail!("{command} failed: {answer}");
        }
        Ok(answer)
    }

    /// Adds a variable, such as `add("s=FILL01.Good", "UInt32", json!(0))`.
    ///
    /// # Errors
    /// As `command`.
    pub fn add(&mut self, node: &str, kind: &str, value: Value) -> anyhow::Result<()> {
        self.command(&json!({"do": "add", "node": node, "type": kind, "value": value})).map(drop)
    }

    /// Sets a variable, Good and now.
    ///
    /// # Errors
    /// As `command`.
    pub fn set(&mut self, node: &str, kind: &str, value: Value) -> anyhow::Result<()> {
        self.command(&json!({"do": "set", "node": node, "type": kind, "value": value})).map(drop)
    }

    /// Adds so many counters to its address space, `s=C0` and on, each with its number as its value.
    ///
    /// # Errors
    /// As `command`.
    pub fn add_counters(&mut self, count: u32) -> anyhow::Result<()> {
        (0..count).try_for_each(|n| self.add(&format!("s=C{n}"), "UInt32", json!(n)))
    }

    /// Changes how it misbehaves, from now on.
    ///
    /// # Errors
    /// As `command`.
    pub fn fault(&mut self, faults: &Value) -> anyhow::Result<()> {
        self.command(&json!({"do": "fault", "faults": faults})).map(drop)
    }

    /// How often it was asked for what `faults.py` counts.
    ///
    /// # Errors
    /// As `command`.
    pub fn count(&mut self, what: &str) -> anyhow::Result<u64> {
        self.command(&json!({"do": "counts"}))?.get(what).and_then(Value::as_u64).context("no number")
    }

    /// How many sessions are open on it.
    ///
    /// # Errors
    /// As `command`.
    pub fn sessions(&mut self) -> anyhow::Result<u64> {
        self.command(&json!({"do": "sessions"}))?.get("open").and_then(Value::as_u64).context("no number")
    }

    /// How many items each subscription on it monitors.
    ///
    /// # Errors
    /// As `command`.
    pub fn monitored(&mut self) -> anyhow::Result<Vec<u64>> {
        let answer = self.command(&json!({"do": "subscriptions"}))?;
        let each = answer.get("subscriptions").and_then(Value::as_array).context("no list")?;
        Ok(each.iter().filter_map(|of| of.get("items").and_then(Value::as_u64)).collect())
    }

    /// How many TCP clients the server has.
    ///
    /// # Errors
    /// As `command`.
    pub fn clients(&mut self) -> anyhow::Result<u64> {
        self.command(&json!({"do": "sessions"}))?.get("sessions").and_then(Value::as_u64).context("no number")
    }
}

impl Drop for Asyncua {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.kill();
    }
}

/// Forwards TCP connections, until it is told to swallow what it gets: a server that accepts and says nothing.
pub struct Proxy {
    port: u16,
    state: Arc<ProxyState>,
}

#[derive(Default)]
struct ProxyState {
    swallow: AtomicBool,
    closed: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and forwards to `target`'s port.
    ///
    /// # Errors
    /// When there is no port.
    pub fn start(target: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(ProxyState::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.closed.load(Ordering::SeqCst) {
                    return;
                }
                if let Ok(server) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], target))) {
                    shared.forward(&client, &server);
                    shared.forward(&server, &client);
                }
            }
        });
        Ok(Self { port, state })
    }

    /// Its endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        format!("opc.tcp://127.0.0.1:{}/", self.port)
    }

    /// Swallows everything, in both directions, with the connections left open; or forwards again. What was swallowed is lost, so
    /// connections from that time are closed when forwarding begins again.
    pub fn swallow(&self, on: bool) {
        self.state.swallow.store(on, Ordering::SeqCst);
        if !on {
            self.cut();
        }
    }

    /// Closes every connection; new ones are accepted.
    pub fn cut(&self) {
        for stream in self.state.streams().drain(..) {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl ProxyState {
    fn streams(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forward(self: &Arc<Self>, from: &TcpStream, to: &TcpStream) {
        let (Ok(mut from), Ok(mut to), Ok(kept)) = (from.try_clone(), to.try_clone(), from.try_clone()) else { return };
        self.streams().push(kept);
        let state = self.clone();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(length) = from.read(&mut buffer) {
                let Some(data) = buffer.get(..length).filter(|data| !data.is_empty()) else { break };
                if !state.swallow.load(Ordering::SeqCst) && to.write_all(data).is_err() {
                    break;
                }
            }
            // Either end may be closed already.
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the listener, so that it sees that it is closed.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}
