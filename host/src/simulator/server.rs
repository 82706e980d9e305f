//! The OPC UA server's life: it listens, goes away on demand as if its PLC had lost power, and comes back on the same port.
//!
//! Each life is a new server with new sessions and subscriptions; only the board and the port outlive it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opcua::server::{ANONYMOUS_USER_TOKEN_ID, Limits, Server, ServerBuilder, ServerEndpoint, SubscriptionCache};
use tokio::net::{TcpListener, TcpSocket, lookup_host};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::SimulatorError;
use super::address::Address;
use super::board::Board;
use super::nodes::Nodes;

const BACKLOG: u32 = 128;
/// Clients of the contract's configuration ask for this path.
const PLANT_PATH: &str = "/plant";
/// How often subscriptions are looked at, in milliseconds; nobody is published to faster.
const POLL_MS: u64 = 20;
/// The library wants a directory for certificates and makes it where it can. Without security there is nothing to keep, and this is
/// a place where none can be made.
const NO_PKI: &str = "/dev/null/none";

/// The OPC UA side, as the rest of the simulator sees it.
pub struct OpcServer {
    address: Address,
    socket: SocketAddr,
    board: Arc<Board>,
    life: Mutex<Option<Life>>,
    orders: mpsc::Sender<Order>,
}

/// Go away for so long; `gone` is answered when nobody can connect any more.
struct Order {
    down: Duration,
    gone: oneshot::Sender<()>,
}

#[derive(Clone)]
struct Life {
    nodes: Arc<Nodes>,
    subscriptions: Arc<SubscriptionCache>,
}

/// What `OpcServer::serve` needs; made by `OpcServer::bind`.
pub struct Bound {
    listener: TcpListener,
    orders: mpsc::Receiver<Order>,
}

impl OpcServer {
    /// Takes the port. Clients that connect are answered once `serve` runs.
    ///
    /// # Errors
    /// When the address cannot be resolved or is in use.
    pub async fn bind(mut address: Address, board: Arc<Board>) -> Result<(Self, Bound), SimulatorError> {
        let refused = |source| SimulatorError::Listen { address: address.to_string(), source };
        let socket = lookup_host((address.host.as_str(), address.port)).await.map_err(refused)?.next();
        let nowhere = || refused(std::io::Error::new(std::io::ErrorKind::AddrNotAvailable, "the host has no address"));
        let listener = reserve(socket.ok_or_else(nowhere)?).and_then(|s| s.listen(BACKLOG)).map_err(refused)?;
        let socket = listener.local_addr().map_err(refused)?;
        address.port = socket.port();
        let (orders, received) = mpsc::channel(8);
        Ok((Self { address, socket, board, life: Mutex::new(None), orders }, Bound { listener, orders: received }))
    }

    /// Where clients find it, with the real port.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Whether it is there for clients.
    #[must_use]
    pub fn up(&self) -> bool {
        self.life().is_some()
    }

    /// Serves until the simulator ends.
    ///
    /// # Errors
    /// When the server ends by itself, or does not get its port back.
    pub async fn serve(self: Arc<Self>, bound: Bound) -> Result<(), SimulatorError> {
        let Bound { mut listener, mut orders } = bound;
        let (mut server, mut life) = self.build().await?;
        loop {
            *self.life.lock().unwrap_or_else(PoisonError::into_inner) = Some(life);
            // Dropped with the branch that loses: the listener closes, and so do the connections, which hear of it.
            let order = tokio::select! {
                ended = Box::pin(server.run_with(listener)) => return Err(SimulatorError::Server(ended.err().unwrap_or_default())),
                order = orders.recv() => order,
            };
            *self.life.lock().unwrap_or_else(PoisonError::into_inner) = None;
            let Some(order) = order else { return Ok(()) };
            let lost = |source| SimulatorError::Listen { address: self.address.to_string(), source };
            // Bound and not listening: connections are refused, and nobody else gets the port.
            let socket = reserve(self.socket).map_err(lost)?;
            self.stay_down(order, &mut orders).await;
            (server, life) = self.build().await?;
            listener = socket.listen(BACKLOG).map_err(lost)?;
            info!("the OPC UA server is back");
        }
    }

