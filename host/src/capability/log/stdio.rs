//! A guest's standard output and error: lines of its log.
//!
//! Languages print what a program has to say as it dies (a panic's message, a traceback) there, so it must not be lost.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};

use super::{Level, Log, MESSAGE_BYTES};

/// One stream of a guest; its lines are logged at one level.
#[derive(Debug, Clone)]
pub struct Lines {
    log: Arc<Log>,
    level: Level,
    // WASI hands out a stream as often as a guest asks; all of them write into one line.
    begun: Arc<Mutex<Vec<u8>>>,
}

impl Lines {
    /// A stream whose lines are logged at `level`.
    #[must_use]
    pub fn new(log: Arc<Log>, level: Level) -> Self {
        Self { log, level, begun: Arc::default() }
    }

    fn take(&self, bytes: &[u8]) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            begun.extend_from_slice(text);
            if ended || begun.len() > MESSAGE_BYTES {
                self.write(&mut begun);
            }
        }
    }

    fn write(&self, begun: &mut Vec<u8>) {
        let line = String::from_utf8_lossy(begun);
        if !line.trim().is_empty() {
            self.log.line(self.level, &line, &[]);
        }
        begun.clear();
    }
}

impl IsTerminal for Lines {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Lines {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }
}

impl AsyncWrite for Lines {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.take(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
