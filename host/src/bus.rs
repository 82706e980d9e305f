//! The way to a message broker of `plant.toml`: one place that logs in, and that says what is wrong when it can not.
//!
//! Only NATS is spoken in this version.

use std::time::Duration;

use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, ServerAddr};

use crate::config::Bus;

/// Why there is no connection; one sentence each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// It will not do as it is configured: trying again changes nothing.
    #[error("{0}")]
    Refused(String),
    /// It does not answer just now.
    #[error("{0}")]
    Unavailable(String),
}

/// A connection that the server knows as `client`. Each server of the bus gets its share of `deadline`.
///
/// A connection that was lost is not tried again behind our back for ever: what it has not sent yet would be sent long after.
///
/// # Errors
/// [`BusError`].
pub async fn connect(bus: &Bus, client: &str, deadline: Duration) -> Result<Client, BusError> {
    let servers = servers(bus)?;
    let mut options = ConnectOptions::new().name(client).max_reconnects(servers.len());
    // One that swallows everything must leave time for the next.
    options = options.connection_timeout(deadline / u32::try_from(servers.len()).unwrap_or(u32::MAX).max(1));
    if let Some((user, password)) = &bus.login {
        options = options.user_and_password(user.clone(), password.clone());
    }
    if let Some(file) = &bus.creds_file {
        let read = options.credentials_file(file).await;
        options = read.map_err(|error| {
            let (name, file) = (&bus.name, file.display());
            BusError::Refused(format!(
                "bus.{name}.creds_file {file} cannot be read ({error}): correct its path or rights"
            ))
        })?;
    }
    if let Some(file) = &bus.ca_file {
        options = options.add_root_certificates(file.clone());
    }
    options.connect(servers).await.map_err(|error| not_connected(bus, &error))
}

fn servers(bus: &Bus) -> Result<Vec<ServerAddr>, BusError> {
    let servers: Result<Vec<ServerAddr>, _> = bus.servers().map(str::parse).collect();
    servers.map_err(|error| BusError::Refused(format!("bus.{}.url cannot be used ({error}): correct it", bus.name)))
}

fn not_connected(bus: &Bus, error: &ConnectError) -> BusError {
    let (name, at) = (&bus.name, bus.shown());
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => BusError::Refused(format!(
            "NATS at {at} refused the login of bus.{name} ({error}): correct its user, password_env or creds_file"
        )),
        // A certificate that is not trusted is an error of the socket, as the library tells it.
        kind if kind == ConnectErrorKind::Tls || error.to_string().contains("certificate") => BusError::Refused(
            format!("the TLS connection to NATS at {at} failed ({error}): check bus.{name}.url and ca_file"),
        ),
        _ => BusError::Unavailable(format!(
            "NATS at {at} cannot be reached ({error}): see that it runs, or correct bus.{name}.url"
        )),
    }
}
