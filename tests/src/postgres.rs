//! A PostgreSQL server of its own for each test that wants one.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use sqlx::Connection;
use tempfile::TempDir;

use crate::namespace::Namespace;
use crate::process::{beside_the_host, bound_to_this_thread, free_port, wait_until};

/// A private PostgreSQL cluster on a free port of 127.0.0.1; gone when dropped.
pub struct Postgres {
    directory: TempDir,
    server: Option<Child>,
    port: u16,
    listen: String,
    settings: Vec<&'static str>,
}

impl Postgres {
    /// Makes a cluster and starts its server, without fsync: for tests of behaviour.
    ///
    /// # Errors
    /// When PostgreSQL is not installed or does not start; the server's log is in the error.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(&["fsync=off"])
    }

    /// Makes a cluster and starts its server with these settings, each `name=value`; without any it writes as safely as in a plant, which
    /// is for anything that measures or kills the server.
    ///
    /// # Errors
    /// When PostgreSQL is not installed or does not start; the server's log is in the error.
    pub fn start_with(settings: &[&'static str]) -> anyhow::Result<Self> {
        Self::start_on(None, settings)
    }

    /// One that the other side of this network reaches as well, without fsync.
    ///
    /// # Errors
    /// The same.
    pub fn start_for(network: &Namespace) -> anyhow::Result<Self> {
        Self::start_on(Some(network), &["fsync=off"])
    }

    fn start_on(network: Option<&Namespace>, settings: &[&'static str]) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("plant-pg-")?;
        let listen = network.map_or_else(|| "127.0.0.1".to_owned(), |network| format!("127.0.0.1,{}", network.near()));
        let mut server = Self { directory, server: None, port: 0, listen, settings: settings.to_vec() };
        own_by_postgres(server.path())?;
        server.make_cluster()?;
        if let Some(network) = network {
            let mut access = File::options().append(true).open(server.data().join("pg_hba.conf"))?;
            for address in [network.near(), network.far()] {
                writeln!(access, "host all all {address}/32 trust")?;
            }
        }
        server.run_on_a_free_port()?;
        Ok(server)
    }

    /// A new cluster: a copy of the one that the first test made, since `initdb` takes a second of a CPU and a copy a twentieth of it.
    fn make_cluster(&self) -> anyhow::Result<()> {
        let first = first_cluster()?;
        if first.exists() {
            return copy(&first, &self.data());
        }
        let mut initdb = self.as_postgres("initdb", "TERM")?;
        initdb.args(["-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"]);
        let made = initdb.args(["--locale=C.UTF-8", "-D"]).arg(self.data()).output().context("initdb")?;
        if !made.status.success() {
            bail!("initdb failed: {}", String::from_utf8_lossy(&made.stderr));
        }
        // Complete before it has its name; another test may have been faster.
        let beside = first.parent().context("a cluster beside nothing")?;
        let making = TempDir::with_prefix_in("test-cluster-", beside)?;
        copy(&self.data(), &making.path().join("data"))?;
        let _ = std::fs::rename(making.path().join("data"), &first);
        Ok(())
    }

    /// A port that was free a moment ago may be another test's by now.
    fn run_on_a_free_port(&mut self) -> anyhow::Result<()> {
        for _ in 0..5 {
            self.port = free_port()?;
            match self.run() {
                Err(error) if format!("{error:#}").contains("Address already in use") => {}
                outcome => return outcome,
            }
        }
        bail!("five ports in a row were taken by others before PostgreSQL could listen there")
    }

    /// The URL of its database.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at("127.0.0.1")
    }

    /// The same, by another of the addresses where it listens.
    #[must_use]
    pub fn url_at(&self, address: &str) -> String {
        format!("postgres://postgres@{address}:{}/postgres", self.port)
    }

    /// Units in the books, by the database itself.
    ///
    /// # Errors
    /// When it does not answer, or has no such table.
    pub fn booked(&self) -> anyhow::Result<i64> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut connection = sqlx::PgConnection::connect(&self.url()).await?;
            let sum = "SELECT coalesce(sum(quantity), 0)::bigint FROM bookings";
            Ok(sqlx::query_scalar(sum).fetch_one(&mut connection).await?)
        })
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory that holds its data, socket and log.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Ends the server the hard way, as a power cut would: no session is told.
    ///
    /// # Errors
    /// When it was not running.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        let mut server = self.server.take().context("PostgreSQL is not running")?;
        signal(&server, rustix::process::Signal::QUIT)?;
        server.wait()?;
        Ok(())
    }

    /// Starts the server again, on the same port and data.
    ///
    /// # Errors
    /// When it does not start; its log is in the error.
    pub fn run(&mut self) -> anyhow::Result<()> {
        let log = std::fs::File::create(self.path().join("log"))?;
        let mut command = self.as_postgres("postgres", "QUIT")?;
        command.arg("-D").arg(self.data()).arg("-k").arg(self.path());
        command.args(["-h", &self.listen, "-p", &self.port.to_string()]);
        for setting in ["max_connections=200"].iter().chain(&self.settings) {
            command.args(["-c", setting]);
        }
        command.stdout(log.try_clone()?).stderr(log).stdin(Stdio::null());
        let mut child = command.spawn().context("postgres")?;
        let ready = wait_until("PostgreSQL accepts connections", Duration::from_secs(60), || {
            if let Some(status) = child.try_wait()? {
                bail!("PostgreSQL ended: {status}");
            }
            // Through the socket in its own directory: on the port another server might answer.
            let mut ask = Command::new(binary("pg_isready")?);
            Ok(ask.arg("-q").arg("-h").arg(self.path()).args(["-p", &self.port.to_string()]).status()?.success())
        });
        self.server = Some(child);
        ready.with_context(|| std::fs::read_to_string(self.path().join("log")).unwrap_or_default())
    }

    fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// `initdb` and `postgres` refuse root, so that root runs them as the user `postgres`.
    fn as_postgres(&self, program: &str, on_death: &str) -> anyhow::Result<Command> {
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--inh-caps=-all"]);
            command.args(["--pdeathsig", on_death, "--"]).arg(binary(program)?);
            command
        } else {
            bound_to_this_thread(on_death, binary(program)?)
        };
        command.env("HOME", self.path()).env("LC_ALL", "C.UTF-8").current_dir(self.path());
        Ok(command)
    }
}

