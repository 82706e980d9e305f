//! A receiver of webhooks that may refuse at first, and remembers what it was sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use crate::process::wait_until;

/// Nothing of one request takes this long unless its sender is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running receiver on a free port of 127.0.0.1; it ends when it is dropped.
pub struct Webhook {
    port: u16,
    got: Arc<Mutex<Got>>,
    ended: Arc<AtomicBool>,
}

#[derive(Default)]
struct Got {
    /// So many are still to be refused.
    refuses: usize,
    refused: Vec<Value>,
    accepted: Vec<Value>,
}

impl Webhook {
    /// Answers the first `refuses` requests with 500, and those after them with 200.
    ///
    /// # Errors
    /// When the kernel has no port.
    pub fn refusing(refuses: usize) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let got = Arc::new(Mutex::new(Got { refuses, ..Got::default() }));
        let ended = Arc::new(AtomicBool::new(false));
        let (shared, over) = (got.clone(), ended.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                // A sender that goes away in the middle has sent nothing.
                let _ = answer(stream, &shared);
            }
        });
        Ok(Self { port, got, ended })
    }

    /// Where it receives.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/alerts", self.port)
    }

    /// The documents that it has refused.
    #[must_use]
    pub fn refused(&self) -> Vec<Value> {
        lock(&self.got).refused.clone()
    }

    /// The documents that it has accepted.
    #[must_use]
    pub fn accepted(&self) -> Vec<Value> {
        lock(&self.got).accepted.clone()
    }

    /// Waits until it has accepted a document with this text at a key.
    ///
    /// # Errors
    /// When it does not come within a minute; what came is in the error.
    pub fn wait_for(&self, key: &str, text: &str) -> anyhow::Result<Value> {
        let find = || self.accepted().into_iter().find(|one| one.get(key).and_then(Value::as_str) == Some(text));
        wait_until(&format!("a webhook with {key} = {text}"), Duration::from_secs(60), || Ok(find().is_some()))
            .with_context(|| format!("accepted {:?}\nrefused {:?}", self.accepted(), self.refused()))?;
        find().context("it was there a moment ago")
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // So that the thread looks at that.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn answer(stream: TcpStream, got: &Mutex<Got>) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line.trim().is_empty() {
            break;
        }
        let header = line.to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let document = serde_json::from_slice(&body)?;
    let status = {
        let mut got = lock(got);
        if got.refuses > 0 {
            got.refuses -= 1;
            got.refused.push(document);
            "500 Internal Server Error"
        } else {
            got.accepted.push(document);
            "200 OK"
        }
    };
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    reader.get_mut().write_all(answer.as_bytes())?;
    Ok(())
}

fn lock(got: &Mutex<Got>) -> MutexGuard<'_, Got> {
    got.lock().unwrap_or_else(PoisonError::into_inner)
}
