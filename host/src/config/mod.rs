//! The plant's configuration, checked: types that cannot be wrong.
//!
//! `plant.toml` is read in two stages, as typed (`raw`) and as meant (the types here). Everything behind the configuration sees only
//! the second kind.

mod alerts;
mod bus;
mod connections;
mod database;
pub mod duration;
mod findings;
mod later;
mod load;
mod machines;
mod node;
mod raw;
mod redundancy;
mod roles;
mod sections;
mod size;
mod suggest;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::identity::RoleName;

pub use alerts::{Alerts, Email, MailSecurity, MailServer};
pub use findings::{ConfigErrors, Finding};

/// One plant, as its `plant.toml` means it.
#[derive(Debug, Clone)]
pub struct Config {
    /// The directory of `plant.toml`: relative paths in it are relative to this.
    pub directory: PathBuf,
    /// `[plant]`.
    pub plant: Plant,
    /// `[store]`.
    pub store: Store,
    /// `[serve]`.
    pub serve: Serve,
    /// `[redundancy]`; `None` is one node that is always active.
    pub redundancy: Option<Redundancy>,
    /// `[opc.NAME]`, by name.
    pub opc: BTreeMap<String, OpcConnection>,
    /// `[roles.NAME]`, by name.
    pub roles: BTreeMap<RoleName, Role>,
    /// `[[machines]]`, in the file's order.
    pub machines: Vec<Machine>,
    /// `[[tags]]`, in the file's order.
    pub tags: Vec<Tag>,
    /// `[[reasons]]`, in the file's order.
    pub reasons: Vec<Reason>,
    /// `[alerts]`; nothing where it is left out.
    pub alerts: Alerts,
    /// A hash for each section that has to be the same on every node.
    pub sections: BTreeMap<String, String>,
    /// What is allowed and probably not meant; each a sentence.
    pub warnings: Vec<String>,
}

/// `[plant]`: what the plant is called.
#[derive(Debug, Clone, Serialize)]
pub struct Plant {
    /// The plant's name.
    pub name: String,
    /// ISA-95 enterprise.
    pub enterprise: String,
    /// ISA-95 site.
    pub site: String,
    /// An IANA time zone.
    pub timezone: String,
    /// May be drilled, and may run `floor`.
    pub simulated: bool,
}

/// `[store]`: where the plant's database is.
#[derive(Clone)]
pub enum Store {
    /// One file; one node.
    Sqlite {
        /// The file.
        path: PathBuf,
    },
    /// PostgreSQL; `urls` has the primary and its standbys, at least one.
    Postgres {
        /// Connection URLs, with their passwords put in.
        urls: Vec<String>,
        /// A login that may change the schema, where the everyday one may not.
        migrate_url: Option<String>,
    },
}

/// Shows no password: what is logged by accident must not give one away.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite { path } => f.debug_struct("Sqlite").field("path", path).finish(),
            Self::Postgres { urls, .. } => {
                let shown: Vec<String> = urls.iter().map(|url| database::without_password(url)).collect();
                f.debug_struct("Postgres").field("urls", &shown).finish_non_exhaustive()
            }
        }
    }
}

/// `[serve]`: the HTTP side.
#[derive(Clone)]
pub struct Serve {
    /// The address to listen on.
    pub bind: String,
    /// The port to listen on.
    pub api_port: u16,
    /// How others reach this node.
    pub advertise: Option<String>,
    /// The key that every node of the plant shares.
    pub secret_key: Option<String>,
    /// The bearer token for writes; without one, writes over HTTP are refused.
    pub token: Option<String>,
}

/// Shows neither key nor token.
impl fmt::Debug for Serve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Serve");
        shown.field("bind", &self.bind).field("api_port", &self.api_port).field("advertise", &self.advertise);
        shown.finish_non_exhaustive()
    }
}

