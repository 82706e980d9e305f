//! `host role move|hold|resume|pin|unpin` and `host node drain|undrain`: where roles run, as people want it.
//!
//! An order is written to the database, so that it can be given wherever the database can be reached. Then this waits until the
//! nodes have carried it out, and says who runs the role now.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sqlx::PgPool;

use super::arguments::{NodeCommand, Ordered, RoleOrder};
use crate::config::{self, Config, PAIR, Redundancy, Scope, duration};
use crate::identity::{NodeName, RoleKey};
use crate::store::Pool;
use crate::store::placements::{self, Author, HolderRow, Order};

/// A node that was told to take a role has so long before any other may.
const MOVE_WITHIN: Duration = Duration::from_secs(10);
/// A drain may take a role's grace, and its lease where it does not answer.
const CARRIED_OUT: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Carries out an order about a role.
///
/// # Errors
/// A sentence: what can not be done, or was not done in time.
pub async fn role(command: RoleOrder) -> anyhow::Result<()> {
    match command {
        RoleOrder::Move { role, to, order } => {
            let plant = Plant::open(&order).await?;
            let (key, to) = (plant.key(&role, &order)?, node(&to)?);
            plant.one_role_of_a_pair(&key, "move")?;
            plant.give(&Order::Move { key: key.clone(), to: to.clone(), within: MOVE_WITHIN }, &order).await?;
            plant.until_held_by(&key, &to, MOVE_WITHIN).await
        }
        RoleOrder::Hold { role, at_most, order } => {
            let plant = Plant::open(&order).await?;
            let key = plant.key(&role, &order)?;
            let at_most = at_most.as_deref().map(duration::parse).transpose().map_err(anyhow::Error::msg)?;
            plant.give(&Order::Hold { key: key.clone(), at_most }, &order).await?;
            let until = at_most
                .map_or_else(|| format!("until `host role resume {role}`"), |at_most| format!("for {at_most:?}"));
            plant.until_free(|held| is(held, &key), &format!("nobody runs {key} {until}")).await
        }
        RoleOrder::Resume { role, order } => {
            let plant = Plant::open(&order).await?;
            let key = plant.key(&role, &order)?;
            plant.give(&Order::Resume { key: key.clone() }, &order).await?;
            plant.until_held(&key).await
        }
        RoleOrder::Pin { role, node: to, order } => {
            let plant = Plant::open(&order).await?;
            let (key, to) = (plant.key(&role, &order)?, node(&to)?);
            plant.one_role_of_a_pair(&key, "pin")?;
            plant.give(&Order::Pin { key: key.clone(), node: to.clone() }, &order).await?;
            println!("only node {to} runs {key} from now on, also when it is down: `host role unpin {key}` ends that");
            plant.until_held_by(&key, &to, CARRIED_OUT).await
        }
        RoleOrder::Unpin { role, order } => {
            let plant = Plant::open(&order).await?;
            let key = plant.key(&role, &order)?;
            plant.give(&Order::Unpin { key: key.clone() }, &order).await?;
            println!("any node may run {key}; it stays where it is");
            Ok(())
        }
    }
}

/// Carries out an order about a node.
///
/// # Errors
/// A sentence: what can not be done, or was not done in time.
pub async fn node_command(command: NodeCommand) -> anyhow::Result<()> {
    match command {
        NodeCommand::Drain { node: name, order } => {
            let plant = Plant::open(&order).await?;
            let name = node(&name)?;
            plant.give(&Order::Drain { node: name.clone() }, &order).await?;
            let done = format!("node {name} runs nothing until `host node undrain {name}`");
            plant.until_free(|held| held.node == name.as_str(), &done).await
        }
        NodeCommand::Undrain { node: name, order } => {
            let plant = Plant::open(&order).await?;
            let name = node(&name)?;
            plant.give(&Order::Undrain { node: name.clone() }, &order).await?;
            println!("node {name} may run roles again; what runs elsewhere stays there");
            Ok(())
        }
    }
}

fn node(name: &str) -> anyhow::Result<NodeName> {
    Ok(name.parse()?)
}

fn is(held: &HolderRow, key: &RoleKey) -> bool {
    held.role == key.role.as_str() && held.partition == key.partition
}

/// The plant that orders are given to.
struct Plant {
    config: Config,
    redundancy: Redundancy,
    pool: PgPool,
    since: Instant,
}

