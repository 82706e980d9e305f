//! `host opc`: looks into an OPC UA server with the same sessions that a running plant uses, so that what works here works there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use opcua::types::{NodeId, StatusCode};

use super::arguments::{Login, Opc, Server};
use crate::config::{Config, OpcConnection, Security};
use crate::opc::browse::{self, Found, Tree};
use crate::opc::connect::{self, Open};
use crate::opc::node::Node;
use crate::opc::{Batch, Connections, EventQueue, Monitoring, Sample, Value};

/// Runs one of the subcommands and prints what it found.
///
/// # Errors
/// One sentence: the server is not reachable or refuses, no such connection, no node id.
pub async fn run(command: Opc) -> anyhow::Result<()> {
    match command {
        Opc::Browse { server, node, depth } => {
            let tree = look(&connection(&server)?, node.as_deref(), depth).await?;
            print!("{}", drawn(&tree));
            if tree.cut_off {
                println!("There is more than {} nodes: begin further down with --node.", browse::MOST_NODES);
            }
            Ok(())
        }
        Opc::Read { server, nodes } => read(&server, nodes).await,
        Opc::Watch { server, nodes } => watch(&server, nodes).await,
    }
}

/// The connection that is meant: one of the configuration's, or an address with what there is to get in.
///
/// # Errors
/// When it is neither, or the configuration cannot be read.
pub fn connection(server: &Server) -> anyhow::Result<OpcConnection> {
    let file = server.config.config.display();
    if server.server.contains("://") {
        return address(&server.server, &server.login, beside(&server.config.config));
    }
    if server.login != Login::default() {
        bail!(
            "--security, --user, --password-env and --certificate belong to an address: the connection {:?} has its own in {file}",
            server.server
        );
    }
    let config = Config::load(&server.config.config).map_err(|_| {
        anyhow!(
            "{file} is missing or has mistakes (`host check` names them): it is needed for the connection {:?}",
            server.server
        )
    })?;
    let known: Vec<String> = config.opc.keys().cloned().collect();
    config.opc.into_iter().find(|(name, _)| *name == server.server).map(|(_, found)| found).ok_or_else(|| {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        anyhow!(
            "{file} names no OPC UA connection {:?}: it has {known}; an address like opc.tcp://host:4840 works too",
            server.server
        )
    })
}

/// The directory that a configuration's relative paths begin in.
pub(super) fn beside(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A connection to an address, with the certificates that a plant in `directory` has: who is trusted now is trusted when it runs.
///
/// # Errors
/// When it is no `opc.tcp://` address, or the variable with the password is not set.
pub fn address(url: &str, login: &Login, directory: &Path) -> anyhow::Result<OpcConnection> {
    let rest = url.strip_prefix("opc.tcp://").unwrap_or_default();
    if rest.is_empty() || rest.starts_with(['/', ':']) || !opcua::core::comms::url::is_opc_ua_binary_url(url) {
        bail!("{url:?} is no address of an OPC UA server: write opc.tcp://host:port, such as opc.tcp://127.0.0.1:4840");
    }
    Ok(OpcConnection {
        endpoint: url.to_owned(),
        security: login.security.unwrap_or(Security::None),
        connect: Duration::from_secs(15),
        publish: Duration::from_millis(200),
        sampling: Duration::from_millis(100),
        silence: Duration::from_secs(6),
        writer: None,
        user: user(login)?,
        pki: directory.join("pki"),
        certificate: login.certificate.as_ref().map(|file| directory.join(file)),
    })
}

fn user(login: &Login) -> anyhow::Result<Option<(String, String)>> {
    let (Some(user), Some(variable)) = (&login.user, &login.password_env) else { return Ok(None) };
    let password = std::env::var(variable).ok().filter(|password| !password.is_empty());
    let password = password.with_context(|| {
        format!(
            "--password-env names {variable}, and that environment variable is not set: set it to {user}'s password"
        )
    })?;
    Ok(Some((user.clone(), password)))
}

/// Browses from a node (its id, or a path like `/Plant/Line1`), by default the Objects folder.
///
/// # Errors
/// When the server cannot be reached, or the node is not there.
pub async fn look(config: &OpcConnection, node: Option<&str>, depth: u32) -> anyhow::Result<Tree> {
    let open = connect::open("host opc", config).await?;
    let found = look_through(&open, node, depth).await;
    open.close().await;
    found
}

async fn look_through(open: &Open, node: Option<&str>, depth: u32) -> anyhow::Result<Tree> {
    let answer = |e: opcua::types::Error| anyhow!("the server answered {}", e.status());
    let start = match node {
        None => NodeId::objects_folder_id(),
        Some(path) if path.starts_with('/') => {
            let found = browse::follow(&open.session, path).await.map_err(answer)?;
            found.with_context(|| {
                format!("the path {path:?} leads nowhere: each step is a browse name, from the Objects folder")
            })?
        }
        Some(text) => {
            let node: Node = text.parse()?;
            node.on(&open.namespaces).with_context(|| {
                format!("the server has no such namespace as in {text:?}: `host opc browse` shows its nodes")
            })?
        }
    };
    browse::tree(open, &start, usize::try_from(depth)?).await.map_err(answer)
}

fn drawn(tree: &Tree) -> String {
    let mut below: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (index, found) in tree.nodes.iter().enumerate() {
        below.entry(found.parent).or_default().push(index);
    }
    let mut text = String::new();
    let mut rest: Vec<usize> = below.get(&None).into_iter().flatten().rev().copied().collect();
    while let Some(index) = rest.pop() {
        let Some(found) = tree.nodes.get(index) else { continue };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:indent$}{}", "", line(found), indent = found.depth * 2);
        rest.extend(below.get(&Some(index)).into_iter().flatten().rev());
    }
    text
}

