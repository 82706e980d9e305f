//! `host drill`: rehearses failovers on a plant that does not count for real, and says what each takeover cost.
//!
//! A claim about failover is worth what the last rehearsal showed, on one's own database and with one's own lease. So the drill starts real
//! nodes, does to the holder what a bad night would, and holds the books against what a simulated line has really made. It never
//! begins on a plant that counts for real unless told twice, nor beside nodes that are not its own; and nothing that it starts outlives it.

mod arguments;
mod books;
mod child;
mod conditions;
mod faults;
mod line;
mod nodes;
mod permission;
mod proxy;
mod report;
mod rounds;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};

pub use arguments::DrillArgs;
use books::Books;
pub use faults::Fault;
use line::Line;
use nodes::Node;
use report::Report;
use rounds::{Outcome, Round, Rounds};

use super::EXIT_CONFIGURATION;
use crate::config::{Config, Redundancy};
use crate::identity::RoleKey;
use crate::store::{self, Pool, queries};

/// How long, after the line has stopped, the last unit may take to be booked.
const BOOKS_WITHIN: Duration = Duration::from_secs(60);

/// Drills, prints the report, and ends with 0 when every fault was survived and the books are exact.
pub async fn run(arguments: DrillArgs) -> ExitCode {
    let handle = tokio::runtime::Handle::current();
    // The kernel ends each child with the thread that started it. This thread starts all of them, and lives as long as the drill.
    let drill = tokio::task::spawn_blocking(move || handle.block_on(until_ended(&arguments)));
    drill.await.unwrap_or(ExitCode::FAILURE)
}

