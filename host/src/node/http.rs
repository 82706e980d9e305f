//! The HTTP side of a process: its listener, taken before anything else starts, and its task.
//!
//! It outlives the boots of a node. While one boot ends and the next one starts, requests are answered from what the old one knew:
//! people are refused at no moment.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::StartError;
use crate::api::{self, AppState};
use crate::config::Serve;

/// The HTTP side of a process, from its first boot to the end of its last.
pub struct Front {
    address: SocketAddr,
    listener: Option<TcpListener>,
    now: Arc<Mutex<Option<Router>>>,
    stop: CancellationToken,
    serving: Option<JoinHandle<io::Result<()>>>,
}

impl Front {
    /// Takes the address, so that a process whose address is taken does nothing at all. Serves nothing yet.
    pub(super) async fn listen(serve: &Serve) -> Result<Self, StartError> {
        let address = format!("{}:{}", serve.bind, serve.api_port);
        let listener = TcpListener::bind(&address).await.map_err(|error| {
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
        })?;
        let address = listener.local_addr().map_err(|error| StartError::Failed(error.to_string()))?;
        let (now, stop) = (Arc::default(), CancellationToken::new());
        Ok(Self { address, listener: Some(listener), now, stop, serving: None })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers from this boot from now on.
    pub(super) fn show(&mut self, state: AppState) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = Some(api::app(state));
        if let Some(listener) = self.listener.take() {
            let now = self.now.clone();
            let current = move || now.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
            self.serving = Some(tokio::spawn(api::serve(listener, current, self.stop.clone())));
        }
    }

    /// Returns when it has failed; an end that was asked for is none.
    pub(super) async fn failed(&mut self) -> io::Error {
        let Some(serving) = &mut self.serving else { return std::future::pending().await };
        match serving.await {
            Ok(Err(error)) => error,
            Ok(Ok(())) => std::future::pending().await,
            Err(error) => io::Error::other(error),
        }
    }

    /// Lets running requests end, within a bound.
    pub async fn end(self) {
        self.stop.cancel();
        if let Some(serving) = self.serving
            && let Ok(Err(error)) = serving.await
        {
            tracing::warn!(%error, "the HTTP side did not end well");
        }
    }
}
