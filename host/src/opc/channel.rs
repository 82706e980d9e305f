//! The secure channel's clock.
//!
//! A security token is to be renewed when three quarters of its lifetime have passed (OPC UA Part 4, 5.6.2). The client library counts
//! them from the server's `CreatedAt` by this host's clock: where the PLC's clock is ahead it renews too late and the channel ends, and
//! where it is behind, every request is preceded by a renewal, with the PLC's slow signatures. Its own remedy (`ignore_clock_skew`)
//! moves every timestamp that is read, and those are to be kept as they come. So here a token counts from when it is received.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use opcua::client::ConnectionSource;
use opcua::client::transport::{
    Connector, RequestRecv, SecureChannelState, TcpConnector, TcpTransport, Transport, TransportConfiguration,
    TransportPollResult,
};
use opcua::types::{ChannelSecurityToken, DateTime, EndpointDescription, Error};

/// The lifetime to ask for, one hour: few renewals, and keys that last no longer than is usual.
pub(super) const TOKEN_LIFETIME_MS: u32 = 3_600_000;
/// A server that calls its tokens' lifetime shorter (0, say) is not asked for a new one before every request.
const SHORTEST_LIFETIME_MS: u32 = 1000;

/// Makes the connection of one session, and tells how far it has come.
#[derive(Debug, Clone, Default)]
pub(super) struct Channel {
    opened: Arc<AtomicBool>,
}

impl Channel {
    /// Whether it was opened: from then on the server may have a session for us.
    pub(super) fn was_opened(&self) -> bool {
        self.opened.load(Ordering::Relaxed)
    }
}

impl ConnectionSource for Channel {
    type Builder = Clocked;

    fn get_connector(&self, endpoint: &EndpointDescription) -> Result<Clocked, Error> {
        Ok(Clocked { tcp: TcpConnector::new(endpoint.endpoint_url.as_ref())?, opened: self.opened.clone() })
    }
}

/// Opens TCP connections whose tokens count by this host's clock.
pub(super) struct Clocked {
    tcp: TcpConnector,
    opened: Arc<AtomicBool>,
}

impl Connector for Clocked {
    type Transport = ClockedTransport;

    async fn connect(
        &self,
        channel: Arc<SecureChannelState>,
        outgoing: RequestRecv,
        config: TransportConfiguration,
    ) -> Result<ClockedTransport, Error> {
        let tcp = self.tcp.connect(channel.clone(), outgoing, config).await?;
        Ok(ClockedTransport { tcp, channel, opened: self.opened.clone(), stamped: None })
    }

    fn default_endpoint(&self) -> EndpointDescription {
        self.tcp.default_endpoint()
    }
}

/// One such connection.
pub(super) struct ClockedTransport {
    tcp: TcpTransport,
    channel: Arc<SecureChannelState>,
    opened: Arc<AtomicBool>,
    /// When the present token was received.
    stamped: Option<DateTime>,
}

impl Transport for ClockedTransport {
    /// Cancel safe, as it has to be: what follows the one await does not wait.
    async fn poll(&mut self) -> TransportPollResult {
        let polled = self.tcp.poll().await;
        if matches!(polled, TransportPollResult::IncomingMessage) {
            self.stamp();
        }
        polled
    }

    fn connected_url(&self) -> &str {
        self.tcp.connected_url()
    }
}

impl ClockedTransport {
    /// Gives a token that has just come the present time. The library puts a token in its place before the message is done with.
    fn stamp(&mut self) {
        let channel = self.channel.secure_channel();
        let known = channel.read();
        if known.token_id() == 0 || self.stamped == Some(known.token_created_at()) {
            return;
        }
        drop(known);
        let received = DateTime::now();
        let mut channel = channel.write();
        let token = ChannelSecurityToken {
            channel_id: channel.secure_channel_id(),
            token_id: channel.token_id(),
            created_at: received,
            revised_lifetime: channel.token_lifetime().clamp(SHORTEST_LIFETIME_MS, TOKEN_LIFETIME_MS),
        };
        channel.set_security_token(token);
        drop(channel);
        self.stamped = Some(received);
        self.opened.store(true, Ordering::Relaxed);
    }
}
