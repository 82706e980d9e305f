//! OPC UA: supervised sessions, and the queue between them and an instance.
//!
//! A session belongs to an instance and ends with it. What arrives goes through one bounded queue per instance, in which samples and
//! connection changes of a connection keep their order, and which says how much it coalesced or dropped.
//!
//! `connections` is what an instance holds; `link` is one of them; `session` keeps it alive; `connect` opens a session,
//! over a secure `channel`, and an `attempt` at it leaves none behind; `subscription` is what one
//! session monitors, `limits` how much a server takes at once; `node` and `value` translate node ids and values; `browse` looks around and `guess` says what may be meant, for people; `queue` is the way out.

mod attempt;
pub mod browse;
mod channel;
pub mod connect;
pub mod connections;
pub mod guess;
pub mod limits;
mod link;
pub mod node;
mod pki;
pub mod queue;
mod session;
mod subscription;
mod value;

pub use connections::{ConnectionStatus, Connections};
pub use queue::{Batch, EventQueue};
pub use value::DataType;

/// A value as OPC UA sent it, in the shapes of `plant:opc`.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// Boolean.
    Boolean(bool),
    /// SByte, Int16, Int32, Int64.
    Int(i64),
    /// Byte, UInt16, UInt32, UInt64.
    Uint(u64),
    /// Float, Double.
    Real(f64),
    /// String, LocalizedText's text.
    Text(String),
    /// ByteString.
    Bytes(Vec<u8>),
    /// DateTime: nanoseconds since the Unix epoch.
    Time(i64),
    /// An array of signed whole numbers.
    Ints(Vec<i64>),
    /// An array of unsigned whole numbers.
    Uints(Vec<u64>),
    /// An array of floating-point numbers.
    Reals(Vec<f64>),
    /// An array of strings.
    Texts(Vec<String>),
    /// Type name and text form of anything else.
    Other(String, String),
}

/// One reading of one item.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The item, as `resolve` numbered it.
    pub item: u32,
    /// What was read.
    pub value: Value,
    /// The whole OPC UA StatusCode.
    pub status: u32,
    /// The source's timestamp, nanoseconds since the Unix epoch.
    pub source: Option<i64>,
    /// The server's timestamp, nanoseconds since the Unix epoch.
    pub server: Option<i64>,
    /// How the server sent the value; `None` where it sent none.
    pub data_type: Option<DataType>,
}

/// A connection came up or went down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionChange {
    /// The connection's name in `plant.toml`.
    pub connection: String,
    /// Whether it is up now.
    pub connected: bool,
    /// The last evidence for the old state, or the first for the new; nanoseconds since the Unix epoch.
    pub since: i64,
    /// When it was noticed; nanoseconds since the Unix epoch.
    pub detected: i64,
    /// Why, for people.
    pub reason: String,
}

/// How items are monitored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Monitoring {
    /// The publishing interval in milliseconds; 0 is the connection's own.
    pub publish_ms: u32,
    /// The sampling interval in milliseconds; 0 is the connection's own.
    pub sampling_ms: u32,
    /// The server's queue for each item.
    pub queue: u32,
    /// Whether the host's own queue may keep only the newest of several waiting values.
    pub coalesce: bool,
}

/// What can go wrong; the shape that guests see.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpcError {
    /// No such connection, no node id, or not granted; the text says which and what is wanted.
    #[error("{0}")]
    Denied(String),
    /// The lease is gone.
    #[error("the lease is lost")]
    LeaseLost,
    /// No answer in time.
    #[error("the OPC UA server did not answer in time")]
    Timeout,
    /// The connection is down; the host keeps trying.
    #[error("the OPC UA connection is down")]
    Disconnected,
    /// The server's answer for the whole request.
    #[error("the OPC UA server answered {0:#010x}")]
    BadStatus(u32),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}
