//! What drives an instance's OPC UA connections, as the capability and the actor see it.

use std::sync::Arc;

use async_trait::async_trait;

use crate::lease::Held;
use crate::opc::{ConnectionChange, Monitoring, OpcError, Sample};

/// What comes next from an instance's queue, in the order of its connection.
#[derive(Debug, Clone, PartialEq)]
pub enum Batch {
    /// Readings.
    Samples(Vec<Sample>),
    /// A connection came up or went down.
    Change(ConnectionChange),
}

/// One instance's connections. Every method has a deadline of its own.
#[async_trait]
pub trait Client: Send + Sync {
    /// Numbers nodes of a connection; checks their syntax only, so a server that is off is no error.
    ///
    /// # Errors
    /// [`OpcError::Denied`] when there is no such connection; for each node, when it is no node id.
    fn resolve(&self, connection: &str, nodes: Vec<String>) -> Result<Vec<Result<u32, OpcError>>, OpcError>;

    /// Reads items now, in their order.
    ///
    /// # Errors
    /// Every [`OpcError`].
    async fn read(&self, items: Vec<u32>) -> Result<Vec<Sample>, OpcError>;

    /// Monitors items from now on; what they say comes out of [`Client::next`].
    ///
    /// # Errors
    /// [`OpcError::Denied`] for an item that was not resolved.
    async fn subscribe(&self, items: Vec<u32>, how: Monitoring) -> Result<(), OpcError>;

    /// The next batch, of at most `most` samples; waits for one. Dropping the future loses nothing.
    async fn next(&self, most: usize) -> Batch;

    /// How many samples the queue has coalesced and dropped since this was asked last.
    fn take_counts(&self) -> (u64, u64);

    /// Closes the sessions, gracefully and in bounded time.
    async fn close(&self);
}

/// Opens the connections of an instance. Nothing is connected before a guest resolves a node.
pub trait Opener: Send + Sync {
    /// For the instance that exists under this lease.
    fn open(&self, held: &Held) -> Arc<dyn Client>;
}

/// A plant without OPC UA connections.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nothing;

#[async_trait]
impl Client for Nothing {
    fn resolve(&self, connection: &str, _: Vec<String>) -> Result<Vec<Result<u32, OpcError>>, OpcError> {
        Err(OpcError::Denied(format!(
            "there is no OPC UA connection {connection:?}: add a section [opc.{connection}] to plant.toml"
        )))
    }

    async fn read(&self, _: Vec<u32>) -> Result<Vec<Sample>, OpcError> {
        Err(OpcError::Disconnected)
    }

    async fn subscribe(&self, _: Vec<u32>, _: Monitoring) -> Result<(), OpcError> {
        Err(OpcError::Disconnected)
    }

    async fn next(&self, _: usize) -> Batch {
        std::future::pending().await
    }

    fn take_counts(&self) -> (u64, u64) {
        (0, 0)
    }

    async fn close(&self) {}
}

impl Opener for Nothing {
    fn open(&self, _: &Held) -> Arc<dyn Client> {
        Arc::new(Self)
    }
}
