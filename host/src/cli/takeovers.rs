//! `host takeovers`: which roles changed hands, why, and what it cost, so that a claim about failover can be checked on one's own plant.

use std::process::ExitCode;

use serde_json::Value;

use super::arguments::Takeovers;
use super::status::{address, ask, number, role_name, say, table, text};

/// Prints what was asked for. Ends with 0, or with 1 and one sentence when the node does not answer.
#[must_use]
pub fn run(asked: &Takeovers) -> ExitCode {
    say(report(asked))
}

fn report(asked: &Takeovers) -> anyhow::Result<String> {
    let address = address(asked.url.as_deref(), &asked.config.config)?;
    let answer = ask(&address, "/api/takeovers")?;
    let wanted = |takeover: &&Value| asked.role.as_deref().is_none_or(|role| text(takeover, "role") == role);
    let newest: Vec<&Value> = answer.as_array().into_iter().flatten().filter(wanted).take(asked.limit).collect();
    if asked.json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(&newest)?));
    }
    Ok(if newest.is_empty() { "Nothing has changed hands yet.\n".to_owned() } else { printed(&newest) })
}

/// The takeovers, for people.
fn printed(takeovers: &[&Value]) -> String {
    let head = ["TAKEN AT", "ROLE", "FROM", "TO", "EPOCHS", "CAUSE", "GAP MS", "LEASES", "OWED", "OWED BOOKED AT"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for takeover in takeovers {
        let figure = |key: &str, digits: usize| {
            let figure = takeover.get(key).and_then(Value::as_f64);
            figure.map_or_else(|| "unknown".to_owned(), |figure| format!("{figure:.digits$}"))
        };
        let or = |key: &str, none: &str| takeover.get(key).and_then(Value::as_str).unwrap_or(none).to_owned();
        rows.push(vec![
            or("at", ""),
            role_name(takeover),
            or("from", "nobody"),
            or("to", ""),
            format!("{} > {}", number(takeover, "from_epoch"), number(takeover, "to_epoch")),
            or("cause", ""),
            figure("gap_ms", 1),
            figure("gap_leases", 3),
            number(takeover, "owed"),
            or("owed_booked_at", "-"),
        ]);
    }
    table(&rows, &[6, 7, 8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn takeovers_are_printed_with_their_figures_and_what_is_unknown() {
        let death = json!({
            "role": "reader", "partition": "", "from": "a", "to": "b", "from_epoch": 6, "to_epoch": 7, "cause": "death",
            "at": "2026-01-01T00:00:01Z", "gap_ms": 41.0, "gap_leases": 0.0204, "owed": 3, "owed_booked_at": "2026-01-01T00:00:02Z",
        });
        let start = json!({
            "role": "label", "partition": "line-1", "from": null, "to": "a", "from_epoch": 0, "to_epoch": 1, "cause": "start",
            "at": "2026-01-01T00:00:00Z", "gap_ms": null, "gap_leases": null, "owed": null, "owed_booked_at": null,
        });
        let wanted = "\
            TAKEN AT              ROLE          FROM    TO  EPOCHS  CAUSE   GAP MS   LEASES     OWED  OWED BOOKED AT\n\
            2026-01-01T00:00:01Z  reader        a       b   6 > 7   death     41.0    0.020        3  2026-01-01T00:00:02Z\n\
            2026-01-01T00:00:00Z  label/line-1  nobody  a   0 > 1   start  unknown  unknown  unknown  -\n";
        assert_eq!(printed(&[&death, &start]), wanted);
    }
}
