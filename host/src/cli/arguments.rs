//! What can be typed: every subcommand, its options and their examples.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use crate::config::Security;

/// What is logged unless told otherwise. The OPC UA library calls errors what is none (a client without a certificate, where none is
/// wanted), and the NATS library a server that is away; what matters of either is logged by our own sessions.
const DEFAULT_LOG: &str =
    "info,async_nats=off,opcua_client=off,opcua_core=off,opcua_crypto=off,opcua_server=off,sqlx=error";

const INIT_EXAMPLES: &str = "\
Examples:
  host init --from opc.tcp://192.0.2.10:4840 --output plant.toml
  host init --from opc.tcp://192.0.2.10:4840 --security basic256sha256 --user reader --password-env LINE_PASSWORD";

/// Runs a plant's roles on one node at a time, and proves it.
#[derive(Debug, Parser)]
#[command(name = "host", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 good, 2 wrong usage, 64 wrong configuration, 1 anything else.")]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Write the log as JSON, a line an event
    #[arg(long, global = true)]
    pub log_json: bool,

    /// How much to log: error, warn, info, debug, trace, or a filter like `host=debug`
    #[arg(long, global = true, env = "HOST_LOG", default_value = DEFAULT_LOG, value_name = "FILTER")]
    pub log: String,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a node of the plant
    #[command(after_help = "Example:\n  host run --config plant.toml --node a --api-port 8080")]
    Run(Run),
    /// Run a simulated bottling line: an OPC UA server with faults on demand
    Simulate(super::simulate::SimulateArgs),
    /// Show the nodes, the roles and the counts of a running plant
    #[command(after_help = "Examples:\n  host status\n  host status --url http://plant-b:8080 --json")]
    Status(Status),
    /// Show which roles changed hands, why, and how long nothing was committed
    #[command(after_help = "Examples:\n  host takeovers\n  host takeovers --role reader --limit 5 --json")]
    Takeovers(Takeovers),
    /// Show who has said what about where roles run
    #[command(after_help = "Example:\n  host audit --limit 20")]
    Audit(Audit),
    /// Rehearse failovers on a simulated plant, and report what each takeover cost
    Drill(super::drill::DrillArgs),
    /// Check a configuration and its modules without running anything
    #[command(after_help = "Example:\n  host check --config plant.toml")]
    Check(ConfigFile),
    /// Bring the database's schema up to date
    #[command(after_help = "Example:\n  host migrate --config plant.toml")]
    Migrate(ConfigFile),
    /// Look at roles and their modules, and say where they run
    #[command(subcommand)]
    Role(Role),
    /// Say what a node may do
    #[command(subcommand)]
    Node(NodeCommand),
    /// Look into an OPC UA server
    #[command(subcommand)]
    Opc(Opc),
    /// Write a first plant.toml from what an OPC UA server offers
    #[command(after_help = INIT_EXAMPLES)]
    Init(Init),
    /// Compile a module into the cache; the host calls this itself
    #[command(hide = true)]
    CompileModule(CompileModule),
}

/// Names the configuration.
#[derive(Debug, Clone, Args)]
pub struct ConfigFile {
    /// The plant's configuration
    #[arg(long, default_value = "plant.toml", value_name = "FILE")]
    pub config: PathBuf,
}

/// `host run`.
#[derive(Debug, Args)]
pub struct Run {
    /// The plant's configuration
    #[command(flatten)]
    pub config: ConfigFile,
    /// This node's name; by default the host name
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Where to serve HTTP; wins over `[serve] api_port`
    #[arg(long, value_name = "PORT")]
    pub api_port: Option<u16>,
    /// How others reach this node; wins over `[serve] advertise`
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,
    /// Where further modules (`*.wasm`) are; by default `guests` beside the configuration
    #[arg(long, value_name = "DIRECTORY")]
    pub guests: Option<PathBuf>,
    /// Where compiled modules are kept
    #[arg(long, env = "HOST_CACHE", value_name = "DIRECTORY")]
    pub cache: Option<PathBuf>,
    /// Where this node keeps what proves to the next process of its name that this one is gone; by default in the user's state
    #[arg(long, env = "HOST_STATE", value_name = "DIRECTORY")]
    pub state: Option<PathBuf>,
    /// Let modules in `guests` replace bundled roles of the same name
    #[arg(long)]
    pub dev: bool,
}

