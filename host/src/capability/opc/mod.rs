//! `plant:opc`: OPC UA through the connections that the plant names.
//!
//! Sessions belong to an instance and end with it. A guest names connections, never addresses; whether it may use one is its grant.

pub mod client;
mod convert;
pub mod grant;
mod host;

use std::sync::Arc;

use crate::opc::Connections;

pub use client::{Opener, PlantOpc, Sessions};
pub(crate) use convert::samples;
pub use grant::Grant;

/// What people are told of this capability.
pub const ABOUT: super::kind::About = super::kind::About {
    package: "plant:opc",
    kind: super::kind::Kind::Harmless,
    what: "reads and subscribes to OPC UA nodes; writes to none",
};

/// One instance's connections, and what it may do with them.
pub struct Opc {
    connections: Arc<Connections>,
    grant: Grant,
    // A guest without the handler would subscribe to samples that nobody takes.
    takes_samples: bool,
}

impl Opc {
    /// The connections of one instance; `takes_samples`: it exports `plant:opc/samples`.
    #[must_use]
    pub fn new(connections: Arc<Connections>, grant: Grant, takes_samples: bool) -> Self {
        Self { connections, grant, takes_samples }
    }
}
