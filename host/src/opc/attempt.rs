//! One try to open a session, which leaves nothing behind on the server.
//!
//! A small PLC has ten sessions or fewer, and needs seconds for the cryptography of one. Whoever gives up in the middle and goes leaves a
//! session there that only its time-out ends, and a host that tries again and again fills the PLC with them. So a try that has come so far
//! that the server may have a session is brought to its end in the background, within a time in which the server would have ended the
//! session by itself, and what it opened is closed. There is no next try before that.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::channel::Channel;
use super::connect::{self, Open, Pause, Refusal};
use crate::config::OpcConnection;

/// How much longer than its deadline a try may take to come to its end: the time-out of the sessions that are asked for.
pub(super) const GRACE: Duration = Duration::from_secs(20);

/// A try under way. Dropping it gives it up.
pub(super) struct Attempt {
    opened: oneshot::Receiver<Result<Open, Refusal>>,
    task: JoinHandle<()>,
    channel: Channel,
    endpoint: String,
    within: Duration,
}

impl Attempt {
    /// Begins to dial; the time that a first key pair takes does not count.
    ///
    /// # Errors
    /// Why this host can not.
    pub(super) async fn begin(name: &str, config: &OpcConnection) -> Result<Self, Refusal> {
        let client = connect::client(name, config).await?;
        let channel = Channel::default();
        let (tell, opened) = oneshot::channel();
        let (dialed, within, endpoint) = (config.clone(), config.connect, config.endpoint.clone());
        let of_task = channel.clone();
        let task = tokio::spawn(async move {
            let dialing = Box::pin(connect::dial(client, &dialed, of_task));
            let Ok(result) = timeout(within + GRACE, dialing).await else { return };
            if let Err(Ok(unwanted)) = tell.send(result) {
                unwanted.close_late().await;
            }
        });
        Ok(Self { opened, task, channel, endpoint, within })
    }

    /// The session, when it is open within the deadline; else why not.
    pub(super) async fn opened(&mut self) -> Result<Open, Refusal> {
        if let Ok(told) = timeout(self.within, &mut self.opened).await {
            return told.unwrap_or_else(|_| Err(self.too_late()));
        }
        self.give_up();
        // It may have been opened at this moment.
        self.opened.try_recv().unwrap_or_else(|_| Err(self.too_late()))
    }

    /// Waits until nothing of it is left.
    pub(super) async fn over(mut self) {
        // It was given up, and ends one way or another.
        let _ = (&mut self.task).await;
    }

    fn give_up(&mut self) {
        self.opened.close();
        if !self.channel.was_opened() {
            self.task.abort();
        }
    }

    fn too_late(&self) -> Refusal {
        let (endpoint, seconds) = (&self.endpoint, self.within.as_secs_f64());
        let reason = match self.channel.was_opened() {
            true => {
                format!("{endpoint} did not open a session within {seconds} s: `connect` gives a slow server longer")
            }
            false => connect::silent(endpoint, self.within),
        };
        Refusal::new(Pause::Short, reason)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.give_up();
        if let Ok(Ok(unwanted)) = self.opened.try_recv()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(unwanted.close_late());
        }
    }
}