/// `host status`.
#[derive(Debug, Args)]
pub struct Status {
    /// A node's address; by default this machine's, with the port of the configuration
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// The plant's configuration, for its port
    #[command(flatten)]
    pub config: ConfigFile,
    /// Print the whole document of /api/status
    #[arg(long)]
    pub json: bool,
}

/// `host takeovers`.
#[derive(Debug, Args)]
pub struct Takeovers {
    /// A node's address; by default this machine's, with the port of the configuration
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// The plant's configuration, for its port
    #[command(flatten)]
    pub config: ConfigFile,
    /// Only this role's
    #[arg(long, value_name = "ROLE")]
    pub role: Option<String>,
    /// How many of the newest 200 to show
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub limit: usize,
    /// Print them as /api/takeovers gives them
    #[arg(long)]
    pub json: bool,
}

/// `host audit`.
#[derive(Debug, Args)]
pub struct Audit {
    /// The plant's configuration
    #[command(flatten)]
    pub config: ConfigFile,
    /// The newest so many
    #[arg(long, default_value_t = 50, value_name = "NUMBER")]
    pub limit: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `host role …`.
#[derive(Debug, Subcommand)]
pub enum Role {
    /// List the modules that this host knows, and whether it can run them
    List {
        /// The plant's configuration, for its modules' hashes
        #[command(flatten)]
        config: ConfigFile,
        /// Where further modules (`*.wasm`) are; by default `guests` beside the configuration
        #[arg(long, value_name = "DIRECTORY")]
        guests: Option<PathBuf>,
    },
    /// Show what a role's module asks for, and what becomes of its effects when another node takes it over
    #[command(after_help = "Example:\n  host role inspect reader")]
    Inspect {
        /// The role
        #[arg(value_name = "ROLE")]
        role: String,
        /// The plant's configuration
        #[command(flatten)]
        config: ConfigFile,
        /// Where further modules (`*.wasm`) are; by default `guests` beside the configuration
        #[arg(long, value_name = "DIRECTORY")]
        guests: Option<PathBuf>,
    },
    /// An order of people about where a role runs.
    #[command(flatten)]
    Order(RoleOrder),
}

/// `host role …`, where it says where a role runs.
#[derive(Debug, Subcommand)]
pub enum RoleOrder {
    /// Move a role to another node; it stays there
    #[command(after_help = "Example:\n  host role move reader --to b --why 'update of plant-a'")]
    Move {
        /// The role; `node` moves all of an active-standby pair
        #[arg(value_name = "ROLE")]
        role: String,
        /// The node that is to take it
        #[arg(long, value_name = "NODE")]
        to: String,
        /// Which plant, who and why.
        #[command(flatten)]
        order: Ordered,
    },
    /// Have nobody run a role
    #[command(after_help = "Example:\n  host role hold erp-sync --for 2h --why 'the ERP is being updated'")]
    Hold {
        /// The role
        #[arg(value_name = "ROLE")]
        role: String,
        /// For how long, like 2h; by default until it is resumed
        #[arg(long = "for", value_name = "DURATION")]
        at_most: Option<String>,
        /// Which plant, who and why.
        #[command(flatten)]
        order: Ordered,
    },
    /// End a hold
    #[command(after_help = "Example:\n  host role resume erp-sync")]
    Resume {
        /// The role
        #[arg(value_name = "ROLE")]
        role: String,
        /// Which plant, who and why.
        #[command(flatten)]
        order: Ordered,
    },
    /// Have one node alone run a role, and nobody while that node is down
    #[command(after_help = "Example:\n  host role pin reader a")]
    Pin {
        /// The role
        #[arg(value_name = "ROLE")]
        role: String,
        /// The node
        #[arg(value_name = "NODE")]
        node: String,
        /// Which plant, who and why.
        #[command(flatten)]
        order: Ordered,
    },
    /// Let any node run a role again
    #[command(after_help = "Example:\n  host role unpin reader")]
    Unpin {
        /// The role
        #[arg(value_name = "ROLE")]
        role: String,
        /// Which plant, who and why.
        #[command(flatten)]
        order: Ordered,
    },
}

/// `host node …`.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Have a node give up its roles and run nothing, also after it restarts
    #[command(after_help = "Example:\n  host node drain a --why 'new disk'")]
    Drain {
        /// The node
        #[arg(value_name = "NODE")]
        node: String,
        /// Which plant, who and why.
        #[command(flatten)]
        order: Ordered,
    },
    /// Let a drained node run roles again
    #[command(after_help = "Example:\n  host node undrain a")]
    Undrain {
        /// The node
        #[arg(value_name = "NODE")]
        node: String,
        /// Which plant, who and why.
        #[command(flatten)]
        order: Ordered,
    },
}

