//! `host status`: the plant as one of its nodes sees it, as a table or as the document itself.

use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde_json::Value;

use crate::config::Config;

const DEADLINE: Duration = Duration::from_secs(3);
/// More than this is no status of a plant.
const LONGEST: u64 = 16 << 20;

/// Asks the node at `url`, by default the one that `config` describes, and prints what it says; `json` prints `/api/status` itself.
///
/// Ends with 0, or with 1 and one sentence when the node does not answer.
#[must_use]
pub fn run(url: Option<&str>, config: &Path, json: bool) -> ExitCode {
    say(report(url, config, json))
}

/// Prints a report, or why there is none.
pub(super) fn say(report: anyhow::Result<String>) -> ExitCode {
    match report {
        Ok(said) => {
            print!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What [`run`] prints.
///
/// # Errors
/// One sentence when the node does not answer, or is no node of a plant.
pub fn report(url: Option<&str>, config: &Path, json: bool) -> anyhow::Result<String> {
    let address = address(url, config)?;
    let status = ask(&address, "/api/status")?;
    if json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(&status)?));
    }
    let counts = match ask(&address, "/api/production") {
        Ok(production) => counts(&production),
        Err(error) => format!("The counts are not known: {error:#}\n"),
    };
    Ok(format!("{}\n{counts}", plant(&status)))
}

/// The node that is named, or where the configuration's node serves on this box.
pub(super) fn address(url: Option<&str>, config: &Path) -> anyhow::Result<String> {
    if let Some(url) = url {
        return Ok(url.trim_end_matches('/').to_owned());
    }
    let config = Config::load(config)
        .map_err(|errors| anyhow!("{errors}\nname the node with --url http://HOST:PORT instead"))?;
    let bind: IpAddr = config.serve.bind.parse().context("[serve] bind is no address")?;
    let host = match bind {
        any if any.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V6(address) => format!("[{address}]"),
        IpAddr::V4(address) => address.to_string(),
    };
    Ok(format!("http://{host}:{}", config.serve.api_port))
}

pub(super) fn ask(address: &str, path: &str) -> anyhow::Result<Value> {
    let limits = ureq::Agent::config_builder().timeout_global(Some(DEADLINE)).http_status_as_error(false).build();
    let url = format!("{address}{path}");
    let asked = ureq::Agent::new_with_config(limits).get(&url).call();
    let mut answer = asked
        .map_err(|error| anyhow!("no node answers at {address} ({error}): is it running, and is this its address?"))?;
    let text = answer.body_mut().with_config().limit(LONGEST).read_to_string();
    let text = text.with_context(|| format!("the answer of {url} was cut off"))?;
    let document: Value =
        serde_json::from_str(&text).map_err(|_| anyhow!("{url} is no node of a plant: it did not answer with JSON"))?;
    if !answer.status().is_success() {
        let detail = document.get("detail").and_then(Value::as_str).unwrap_or("no reason was given");
        bail!("{url} answered {}: {detail}", answer.status());
    }
    Ok(document)
}

pub(super) fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn list<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    of.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn number(of: &Value, key: &str) -> String {
    match of.get(key) {
        None | Some(Value::Null) => "unknown".to_owned(),
        Some(number) => number.to_string(),
    }
}

/// Nodes and roles, for people.
fn plant(status: &Value) -> String {
    let mut said = format!(
        "{} as node {} sees it (host {})\n",
        text(status, "plant"),
        text(status, "node"),
        text(status, "version")
    );
    let database = status.get("database").unwrap_or(&Value::Null);
    if database.get("reachable") == Some(&Value::Bool(false)) {
        let (since, error) = (text(database, "since"), text(database, "error"));
        said += &format!("The database does not answer since {since} ({error}): this is from before.\n");
    }
    for drift in list(status, "drift") {
        let nodes: Vec<&str> = list(drift, "nodes").iter().filter_map(Value::as_str).collect();
        let (section, nodes) = (text(drift, "section"), nodes.join(", "));
        said += &format!(
            "[{section}] of plant.toml is another one on {nodes}: give every node the same and restart those behind.\n"
        );
    }
    said += "\n";
    let nodes = list(status, "nodes");
    let roles = list(status, "roles");
    let mut rows = vec![["NODE", "ALIVE", "ADDRESS", "SINCE", "HOLDS", "COULD TAKE OVER"].map(str::to_owned).to_vec()];
    for node in nodes {
        let name = text(node, "node");
        let holds: Vec<String> = roles.iter().filter(|role| text(role, "holder") == name).map(role_name).collect();
        let alive = if node.get("live") == Some(&Value::Bool(true)) { "yes" } else { "no" };
        let holds = if holds.is_empty() { "-".to_owned() } else { holds.join(", ") };
        rows.push(vec![
            name.to_owned(),
            alive.to_owned(),
            text(node, "address").to_owned(),
            text(node, "since").to_owned(),
            holds,
            match node.get("could_take_over").and_then(Value::as_bool) {
                Some(true) => "yes".to_owned(),
                Some(false) => format!("no: {}", text(node, "why_not")),
                None => String::new(),
            },
        ]);
    }
    said += &table(&rows, &[]);
    said += "\n";
    let mut rows = vec![["ROLE", "HOLDER", "STATE", "EPOCH", "HOW IT GOES"].map(str::to_owned).to_vec()];
    for role in roles {
        let holder = role.get("holder").and_then(Value::as_str).unwrap_or("nobody").to_owned();
        let (state, reason) = (text(role, "state").to_owned(), text(role, "reason").to_owned());
        rows.push(vec![role_name(role), holder, state, number(role, "epoch"), reason]);
    }
    said + &table(&rows, &[3]) + &not_monitored(status)
}

