//! Opens one session, or says in one sentence why not.
//!
//! Everything the client library leaves open is closed here: a deadline around the whole of it, an end that is noticed, a password that
//! is not tried over and over, and certificates that people can trust by moving a file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use opcua::client::transport::{TcpConnector, TransportPollResult};
use opcua::client::{
    Client, ClientBuilder, IdentityToken, Session, SessionActivity, SessionPollResult, SubscriptionActivity,
};
use opcua::crypto::SecurityPolicy;
use opcua::types::{
    EndpointDescription, Error, MessageSecurityMode, ReadValueId, StatusCode, TimestampsToReturn, UserTokenType,
    VariableId, Variant,
};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::attempt::{Attempt, GRACE};
use super::channel::{Channel, TOKEN_LIFETIME_MS};
use super::limits::Limits;
use super::node::UA;
use super::pki;
use crate::config::{OpcConnection, Security};

/// A goodbye that takes longer is not waited for.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// A server that was slow to open a session may be slow to close it.
const CLOSE_LATE_WITHIN: Duration = Duration::from_secs(10);
/// Longer than any server is silent with two publish requests in hand.
const PUBLISH_WITHIN: Duration = Duration::from_secs(3600);
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Without an answer to a keep-alive for so long, in seconds, the connection is dead.
const DEAD_AFTER: u32 = 10;
/// In bytes; the server is told, and answers `BadResponseTooLarge` instead of sending more.
const LARGEST_MESSAGE: usize = 64 << 20;
/// The smallest chunks that a server may send, in bytes (OPC UA Part 6, 7.1.2.3).
const SMALLEST_CHUNK: usize = 8192;
/// What this client calls itself; its certificate carries it.
pub(super) const APPLICATION_URI: &str = "urn:plant:host";

/// Why there is no session, and how soon to try again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// A sentence for people.
    pub reason: String,
    /// How long to wait before the next try.
    pub pause: Pause,
}

/// How long to wait before the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// It is off or out of reach, and may be back at any moment.
    Short,
    /// It has no room for us now.
    Busy,
    /// Somebody has to change something first.
    Long,
}

impl Refusal {
    pub(super) fn new(pause: Pause, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), pause }
    }
}

/// An active session. Dropping it aborts it; `close` says goodbye.
pub struct Open {
    /// The session, for requests.
    pub session: Arc<Session>,
    /// The server's namespace URIs, by index, as they were when the session opened.
    pub namespaces: Arc<Vec<String>>,
    /// How much one request may ask of the server.
    pub limits: Arc<Limits>,
    /// How the connection is secured, for people.
    pub how: String,
    signs: mpsc::UnboundedReceiver<Sign>,
    driver: JoinHandle<StatusCode>,
    _abort: AbortOnDrop,
}

