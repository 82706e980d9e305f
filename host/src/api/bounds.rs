//! How long and how much: the bounds that keep a hostile or broken client from costing others anything.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// The longest body of a request, in bytes.
pub(super) const BODY: usize = 64 << 10;
/// The longest that a request may take in all.
pub(super) const REQUEST: Duration = Duration::from_secs(5);
/// The longest that a question to the database may take.
pub(super) const QUESTION: Duration = Duration::from_secs(1);
/// How long running requests may go on when the node stops.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// Connections at one time; more wait to be accepted.
const CONNECTIONS: usize = 256;
/// A connection on which nothing is sent or received for so long is closed.
const IDLE: Duration = Duration::from_secs(30);

/// A listener with a bound on its connections and on their silence.
pub(super) struct Bounded {
    listener: TcpListener,
    free: Arc<Semaphore>,
}

impl Bounded {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, free: Arc::new(Semaphore::new(CONNECTIONS)) }
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // The semaphore is never closed, so that a permit is missing only if that changes: then nothing is bounded, and all is served.
        let permit = self.free.clone().acquire_owned().await.ok();
        let (stream, from) = Listener::accept(&mut self.listener).await;
        (Connection { stream, silence: Box::pin(sleep(IDLE)), _permit: permit }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// One connection, which ends by itself when it falls silent.
pub(super) struct Connection {
    stream: TcpStream,
    silence: Pin<Box<Sleep>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// Whatever moves starts the silence anew; whatever waits waits for its end too.
    fn watched<T>(&mut self, context: &mut Context<'_>, moved: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if moved.is_ready() {
            self.silence.as_mut().reset(Instant::now() + IDLE);
            return moved;
        }
        match self.silence.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let moved = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.watched(cx, moved)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let moved = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watched(cx, moved)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
