//! A plant to test with: a directory with its `plant.toml`, and what its books and roles say.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::Node;
use crate::process::wait_until;

/// Units by (machine, counter).
pub type Counts = BTreeMap<(String, String), u64>;

/// A plant's directory; gone when dropped.
pub struct Plant {
    directory: TempDir,
    lease_seconds: u32,
}

const PACKML: &str = "\"packml\"";

/// The six stations of the simulated line, how each numbers its states, and the keys that its good counter needs beside its node.
const STATIONS: [(&str, &str, &str); 6] = [
    ("LOAD01", PACKML, ""),
    ("RINSE01", PACKML, ""),
    (
        "FILL01",
        "{ 0 = \"idle\", 1 = \"running\", 4 = \"down\" }",
        "on_fall = \"rollover\"\nrollover = 65536\nmax_delta = 5000\n",
    ),
    ("CAP01", PACKML, ""),
    ("LABEL01", PACKML, ""),
    ("PACK01", PACKML, ""),
];

impl Plant {
    /// A plant whose `plant.toml` is this text.
    ///
    /// # Errors
    /// When the directory can not be made.
    pub fn from_text(text: &str, lease_seconds: u32) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("plant-")?;
        std::fs::write(directory.path().join("plant.toml"), text)?;
        Ok(Self { directory, lease_seconds })
    }

    /// The simulated bottling line at `endpoint`, its books in `store`; redundant when `lease_seconds` is given.
    ///
    /// # Errors
    /// When the directory can not be made.
    pub fn bottling(store: &str, endpoint: &str, lease_seconds: Option<u32>) -> anyhow::Result<Self> {
        let text = head(store, endpoint, "", lease_seconds) + &line("");
        Self::from_text(&text, lease_seconds.unwrap_or(0))
    }

    /// The same plant as an active-standby pair, with further keys of `[redundancy]`, each a line.
    ///
    /// # Errors
    /// When the directory can not be made.
    pub fn pair(store: &str, endpoint: &str, lease_seconds: u32, keys: &str) -> anyhow::Result<Self> {
        let text = head(store, endpoint, "", Some(lease_seconds)) + &line("");
        let redundancy = format!("[redundancy]\nscope = \"node\"\n{keys}");
        Self::from_text(&text.replace("[redundancy]\n", &redundancy), lease_seconds)
    }

    /// Where `plant.toml` and the nodes' logs are.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Starts a node and waits until it serves.
    ///
    /// # Errors
    /// When it does not; its log is in the error.
    pub fn node(&self, name: &str) -> anyhow::Result<Node> {
        let mut node = Node::start(self.path(), name, &[])?;
        node.wait_until_healthy()?;
        Ok(node)
    }

    /// Changes a text in its `plant.toml`, for the nodes that are started from now on.
    ///
    /// # Errors
    /// When the text is not there.
    pub fn edit(&self, from: &str, to: &str) -> anyhow::Result<()> {
        let file = self.path().join("plant.toml");
        let before = std::fs::read_to_string(&file)?;
        ensure!(before.contains(from), "{from:?} does not stand in {before}");
        Ok(std::fs::write(file, before.replace(from, to))?)
    }

    /// Where its further modules are.
    ///
    /// # Errors
    /// When the directory can not be made.
    pub fn guests(&self) -> anyhow::Result<PathBuf> {
        let folder = self.path().join("guests");
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Adds a module of this name.
    ///
    /// # Errors
    /// When it can not be copied.
    pub fn with_module(&self, name: &str, module: &Path) -> anyhow::Result<()> {
        std::fs::copy(module, self.guests()?.join(format!("{name}.wasm")))?;
        Ok(())
    }

    /// How long a lease lasts.
    #[must_use]
    pub fn lease(&self) -> Duration {
        Duration::from_secs(u64::from(self.lease_seconds))
    }
}

/// The beginning of a `plant.toml`: the plant, its books in `store`, a reader, one OPC UA connection `line` to `endpoint` with further
/// keys, each a line; redundant when `lease_seconds` is given.
#[must_use]
pub fn head(store: &str, endpoint: &str, connection: &str, lease_seconds: Option<u32>) -> String {
    let redundancy =
        lease_seconds.map_or_else(String::new, |seconds| format!("\n[redundancy]\nlease_seconds = {seconds}\n"));
    format!(
        "[plant]\nname = \"bottling\"\nenterprise = \"acme\"\nsite = \"kc1\"\ntimezone = \"UTC\"\nsimulated = true\n\n\
         [store]\nurl = \"{store}\"\n\n[serve]\nbind = \"127.0.0.1\"\nsecret_key_env = \"PLANT_SECRET\"\n\
         token_env = \"PLANT_TOKEN\"\n\n[opc.line]\nendpoint = \"{endpoint}\"\npublish = \"100ms\"\nsampling = \"50ms\"\n\
         {connection}\n[roles.reader]\n{redundancy}"
    )
}

