//! One round: the holder runs and counts, a fault is done to it, another node goes on, the old holder comes back as a standby.
//!
//! What a takeover cost is what `/api/takeovers` says of it. How long it took is measured here as well, by a clock that neither node nor
//! database has: from the fault until the new holder's first booking is in the database.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::Signal;
use serde_json::Value;

use super::books::total;
use super::faults::{Fault, clock_of_round};
use super::nodes::Node;
use crate::cli::status::{ask, list, text};
use crate::identity::RoleKey;
use crate::store::Pool;
use crate::store::queries::{self, TakeoverRow};

/// The role whose commits book production.
const READER: &str = "reader";
/// How long, besides some leases, anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Between two looks at the database for the moment that is measured.
const LOOK_CLOSELY: Duration = Duration::from_millis(5);
/// So many of the newest changes of hands: a pair moves all its roles at once.
const NEWEST: i64 = 200;

/// What came of one round.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// What was done.
    pub fault: Fault,
    /// Which round of this fault, from 1.
    pub number: u32,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a fault.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Another node went on.
    Taken(Takeover),
    /// The holder kept the role.
    Kept,
    /// It was not survived; a sentence.
    Failed(String),
}

/// One change of hands, as `/api/takeovers` tells it and as the drill saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct Takeover {
    /// The old holder.
    pub from: String,
    /// The new one.
    pub to: String,
    /// Why, as the database saw it.
    pub cause: String,
    /// Between the two holders' commits, in milliseconds; `None` is unknown.
    pub gap_ms: Option<f64>,
    /// The same in lease lengths.
    pub gap_leases: Option<f64>,
    /// Units in the new holder's first booking; `None` is unknown.
    pub owed: Option<i64>,
    /// From the fault until the new holder's first booking was seen; `None` where that moment was not watched.
    pub seen: Option<Duration>,
}

/// Who has the role.
struct Seat {
    index: usize,
    node: String,
    epoch: u64,
}

/// What rounds are made with.
pub struct Rounds<'a> {
    /// The drill's nodes, all running.
    pub nodes: &'a mut [Node],
    /// The plant's database, which the drill reaches without a cable that it cuts.
    pub pool: &'a Pool,
    /// The role that is handed around.
    pub key: &'a RoleKey,
    /// How long a lease lasts.
    pub lease: Duration,
}