/// What every order has: the plant that it is for, and what the record says of it.
#[derive(Debug, Clone, Args)]
pub struct Ordered {
    /// The plant's configuration
    #[command(flatten)]
    pub config: ConfigFile,
    /// Which share of a partitioned role
    #[arg(long, value_name = "NAME")]
    pub partition: Option<String>,
    /// The reason, for the record
    #[arg(long, value_name = "TEXT")]
    pub why: Option<String>,
    /// Who says so, for the record; by default this user on this machine
    #[arg(long, value_name = "NAME")]
    pub who: Option<String>,
}

/// Which server `host opc` speaks to.
#[derive(Debug, Clone, Args)]
pub struct Server {
    /// A connection's name in the configuration, or an address like `opc.tcp://host:4840`
    #[arg(value_name = "CONNECTION|URL")]
    pub server: String,
    /// The plant's configuration, for its connections
    #[command(flatten)]
    pub config: ConfigFile,
    /// How to get in, where the server is an address.
    #[command(flatten)]
    pub login: Login,
}

/// How to get into a server that stands in no configuration; what its `[opc.NAME]` would have under the same names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Login {
    /// How the connection is secured; by default not at all
    #[arg(long, value_name = "POLICY", value_parser = security())]
    pub security: Option<Security>,
    /// The user's name, where the server wants one
    #[arg(long, value_name = "NAME", requires = "password_env")]
    pub user: Option<String>,
    /// The environment variable that holds the user's password
    #[arg(long, value_name = "VARIABLE", requires = "user")]
    pub password_env: Option<String>,
    /// This client's own certificate (DER), its key beside it as .pem; by default one that is made in `pki/own` beside the
    /// configuration
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
}

fn security() -> impl TypedValueParser<Value = Security> {
    let words = PossibleValuesParser::new(Security::WORDS.map(|(word, _)| word));
    words.try_map(|word| {
        let known = Security::WORDS.into_iter().find(|(known, _)| *known == word);
        known.map(|(_, security)| security).ok_or("it is none of them")
    })
}

/// `host opc …`.
#[derive(Debug, Subcommand)]
pub enum Opc {
    /// Show the server's nodes as a tree, with their ids as plant.toml wants them
    #[command(after_help = "Example:\n  host opc browse line --depth 4")]
    Browse {
        /// Which server.
        #[command(flatten)]
        server: Server,
        /// Where to begin; by default the Objects folder
        #[arg(long, value_name = "NODE")]
        node: Option<String>,
        /// How deep to look
        #[arg(long, default_value_t = 5)]
        depth: u32,
    },
    /// Read nodes once
    #[command(after_help = "Example:\n  host opc read line 'nsu=urn:plant:simulator;s=FILL01.GoodCount'")]
    Read {
        /// Which server.
        #[command(flatten)]
        server: Server,
        /// Node ids, as `nsu=URI;s=NAME`
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
    },
    /// Show nodes as they change, until Ctrl-C
    #[command(after_help = "Example:\n  host opc watch line 'nsu=urn:plant:simulator;s=FILL01.GoodCount'")]
    Watch {
        /// Which server.
        #[command(flatten)]
        server: Server,
        /// Node ids, as `nsu=URI;s=NAME`
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
    },
}

/// `host init`.
#[derive(Debug, Args)]
pub struct Init {
    /// The server's address
    #[arg(long, value_name = "URL")]
    pub from: String,
    /// How to get in.
    #[command(flatten)]
    pub login: Login,
    /// The file to write
    #[arg(long, default_value = "plant.toml", value_name = "FILE")]
    pub output: PathBuf,
    /// Take everything that was found without asking
    #[arg(long)]
    pub yes: bool,
    /// Overwrite the file if it is there
    #[arg(long)]
    pub force: bool,
}

/// `host compile-module`.
#[derive(Debug, Args)]
pub struct CompileModule {
    /// Where the compiled module is written
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// The most memory it may take, in MiB
    #[arg(long, default_value_t = 2048)]
    pub memory_mib: u64,
    /// Check every memory access, for a host that may not reserve address space
    #[arg(long)]
    pub checked: bool,
}
