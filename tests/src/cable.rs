//! A way to a server that can be closed for one client and left open for the others.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::Context;

/// Forwards connections to a server on this machine, while it is open.
pub struct Cable {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    cut: AtomicBool,
    ended: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Cable {
    /// To the server in a URL like `opc.tcp://127.0.0.1:4840/path`.
    ///
    /// # Errors
    /// When the URL has no such address, or the kernel has no port.
    pub fn to(url: &str) -> anyhow::Result<Self> {
        let server: SocketAddr = authority(url).parse().with_context(|| format!("no address in {url}"))?;
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let cable = Self { address: listener.local_addr()?, shared: Arc::default() };
        let shared = cable.shared.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.ended.load(Ordering::SeqCst) {
                    return;
                }
                // Cut: whoever connects is let go at once.
                if let (Ok(client), false) = (client, shared.cut.load(Ordering::SeqCst)) {
                    let _ = forward(&shared, client, server);
                }
            }
        });
        Ok(cable)
    }

    /// The same URL by this way.
    #[must_use]
    pub fn url(&self, of: &str) -> String {
        of.replace(authority(of), &self.address.to_string())
    }

    /// Closes it: connections end, and new ones do.
    pub fn cut(&self) {
        self.shared.cut.store(true, Ordering::SeqCst);
        for stream in lock(&self.shared.open).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Opens it again.
    pub fn mend(&self) {
        self.shared.cut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the thread that listens.
        let _ = TcpStream::connect(self.address);
    }
}

fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

fn lock(open: &Mutex<Vec<TcpStream>>) -> MutexGuard<'_, Vec<TcpStream>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forward(shared: &Arc<Shared>, client: TcpStream, server: SocketAddr) -> std::io::Result<()> {
    let server = TcpStream::connect(server)?;
    lock(&shared.open).extend([client.try_clone()?, server.try_clone()?]);
    for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        thread::spawn(move || copy(from, to));
    }
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(buffer.get(..read).unwrap_or_default()).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
