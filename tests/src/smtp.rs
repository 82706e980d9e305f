//! A mail server that is not this project's own: `aiosmtpd`, which puts what it gets into a directory.

use std::fs::File;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use tempfile::TempDir;

use crate::process::{bound_to_this_thread, free_port, python, wait_until};

/// A running server on a free port of 127.0.0.1; killed when dropped.
pub struct Smtp {
    directory: TempDir,
    server: Child,
    port: u16,
}

impl Smtp {
    /// Starts a server that takes everything.
    ///
    /// # Errors
    /// When Python or aiosmtpd is missing, or the server does not start; its output is in the error.
    pub fn start() -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("plant-smtp-")?;
        let port = free_port()?;
        let log = directory.path().join("log");
        let output = File::create(&log)?;
        let mut command = bound_to_this_thread("KILL", python()?);
        command.args(["-m", "aiosmtpd", "--nosetuid", "--listen", &format!("127.0.0.1:{port}")]);
        command.args(["--class", "aiosmtpd.handlers.Mailbox"]).arg(directory.path().join("mail"));
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let server = command.spawn().context("python")?;
        let mut started = Self { directory, server, port };
        let ready = wait_until("the mail server listens", Duration::from_secs(60), || {
            if let Some(status) = started.server.try_wait()? {
                bail!("it ended with {status}");
            }
            Ok(TcpStream::connect(("127.0.0.1", port)).is_ok())
        });
        ready.with_context(|| std::fs::read_to_string(&log).unwrap_or_default())?;
        Ok(started)
    }

    /// Its address, as `alerts.email.server` wants it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("smtp://127.0.0.1:{}", self.port)
    }

    /// The mails that it has got, as they came.
    ///
    /// # Errors
    /// When one can not be read.
    pub fn mails(&self) -> anyhow::Result<Vec<String>> {
        let new: PathBuf = self.directory.path().join("mail/new");
        let Ok(files) = std::fs::read_dir(new) else { return Ok(Vec::new()) };
        files.map(|file| Ok(std::fs::read_to_string(file?.path())?)).collect()
    }
}

impl Drop for Smtp {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
