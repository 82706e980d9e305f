//! Watches that a role has one instance: samples every node's own count of instances through a whole test.
//!
//! Two samples are never taken at one moment, so a hand-over may show an instance here and, a little later, one there. What may never
//! show is an instance that was there before and after another node had one: then both had one at the same time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};

use crate::Node;
use crate::node::instances;

/// The pause between two samples of one node.
const PAUSE: Duration = Duration::from_millis(10);
/// A node that takes longer says nothing: it is frozen or dead.
const ANSWER: Duration = Duration::from_millis(500);

/// Running samplers, one for each node; they end with this.
pub struct Watch {
    role: &'static str,
    nodes: BTreeMap<String, (Arc<Watched>, JoinHandle<()>)>,
}

struct Watched {
    url: Mutex<String>,
    samples: Mutex<Vec<Sample>>,
    /// It was frozen and has not noticed yet: what it still has can do nothing, and the database sees to that.
    waking: AtomicBool,
    ended: AtomicBool,
}

#[derive(Clone, Copy)]
struct Sample {
    asked: Instant,
    answered: Instant,
    /// `None`: it did not answer, or was waking.
    instances: Option<u64>,
}

impl Watch {
    /// Begins to watch a role.
    #[must_use]
    pub fn over(role: &'static str, nodes: &[&Node]) -> Self {
        let mut watch = Self { role, nodes: BTreeMap::new() };
        for node in nodes {
            watch.started(node);
        }
        watch
    }

    /// A node is new, or was started again at another address.
    pub fn started(&mut self, node: &Node) {
        if let Some((watched, _)) = self.nodes.get(node.name()) {
            *lock(&watched.url) = node.url();
            return;
        }
        let watched = Arc::new(Watched {
            url: Mutex::new(node.url()),
            samples: Mutex::default(),
            waking: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let (sampled, role) = (watched.clone(), self.role);
        let thread = std::thread::spawn(move || sampled.sample(role));
        self.nodes.insert(node.name().to_owned(), (watched, thread));
    }

    /// From now on a node that was frozen may still show the instance that it had; until it is `awake`.
    pub fn waking(&self, node: &Node) {
        self.set_waking(node, true);
    }

    /// The node has noticed what it missed.
    pub fn awake(&self, node: &Node) {
        self.set_waking(node, false);
    }

    fn set_waking(&self, node: &Node, waking: bool) {
        if let Some((watched, _)) = self.nodes.get(node.name()) {
            watched.waking.store(waking, Ordering::SeqCst);
        }
    }

    fn stop(&self) {
        for (watched, _) in self.nodes.values() {
            watched.ended.store(true, Ordering::SeqCst);
        }
    }

    /// Ends, and says how many samples there were.
    ///
    /// # Errors
    /// When two nodes had an instance at one time, a node had two, or some node was never seen with one.
    pub fn end(mut self) -> anyhow::Result<usize> {
        self.stop();
        let mut all = Vec::new();
        for (node, (watched, thread)) in std::mem::take(&mut self.nodes) {
            if thread.join().is_err() {
                bail!("the sampler of {node} has ended early");
            }
            let samples = lock(&watched.samples).clone();
            ensure!(samples.iter().all(|sample| sample.instances.unwrap_or(0) <= 1), "{node} had two instances");
            let had = had(&samples);
            ensure!(!had.is_empty(), "{node} was never seen with an instance of {}", self.role);
            all.push((node, samples.len(), had));
        }
        let count = all.iter().map(|(_, samples, _)| samples).sum();
        while let Some((node, _, had)) = all.pop() {
            for (other, _, others) in &all {
                for (from, to) in &had {
                    let both = others.iter().find(|(start, end)| start.max(from) < end.min(to));
                    ensure!(both.is_none(), "{node} and {other} had an instance of {} at one time", self.role);
                }
            }
        }
        Ok(count)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Watched {
    fn sample(&self, role: &str) {
        let agent = ureq::Agent::new_with_config(ureq::Agent::config_builder().timeout_global(Some(ANSWER)).build());
        while !self.ended.load(Ordering::SeqCst) {
            let url = format!("{}/metrics", lock(&self.url));
            let asked = Instant::now();
            let was_waking = self.waking.load(Ordering::SeqCst);
            let said = agent.get(url).call().and_then(|mut answer| answer.body_mut().read_to_string());
            let waking = was_waking || self.waking.load(Ordering::SeqCst);
            let instances = said.ok().filter(|_| !waking).map(|metrics| instances(&metrics, role));
            lock(&self.samples).push(Sample { asked, answered: Instant::now(), instances });
            std::thread::sleep(PAUSE);
        }
    }
}

/// From when to when there surely was an instance: between two samples, one after the other, that both show it.
fn had(samples: &[Sample]) -> Vec<(Instant, Instant)> {
    let shows = |sample: &Sample| sample.instances.is_some_and(|instances| instances > 0);
    let pairs = samples.iter().zip(samples.iter().skip(1));
    pairs.filter(|(one, next)| shows(one) && shows(next)).map(|(one, next)| (one.answered, next.asked)).collect()
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
