//! A pooler in transaction mode, as small as one can be: every client speaks with the same backend of a real server, and has it to
//! itself only while it is in a transaction. It knows simple queries, which is all that is said before a pooler is found out.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinHandle;

pub struct TransactionPooler {
    port: u16,
    accepting: JoinHandle<()>,
}

struct Backend {
    stream: TcpStream,
    /// What the server said when the session was opened; empty before.
    greeting: Vec<u8>,
}

impl TransactionPooler {
    pub async fn before(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
        let backend = Arc::new(Mutex::new(Backend { stream, greeting: Vec::new() }));
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let backend = backend.clone();
                // A client that hangs up ends its own task only.
                tokio::spawn(async move { serve(client, backend).await.ok() });
            }
        });
        Self { port, accepting }
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres?sslmode=disable", self.port)
    }
}

impl Drop for TransactionPooler {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut client: TcpStream, backend: Arc<Mutex<Backend>>) -> std::io::Result<()> {
    let length = client.read_u32().await?;
    let mut startup = length.to_be_bytes().to_vec();
    startup.resize(usize::try_from(length).unwrap(), 0);
    client.read_exact(&mut startup[4..]).await?;
    let mut opening = backend.clone().lock_owned().await;
    if opening.greeting.is_empty() {
        opening.stream.write_all(&startup).await?;
        let (greeting, _) = until_ready(&mut opening.stream).await?;
        opening.greeting = greeting;
    }
    client.write_all(&opening.greeting).await?;
    drop(opening);
    let mut mine: Option<OwnedMutexGuard<Backend>> = None;
    loop {
        let query = message(&mut client).await?;
        if query.first() == Some(&b'X') {
            return Ok(());
        }
        let mut backend = match mine.take() {
            Some(mine) => mine,
            None => backend.clone().lock_owned().await,
        };
        backend.stream.write_all(&query).await?;
        let (answer, status) = until_ready(&mut backend.stream).await?;
        client.write_all(&answer).await?;
        mine = (status != b'I').then_some(backend);
    }
}

/// One message: its type, its length, its body.
async fn message(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![stream.read_u8().await?];
    let length = stream.read_u32().await?;
    bytes.extend(length.to_be_bytes());
    bytes.resize(1 + usize::try_from(length).unwrap(), 0);
    stream.read_exact(&mut bytes[5..]).await?;
    Ok(bytes)
}

/// Everything up to ReadyForQuery, and the transaction's status in it.
async fn until_ready(stream: &mut TcpStream) -> std::io::Result<(Vec<u8>, u8)> {
    let mut all = Vec::new();
    loop {
        let one = message(stream).await?;
        all.extend_from_slice(&one);
        if one[0] == b'Z' {
            return Ok((all, one[5]));
        }
    }
}
