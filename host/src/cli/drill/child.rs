//! Processes of this same program that end with the drill, whatever ends it.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

use super::faults::with_clock;

/// Between two looks at what is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How much of a log is shown with a failure.
const LAST_LINES: usize = 12;

/// A running child; killed when dropped.
pub struct Running {
    process: Child,
    log: PathBuf,
}

/// What a child is started with.
pub struct Start<'a> {
    /// Its arguments.
    pub arguments: &'a [String],
    /// Where its standard output goes; with the log where there is no other place.
    pub output: Option<&'a Path>,
    /// Where its log is added to.
    pub log: &'a Path,
    /// How far its wall clock is off, as `faketime` understands it.
    pub clock: Option<&'a str>,
}

impl Running {
    /// Starts this program with other arguments.
    ///
    /// The kernel kills the child when the *thread* that started it ends, so this is only for the thread that lives as long as the drill. A
    /// group of its own, so that Ctrl-C reaches only the drill, which ends things in order.
    ///
    /// # Errors
    /// When the program or `setpriv` (package util-linux) cannot be started.
    pub fn start(start: &Start<'_>) -> anyhow::Result<Self> {
        const BOUND: [&str; 4] = ["setpriv", "--pdeathsig", "KILL", "--"];
        let log = File::options().create(true).append(true).open(start.log).context("no log for a child")?;
        let output = match start.output {
            Some(path) => File::create(path).with_context(|| format!("cannot write {}", path.display()))?,
            None => log.try_clone()?,
        };
        let program = std::env::current_exe().context("this program does not know where it lies")?;
        let [setpriv, bound @ ..] = BOUND;
        let mut command = Command::new(setpriv);
        command.args(bound);
        if let Some(offset) = start.clock {
            // Its wrapper does not replace itself by the program, which is therefore bound to the wrapper in turn.
            command.args(with_clock(offset)).args(BOUND);
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("NO_FAKE_STAT", "1");
        }
        command.arg(&program).args(start.arguments).process_group(0);
        let process = command.stdin(Stdio::null()).stdout(output).stderr(log).spawn();
        let process = process.with_context(|| {
            format!("cannot start {} by {setpriv}: is the package util-linux installed?", program.display())
        })?;
        Ok(Self { process, log: start.log.to_owned() })
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        // The number of a process that was waited for may be another's by now.
        if self.ended()?.is_some() {
            anyhow::bail!("the process has ended already");
        }
        Ok(kill_process(Pid::from_child(&self.process), signal)?)
    }

    /// Whether it has ended, and with which code; `Some(None)` after a signal.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn ended(&mut self) -> anyhow::Result<Option<Option<i32>>> {
        Ok(self.process.try_wait()?.map(|status| status.code()))
    }

    /// Waits until it has ended; its exit code, `None` after a signal.
    ///
    /// # Errors
    /// When it does not within `at_most`.
    pub async fn gone(&mut self, at_most: Duration) -> anyhow::Result<Option<i32>> {
        let begun = std::time::Instant::now();
        loop {
            if let Some(code) = self.ended()? {
                return Ok(code);
            }
            if begun.elapsed() > at_most {
                anyhow::bail!("it did not end within {at_most:?}");
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The end of its log.
    #[must_use]
    pub fn last_words(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let from = lines.len().saturating_sub(LAST_LINES);
        format!("its log ends:\n{}", lines.get(from..).unwrap_or_default().join("\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A TCP port on 127.0.0.1 that nobody listens on at the moment.
///
/// # Errors
/// When the kernel has none.
pub fn free_port() -> anyhow::Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("no free port on 127.0.0.1")?;
    Ok(listener.local_addr()?.port())
}
