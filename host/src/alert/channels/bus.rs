//! An alert as a message on a subject of NATS.

use std::fmt::Display;

use async_nats::HeaderMap;
use async_trait::async_trait;

use super::{Channel, PATIENCE, SendError};
use crate::alert::Alert;
use crate::bus;
use crate::config::Bus;

/// A stream that listens on the subject drops a message whose id it has already.
const MESSAGE_ID: &str = "Nats-Msg-Id";

/// A subject. It is connected for each alert: alerts are rare, and a connection that was lost unnoticed would swallow the next one.
pub(super) struct Subject {
    bus: Bus,
    subject: String,
    /// How the server calls the connection.
    client: String,
}

impl Subject {
    pub(super) fn new(bus: &Bus, subject: &str, plant: &str) -> Self {
        Self { bus: bus.clone(), subject: subject.to_owned(), client: format!("alerts of {plant}") }
    }

    fn failed(&self, error: &dyn Display) -> SendError {
        SendError(format!("NATS at {}: {error}", self.bus.shown()))
    }
}

#[async_trait]
impl Channel for Subject {
    fn name(&self) -> &'static str {
        "bus"
    }

    async fn send(&self, alert: &Alert) -> Result<(), SendError> {
        let body = serde_json::to_vec(alert).map_err(|error| SendError(error.to_string()))?;
        let client = bus::connect(&self.bus, &self.client, PATIENCE).await;
        let client = client.map_err(|error| SendError(error.to_string()))?;
        let mut headers = HeaderMap::new();
        headers.insert(MESSAGE_ID, alert.id.to_string());
        let published = client.publish_with_headers(self.subject.clone(), headers, body.into()).await;
        published.map_err(|error| self.failed(&error))?;
        client.flush().await.map_err(|error| self.failed(&error))
    }
}
