//! Whether what was booked is what was made, unit by unit, from the first round to the last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

use super::line::Line;
use super::nodes::Node;
use crate::cli::status::{list, text};
use crate::config::Config;
use crate::opc::{Connections, EventQueue, Sample, Value as Shown, connect};

/// How long the reader may take to stand where the line's counters stand.
const SETTLES_WITHIN: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Units by (machine, counter).
type Counts = BTreeMap<(String, String), i128>;

/// What came of the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Every counter's bookings are what was made.
    Exact {
        /// Units of all counters together.
        units: i128,
    },
    /// They are not.
    Wrong {
        /// Units booked in all.
        booked: i128,
        /// Units made in all.
        made: i128,
        /// Each counter that differs: `FILL01 good: booked 7, made 8`.
        counters: Vec<String>,
    },
    /// They were to be compared and could not be; why.
    Unknown(String),
    /// Nobody knows what was made: the line is not the drill's.
    NotCompared,
}

/// The books as they were before the line began.
pub struct Books {
    before: Counts,
}

impl Books {
    /// Waits until the books stand where the paused line stands: whatever is booked from then on, this line has made.
    ///
    /// # Errors
    /// When they do not come to stand there: which counters do not.
    pub async fn begin(config: &Config, line: &Line, node: &Node) -> anyhow::Result<Self> {
        let shown = shown(config, line.connection()).await?;
        let begun = Instant::now();
        loop {
            let why = match node.ask("/api/production") {
                Ok(production) => {
                    let apart = apart(&shown, &counts(&production, "baseline"));
                    if apart.is_empty() {
                        let mut before = counts(&production, "booked");
                        before.retain(|counter, _| shown.contains_key(counter));
                        return Ok(Self { before });
                    }
                    apart.join(", ")
                }
                Err(error) => format!("{error:#}"),
            };
            if begun.elapsed() > SETTLES_WITHIN {
                bail!(
                    "the books do not stand where the new line stands ({why}): drill a database of its own, or decide what \
                     /api/anomalies asks"
                );
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits, at most so long, until what was booked since is what the line, which is paused, has made.
    ///
    /// # Errors
    /// When the line does not answer.
    pub async fn compare(&self, line: &Line, node: &Node, at_most: Duration) -> anyhow::Result<Outcome> {
        let made = made(&line.truth()?, &self.before);
        let begun = Instant::now();
        loop {
            let outcome = match node.ask("/api/production") {
                Ok(production) => compared(&self.before, &counts(&production, "booked"), &made),
                Err(error) => Outcome::Unknown(format!("{error:#}")),
            };
            if matches!(outcome, Outcome::Exact { .. }) || begun.elapsed() > at_most {
                return Ok(outcome);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// Units booked in all, by the document of `/api/production`.
#[must_use]
pub fn total(production: &Value) -> i128 {
    counts(production, "booked").values().sum()
}

fn counts(production: &Value, key: &str) -> Counts {
    let of = |counter: &Value| {
        let count = counter.get(key)?.as_i64()?;
        Some(((text(counter, "machine").to_owned(), text(counter, "counter").to_owned()), i128::from(count)))
    };
    list(production, "machines").iter().filter_map(of).collect()
}

/// What the line made, of the counters that the plant has.
fn made(truth: &Value, counters: &Counts) -> Counts {
    let of = |(machine, counter): &(String, String)| truth.get(machine)?.get(counter)?.as_i64().map(i128::from);
    counters.keys().map(|key| (key.clone(), of(key).unwrap_or(0))).collect()
}

/// Counters whose baseline is not what the line shows.
fn apart(shown: &Counts, baselines: &Counts) -> Vec<String> {
    let apart = |((machine, counter), shown): (&(String, String), &i128)| {
        let baseline = baselines.get(&(machine.clone(), counter.clone()));
        let stands = baseline.map_or_else(|| "nowhere yet".to_owned(), ToString::to_string);
        (baseline != Some(shown)).then(|| format!("{machine} {counter} stands at {stands} and the line shows {shown}"))
    };
    shown.iter().filter_map(apart).collect()
}

fn compared(before: &Counts, after: &Counts, made: &Counts) -> Outcome {
    let mut counters = Vec::new();
    let mut all = 0;
    for ((machine, counter), made) in made {
        let key = (machine.clone(), counter.clone());
        let booked = after.get(&key).unwrap_or(&0) - before.get(&key).unwrap_or(&0);
        all += booked;
        if booked != *made {
            counters.push(format!("{machine} {counter}: booked {booked}, made {made}"));
        }
    }
    if counters.is_empty() {
        Outcome::Exact { units: all }
    } else {
        Outcome::Wrong { booked: all, made: made.values().sum(), counters }
    }
}

/// What the counters behind a connection show now.
async fn shown(config: &Config, connection: &str) -> anyhow::Result<Counts> {
    let mut names = Vec::new();
    let mut nodes = Vec::new();
    for machine in config.machines.iter().filter(|machine| machine.connection == connection) {
        for (name, counter) in [("good", &machine.good), ("scrap", &machine.scrap)] {
            if let Some(counter) = counter {
                names.push((machine.code.clone(), name.to_owned()));
                nodes.push(counter.node.clone());
            }
        }
    }
    let opc = config.opc.get(connection).with_context(|| format!("there is no connection {connection}"))?;
    connect::prepare(opc).await?;
    let configs = BTreeMap::from([(connection.to_owned(), opc.clone())]);
    let queue = Arc::new(EventQueue::default());
    let connections = Connections::new(&configs, &queue, tokio::runtime::Handle::current());
    let items = connections.resolve(connection, nodes)?.into_iter().collect::<Result<Vec<u32>, _>>()?;
    let samples = connections.read(&items).await;
    connections.close().await;
    let samples = samples.context("the simulated line's counters can not be read")?;
    let of = |((machine, counter), sample): ((String, String), Sample)| {
        let shown = match sample.value {
            Shown::Uint(shown) => i128::from(shown),
            Shown::Int(shown) => i128::from(shown),
            other => bail!("{machine} {counter} shows {other:?}, which is no count"),
        };
        Ok(((machine, counter), shown))
    };
    names.into_iter().zip(samples).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(machine: &str, counter: &str) -> (String, String) {
        (machine.to_owned(), counter.to_owned())
    }

    #[test]
    fn only_what_was_booked_since_the_beginning_is_held_against_what_was_made() {
        let before = Counts::from([(key("A", "good"), 100), (key("A", "scrap"), 3)]);
        let production = json!({ "machines": [
            { "machine": "A", "counter": "good", "booked": 110 }, { "machine": "A", "counter": "scrap", "booked": 3 },
            { "machine": "OTHER", "counter": "good", "booked": 7 },
        ] });
        let made = made(&json!({ "A": { "good": 10, "scrap": 0 }, "B": { "good": 5 } }), &before);
        assert_eq!(compared(&before, &counts(&production, "booked"), &made), Outcome::Exact { units: 10 });
        assert_eq!(total(&production), 120);
    }

    #[test]
    fn one_unit_too_few_here_and_one_too_many_there_are_two_mistakes() {
        let before = Counts::from([(key("A", "good"), 0), (key("B", "good"), 0)]);
        let after = Counts::from([(key("A", "good"), 9), (key("B", "good"), 11)]);
        let made = Counts::from([(key("A", "good"), 10), (key("B", "good"), 10)]);
        let counters = vec!["A good: booked 9, made 10".to_owned(), "B good: booked 11, made 10".to_owned()];
        assert_eq!(compared(&before, &after, &made), Outcome::Wrong { booked: 20, made: 20, counters });
    }

    #[test]
    fn a_counter_that_stands_elsewhere_is_named() {
        let shown = Counts::from([(key("A", "good"), 5), (key("B", "good"), 6)]);
        let baselines = Counts::from([(key("A", "good"), 5), (key("C", "good"), 1)]);
        assert_eq!(apart(&shown, &baselines), ["B good stands at nowhere yet and the line shows 6"]);
    }
}