/// `[redundancy]`: leases.
#[derive(Debug, Clone)]
pub struct Redundancy {
    /// How long a lease lasts without renewal.
    pub lease: Duration,
    /// Where it is decided who holds one.
    pub leases: Leases,
    /// What moves as one.
    pub scope: Scope,
    /// What a node does when it was active and is not any more.
    pub on_demotion: OnDemotion,
}

pub use sections::key_check;

/// `redundancy.store`: where it is decided which node holds a lease. The fences are in PostgreSQL whichever it is.
#[derive(Debug, Clone)]
pub enum Leases {
    /// A row for each lease.
    Postgres,
    /// One advisory lock for the whole plant.
    PostgresLock {
        /// The lock's number: another one for each plant of a database.
        key: i64,
    },
    /// A key for each lease, in a bucket of NATS.
    Nats {
        /// Where NATS is; its URL begins with `nats://` or `tls://`.
        bus: Bus,
        /// The bucket's name.
        bucket: String,
    },
}

/// `[bus.NAME]`: one message broker.
#[derive(Clone)]
pub struct Bus {
    /// Its name.
    pub name: String,
    /// Its URL, or those of a cluster with commas between them; they may have passwords in them.
    pub url: String,
    /// User name and password, where it wants them.
    pub login: Option<(String, String)>,
    /// A file with a JWT and its key, where it wants those.
    pub creds_file: Option<PathBuf>,
    /// A file with the certificates (PEM) that may have signed its own, beside those that the system trusts.
    pub ca_file: Option<PathBuf>,
}

impl Bus {
    /// The URL of each server.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.url.split(',').map(str::trim)
    }

    /// The URL as it may be shown.
    #[must_use]
    pub fn shown(&self) -> String {
        bus::shown(&self.url)
    }
}

/// Shows no password.
impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Bus");
        shown.field("name", &self.name).field("url", &self.shown());
        shown.field("user", &self.login.as_ref().map(|(name, _)| name)).finish_non_exhaustive()
    }
}

/// The lease of an active-standby pair, and the name that people move it by.
pub const PAIR: &str = "node";

/// `redundancy.scope`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Each role is where its own lease is.
    Role,
    /// All roles are on one node, the active one of a pair.
    Node,
}

/// `redundancy.on_demotion`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDemotion {
    /// It goes on as a standby.
    Standby,
    /// It ends with exit code 75, and is started again by whoever supervises it.
    Exit,
}

/// This machine's name; empty where the system does not tell it.
#[must_use]
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// How an OPC UA connection is secured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Security {
    /// Neither signed nor encrypted.
    None,
    /// Basic256Sha256, SignAndEncrypt.
    Basic256Sha256,
    /// Aes256Sha256RsaPss, SignAndEncrypt.
    Aes256Sha256RsaPss,
}

impl Security {
    /// Each, under the word that people write for it.
    pub const WORDS: [(&'static str, Self); 3] = [
        ("none", Self::None),
        ("basic256sha256", Self::Basic256Sha256),
        ("aes256-sha256-rsapss", Self::Aes256Sha256RsaPss),
    ];

    /// What people write for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        Self::WORDS.into_iter().find(|(_, security)| *security == self).map_or("", |(word, _)| word)
    }
}

/// `[opc.NAME]`: one OPC UA server.
#[derive(Clone)]
pub struct OpcConnection {
    /// `opc.tcp://host:port/path`.
    pub endpoint: String,
    /// How the connection is secured.
    pub security: Security,
    /// From the first packet until the session is active.
    pub connect: Duration,
    /// The publishing interval to ask for.
    pub publish: Duration,
    /// The sampling interval to ask for.
    pub sampling: Duration,
    /// No publish and no keep-alive for so long: the connection is dead.
    pub silence: Duration,
    /// The one role that may write through it.
    pub writer: Option<RoleName>,
    /// User name and password, where the server wants them.
    pub user: Option<(String, String)>,
    /// The directory with `own`, `trusted` and `rejected`.
    pub pki: PathBuf,
    /// This client's own certificate (DER) where it is not the generated one in `pki/own`; its key lies beside it as `.pem`.
    pub certificate: Option<PathBuf>,
}

