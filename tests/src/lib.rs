//! What tests share: real servers in temporary directories, on free ports, that end with the test.
//!
//! Everything here starts a real program. What a machine lacks, `cargo xtask test` installs; a test that is run without it fails
//! and says so. What a machine does not allow is skipped, and said to be.

pub mod asyncua;
pub mod cable;
pub mod namespace;
pub mod nats;
pub mod node;
pub mod plant;
pub mod postgres;
pub mod process;
pub mod simulator;
pub mod skipped;
pub mod smtp;
pub mod takeover;
pub mod watch;
pub mod webhook;

pub use asyncua::Asyncua;
pub use cable::Cable;
pub use namespace::Namespace;
pub use nats::Nats;
pub use node::Node;
pub use plant::Plant;
pub use postgres::Postgres;
pub use simulator::Simulator;
pub use skipped::skipped;
pub use smtp::Smtp;
pub use takeover::{End, take_over};
pub use watch::Watch;
pub use webhook::Webhook;