/// Asks `sql` for a number until it is `wanted`; fails after 20 s.
///
/// # Errors
/// When the answer did not become that in time, or the database refused the question.
pub async fn wait_for_answer(pool: &sqlx::PgPool, sql: &'static str, wanted: i64) -> anyhow::Result<()> {
    let start = std::time::Instant::now();
    loop {
        let found: i64 = sqlx::query_scalar(sql).fetch_one(pool).await?;
        if found == wanted {
            return Ok(());
        }
        if start.elapsed() >= Duration::from_secs(20) {
            bail!("{sql}: {found}, not {wanted}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Replaces a function of the schema by the broken one in the file that `PLANT_MUTANT` names, if it names one: `cargo xtask mutants`.
///
/// # Errors
/// When the file cannot be read, or is no SQL.
pub async fn mutate(pool: &sqlx::PgPool) -> anyhow::Result<()> {
    let Some(file) = std::env::var_os("PLANT_MUTANT") else { return Ok(()) };
    sqlx::raw_sql(sqlx::AssertSqlSafe(std::fs::read_to_string(file)?)).execute(pool).await?;
    Ok(())
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and the directory goes in any case.
        let _ = self.kill();
    }
}

fn signal(child: &Child, signal: rustix::process::Signal) -> anyhow::Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw).context("no such process")?;
    Ok(rustix::process::kill_process(pid, signal)?)
}

fn own_by_postgres(directory: &Path) -> anyhow::Result<()> {
    if rustix::process::geteuid().is_root() {
        let done = Command::new("chown").arg("postgres").arg(directory).status()?;
        if !done.success() {
            bail!("there is no user `postgres` to run PostgreSQL as: install the package `postgresql`");
        }
    }
    Ok(())
}

/// Where the first cluster of this version of PostgreSQL is kept, for the others to copy.
fn first_cluster() -> anyhow::Result<PathBuf> {
    let version = Command::new(binary("postgres")?).arg("--version").output().context("postgres --version")?;
    let version = String::from_utf8_lossy(&version.stdout);
    let name: String = version.trim().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    Ok(beside_the_host()?.join(format!("test-cluster-of-{name}")))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copied = Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to).status().context("cp")?;
    if !copied.success() {
        bail!("{} could not be copied to {}: {copied}", from.display(), to.display());
    }
    Ok(())
}

/// A program of PostgreSQL: from `PLANT_PG_BIN`, else the newest under /usr/lib/postgresql.
fn binary(program: &str) -> anyhow::Result<PathBuf> {
    if let Some(directory) = std::env::var_os("PLANT_PG_BIN") {
        return Ok(PathBuf::from(directory).join(program));
    }
    let mut versions: Vec<PathBuf> =
        std::fs::read_dir("/usr/lib/postgresql").map(|d| d.flatten().map(|e| e.path()).collect()).unwrap_or_default();
    versions.sort();
    let found = versions.into_iter().rev().map(|v| v.join("bin").join(program)).find(|p| p.exists());
    found.context("PostgreSQL's server is not installed: run `cargo xtask test`, which installs it")
}