impl Plant {
    async fn open(order: &Ordered) -> anyhow::Result<Self> {
        let config = Config::load(&order.config.config)?;
        let Some(redundancy) = config.redundancy.clone() else {
            bail!("the plant has no [redundancy]: its one node runs every role, and there is nowhere to move one to");
        };
        let Pool::Postgres(pool) = Pool::connect(&config.store).await? else {
            bail!("roles have places only where the plant has PostgreSQL and [redundancy]");
        };
        Ok(Self { config, redundancy, pool, since: Instant::now() })
    }

    /// The role that is meant, where the plant has it.
    fn key(&self, role: &str, order: &Ordered) -> anyhow::Result<RoleKey> {
        let partition = order.partition.clone().unwrap_or_default();
        let key = RoleKey { role: role.parse()?, partition };
        if role == PAIR && self.redundancy.scope == Scope::Node {
            return Ok(key);
        }
        let known = || self.config.roles.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let found = self
            .config
            .roles
            .get(&key.role)
            .with_context(|| format!("the plant has no role {role}: it has {}", known()))?;
        if !found.partitions.contains(&key.partition) {
            let parts = found.partitions.join(", ");
            bail!("the role {role} has no partition {:?}: name one with `--partition`, of {parts}", key.partition);
        }
        Ok(key)
    }

    /// In a pair no role goes anywhere alone.
    fn one_role_of_a_pair(&self, key: &RoleKey, what: &str) -> anyhow::Result<()> {
        if self.redundancy.scope == Scope::Node && key.role.as_str() != PAIR {
            bail!(
                "the plant is an active-standby pair (redundancy.scope = \"node\"), where all roles are in one place: \
                 {what} them together, as the role `{PAIR}`"
            );
        }
        Ok(())
    }

    async fn give(&self, what: &Order, order: &Ordered) -> anyhow::Result<()> {
        let who = order.who.clone().unwrap_or_else(this_person);
        let author = Author { who: &who, why: order.why.as_deref() };
        Ok(placements::give(&self.pool, what, author, self.redundancy.lease).await?)
    }

    /// Asks who holds what until `done` has an answer; `None` when it takes too long.
    async fn until<T>(&self, at_most: Duration, done: impl Fn(&[HolderRow]) -> Option<T>) -> anyhow::Result<Option<T>> {
        let begun = Instant::now();
        loop {
            if let Some(answer) = done(&placements::holders(&self.pool).await?) {
                return Ok(Some(answer));
            }
            if begun.elapsed() > at_most {
                return Ok(None);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn until_held_by(&self, key: &RoleKey, node: &NodeName, at_most: Duration) -> anyhow::Result<()> {
        let there = |held: &[HolderRow]| {
            held.iter().find(|held| is(held, key) && held.node == node.as_str()).map(|held| held.epoch)
        };
        match self.until(at_most, there).await? {
            Some(epoch) => {
                println!(
                    "node {node} has {key} since epoch {epoch}, {} ms after the order",
                    self.since.elapsed().as_millis()
                );
                Ok(())
            }
            None => bail!("node {node} did not take {key} within {at_most:?}: look at its log and at `host status`"),
        }
    }

    async fn until_held(&self, key: &RoleKey) -> anyhow::Result<()> {
        let taken =
            |held: &[HolderRow]| held.iter().find(|held| is(held, key)).map(|held| (held.node.clone(), held.epoch));
        match self.until(CARRIED_OUT, taken).await? {
            Some((node, epoch)) => {
                println!("node {node} has {key} since epoch {epoch}");
                Ok(())
            }
            None => bail!("no node took {key} within {CARRIED_OUT:?}: look at `host status`"),
        }
    }

    async fn until_free(&self, by: impl Fn(&HolderRow) -> bool, done: &str) -> anyhow::Result<()> {
        let at_most = CARRIED_OUT + self.redundancy.lease;
        let free = |held: &[HolderRow]| (!held.iter().any(&by)).then_some(());
        match self.until(at_most, free).await? {
            Some(()) => {
                println!("{done}");
                Ok(())
            }
            None => bail!("the order is written, and after {at_most:?} it is not carried out: look at `host status`"),
        }
    }
}

/// Who is at this keyboard, as far as the system knows.
fn this_person() -> String {
    let user = std::env::var("SUDO_USER").or_else(|_| std::env::var("USER")).unwrap_or_else(|_| "unknown".to_owned());
    let host = config::host_name();
    if host.is_empty() { user } else { format!("{user}@{host}") }
}
