//! The drill's own nodes: real `host run` processes on this machine, each with its own way to the database.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use rustix::process::Signal;
use serde_json::Value;
use tokio::sync::watch;

use super::child::{Running, Start, free_port};
use super::proxy::{Cable, Proxy, leading_to, server_of};
use crate::cli::EXIT_DEMOTED;
use crate::cli::status::ask;
use crate::config::{Config, Store};
use crate::identity::NodeName;

/// How long a node may take until it serves: the first start compiles the roles' modules.
const SERVES_WITHIN: Duration = Duration::from_secs(120);
const ENDS_WITHIN: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// One node, running or between two starts; killed when dropped.
pub struct Node {
    name: NodeName,
    copy: PathBuf,
    log: PathBuf,
    state: PathBuf,
    port: u16,
    cable: watch::Sender<Cable>,
    proxies: Vec<Proxy>,
    running: Option<Running>,
}

impl Node {
    /// Prepares a node: its cable to the database, and its copy of `plant.toml` that leads through it. `scratch` is where its log and its state go.
    ///
    /// The copy lies beside the original, because what a `plant.toml` names (guests, certificates, keys) it names from where it lies. It is
    /// readable by its owner only, since the store's password may be in it, and goes with the node.
    ///
    /// # Errors
    /// When the original cannot be read, or nothing can be written beside it.
    pub async fn prepare(name: NodeName, plant: &Path, config: &Config, scratch: &Path) -> anyhow::Result<Self> {
        let cable = watch::Sender::new(Cable::Whole);
        let Store::Postgres { urls, .. } = &config.store else { bail!("a drill needs PostgreSQL") };
        let mut proxies = Vec::new();
        let mut through = Vec::new();
        for url in urls {
            let Some(server) = server_of(url) else { continue };
            let proxy = Proxy::to(server, cable.subscribe()).await.context("no port for a way to the database")?;
            through.extend(leading_to(url, proxy.address()));
            proxies.push(proxy);
        }
        let is_between = through.len() == urls.len();
        let text = std::fs::read_to_string(plant).with_context(|| format!("cannot read {}", plant.display()))?;
        let text = copy_of(&text, if is_between { &through } else { urls })?;
        let stem = plant.file_stem().unwrap_or_default().to_string_lossy();
        let copy = config.directory.join(format!(".{stem}.{name}.{}.toml", std::process::id()));
        write_new(&copy, &text).with_context(|| {
            format!(
                "cannot write {}: each node of a drill needs a copy of plant.toml beside it, so let this user write there",
                copy.display()
            )
        })?;
        if !is_between {
            proxies.clear();
        }
        let (log, state) = (scratch.join(format!("{name}.log")), scratch.join("state"));
        Ok(Self { name, copy, log, state, port: 0, cable, proxies, running: None })
    }

