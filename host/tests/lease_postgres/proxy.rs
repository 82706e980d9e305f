//! A cable between a node and its database, which can be cut without telling either end.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Proxy {
    address: SocketAddr,
    silent: watch::Sender<bool>,
}

impl Proxy {
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let silent = watch::Sender::new(false);
        let state = silent.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(carry(from_client, to_server, state.subscribe()));
                tokio::spawn(carry(from_server, to_client, state.subscribe()));
            }
        });
        Self { address, silent }
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address)
    }

    /// From now on nothing comes through; what was sent waits.
    pub fn freeze(&self) {
        self.silent.send_replace(true);
    }

    pub fn thaw(&self) {
        self.silent.send_replace(false);
    }
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut silent: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if silent.wait_for(|silent| !silent).await.is_err() || read == 0 || to.write_all(&buffer[..read]).await.is_err()
        {
            return;
        }
    }
}
