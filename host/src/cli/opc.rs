//! `host opc`: looks into an OPC UA server with the same sessions that a running plant uses, so that what works here works there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use opcua::types::{NodeId, StatusCode};

use super::arguments::{Opc, Server};
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

/// The connection that is meant: one of the configuration's, or an address alone, without encryption or user.
///
/// # Errors
/// When it is neither, or the configuration cannot be read.
pub fn connection(server: &Server) -> anyhow::Result<OpcConnection> {
    if server.server.contains("://") {
        return address(&server.server);
    }
    let file = server.config.config.display();
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

/// A connection to an address, without encryption or user.
///
/// # Errors
/// When it is no `opc.tcp://` address.
pub fn address(url: &str) -> anyhow::Result<OpcConnection> {
    let rest = url.strip_prefix("opc.tcp://").unwrap_or_default();
    if rest.is_empty() || rest.starts_with(['/', ':']) || !opcua::core::comms::url::is_opc_ua_binary_url(url) {
        bail!("{url:?} is no address of an OPC UA server: write opc.tcp://host:port, such as opc.tcp://127.0.0.1:4840");
    }
    Ok(OpcConnection {
        endpoint: url.to_owned(),
        security: Security::None,
        connect: Duration::from_secs(15),
        publish: Duration::from_millis(200),
        sampling: Duration::from_millis(100),
        silence: Duration::from_secs(6),
        writer: None,
        user: None,
        pki: PathBuf::from("pki"),
        certificate: None,
    })
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

struct Asked {
    queue: Arc<EventQueue>,
    connections: Connections,
    items: Vec<u32>,
    names: BTreeMap<u32, String>,
}

async fn ask(server: &Server, nodes: Vec<String>) -> anyhow::Result<Asked> {
    let config = connection(server)?;
    connect::prepare(&config).await?;
    let queue = Arc::new(EventQueue::default());
    let name = server.server.as_str();
    let configs = BTreeMap::from([(name.to_owned(), config)]);
    let connections = Connections::new(&configs, &queue, tokio::runtime::Handle::current());
    let items = connections.resolve(name, nodes.clone())?.into_iter().collect::<Result<Vec<u32>, _>>()?;
    let names = items.iter().copied().zip(nodes).collect();
    Ok(Asked { queue, connections, items, names })
}

async fn read(server: &Server, nodes: Vec<String>) -> anyhow::Result<()> {
    let asked = ask(server, nodes).await?;
    let read = asked.connections.read(&asked.items).await;
    let reason = asked.connections.status().into_iter().next().map(|s| s.reason).unwrap_or_default();
    asked.connections.close().await;
    let samples = match read {
        Err(crate::opc::OpcError::Disconnected) => bail!("{reason}"),
        other => other?,
    };
    for sample in samples {
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
    asked.connections.close().await;
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
            let error = address(url).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("write opc.tcp://host:port"), "{url}: {error}");
        }
        assert!(address("opc.tcp://plc.example:4840/plant").is_ok());
    }
}
