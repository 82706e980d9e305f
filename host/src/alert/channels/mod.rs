//! The ways that an alert goes out.

mod bus;
mod email;
mod webhook;

use std::time::Duration;

use async_trait::async_trait;

use super::Alert;
use crate::config;

/// How long a channel itself waits, so that what it gave up is not delivered after all: a little shorter than a try may take.
const PATIENCE: Duration = Duration::from_secs(9);

/// Why an alert did not go out; one sentence, without a secret in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SendError(pub String);

/// One way out. Whoever calls it sets a deadline, and calls it again with the same alert when it has failed.
#[async_trait]
pub trait Channel: Send + Sync {
    /// Its name in `[alerts]`.
    fn name(&self) -> &'static str;

    /// Sends one alert; it has arrived when this is `Ok`.
    async fn send(&self, alert: &Alert) -> Result<(), SendError>;
}

/// Every channel that is configured.
///
/// # Errors
/// One sentence when a channel could never work as it is configured.
pub fn of(config: &config::Alerts, plant: &str) -> Result<Vec<Box<dyn Channel>>, String> {
    let mut channels: Vec<Box<dyn Channel>> = Vec::new();
    if let Some(url) = &config.webhook {
        channels.push(Box::new(webhook::Webhook::new(url)));
    }
    if let Some((bus, subject)) = &config.bus {
        channels.push(Box::new(bus::Subject::new(bus, subject, plant)));
    }
    if let Some(email) = &config.email {
        channels.push(Box::new(email::Mail::new(email)?));
    }
    Ok(channels)
}