    /// Starts its process and waits until it serves; its wall clock is off where `clock` says so.
    ///
    /// # Errors
    /// When it does not serve in time or ends by itself; the end of its log is in the error.
    pub async fn start(&mut self, clock: Option<&str>) -> anyhow::Result<()> {
        self.running = None;
        self.port = free_port()?;
        let (copy, port, url) = (self.copy.to_string_lossy(), self.port.to_string(), self.url());
        let (name, state) = (self.name.as_str(), self.state.to_string_lossy());
        let arguments = ["run", "--config", &*copy, "--node", name, "--api-port", &*port, "--advertise", &*url];
        let arguments: Vec<String> = arguments.into_iter().chain(["--state", &*state]).map(str::to_owned).collect();
        let start = Start { arguments: &arguments, output: None, log: &self.log, clock };
        self.running = Some(Running::start(&start).with_context(|| format!("node {}", self.name))?);
        let begun = Instant::now();
        while self.ask("/api/health").is_err() {
            if let Some(code) = self.ended()? {
                return Err(self.ended_early(code));
            }
            if begun.elapsed() > SERVES_WITHIN {
                bail!("node {} does not serve after {SERVES_WITHIN:?}: {}", self.name, self.last_words());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// Where it serves.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Whether the drill stands between it and the database.
    #[must_use]
    pub fn is_behind_proxies(&self) -> bool {
        !self.proxies.is_empty()
    }

    /// Puts its cable to the database into another state.
    pub fn cable(&self, state: Cable) {
        self.cable.send_replace(state);
    }

    /// The document at a path of its API.
    ///
    /// # Errors
    /// When it does not answer within some seconds, or not with JSON.
    pub fn ask(&self, path: &str) -> anyhow::Result<Value> {
        ask(&self.url(), path)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it is not running.
    pub fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        let Some(running) = &mut self.running else { bail!("node {} is not running", self.name) };
        running.signal(signal).with_context(|| format!("node {} can not be sent a signal", self.name))
    }

    /// That its process runs; started again where it ended because it was demoted, which a plant may want of it.
    ///
    /// # Errors
    /// When it has ended otherwise; the end of its log is in the error.
    pub async fn supervised(&mut self) -> anyhow::Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(Some(code)) if code == i32::from(EXIT_DEMOTED) => self.start(None).await,
            Some(code) => Err(self.ended_early(code)),
        }
    }

    fn ended(&mut self) -> anyhow::Result<Option<Option<i32>>> {
        match &mut self.running {
            Some(running) => running.ended(),
            None => bail!("node {} is not running", self.name),
        }
    }

    fn ended_early(&self, code: Option<i32>) -> anyhow::Error {
        let how = code.map_or_else(|| "by a signal".to_owned(), |code| format!("with code {code}"));
        anyhow!("node {} ended by itself {how}: {}", self.name, self.last_words())
    }

    /// Waits until its process has ended; the exit code, `None` after a signal.
    ///
    /// # Errors
    /// When it does not within `at_most`.
    pub async fn gone(&mut self, at_most: Duration) -> anyhow::Result<Option<i32>> {
        let Some(running) = &mut self.running else { bail!("node {} is not running", self.name) };
        running.gone(at_most).await.with_context(|| format!("node {}", self.name))
    }

    /// The end of its log.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.running.as_ref().map(Running::last_words).unwrap_or_default()
    }

    /// Ends it as an administrator does.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn end(mut self) -> anyhow::Result<()> {
        if self.running.is_some() && self.ended()?.is_none() {
            self.signal(Signal::TERM)?;
            self.gone(ENDS_WITHIN).await?;
        }
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Nothing can be done about a copy that stays.
        let _ = std::fs::remove_file(&self.copy);
    }
}

/// The plant's `plant.toml` with other ways to its database, and served on this machine only.
fn copy_of(text: &str, urls: &[String]) -> anyhow::Result<String> {
    let mut plant: toml::Table = text.parse().context("plant.toml is no TOML any more")?;
    let store = plant.get_mut("store").and_then(toml::Value::as_table_mut).context("plant.toml has no [store]")?;
    for key in ["url", "url_env", "urls", "password_file"] {
        store.remove(key);
    }
    let urls = urls.iter().cloned().map(toml::Value::String).collect();
    store.insert("urls".to_owned(), toml::Value::Array(urls));
    if let Some(serve) = plant.get_mut("serve").and_then(toml::Value::as_table_mut) {
        serve.insert("bind".to_owned(), toml::Value::String("127.0.0.1".to_owned()));
    }
    Ok(toml::to_string(&plant)?)
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANT: &str = "[plant]\nname = \"p\"\n[store]\nurl_env = \"STORE\"\npassword_file = \"secret\"\nmigrate_url_env = \"OWNER\"\n\
                         [serve]\nbind = \"0.0.0.0\"\nsecret_key_env = \"KEY\"\n[[machines]]\ncode = \"A\"\n[[machines]]\ncode = \"B\"\n";

    #[test]
    fn a_copy_leads_elsewhere_and_says_all_else_as_the_original_does() {
        let copy = copy_of(PLANT, &["postgres://plant@127.0.0.1:7000/p".to_owned()]).unwrap();
        let copy: toml::Table = copy.parse().unwrap();
        let original: toml::Table = PLANT.parse().unwrap();
        let store: toml::Table =
            "urls = [\"postgres://plant@127.0.0.1:7000/p\"]\nmigrate_url_env = \"OWNER\"".parse().unwrap();
        assert_eq!(copy["store"].as_table(), Some(&store));
        assert_eq!(copy["serve"]["bind"].as_str(), Some("127.0.0.1"));
        assert_eq!(copy["serve"]["secret_key_env"], original["serve"]["secret_key_env"]);
        assert_eq!((&copy["plant"], &copy["machines"]), (&original["plant"], &original["machines"]));
    }
}