impl Rounds<'_> {
    /// Makes one round. After one that failed the nodes may be in any state.
    pub async fn round(&mut self, fault: Fault, number: u32) -> Round {
        let outcome = self.rehearsed(fault, number).await;
        Round { fault, number, outcome: outcome.unwrap_or_else(|error| Outcome::Failed(format!("{error:#}"))) }
    }

    async fn rehearsed(&mut self, fault: Fault, number: u32) -> anyhow::Result<Outcome> {
        let before = self.seat().await?;
        let skewed = if fault == Fault::Skew { self.skew(&before, number).await? } else { Vec::new() };
        let since = Instant::now();
        fault.strike(self.node(before.index)?)?;
        let taken = if fault == Fault::SlowStore { Ok(None) } else { self.taken(&before, since).await.map(Some) };
        // For as long as it is to last, whatever came of it.
        tokio::time::sleep((self.lease * fault.leases()).saturating_sub(since.elapsed())).await;
        fault.mend(self.node(before.index)?).await?;
        let taken = taken?;
        for index in skewed {
            let node = self.node(index)?;
            node.signal(Signal::KILL)?;
            Fault::Kill.mend(node).await?;
        }
        let after = self.seat().await.with_context(|| format!("after {fault} of node {}", before.node))?;
        match taken {
            Some((row, seen)) => self.told(&row, Some(seen)).await.map(Outcome::Taken),
            None => match self.newest_from(&before).await? {
                Some(row) => self.told(&row, None).await.map(Outcome::Taken),
                None if after.node == before.node => Ok(Outcome::Kept),
                None => bail!("nobody has written down that node {} has {} now", after.node, self.key),
            },
        }
    }

    fn node(&mut self, index: usize) -> anyhow::Result<&mut Node> {
        self.nodes.get_mut(index).context("there is no such node")
    }

    fn books(&self) -> bool {
        self.key.role.as_str() == READER
    }

    /// Gives every standby another wall clock; which ones these are. Nothing may come of it: no decision about a lease asks that clock.
    async fn skew(&mut self, holder: &Seat, number: u32) -> anyhow::Result<Vec<usize>> {
        let standbys: Vec<usize> = (0..self.nodes.len()).filter(|index| *index != holder.index).collect();
        for index in &standbys {
            let node = self.node(*index)?;
            node.signal(Signal::TERM)?;
            node.gone(PATIENCE).await?;
            node.start(Some(clock_of_round(number))).await?;
        }
        let after = self.seat().await?;
        if after.epoch != holder.epoch {
            bail!(
                "node {} lost {} to a node whose clock is off, before anything was done to it",
                holder.node,
                self.key
            );
        }
        Ok(standbys)
    }

    /// Waits until another node has the role and, where it books, has booked; and how long after `since` that was.
    async fn taken(&self, before: &Seat, since: Instant) -> anyhow::Result<(TakeoverRow, Duration)> {
        let at_most = self.lease * 3 + PATIENCE;
        loop {
            if let Some(row) = self.newest_from(before).await?
                && (row.owed_booked_at.is_some() || !self.books())
            {
                return Ok((row, since.elapsed()));
            }
            if since.elapsed() > at_most {
                bail!(
                    "no other node went on with {} within {at_most:?} after node {} was struck",
                    self.key,
                    before.node
                );
            }
            tokio::time::sleep(LOOK_CLOSELY).await;
        }
    }

    /// The first change of hands since: away from who had the role.
    async fn newest_from(&self, before: &Seat) -> anyhow::Result<Option<TakeoverRow>> {
        let rows =
            queries::takeovers(self.pool, NEWEST).await.context("the plant's database does not answer the drill")?;
        let of_role = |row: &TakeoverRow| row.role == self.key.role.as_str() && row.partition == self.key.partition;
        let since = |row: &TakeoverRow| u64::try_from(row.to_epoch).is_ok_and(|epoch| epoch > before.epoch);
        Ok(rows.into_iter().rev().find(|row| of_role(row) && since(row) && row.to_node != before.node))
    }

    /// The takeover with its figures, as a node tells them.
    async fn told(&self, row: &TakeoverRow, seen: Option<Duration>) -> anyhow::Result<Takeover> {
        let begun = Instant::now();
        let teller = self.nodes.iter().find(|node| node.name().as_str() == row.to_node).or_else(|| self.nodes.first());
        let url = teller.map(Node::url).context("no node is left to ask")?;
        loop {
            let takeovers = ask(&url, "/api/takeovers")?;
            let is_it = |takeover: &&Value| {
                text(takeover, "role") == row.role
                    && text(takeover, "partition") == row.partition
                    && takeover.get("to_epoch").and_then(Value::as_i64) == Some(row.to_epoch)
            };
            let found = takeovers.as_array().into_iter().flatten().find(is_it);
            // Who had it for a moment that nobody watched may have booked nothing.
            let is_whole = |takeover: &&Value| {
                seen.is_none() || !self.books() || takeover.get("owed").is_some_and(Value::is_number)
            };
            if let Some(takeover) = found.filter(is_whole) {
                return Ok(read(takeover, seen));
            }
            if begun.elapsed() > PATIENCE {
                bail!("/api/takeovers does not tell of the takeover by node {}", row.to_node);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until one node runs the role and counts, and every other is a live standby.
    async fn seat(&mut self) -> anyhow::Result<Seat> {
        let at_most = self.lease * 3 + PATIENCE;
        let begun = Instant::now();
        let mut booked = None;
        loop {
            for node in &mut *self.nodes {
                node.supervised().await?;
            }
            let why = match self.look() {
                Ok(seat) if !self.books() => return Ok(seat),
                Ok(seat) => {
                    let production = self.node(seat.index)?.ask("/api/production");
                    let now = production.as_ref().map(total).ok();
                    match (booked, now) {
                        (Some(before), Some(now)) if now > before => return Ok(seat),
                        (None, now) => booked = now,
                        _ => {}
                    }
                    format!("node {} runs {} and books nothing", seat.node, self.key)
                }
                Err(why) => format!("{why:#}"),
            };
            if begun.elapsed() > at_most {
                bail!("the plant did not come to rest within {at_most:?}: {why}");
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Who has the role, where every node says of itself that all is well and the holder sees the others live.
    fn look(&self) -> anyhow::Result<Seat> {
        let mut seats = Vec::new();
        let mut boots = Vec::new();
        let mut seen_by_holder = Value::Null;
        for (index, node) in self.nodes.iter().enumerate() {
            let status = node.ask("/api/status")?;
            if status.get("stale") != Some(&Value::Bool(false)) {
                bail!("node {} does not reach its database", node.name());
            }
            boots.push((text(&status, "node").to_owned(), text(&status, "boot_id").to_owned()));
            let is_it = |role: &&Value| {
                text(role, "role") == self.key.role.as_str() && text(role, "partition") == self.key.partition
            };
            let role = list(&status, "roles").iter().find(is_it).cloned().unwrap_or_default();
            if role.get("here") == Some(&Value::Bool(true)) {
                let (state, reason) = (text(&role, "state"), text(&role, "reason"));
                if state != "running" {
                    bail!("node {} has {} and is {state}: {reason}", node.name(), self.key);
                }
                let epoch = role.get("epoch").and_then(Value::as_u64).context("a role without an epoch")?;
                seats.push(Seat { index, node: node.name().to_string(), epoch });
                seen_by_holder = status;
            }
        }
        let Some(seat) = seats.pop() else { bail!("no node has {}", self.key) };
        if let Some(other) = seats.first() {
            bail!("node {} and node {} both say that they have {}", other.node, seat.node, self.key);
        }
        let lives = |(node, boot): &(String, String)| {
            list(&seen_by_holder, "nodes").iter().any(|seen| {
                text(seen, "node") == node
                    && text(seen, "boot_id") == boot
                    && seen.get("live") == Some(&Value::Bool(true))
            })
        };
        match boots.iter().find(|boot| !lives(boot)) {
            Some((node, _)) => bail!("node {} does not see node {node} live", seat.node),
            None => Ok(seat),
        }
    }
}

fn read(takeover: &Value, seen: Option<Duration>) -> Takeover {
    let figure = |key: &str| takeover.get(key).and_then(Value::as_f64);
    Takeover {
        from: text(takeover, "from").to_owned(),
        to: text(takeover, "to").to_owned(),
        cause: text(takeover, "cause").to_owned(),
        gap_ms: figure("gap_ms"),
        gap_leases: figure("gap_leases"),
        owed: takeover.get("owed").and_then(Value::as_i64),
        seen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_takeover_does_not_know_stays_unknown() {
        let takeover = json!({
            "role": "reader", "from": "a", "to": "b", "cause": "expiry", "gap_ms": null, "gap_leases": null, "owed": 3,
        });
        let wanted = Takeover {
            from: "a".to_owned(),
            to: "b".to_owned(),
            cause: "expiry".to_owned(),
            gap_ms: None,
            gap_leases: None,
            owed: Some(3),
            seen: None,
        };
        assert_eq!(read(&takeover, None), wanted);
    }
}