/// The machines of the simulated line, each good counter with what its PLC needs and these `keys`, each a line.
#[must_use]
pub fn line(keys: &str) -> String {
    let machine = |(code, states, own): (&str, &str, &str)| {
        let node = |name: &str| format!("nsu=urn:plant:simulator;s={code}.{name}");
        format!(
            "\n[[machines]]\ncode = \"{code}\"\nline = \"line-1\"\nconnection = \"line\"\n\
             state = {{ node = \"{}\", map = {states} }}\nscrap = {{ node = \"{}\" }}\n\
             [machines.good]\nnode = \"{}\"\n{own}{keys}",
            node("State"),
            node("ScrapCount"),
            node("GoodCount")
        )
    };
    STATIONS.into_iter().map(machine).collect()
}

/// A machine with nothing but a good counter, in the namespace of the tests' independent OPC UA server.
#[must_use]
pub fn machine(code: &str) -> String {
    format!(
        "\n[[machines]]\ncode = \"{code}\"\nline = \"line-1\"\nconnection = \"line\"\n\
         good = {{ node = \"nsu={};s={code}.Good\" }}\n",
        crate::asyncua::NAMESPACE
    )
}

/// What a node's `/api/status` says of a role.
///
/// # Errors
/// When the node does not answer or the role is not there.
pub fn role(node: &Node, role: &str) -> anyhow::Result<Value> {
    let status = node.get("/api/status")?;
    let roles = status.get("roles").and_then(Value::as_array).context("/api/status has no roles")?;
    roles.iter().find(|r| text(r, "role") == role).cloned().with_context(|| format!("no role {role} in {status}"))
}

/// What a node's `/api/status` says of a node.
///
/// # Errors
/// When the node does not answer or the other is not there.
pub fn node(asked: &Node, name: &str) -> anyhow::Result<Value> {
    let status = asked.get("/api/status")?;
    let nodes = status.get("nodes").and_then(Value::as_array).context("/api/status has no nodes")?;
    nodes.iter().find(|node| text(node, "node") == name).cloned().with_context(|| format!("no node {name} in {status}"))
}

/// The takeovers of a role that a node knows of, newest first.
///
/// # Errors
/// When the node does not answer.
pub fn takeovers(asked: &Node, role: &str) -> anyhow::Result<Vec<Value>> {
    let all = asked.get("/api/takeovers")?;
    Ok(all.as_array().into_iter().flatten().filter(|takeover| text(takeover, "role") == role).cloned().collect())
}

/// Waits until `asked` says that the reader runs on `holder`.
///
/// # Errors
/// When it does not within a minute; both are in the error.
pub fn wait_until_reading(asked: &Node, holder: &str) -> anyhow::Result<()> {
    wait_until(&format!("the reader runs on {holder}"), Duration::from_secs(60), || {
        let Ok(reader) = role(asked, "reader") else { return Ok(false) };
        Ok(text(&reader, "holder") == holder && text(&reader, "state") == "running")
    })
    .with_context(|| format!("{:?}\n{}", role(asked, "reader"), asked.log()))
}

/// What a node's `/api/production` says is booked.
///
/// # Errors
/// When the node does not answer as `api.md` says.
pub fn books(node: &Node) -> anyhow::Result<Counts> {
    let production = node.get("/api/production")?;
    let machines = production.get("machines").and_then(Value::as_array).context("/api/production has no machines")?;
    let mut books = Counts::new();
    for line in machines {
        let booked = line.get("booked").and_then(Value::as_u64).with_context(|| format!("no booked in {line}"))?;
        books.insert((text(line, "machine").to_owned(), text(line, "counter").to_owned()), booked);
    }
    Ok(books)
}

/// Units of all counters together.
#[must_use]
pub fn total(books: &Counts) -> u64 {
    books.values().sum()
}

/// Waits until the books say exactly this.
///
/// # Errors
/// When they do not within half a minute; both and the log are in the error.
pub fn wait_until_booked(node: &Node, truth: &Counts) -> anyhow::Result<()> {
    let waited = wait_until("the books are what was made", Duration::from_secs(30), || {
        Ok(books(node).is_ok_and(|books| books == *truth))
    });
    waited.with_context(|| format!("made {truth:?}\nbooked {:?}\n{}", node.get("/api/production"), node.log()))
}

/// The text at a key; empty where there is none.
#[must_use]
pub fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Waits until each of `counters` has been read at least once, so that it has a baseline.
///
/// # Errors
/// When it does not happen within a minute.
pub fn wait_until_read(node: &Node, counters: usize) -> anyhow::Result<()> {
    wait_until(&format!("{counters} counters were read"), Duration::from_secs(60), || {
        Ok(books(node).is_ok_and(|books| books.len() >= counters))
    })
    .with_context(|| format!("{:?}\n{}", node.get("/api/production"), node.log()))
}
