//! The cable between a node and its database: it carries bytes, and can be cut, slowed and mended while both ends believe in it.
//!
//! A cut tells nobody: sockets stay open, what was sent waits, and new connections are accepted by the kernel and lead nowhere. That is what a
//! pulled cable looks like from both ends, without any right to change the machine's network.

use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// How much is carried at once.
const CHUNK: usize = 16 << 10;
/// Before accepting is tried again, when the process has no more file descriptors.
const BREATHE: Duration = Duration::from_millis(50);

/// In what state a cable is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cable {
    /// It carries what comes.
    Whole,
    /// It carries nothing, and says nothing.
    Cut,
    /// It carries each chunk so much later.
    Slow(Duration),
}

/// One end of a cable; dropping it ends its connections.
pub struct Proxy {
    address: SocketAddr,
    accepting: AbortHandle,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and leads to `server`, as the `cable` allows.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn to(server: (String, u16), cable: watch::Receiver<Cable>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(accept(listener, server, cable)).abort_handle();
        Ok(Self { address, accepting })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: (String, u16), cable: watch::Receiver<Cable>) {
    // Dropped with this task, and with it every connection.
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                connections.spawn(connect(client, server.clone(), cable.clone()));
            }
            Err(_) => tokio::time::sleep(BREATHE).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connect(client: TcpStream, (host, port): (String, u16), mut cable: watch::Receiver<Cable>) {
    if passed(&mut cable).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect((host.as_str(), port)).await else { return };
    // Delays are to be those that were ordered. A socket that refuses the option is merely slower.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(carry(from_client, to_server, cable.clone()), carry(from_server, to_client, cable));
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut cable: watch::Receiver<Cable>) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        // Also an end does not come through a cut cable.
        if passed(&mut cable).await.is_err() {
            return;
        }
        let Some(chunk) = buffer.get(..read).filter(|chunk| !chunk.is_empty()) else { break };
        if to.write_all(chunk).await.is_err() {
            break;
        }
    }
    // The other end may have closed first.
    let _ = to.shutdown().await;
}

/// Returns when something may pass the cable; an error when nobody holds it any more.
async fn passed(cable: &mut watch::Receiver<Cable>) -> Result<(), watch::error::RecvError> {
    loop {
        let state = *cable.wait_for(|cable| *cable != Cable::Cut).await?;
        let Cable::Slow(delay) = state else { return Ok(()) };
        tokio::time::sleep(delay).await;
        if *cable.borrow() != Cable::Cut {
            return Ok(());
        }
    }
}

/// Where a store's URL leads, if a proxy can stand in between: not through a socket file, and not where the server's certificate must
/// bear its host's name.
#[must_use]
pub fn server_of(url: &str) -> Option<(String, u16)> {
    let options = PgConnectOptions::from_str(url).ok()?;
    let host = options.get_host().trim_matches(['[', ']']);
    let is_file = options.get_socket().is_some() || host.starts_with('/');
    let checks_name = matches!(options.get_ssl_mode(), PgSslMode::VerifyFull);
    (!is_file && !checks_name).then(|| (host.to_owned(), options.get_port()))
}