/// What the event loop says while it lives.
enum Sign {
    Alive,
    Trouble(&'static str, StatusCode),
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Opens a session to `config.endpoint` within `config.connect` (and the time that a first key pair takes). One that is given up is closed
/// before this returns.
///
/// # Errors
/// What the server, the network or the certificates object to.
pub async fn open(name: &str, config: &OpcConnection) -> Result<Open, Refusal> {
    let mut attempt = Attempt::begin(name, config).await?;
    let opened = attempt.opened().await;
    if opened.is_err() {
        attempt.over().await;
    }
    opened
}

/// Opens a secure channel to `config.endpoint` and closes it: everything that a session needs but the session, of which a PLC may have
/// few, and but the password.
///
/// # Errors
/// What the server, the network or the certificates object to.
pub async fn reach(name: &str, config: &OpcConnection) -> Result<(), Refusal> {
    prepare(config).await?;
    let client = client(name, config).await?;
    let knocked = timeout(config.connect, Box::pin(knock(client, config))).await;
    knocked.map_err(|_| Refusal::new(Pause::Short, silent(&config.endpoint, config.connect)))?
}

async fn knock(client: Client, config: &OpcConnection) -> Result<(), Refusal> {
    let endpoint = endpoint(&client, config).await?;
    let connector = TcpConnector::new(endpoint.endpoint_url.as_ref()).map_err(|e| explain(&e, config))?;
    let channel = client
        .session_builder()
        .connect_to_endpoint_directly(endpoint)
        .and_then(|builder| builder.build_channel(client.certificate_store().clone()))
        .map_err(|e| explain(&e, config))?;
    let mut events = channel.connect_no_retry(&connector).await.map_err(|e| explain(&e, config))?;
    channel.close_channel().await;
    let goodbye = async { while !matches!(events.poll().await, TransportPollResult::Closed(_)) {} };
    // A server need not answer it.
    let _ = timeout(CLOSE_WITHIN, goodbye).await;
    Ok(())
}

pub(super) fn silent(endpoint: &str, within: Duration) -> String {
    format!("{endpoint} did not answer within {} s", within.as_secs_f64())
}

/// Makes this host's key pair where a secured connection has none yet. It takes seconds the first time, which no server's answer is
/// to be blamed for.
///
/// # Errors
/// Why there is no pair.
pub async fn prepare(config: &OpcConnection) -> Result<(), Refusal> {
    if config.security == Security::None {
        return Ok(());
    }
    let config = config.clone();
    let made = tokio::task::spawn_blocking(move || pki::own(&config).map(drop)).await;
    let made = made.unwrap_or_else(|error| Err(error.to_string()));
    made.map_err(|reason| Refusal::new(Pause::Long, reason))
}

pub(super) async fn client(name: &str, config: &OpcConnection) -> Result<Client, Refusal> {
    let (name, config) = (name.to_owned(), config.clone());
    // Reads files, and makes a key pair the first time: seconds of work.
    let made = tokio::task::spawn_blocking(move || build(&name, &config)).await;
    made.map_err(|e| Refusal::new(Pause::Long, format!("the OPC UA client could not be set up: {e}")))?
}

fn build(name: &str, config: &OpcConnection) -> Result<Client, Refusal> {
    let mut builder = ClientBuilder::new()
        .application_name("plant host")
        .application_uri(APPLICATION_URI)
        .product_uri(APPLICATION_URI)
        .session_name(format!("plant host, {name}"))
        .pki_dir(&config.pki)
        .create_sample_keypair(false)
        .trust_server_certs(false)
        .session_retry_limit(0)
        .recreate_subscriptions(false)
        .keep_alive_interval(KEEP_ALIVE)
        .max_failed_keep_alive_count(2)
        // Long, so that a session which a slow server makes is known, and can be closed; `answered` is for all the other requests.
        .request_timeout(config.connect + GRACE)
        // Never before a slow server publishes: it would answer a request that is forgotten here. Its silence is watched in any case.
        .publish_timeout(PUBLISH_WITHIN)
        .session_timeout(u32::try_from(GRACE.as_millis()).unwrap_or(u32::MAX))
        .channel_lifetime(TOKEN_LIFETIME_MS)
        // What is longer than the library allows ends the connection, with all that is read through it: a picture may fail alone.
        .max_array_length(1_000_000)
        .max_string_length(LARGEST_MESSAGE)
        .max_byte_string_length(LARGEST_MESSAGE)
        .max_message_size(LARGEST_MESSAGE)
        .max_chunk_count(LARGEST_MESSAGE / SMALLEST_CHUNK);
    if config.security != Security::None {
        let own = pki::own(config).map_err(|reason| Refusal::new(Pause::Long, reason))?;
        builder = builder.certificate_path(own.certificate).private_key_path(own.key);
    }
    builder
        .client()
        .map_err(|e| Refusal::new(Pause::Long, format!("the OPC UA client could not be set up: {}", e.join(", "))))
}

/// What the server offers that is wanted, with a certificate that is trusted.
async fn endpoint(client: &Client, config: &OpcConnection) -> Result<EndpointDescription, Refusal> {
    let offered =
        client.get_server_endpoints_from_url(config.endpoint.as_str()).await.map_err(|e| explain(&e, config))?;
    let endpoint = choose(offered, config)?;
    if config.security != Security::None {
        let store = client.certificate_store().read();
        pki::check_server(&store, &endpoint, config).map_err(|reason| Refusal::new(Pause::Long, reason))?;
    }
    Ok(endpoint)
}

pub(super) async fn dial(client: Client, config: &OpcConnection, channel: Channel) -> Result<Open, Refusal> {
    let endpoint = endpoint(&client, config).await?;
    let token = match &config.user {
        Some((user, password)) => IdentityToken::new_user_name(user, password.as_str()),
        None => IdentityToken::Anonymous,
    };
    let how = describe(config);
    let (session, events) = client
        .session_builder()
        .with_connector(channel)
        .connect_to_endpoint_directly(endpoint)
        .and_then(|builder| builder.user_identity_token(token).build(client.certificate_store().clone()))
        .map_err(|e| explain(&e, config))?;
    let (signs_in, signs) = mpsc::unbounded_channel();
    let mut driver = tokio::spawn(async move {
        let events = events.enter();
        tokio::pin!(events);
        loop {
            let sign = match events.next().await {
                None => break StatusCode::BadConnectionClosed,
                // Not polled again, the event loop does not reconnect.
                Some(
                    Err(status)
                    | Ok(SessionPollResult::ConnectionLost(status) | SessionPollResult::ReconnectFailed(status)),
                ) => break status,
                Some(Ok(SessionPollResult::SessionActivity(SessionActivity::KeepAliveSucceeded))) => Sign::Alive,
                Some(Ok(SessionPollResult::SessionActivity(SessionActivity::KeepAliveFailed(status)))) => {
                    Sign::Trouble("a keep-alive", status)
                }
                Some(Ok(SessionPollResult::Subscription(
                    SubscriptionActivity::PublishFailed(status) | SubscriptionActivity::FatalFailure(status),
                ))) => Sign::Trouble("a publish request", status),
                Some(Ok(_)) => continue,
            };
            // Nobody listens any more: the session is being closed.
            let _ = signs_in.send(sign);
        }
    });
    let abort = AbortOnDrop(driver.abort_handle());
    let connected = tokio::select! {
        ended = &mut driver => Err(ended.unwrap_or(StatusCode::BadUnexpectedError)),
        connected = session.wait_for_connection() => if connected { Ok(()) } else { Err(StatusCode::BadConnectionClosed) },
    };
    connected.map_err(|status| explain(&Error::new(status, "connecting"), config))?;
    let (namespaces, limits) = (Arc::default(), Arc::default());
    let mut open = Open { session, namespaces, limits, how, signs, driver, _abort: abort };
    match self::namespaces(&open.session).await {
        Ok(namespaces) => open.namespaces = Arc::new(namespaces),
        Err(e) => {
            open.close().await;
            return Err(explain(&e, config));
        }
    }
    open.limits = Arc::new(Limits::of(&open.session).await);
    Ok(open)
}

impl Open {
    /// Waits until the session ends by itself, and says why; calls `alive` at each sign of life.
    pub async fn ended(&mut self, alive: impl Fn()) -> String {
        let mut trouble = None;
        // Counted, not measured: a process that stood still has missed no answer.
        let mut unanswered = 0;
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = seconds.tick() => {
                    unanswered += 1;
                    if unanswered > DEAD_AFTER {
                        return format!("the server has not answered for {DEAD_AFTER} s");
                    }
                }
                ended = &mut self.driver => {
                    let status = ended.unwrap_or(StatusCode::BadUnexpectedError);
                    return match trouble {
                        Some((what, status)) => format!("the connection ended after {what} failed: {status}"),
                        None => format!("the connection ended: {status}"),
                    };
                }
                Some(sign) = self.signs.recv() => match sign {
                    Sign::Alive => {
                        trouble = None;
                        unanswered = 0;
                        alive();
                    }
                    Sign::Trouble(what, status) => trouble = Some((what, status)),
                }
            }
        }
    }