    /// Makes the server go away for so long; returns when it is gone. While it is away, the time begins anew.
    pub async fn go_away(&self, down: Duration) {
        let (gone, heard) = oneshot::channel();
        // Neither fails before the simulator ends, and then it is away anyhow.
        if self.orders.send(Order { down, gone }).await.is_ok() {
            let _ = heard.await;
        }
    }

    /// Tells subscribers what the nodes at these positions show.
    pub fn tell(&self, positions: impl Iterator<Item = usize> + Clone) {
        if let Some(life) = self.life() {
            life.nodes.tell(&life.subscriptions, positions);
        }
    }

    fn life(&self) -> Option<Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn stay_down(&self, order: Order, orders: &mut mpsc::Receiver<Order>) {
        info!("the OPC UA server goes away for {} ms", order.down.as_millis());
        let mut next = Some(order);
        let mut until = Instant::now();
        loop {
            if let Some(Order { down, gone }) = next.take() {
                until = Instant::now() + down;
                // Whoever asked may not wait for the answer.
                let _ = gone.send(());
            }
            tokio::select! {
                () = sleep_until(until) => return,
                Some(order) = orders.recv() => next = Some(order),
            }
        }
    }

    async fn build(&self) -> Result<(Server, Life), SimulatorError> {
        let (address, board) = (self.address.clone(), self.board.clone());
        // The standard's own nodes are many: tenths of a second in a debug build.
        let built = tokio::task::spawn_blocking(move || build(&address, board)).await;
        built.map_err(|e| SimulatorError::Server(e.to_string()))?
    }
}

fn reserve(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of the server's last life may still be closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn build(address: &Address, board: Arc<Board>) -> Result<(Server, Life), SimulatorError> {
    let mut builder = ServerBuilder::new()
        .application_name("simulated bottling line")
        .application_uri("urn:plant:simulator:server")
        .product_uri("urn:plant:simulator:server")
        .host(&address.host)
        .port(address.port)
        .pki_dir(NO_PKI)
        .discovery_urls(vec!["/".to_owned()])
        .subscription_poll_interval_ms(POLL_MS)
        .max_sessions(200)
        .with_node_manager(Nodes::builder(board));
    for path in ["/", PLANT_PATH, address.path.as_str()].into_iter().filter(|path| !path.is_empty()) {
        builder = builder.add_endpoint(path, ServerEndpoint::new_none(path, &[ANONYMOUS_USER_TOKEN_ID.to_owned()]));
    }
    allow_many(builder.limits_mut());
    // The library logs an error for the key pair that it does not find and does not need.
    let built = tracing::subscriber::with_default(tracing::subscriber::NoSubscriber::default(), || builder.build());
    let (server, handle) = built.map_err(SimulatorError::Server)?;
    let nodes = handle.node_managers().get_of_type::<Nodes>();
    let nodes = nodes.ok_or_else(|| SimulatorError::Server("it has lost its nodes".to_owned()))?;
    Ok((server, Life { nodes, subscriptions: handle.subscriptions().clone() }))
}

/// The library's defaults are a small PLC's: 1,000 items, ten values waiting, 100 ms.
#[expect(clippy::cast_precision_loss, reason = "a few milliseconds")]
fn allow_many(limits: &mut Limits) {
    limits.subscriptions.min_publishing_interval_ms = POLL_MS as f64;
    limits.subscriptions.min_sampling_interval_ms = 1.0;
    limits.subscriptions.max_monitored_items_per_sub = 200_000;
    limits.subscriptions.max_monitored_item_queue_size = 1_000;
    limits.subscriptions.max_queued_notifications = 500;
    limits.operational.max_monitored_items_per_call = 10_000;
    limits.operational.max_references_per_browse_node = 10_000;
}
