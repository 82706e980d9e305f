//! An alert as the body of a POST.

use std::thread;

use async_trait::async_trait;
use tokio::sync::oneshot;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, http};

use super::{Channel, PATIENCE, SendError};
use crate::alert::Alert;

/// A receiver of POSTs. Any 2xx is its receipt; a redirection is none.
pub(super) struct Webhook {
    url: String,
    agent: Agent,
}

impl Webhook {
    pub(super) fn new(url: &str) -> Self {
        let limits =
            Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false).max_redirects(0);
        let limits = if url.starts_with("https://") { limits.tls_config(trusting_the_system()) } else { limits };
        Self { url: url.to_owned(), agent: Agent::new_with_config(limits.build()) }
    }
}

/// Trusts what this box trusts: a site may have an authority of its own. Where the box has nothing, what browsers trust.
fn trusting_the_system() -> TlsConfig {
    let found = rustls_native_certs::load_native_certs().certs;
    let roots: Vec<Certificate<'static>> = found.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    let roots = if roots.is_empty() { RootCerts::WebPki } else { RootCerts::new_with_certs(&roots) };
    TlsConfig::builder().root_certs(roots).build()
}

#[async_trait]
impl Channel for Webhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    async fn send(&self, alert: &Alert) -> Result<(), SendError> {
        let body = serde_json::to_string(alert).map_err(|error| SendError(error.to_string()))?;
        let (answer, answered) = oneshot::channel();
        let (agent, url) = (self.agent.clone(), self.url.clone());
        // A thread of its own, and none of the runtime's: the end of a process would wait for that one.
        let posting = move || {
            // Whoever asked may have given up.
            let _ = answer.send(post(&agent, &url, &body));
        };
        let started = thread::Builder::new().name("alert-webhook".to_owned()).spawn(posting);
        started.map_err(|error| SendError(format!("the system gives no thread: {error}")))?;
        answered.await.unwrap_or_else(|_| Err(SendError("the thread that posts it has ended".to_owned())))
    }
}

fn post(agent: &Agent, url: &str, body: &str) -> Result<(), SendError> {
    let asked = agent.post(url).header(http::header::CONTENT_TYPE, "application/json").send(body);
    let answer = asked.map_err(|error| match error {
        // It would show the address, which may have a secret in it.
        ureq::Error::BadUri(_) => SendError("its address cannot be used".to_owned()),
        error => SendError(format!("the receiver cannot be reached: {error}")),
    })?;
    let status = answer.status();
    if status.is_success() { Ok(()) } else { Err(SendError(format!("the receiver answered {status}"))) }
}