fn line(found: &Found) -> String {
    match &found.variable {
        None => format!("{}  {}", found.name, found.node),
        Some(variable) => {
            format!("{}  {}  {} = {}", found.name, found.node, variable.data_type, with_status(&variable.now))
        }
    }
}

/// Nodes of one server, by their numbers.
pub(super) struct Asked {
    queue: Arc<EventQueue>,
    connections: Connections,
    items: Vec<u32>,
    names: BTreeMap<u32, String>,
}

impl Asked {
    /// Numbers the nodes; nothing is opened yet.
    pub(super) async fn of(name: &str, config: OpcConnection, nodes: Vec<String>) -> anyhow::Result<Self> {
        connect::prepare(&config).await?;
        let queue = Arc::new(EventQueue::default());
        let configs = BTreeMap::from([(name.to_owned(), config)]);
        let connections = Connections::new(&configs, &queue, tokio::runtime::Handle::current());
        let items = connections.resolve(name, nodes.clone())?.into_iter().collect::<Result<Vec<u32>, _>>()?;
        let names = items.iter().copied().zip(nodes).collect();
        Ok(Self { queue, connections, items, names })
    }

    /// Their values now, in the order of the nodes.
    pub(super) async fn read(&self) -> anyhow::Result<Vec<Sample>> {
        match self.connections.read(&self.items).await {
            Err(crate::opc::OpcError::Disconnected) => {
                let reason = self.connections.status().into_iter().next().map(|s| s.reason).unwrap_or_default();
                bail!("{reason}")
            }
            other => Ok(other?),
        }
    }

    /// Says goodbye.
    pub(super) async fn close(&self) {
        self.connections.close().await;
    }
}

async fn ask(server: &Server, nodes: Vec<String>) -> anyhow::Result<Asked> {
    Asked::of(&server.server, connection(server)?, nodes).await
}

async fn read(server: &Server, nodes: Vec<String>) -> anyhow::Result<()> {
    let asked = ask(server, nodes).await?;
    let read = asked.read().await;
    asked.close().await;
    for sample in read? {
        println!("{}", told(&sample, &asked.names));
    }
    Ok(())
}

async fn watch(server: &Server, nodes: Vec<String>) -> anyhow::Result<()> {
    let asked = ask(server, nodes).await?;
    asked
        .connections
        .subscribe(&asked.items, Monitoring { publish_ms: 0, sampling_ms: 0, queue: 100, coalesce: false })?;
    loop {
        let batch = tokio::select! {
            _ = tokio::signal::ctrl_c() => break,
            batch = asked.queue.next(1000) => batch,
        };
        match batch {
            Batch::Samples(samples) => samples.iter().for_each(|sample| println!("{}", told(sample, &asked.names))),
            Batch::Connection(change) if change.connected => println!("connected: {}", change.reason),
            Batch::Connection(change) => println!("disconnected, and trying on: {}", change.reason),
        }
    }
    asked.close().await;
    Ok(())
}

fn told(sample: &Sample, names: &BTreeMap<u32, String>) -> String {
    let name = names.get(&sample.item).map(String::as_str).unwrap_or_default();
    match sample.source.or(sample.server) {
        Some(nanos) => {
            let time =
                chrono::DateTime::from_timestamp_nanos(nanos).to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
            format!("{time}  {name} = {}", with_status(sample))
        }
        None => format!("no time  {name} = {}", with_status(sample)),
    }
}

/// A sample's value, and its status where that is not plain Good.
#[must_use]
pub fn with_status(sample: &Sample) -> String {
    match sample.status {
        0 => shown(&sample.value),
        status => format!("{} ({})", shown(&sample.value), StatusCode::from(status)),
    }
}

/// A value for people.
#[must_use]
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Boolean(b) => b.to_string(),
        Value::Int(n) => n.to_string(),
        Value::Uint(n) => n.to_string(),
        Value::Real(n) => n.to_string(),
        Value::Text(text) => format!("{text:?}"),
        Value::Bytes(bytes) => format!("{} bytes", bytes.len()),
        Value::Time(nanos) => chrono::DateTime::from_timestamp_nanos(*nanos).to_rfc3339(),
        Value::Ints(list) => format!("{list:?}"),
        Value::Uints(list) => format!("{list:?}"),
        Value::Reals(list) => format!("{list:?}"),
        Value::Texts(list) => format!("{list:?}"),
        Value::Other(kind, text) => format!("{kind} {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_refused_with_an_example() {
        for url in ["http://plc:4840", "opc.tcp://", "opc.tcp://:4840", "opc.tcp:///x", "://"] {
            let error = address(url, &Login::default(), Path::new(".")).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("write opc.tcp://host:port"), "{url}: {error}");
        }
        assert!(address("opc.tcp://plc.example:4840/plant", &Login::default(), Path::new(".")).is_ok());
    }

    #[test]
    fn a_password_that_is_not_in_the_environment_is_asked_for_by_the_variables_name() {
        let (user, password_env) = (Some("reader".to_owned()), Some("NO_SUCH_VARIABLE".to_owned()));
        let login = Login { user, password_env, ..Login::default() };
        let error = address("opc.tcp://plc:4840", &login, Path::new(".")).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("NO_SUCH_VARIABLE") && error.contains("set it to reader's password"), "{error}");
    }
}