async fn until_ended(arguments: &DrillArgs) -> ExitCode {
    let config = match Config::load(&arguments.config.config) {
        Ok(config) => config,
        Err(errors) => {
            eprintln!("{errors}");
            return ExitCode::from(EXIT_CONFIGURATION);
        }
    };
    let drilled = tokio::select! {
        drilled = Box::pin(drill(arguments, &config)) => drilled,
        () = super::run::asked_to_end() => {
            eprintln!("the drill was ended, and its nodes with it: the plant's leases run out by themselves");
            return ExitCode::FAILURE;
        }
    };
    match drilled {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything was survived.
async fn drill(arguments: &DrillArgs, config: &Config) -> anyhow::Result<bool> {
    let redundancy = permission::of_plant(config, arguments)?;
    let key = permission::of_role(config, &arguments.role)?;
    let names = arguments.node_names()?;
    let pool = Pool::connect(&config.store).await?;
    if store::check_schema(&pool).await.is_err() {
        store::migrate(&config.store).await?;
    }
    permission::beside(&queries::nodes(&pool).await?, redundancy)?;

    let mut scratch = Scratch::new()?;
    // A line that a drill made up is never counted by a plant that counts for real.
    let line = if config.plant.simulated {
        Line::start_if_missing(config, arguments.speed, &scratch.path).await?
    } else {
        None
    };
    let mut nodes = Vec::new();
    for name in names {
        eprintln!("starting node {name}");
        let mut node = Node::prepare(name, &arguments.config.config, config, &scratch.path).await?;
        node.start(None).await?;
        nodes.push(node);
    }
    let drilled = Drilled { arguments, config, redundancy, key: &key, pool: &pool, line: line.as_ref() };
    let report = drilled.report(&mut nodes).await;
    let survived = report.as_ref().is_ok_and(Report::survived);
    if !survived {
        scratch.keep();
    }
    let report = report?.markdown();
    print!("{report}");
    if let Some(file) = &arguments.report {
        std::fs::write(file, &report).with_context(|| format!("the report cannot be written to {}", file.display()))?;
    }
    for node in nodes {
        node.end().await?;
    }
    pool.close().await;
    Ok(survived)
}

/// A drill whose nodes run.
struct Drilled<'a> {
    arguments: &'a DrillArgs,
    config: &'a Config,
    redundancy: &'a Redundancy,
    key: &'a RoleKey,
    pool: &'a Pool,
    line: Option<&'a Line>,
}

impl Drilled<'_> {
    async fn report(&self, nodes: &mut [Node]) -> anyhow::Result<Report> {
        let Pool::Postgres(postgres) = self.pool else { bail!("a drill needs PostgreSQL in [store]") };
        let conditions = conditions::conditions(self.config, self.redundancy, nodes, self.key, postgres).await?;
        let mut books = None;
        if let (Some(line), Some(node)) = (self.line, nodes.first()) {
            books = Some((line, Books::begin(self.config, line, node).await));
            line.resume()?;
        }
        let (rounds, not_done) = self.rounds(nodes).await;
        let books = match books {
            Some((line, Ok(books))) => compared(&books, line, nodes, BOOKS_WITHIN + self.redundancy.lease).await?,
            Some((_, Err(error))) => books::Outcome::Unknown(format!("{error:#}")),
            None => books::Outcome::NotCompared,
        };
        Ok(Report {
            plant: self.config.plant.name.clone(),
            real: !self.config.plant.simulated,
            conditions,
            lease: self.redundancy.lease,
            rounds,
            not_done,
            books,
        })
    }

    /// Every round until one fails: what it leaves is for somebody to look at, and no ground for another.
    async fn rounds(&self, nodes: &mut [Node]) -> (Vec<Round>, Vec<(Fault, String)>) {
        let behind_proxies = nodes.iter().all(Node::is_behind_proxies);
        let mut rounds = Rounds { nodes, pool: self.pool, key: self.key, lease: self.redundancy.lease };
        let (mut made, mut not_done): (Vec<Round>, Vec<(Fault, String)>) = (Vec::new(), Vec::new());
        let mut failed = None;
        for fault in once(&self.arguments.faults) {
            let why_not = fault.why_not(self.redundancy, behind_proxies);
            if let Some(why) = why_not.or_else(|| failed.clone()) {
                not_done.push((fault, why));
                continue;
            }
            for number in 1..=self.arguments.rounds {
                eprintln!("{fault}, round {number} of {}", self.arguments.rounds);
                let round = rounds.round(fault, number).await;
                if let Outcome::Failed(why) = &round.outcome {
                    eprintln!("{why}");
                    failed = Some(format!("the drill ended with round {number} of {fault}, which failed"));
                }
                made.push(round);
                if failed.is_some() {
                    break;
                }
            }
        }
        (made, not_done)
    }
}

/// Stops the line and compares, as some node that is left tells it.
async fn compared(books: &Books, line: &Line, nodes: &[Node], at_most: Duration) -> anyhow::Result<books::Outcome> {
    line.pause()?;
    // After a failed round some may be frozen or gone.
    match nodes.iter().find(|node| node.ask("/api/health").is_ok()) {
        Some(node) => books.compare(line, node, at_most).await,
        None => Ok(books::Outcome::Unknown("no node is left to ask".to_owned())),
    }
}

/// Each fault once, in the order in which it was first named.
fn once(faults: &[Fault]) -> Vec<Fault> {
    let mut once = Vec::new();
    for fault in faults {
        if !once.contains(fault) {
            once.push(*fault);
        }
    }
    once
}

/// Where the children's logs are; gone with the drill, unless somebody will want to read them.
struct Scratch {
    path: PathBuf,
    kept: bool,
}

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("plant-drill-{}", uuid::Uuid::new_v4()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot make the directory {}", path.display()))?;
        Ok(Self { path, kept: false })
    }

    /// Leaves it where it is, and says so.
    fn keep(&mut self) {
        self.kept = true;
        eprintln!("the logs of the drill's nodes are in {}", self.path.display());
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.kept {
            // Nothing can be done about a directory that stays.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_is_named_twice_is_done_in_one_series() {
        assert_eq!(once(&[Fault::Stop, Fault::Kill, Fault::Stop]), [Fault::Stop, Fault::Kill]);
    }
}