    /// Closes the session with its subscriptions, within a second; a server that does not answer keeps them until they time out.
    pub async fn close(self) {
        if self.driver.is_finished() {
            return;
        }
        let _ = timeout(CLOSE_WITHIN, self.session.disconnect()).await;
    }

    /// Closes a session that nobody waited for any more.
    pub(super) async fn close_late(self) {
        let _ = timeout(CLOSE_LATE_WITHIN, self.session.disconnect()).await;
    }
}

/// The server's namespaces by index, read anew: their order may have changed since the last time.
pub(super) async fn namespaces(session: &Session) -> Result<Vec<String>, Error> {
    let node = ReadValueId::new_value(VariableId::Server_NamespaceArray.into());
    let read = session.read(&[node], TimestampsToReturn::Neither, 0.0).await?;
    match read.into_iter().next().and_then(|data| data.value) {
        Some(Variant::Array(array)) => Ok(array
            .values
            .iter()
            .map(|value| match value {
                Variant::String(uri) => uri.as_ref().to_owned(),
                _ => String::new(),
            })
            .collect()),
        _ => Ok(vec![UA.to_owned()]),
    }
}

fn policy(security: Security) -> (SecurityPolicy, MessageSecurityMode) {
    match security {
        Security::None => (SecurityPolicy::None, MessageSecurityMode::None),
        Security::Basic256Sha256 => (SecurityPolicy::Basic256Sha256, MessageSecurityMode::SignAndEncrypt),
        Security::Aes256Sha256RsaPss => (SecurityPolicy::Aes256Sha256RsaPss, MessageSecurityMode::SignAndEncrypt),
    }
}