/// The most items that are named of one connection.
const NAMED: usize = 10;

/// The items that OPC UA servers have and do not monitor, by name.
fn not_monitored(status: &Value) -> String {
    let mut said = String::new();
    for connection in list(status, "connections") {
        let all = connection.get("not_monitored_items").and_then(Value::as_u64).unwrap_or_default();
        let items = list(connection, "not_monitored");
        let rows: Vec<Vec<String>> = items
            .iter()
            .take(NAMED)
            .map(|item| vec![format!("  {}", text(item, "node")), text(item, "status").to_owned()])
            .collect();
        if all == 0 {
            continue;
        }
        let head =
            format!("NOT MONITORED by the server of OPC UA connection {}: {all}", text(connection, "connection"));
        said += &format!("\n{}{}", table(&[vec![head]], &[]), table(&rows, &[]));
        let more = all.saturating_sub(rows.len() as u64);
        if more > 0 {
            said += &format!("  and {more} more: `host status --json` names up to 100\n");
        }
    }
    said
}

pub(super) fn role_name(role: &Value) -> String {
    match text(role, "partition") {
        "" => text(role, "role").to_owned(),
        partition => format!("{}/{partition}", text(role, "role")),
    }
}

/// The counts, for people.
fn counts(production: &Value) -> String {
    let head = ["MACHINE", "COUNTER", "BOOKED", "OWED", "BASELINE", "ANOMALIES", "LAST READING"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for counter in list(production, "machines") {
        let name = |key: &str| text(counter, key).to_owned();
        let number = |key: &str| number(counter, key);
        let last = counter.get("last_reading_at").and_then(Value::as_str).unwrap_or("never").to_owned();
        rows.push(vec![
            name("machine"),
            name("counter"),
            number("booked"),
            number("owed"),
            number("baseline"),
            number("anomalies"),
            last,
        ]);
    }
    for counter in list(production, "unread") {
        let name = |key: &str| text(counter, key).to_owned();
        let none = || "-".to_owned();
        rows.push(vec![name("machine"), name("counter"), none(), none(), none(), none(), "never".to_owned()]);
    }
    table(&rows, &[2, 3, 4, 5])
}

/// Columns as wide as their widest cell, numbers to the right. What a node says is printed without its control characters.
pub(super) fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let clean = |cell: &String| cell.chars().filter(|c| !c.is_control()).collect::<String>();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(clean).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut said = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate();
        let line: Vec<String> = cells
            .map(
                |(column, (cell, &width))| {
                    if right.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
                },
            )
            .collect();
        said += line.join("  ").trim_end();
        said += "\n";
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plant_is_printed_as_aligned_tables() {
        let status = json!({
            "plant": "bottling", "node": "b", "version": "0.1.0", "database": { "reachable": true },
            "nodes": [
                { "node": "a", "live": true, "address": "http://plant-a:8080", "since": "2026-01-01T00:00:00Z",
                  "could_take_over": true, "why_not": null },
                { "node": "b", "live": false, "address": "http://plant-b:8080", "since": "2026-01-01T00:00:00Z",
                  "could_take_over": false, "why_not": "it has died" },
            ],
            "drift": [{ "section": "machines", "nodes": ["c", "d"] }],
            "roles": [
                { "role": "reader", "partition": "", "holder": "a", "state": "running", "epoch": 7, "reason": "214 items" },
                { "role": "label", "partition": "line-1", "holder": null, "state": "vacant", "epoch": 12, "reason": null },
            ],
        });
        let wanted = "bottling as node b sees it (host 0.1.0)\n\
            [machines] of plant.toml is another one on c, d: give every node the same and restart those behind.\n\n\
            NODE  ALIVE  ADDRESS              SINCE                 HOLDS   COULD TAKE OVER\n\
            a     yes    http://plant-a:8080  2026-01-01T00:00:00Z  reader  yes\n\
            b     no     http://plant-b:8080  2026-01-01T00:00:00Z  -       no: it has died\n\n\
            ROLE          HOLDER  STATE    EPOCH  HOW IT GOES\n\
            reader        a       running      7  214 items\n\
            label/line-1  nobody  vacant      12\n";
        assert_eq!(plant(&status), wanted);
    }

    #[test]
    fn items_that_a_server_does_not_monitor_are_named() {
        let items: Vec<_> =
            (0..12).map(|n| json!({ "node": format!("i={n}"), "status": "BadTooManyMonitoredItems" })).collect();
        let status = json!({ "connections": [
            { "connection": "press", "not_monitored_items": 0, "not_monitored": [] },
            { "connection": "line", "not_monitored_items": 200, "not_monitored": items },
        ]});
        let said = not_monitored(&status);
        assert!(said.starts_with("\nNOT MONITORED by the server of OPC UA connection line: 200\n"), "{said}");
        assert!(said.contains("  i=9  BadTooManyMonitoredItems\n  and 190 more"), "{said}");
    }

    #[test]
    fn what_a_node_says_cannot_move_the_cursor() {
        let said = table(&[vec!["a\u{1b}[2Jb".to_owned()]], &[]);
        assert_eq!(said, "a[2Jb\n");
    }

    #[test]
    fn a_node_that_is_not_there_is_one_sentence() {
        let error = report(Some("http://127.0.0.1:1"), Path::new("plant.toml"), false).unwrap_err();
        let said = format!("{error:#}");
        assert!(said.starts_with("no node answers at http://127.0.0.1:1 ("), "{said}");
        assert_eq!(said.lines().count(), 1);
    }
}
