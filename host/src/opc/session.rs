//! Keeps one connection alive for as long as its instance lives.
//!
//! The client library's own reconnect never delivers data again, so each session here lives once: when it is lost, a new one is opened
//! after a pause, and its fresh subscriptions deliver the present value of every item. It never gives up, and it never hammers: a
//! server that refused the user is asked twice a minute, because every try may cost it a session.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::attempt::Attempt;
use super::connect::{self, Pause, Refusal};
use super::link::{Link, Live};
use super::subscription::Subscriptions;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// After the server said that it is full.
const BUSY_PAUSE: Duration = Duration::from_secs(5);
/// After the server said that it does not want us, or we do not trust it.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
/// A session that lived so long was no failed try.
const HEALTHY: Duration = Duration::from_secs(10);

/// Connects, subscribes and reconnects until `closed`.
pub(super) async fn supervise(link: Arc<Link>, closed: CancellationToken) {
    let mut backoff = FIRST_PAUSE;
    loop {
        let pause = tokio::select! {
            () = closed.cancelled() => return,
            attempt = Box::pin(attempt(&link)) => match attempt {
                Ok(open) => {
                    let began = Instant::now();
                    if serve(&link, open, &closed).await.is_break() {
                        return;
                    }
                    if began.elapsed() > HEALTHY {
                        backoff = FIRST_PAUSE;
                    }
                    Pause::Short
                }
                Err(pause) => pause,
            }
        };
        let pause = match pause {
            Pause::Short => {
                let pause = backoff;
                backoff = (backoff * 2).min(LONGEST_PAUSE);
                pause
            }
            Pause::Busy => BUSY_PAUSE,
            Pause::Long => REFUSED_PAUSE,
        };
        tokio::select! {
            () = closed.cancelled() => return,
            () = sleep(jittered(pause)) => {}
        }
    }
}

/// One try; what it refused is said at once, and this returns when nothing is left of it on the server.
async fn attempt(link: &Link) -> Result<connect::Open, Pause> {
    let refused = |Refusal { reason, pause }| {
        warn!(connection = link.name, %reason, "OPC UA connection failed");
        link.down(reason);
        pause
    };
    let mut attempt = Attempt::begin(&link.name, &link.config).await.map_err(refused)?;
    match attempt.opened().await {
        Ok(open) => Ok(open),
        Err(refusal) => {
            let pause = refused(refusal);
            attempt.over().await;
            Err(pause)
        }
    }
}

/// One session, from its first sample to its end.
async fn serve(link: &Arc<Link>, mut open: connect::Open, closed: &CancellationToken) -> std::ops::ControlFlow<()> {
    info!(connection = link.name, endpoint = link.config.endpoint, "OPC UA connection is up");
    let live = Live::new(open.session.clone(), open.namespaces.clone(), open.limits.clone());
    link.up(live.clone(), open.how.clone());
    let mut subscriptions = Subscriptions::new(link.clone(), live);
    let reason = tokio::select! {
        () = closed.cancelled() => None,
        reason = open.ended(|| link.hear()) => Some(reason),
        reason = Box::pin(subscriptions.run()) => Some(reason),
    };
    if let Some(reason) = &reason {
        // What was received before the end was said by the machine, and comes before the news that it is gone.
        subscriptions.deliver_rest();
        warn!(connection = link.name, %reason, "OPC UA connection is lost");
        link.down(reason.clone());
    }
    open.close().await;
    match reason {
        Some(_) => std::ops::ControlFlow::Continue(()),
        None => std::ops::ControlFlow::Break(()),
    }
}

/// A quarter more or less, so that the nodes of a plant do not come back in step.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.75 + fastrand::f64() / 2.0)
}