fn describe(config: &OpcConnection) -> String {
    let secured = match config.security {
        Security::None => "not encrypted".to_owned(),
        other => format!("signed and encrypted, {}", policy(other).0),
    };
    match &config.user {
        Some((user, _)) => format!("{secured}, as user {user}"),
        None => format!("{secured}, anonymous"),
    }
}

/// The endpoint with the wanted security, under the address that reached the server: what it calls itself may be a name that only
/// it knows.
fn choose(offered: Vec<EndpointDescription>, config: &OpcConnection) -> Result<EndpointDescription, Refusal> {
    let (wanted, mode) = policy(config.security);
    let is = |e: &EndpointDescription| {
        e.security_mode == mode
            && SecurityPolicy::from_uri(e.security_policy_uri.as_ref()) == wanted
            && (e.transport_profile_uri.is_empty() || e.transport_profile_uri.as_ref().ends_with("uatcp-uasc-uabinary"))
    };
    let token = if config.user.is_some() { UserTokenType::UserName } else { UserTokenType::Anonymous };
    let (fit, others): (Vec<_>, Vec<_>) = offered.into_iter().partition(is);
    if fit.is_empty() {
        let mut seen: Vec<String> = others
            .iter()
            .map(|e| format!("{} {}", SecurityPolicy::from_uri(e.security_policy_uri.as_ref()), e.security_mode))
            .collect();
        seen.dedup();
        return Err(Refusal::new(
            Pause::Long,
            format!(
                "{} does not offer security {wanted} {mode}; it offers {}: set `security` to one of them",
                config.endpoint,
                seen.join(", ")
            ),
        ));
    }
    let takes = |e: &EndpointDescription| e.user_identity_tokens.iter().flatten().any(|t| t.token_type == token);
    match fit.into_iter().find(takes) {
        Some(mut endpoint) => {
            endpoint.endpoint_url = config.endpoint.as_str().into();
            Ok(endpoint)
        }
        None if config.user.is_some() => Err(Refusal::new(
            Pause::Long,
            format!("{} takes no user and password with this security: leave `user` out", config.endpoint),
        )),
        None => {
            Err(Refusal::new(Pause::Long, format!("{} wants a user: set `user` and `password_env`", config.endpoint)))
        }
    }
}

/// One sentence for a failure, and how long to wait after it.
fn explain(error: &Error, config: &OpcConnection) -> Refusal {
    let endpoint = &config.endpoint;
    let (pause, reason) = match error.status() {
        StatusCode::BadIdentityTokenRejected
        | StatusCode::BadUserAccessDenied
        | StatusCode::BadIdentityTokenInvalid => {
            let who =
                config.user.as_ref().map_or("an anonymous user".to_owned(), |(user, _)| format!("the user {user:?}"));
            (Pause::Long, format!("{endpoint} refused {who}: check `user` and its password"))
        }
        StatusCode::BadSecurityChecksFailed
        | StatusCode::BadCertificateUntrusted
        | StatusCode::BadCertificateInvalid => {
            let own = own_certificate(&config.pki, config.certificate.as_deref());
            (
                Pause::Long,
                format!(
                    "{endpoint} does not trust this host: have it trust the certificate {own} ({})",
                    error.status()
                ),
            )
        }
        StatusCode::BadTcpEndpointUrlInvalid | StatusCode::BadInvalidArgument => (
            Pause::Short,
            format!("{endpoint} is not reachable: its name is unknown or it is no address like opc.tcp://host:4840"),
        ),
        StatusCode::BadCommunicationError => {
            (Pause::Short, format!("{endpoint} is not reachable: is the server running and the port right?"))
        }
        StatusCode::BadTooManySessions
        | StatusCode::BadTcpNotEnoughResources
        | StatusCode::BadMaxConnectionsReached => {
            (Pause::Busy, format!("{endpoint} has no free session: close another client's ({})", error.status()))
        }
        status => (Pause::Short, format!("{endpoint} could not be connected to: {status}")),
    };
    Refusal::new(pause, reason)
}

fn own_certificate(pki: &Path, configured: Option<&Path>) -> String {
    configured.map_or_else(|| pki.join(pki::OWN_CERTIFICATE), Path::to_path_buf).display().to_string()
}