/// The same URL, leading to `address`; `None` where the URL says its host elsewhere than before its path.
#[must_use]
pub fn leading_to(url: &str, address: SocketAddr) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_at_checked(rest.find(['/', '?', '#']).unwrap_or(rest.len()))?;
    let login = authority.rsplit_once('@').map_or_else(String::new, |(login, _)| format!("{login}@"));
    let new = format!("{scheme}://{login}{address}{path}");
    (server_of(&new)? == (address.ip().to_string(), address.port())).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers everything with itself; its address and how many connections it has had.
    async fn echo() -> (SocketAddr, watch::Receiver<u32>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (count, counted) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                count.send_modify(|count| *count += 1);
                tokio::spawn(async move {
                    let (mut from, mut to) = client.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        (address, counted)
    }

    async fn ground() -> (Proxy, watch::Sender<Cable>, watch::Receiver<u32>) {
        let (server, counted) = echo().await;
        let cable = watch::Sender::new(Cable::Whole);
        let proxy = Proxy::to((server.ip().to_string(), server.port()), cable.subscribe()).await.unwrap();
        (proxy, cable, counted)
    }

    async fn answer(client: &mut TcpStream, length: usize) -> Vec<u8> {
        let mut answer = vec![0; length];
        tokio::time::timeout(Duration::from_secs(20), client.read_exact(&mut answer)).await.unwrap().unwrap();
        answer
    }

    /// What must not happen has no moment at which it has not happened.
    const A_WHILE: Duration = Duration::from_millis(100);

    async fn says_nothing(client: &mut TcpStream) {
        let mut byte = [0];
        assert!(tokio::time::timeout(A_WHILE, client.read(&mut byte)).await.is_err());
    }

    #[tokio::test]
    async fn what_is_sent_into_a_cut_cable_arrives_when_it_is_mended() {
        let (proxy, cable, _) = ground().await;
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        client.write_all(b"before").await.unwrap();
        assert_eq!(answer(&mut client, 6).await, b"before");

        cable.send_replace(Cable::Cut);
        client.write_all(b"during").await.unwrap();
        says_nothing(&mut client).await;
        cable.send_replace(Cable::Whole);
        assert_eq!(answer(&mut client, 6).await, b"during");
    }

    #[tokio::test]
    async fn a_connection_through_a_cut_cable_reaches_nobody() {
        let (proxy, cable, counted) = ground().await;
        cable.send_replace(Cable::Cut);
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        client.write_all(b"hello").await.unwrap();
        says_nothing(&mut client).await;
        assert_eq!(*counted.borrow(), 0);
        cable.send_replace(Cable::Whole);
        assert_eq!(answer(&mut client, 5).await, b"hello");
        assert_eq!(*counted.borrow(), 1);
    }

    #[tokio::test]
    async fn an_end_does_not_come_through_a_cut_cable() {
        let (proxy, cable, _) = ground().await;
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        client.write_all(b"x").await.unwrap();
        assert_eq!(answer(&mut client, 1).await, b"x");
        cable.send_replace(Cable::Cut);
        client.shutdown().await.unwrap();
        says_nothing(&mut client).await;
        cable.send_replace(Cable::Whole);
        let mut byte = [0];
        let end = tokio::time::timeout(Duration::from_secs(20), client.read(&mut byte)).await.unwrap();
        assert_eq!(end.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_slow_cable_takes_its_time_in_both_directions() {
        let (proxy, cable, _) = ground().await;
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        client.write_all(b"x").await.unwrap();
        assert_eq!(answer(&mut client, 1).await, b"x");
        let delay = Duration::from_millis(60);
        cable.send_replace(Cable::Slow(delay));
        let sent = std::time::Instant::now();
        client.write_all(b"y").await.unwrap();
        assert_eq!(answer(&mut client, 1).await, b"y");
        assert!(sent.elapsed() >= delay * 2, "{:?}", sent.elapsed());
    }

    #[test]
    fn a_url_leads_to_the_proxy_with_its_login_and_options() {
        let proxy = SocketAddr::from(([127, 0, 0, 1], 7000));
        let url = "postgres://plant:a%40b@db.example:5433/bottling?sslmode=disable";
        assert_eq!(server_of(url), Some(("db.example".to_owned(), 5433)));
        let wanted = "postgres://plant:a%40b@127.0.0.1:7000/bottling?sslmode=disable";
        assert_eq!(leading_to(url, proxy).as_deref(), Some(wanted));
        assert_eq!(server_of("postgres://plant@[::1]:5433/x"), Some(("::1".to_owned(), 5433)));
    }

    #[test]
    fn there_is_no_standing_before_a_socket_file_or_a_checked_name() {
        let proxy = SocketAddr::from(([127, 0, 0, 1], 7000));
        assert_eq!(server_of("postgres://plant@%2Frun%2Fpostgresql/x"), None);
        assert_eq!(server_of("postgres://plant@db.example/x?sslmode=verify-full"), None);
        assert_eq!(leading_to("postgres://plant@ignored/x?host=db.example", proxy), None);
    }
}
