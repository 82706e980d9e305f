//! What an author of a role in Rust writes against.
//!
//! A role is a type that implements [`Role`] and, for each kind of event that it wants, one of [`Timers`], [`Samples`] and
//! [`Connections`]. [`export_role!`] makes a component of it that exports just those. The host calls one function at a time, and only
//! while the node holds the role's lease; the value is the role's memory, and ends with the instance.
//!
//! The crate also compiles for the machine it is built on, so that a role's logic is tested with plain `cargo test`. The functions
//! of the host are out of reach there: calling one ends the test.

#[doc(hidden)]
pub mod bindings;
pub mod config;
pub mod db;
mod logging;
mod role;

pub use bindings::connections::exports::plant::opc::connections::Change;
pub use bindings::imports::plant::lease::lease;
pub use bindings::imports::plant::log::log;
pub use bindings::imports::plant::metrics::metrics;
pub use bindings::imports::plant::opc::opc;
pub use bindings::imports::plant::types::types;
pub use role::{Connections, Role, Samples, Timers};

#[doc(hidden)]
pub use role::Slot;
