//! The HTTP side of a node: its listener, taken before anything else starts, and its task.

use std::io;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::StartError;
use crate::api::{self, AppState};
use crate::config::Serve;

/// Takes the address, so that a node whose address is taken does nothing at all.
pub(super) async fn listen(serve: &Serve) -> Result<TcpListener, StartError> {
    let address = format!("{}:{}", serve.bind, serve.api_port);
    TcpListener::bind(&address).await.map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "another process listens there: choose another with `--api-port`, or end that process"
            }
            io::ErrorKind::PermissionDenied => {
                "this user may not listen there: choose a port above 1023 with `--api-port`"
            }
            _ => "check `serve.bind` and `serve.api_port`",
        };
        StartError::Failed(format!("cannot serve on {address} ({error}): {advice}"))
    })
}

/// The running HTTP side.
pub(super) struct Serving(JoinHandle<io::Result<()>>);

impl Serving {
    pub(super) fn start(listener: TcpListener, state: AppState, stop: CancellationToken) -> Self {
        Self(tokio::spawn(api::serve(listener, state, stop)))
    }

    /// Returns when it has failed; an end that was asked for is none.
    pub(super) async fn failed(&mut self) -> io::Error {
        match (&mut self.0).await {
            Ok(Err(error)) => error,
            Ok(Ok(())) => std::future::pending().await,
            Err(error) => io::Error::other(error),
        }
    }

    /// Waits until it has ended after its stop.
    pub(super) async fn ended(self) {
        if let Ok(Err(error)) = self.0.await {
            tracing::warn!(%error, "the HTTP side did not end well");
        }
    }
}