/// Shows no password.
impl fmt::Debug for OpcConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("OpcConnection");
        shown.field("endpoint", &self.endpoint).field("security", &self.security);
        shown.field("user", &self.user.as_ref().map(|(name, _)| name)).finish_non_exhaustive()
    }
}

/// `[roles.NAME]`: one role.
#[derive(Debug, Clone)]
pub struct Role {
    /// The module, by default the role's name.
    pub module: String,
    /// Pins the module's hash (lower-case hex).
    pub sha256: Option<String>,
    /// At least one; `""` for a singleton.
    pub partitions: Vec<String>,
    /// The role's own configuration, as JSON.
    pub config: serde_json::Value,
    /// What one instance may use.
    pub limits: Limits,
    /// Overrides of the manifest's timers, by name.
    pub timers: BTreeMap<String, Duration>,
}

/// What one instance may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Linear memory, in bytes.
    pub memory_bytes: usize,
    /// How long one call may take.
    pub call: Duration,
    /// How long `start` may take.
    pub start: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_bytes: 64 << 20, call: Duration::from_secs(5), start: Duration::from_secs(30) }
    }
}

/// `[[machines]]`: one machine. Serialised, it is what a guest reads through `config.plant()`.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The machine's code, unique in the plant.
    pub code: String,
    /// The line it stands in.
    pub line: String,
    /// The OPC UA connection that its nodes are read through.
    pub connection: String,
    /// Where its state is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Its counter of good pieces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub good: Option<Counter>,
    /// Its counter of scrap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrap: Option<Counter>,
}

/// A machine's state node.
#[derive(Debug, Clone, Serialize)]
pub struct State {
    /// The node, with a namespace URI.
    pub node: String,
    /// How its numbers are read.
    pub map: StateMap,
}

/// How a state node's numbers are read: `"packml"`, or an object from number to `running | idle | down | setup`.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum StateMap {
    /// `"packml"`: the 17 numbers of PackML.
    Named(String),
    /// Number to state.
    Numbers(BTreeMap<i64, String>),
}

/// What a fall of a counter means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFall {
    /// The counter was reset.
    Reset,
    /// The counter wrapped around.
    Rollover,
}

/// What the first reading after a reset means when it is above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnReset {
    /// A new baseline; books nothing.
    Rebaseline,
    /// Books the reading, at most `max_delta`.
    FromZero,
}

/// What a reading of Uncertain quality is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uncertain {
    /// As much as a Bad one.
    Ignore,
    /// As much as a Good one.
    Book,
}

/// A production counter.
#[derive(Debug, Clone, Serialize)]
pub struct Counter {
    /// The node, with a namespace URI.
    pub node: String,
    /// What a fall means.
    pub on_fall: OnFall,
    /// The value after the highest, where it wraps around.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollover: Option<u64>,
    /// The most units that one rollover or reset may book.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delta: Option<u64>,
    /// What the first reading after a reset means.
    pub on_reset: OnReset,
    /// How long a fall to zero may last and still be a PLC's restart.
    #[serde(rename = "restart_glitch_ms", serialize_with = "as_millis")]
    pub restart_glitch: Duration,
    /// Units a second above which a jump waits for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rate: Option<f64>,
    /// What a reading of Uncertain quality is worth.
    pub uncertain: Uncertain,
}

fn as_millis<S: serde::Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_u64(u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

/// `[[tags]]`: a value that is recorded.
#[derive(Debug, Clone, Serialize)]
pub struct Tag {
    /// The tag's name, unique in the plant.
    pub name: String,
    /// The OPC UA connection that it is read through.
    pub connection: String,
    /// The node, with a namespace URI.
    pub node: String,
}

/// `[[reasons]]`: a reason for a stop.
#[derive(Debug, Clone, Serialize)]
pub struct Reason {
    /// The code, unique in the plant; a tree by its dots.
    pub code: String,
    /// What people read.
    pub text: String,
}
