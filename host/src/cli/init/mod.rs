//! `host init`: a first `plant.toml` from what an OPC UA server offers.
//!
//! It proposes and a person decides. Nothing is overwritten unasked, and what cannot be known (what a state's numbers mean) stays a
//! comment to fill in, because a guess would become a false report.

mod choice;
mod rates;
mod text;

use std::io::{IsTerminal, Write as _};
use std::path::Path;

use anyhow::{Context, bail};

use self::rates::{Rates, WATCHED};
use super::arguments::Init;
use super::check::counted;
use super::opc::{address, beside, look};
use crate::opc::guess::{self, Machine};

const DEPTH: u32 = 8;

/// Browses the server, watches its counters, asks about each thing that it found, and writes the file.
///
/// # Errors
/// One sentence: the server cannot be reached or has nothing to count, there is nobody to ask, the file exists.
pub async fn run(arguments: Init) -> anyhow::Result<()> {
    let output = arguments.output.display();
    if arguments.output.exists() && !arguments.force {
        bail!("{output} exists already: pass --force to replace it, or --output to write another file");
    }
    if !arguments.yes && !std::io::stdin().is_terminal() {
        bail!("there is no terminal to ask at: pass --yes to take everything that is found");
    }
    let server = address(&arguments.from, &arguments.login, beside(&arguments.output))?;
    let found = guess::machines(&look(&server, None, DEPTH).await?);
    if found.is_empty() {
        bail!(
            "{} has no variable with a number: `host opc browse {}` shows what it has",
            arguments.from,
            arguments.from
        );
    }
    let counters: Vec<String> = found.iter().flat_map(counters).map(|(_, node)| node.clone()).collect();
    if !counters.is_empty() {
        let watched = counted(counters.len(), "counter", "counters");
        println!("Watching {watched} for {} seconds, to propose a max_rate for each.", WATCHED.as_secs());
    }
    let rates = rates::watch(&server, counters).await?;
    let taken = if arguments.yes { found } else { choice::choose(found, &rates, &mut choice::at_the_terminal())? };
    if taken.is_empty() {
        bail!("nothing was taken, so {output} was not written");
    }
    write(&arguments.output, &text::plant(&arguments.from, &arguments.login, &taken, &rates), arguments.force)
        .with_context(|| format!("writing {output}"))?;
    print!("{}", summary(&arguments, &taken, &rates));
    Ok(())
}

/// The counters of a machine: their keys and nodes.
fn counters(machine: &Machine) -> impl Iterator<Item = (&'static str, &String)> {
    [("good", &machine.good), ("scrap", &machine.scrap)]
        .into_iter()
        .filter_map(|(key, node)| Some((key, node.as_ref()?)))
}

/// What was written, what is still open, and what to do next.
fn summary(arguments: &Init, taken: &[Machine], rates: &Rates) -> String {
    let output = arguments.output.display();
    let machines = taken.iter().filter(|machine| machine.is_machine()).count();
    let tags: usize = taken.iter().map(|machine| machine.tags.len()).sum();
    let still: Vec<String> = taken
        .iter()
        .flat_map(|machine| counters(machine).map(move |(key, node)| (machine, key, node)))
        .filter(|(_, _, node)| !rates.contains_key(*node))
        .map(|(machine, key, _)| format!("{} {key}", machine.code))
        .collect();
    let unread: Vec<&str> = taken
        .iter()
        .filter(|machine| machine.state.as_ref().is_some_and(|state| !state.packml))
        .map(|machine| machine.code.as_str())
        .collect();
    let (machines, tags) = (counted(machines, "machine", "machines"), counted(tags, "tag", "tags"));
    let mut said = format!("Wrote {output}: {machines}, {tags}.\n");
    if !still.is_empty() {
        said += &format!(
            "These stood still while they were watched, so that no max_rate could be found for them, and a jump of any size \
             is booked until you write one: {}.\n",
            still.join(", ")
        );
    }
    if !unread.is_empty() {
        said += &format!(
            "What the numbers of these states mean only you know; they are not read until you say so: {}.\n",
            unread.join(", ")
        );
    }
    if let Some(variable) = &arguments.login.password_env {
        said += &format!("The password is not in it: set {variable} wherever the plant is run.\n");
    }
    said + &format!("Read it through, then run `host check --config {output}`.\n")
}

/// Writes the whole file or nothing; a file that appeared meanwhile is not overwritten without `force`.
fn write(path: &Path, text: &str, force: bool) -> anyhow::Result<()> {
    if force {
        let beside = path.with_extension("toml.new");
        std::fs::write(&beside, text)?;
        std::fs::rename(&beside, path)?;
    } else {
        std::fs::OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())?;
    }
    Ok(())
}
