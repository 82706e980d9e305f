//! How fast the counters of a server go, found by watching them.
//!
//! Without a `max_rate` a counter that jumps is booked whatever it jumps by, so a new plant is to begin with one. Nobody knows it by heart
//! for each counter, and what a counter does while it is looked at is a good first guess.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::cli::opc::Asked;
use crate::config::OpcConnection;
use crate::opc::{Sample, Value};

/// How long they are watched.
pub const WATCHED: Duration = Duration::from_secs(5);
/// From one look to the next.
const BETWEEN: Duration = Duration::from_millis(200);
/// So many times what was seen is still possible: the machine may run at half its speed now.
pub const TIMES: f64 = 5.0;
/// Below this a few pieces that come at once, as from a carton, would be taken for a jump.
const LEAST: f64 = 10.0;
/// What stands in the comment of a counter that did not move.
pub const UNSEEN: f64 = 20.0;

/// The most units that each counter made within a second, by its node; those that stood still are not there.
pub type Rates = BTreeMap<String, f64>;

/// Watches nodes for [`WATCHED`].
///
/// # Errors
/// One sentence: the server can not be reached any more, or answers no reads.
pub async fn watch(config: &OpcConnection, nodes: Vec<String>) -> anyhow::Result<Rates> {
    if nodes.is_empty() {
        return Ok(Rates::new());
    }
    let asked = Asked::of("init", config.clone(), nodes.clone()).await?;
    let seen = look(&asked, nodes.len()).await;
    asked.close().await;
    let fastest = nodes.into_iter().zip(seen?).map(|(node, readings)| (node, fastest_second(&readings)));
    Ok(fastest.filter(|(_, units)| *units > 0.0).collect())
}

/// Readings of one counter, each with the time since the first.
type Readings = Vec<(Duration, i128)>;

async fn look(asked: &Asked, nodes: usize) -> anyhow::Result<Vec<Readings>> {
    let mut seen = vec![Readings::new(); nodes];
    let start = Instant::now();
    loop {
        let samples = asked.read().await?;
        let at = start.elapsed();
        for (readings, value) in seen.iter_mut().zip(samples.iter().map(count)) {
            readings.extend(value.map(|value| (at, value)));
        }
        if at >= WATCHED {
            return Ok(seen);
        }
        sleep(BETWEEN).await;
    }
}

fn count(sample: &Sample) -> Option<i128> {
    match sample.value {
        // Neither Uncertain nor Bad.
        Value::Int(value) if sample.status >> 30 == 0 => Some(value.into()),
        Value::Uint(value) if sample.status >> 30 == 0 => Some(value.into()),
        _ => None,
    }
}

/// The most units in any second. A fall is none, and what follows it is no growth: a counter that glitched to zero comes back.
#[expect(clippy::cast_precision_loss, reason = "a rate is a guess; beyond 2^53 units a second nothing is counted")]
fn fastest_second(readings: &[(Duration, i128)]) -> f64 {
    let mut grown: Vec<(Duration, i128)> = Vec::new();
    let mut fell = false;
    for ((_, before), (at, now)) in readings.iter().zip(readings.iter().skip(1)) {
        if now > before && !fell {
            grown.push((*at, now - before));
        }
        fell = now < before || (fell && now == before);
    }
    let within = |start: Duration| {
        let second = grown.iter().filter(|(at, _)| *at >= start && *at < start + Duration::from_secs(1));
        second.map(|(_, units)| *units).sum::<i128>() as f64
    };
    grown.iter().map(|(at, _)| within(*at)).fold(0.0, f64::max)
}

/// What to write for a counter that made at most so many units in a second.
#[must_use]
pub fn proposed(fastest: f64) -> f64 {
    (fastest * TIMES).max(LEAST).ceil()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_200_ms(values: &[i128]) -> Readings {
        (0..).map(|n| Duration::from_millis(200 * n)).zip(values.iter().copied()).collect()
    }

    #[test]
    fn the_fastest_second_is_found_and_a_glitch_is_no_growth() {
        assert_eq!(fastest_second(&every_200_ms(&[7, 7, 7, 7])), 0.0);
        assert_eq!(fastest_second(&every_200_ms(&[7])), 0.0);
        assert_eq!(fastest_second(&every_200_ms(&[0, 2, 4, 6, 8, 10, 12, 14])), 10.0);
        assert_eq!(fastest_second(&every_200_ms(&[0, 0, 12, 12, 12, 12, 12, 12, 12, 24])), 12.0);
        assert_eq!(fastest_second(&every_200_ms(&[9_000, 9_001, 0, 0, 9_001, 9_002])), 2.0);
    }

    #[test]
    fn what_is_proposed_leaves_room_and_is_never_tiny() {
        assert_eq!(proposed(1.0), 10.0);
        assert_eq!(proposed(21.7), 109.0);
    }
}
