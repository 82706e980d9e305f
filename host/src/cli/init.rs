//! `host init`: a first `plant.toml` from what an OPC UA server offers.
//!
//! It proposes and a person decides. Nothing is overwritten unasked, and what cannot be known (what a state's numbers mean) stays a
//! comment to fill in, because a guess would become a false report.

use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal, Write as _};
use std::path::Path;

use anyhow::{Context, bail};

use super::arguments::Init;
use super::opc::{address, look};
use crate::opc::guess::{self, Machine};

const DEPTH: u32 = 8;

/// Browses the server, asks about each machine, and writes the file.
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
    let tree = look(&address(&arguments.from)?, None, DEPTH).await?;
    let found = guess::machines(&tree);
    if found.is_empty() {
        bail!(
            "{} has no variable with a number: `host opc browse {}` shows what it has",
            arguments.from,
            arguments.from
        );
    }
    let mut taken = Vec::new();
    for machine in found {
        if arguments.yes || agreed(&question(&machine))? {
            taken.push(machine);
        }
    }
    if taken.is_empty() {
        bail!("nothing was taken, so {output} was not written");
    }
    write(&arguments.output, &plant(&arguments.from, &taken), arguments.force)
        .with_context(|| format!("writing {output}"))?;
    let machines = taken.iter().filter(|m| is_machine(m)).count();
    let tags: usize = taken.iter().map(|m| m.tags.len()).sum();
    println!(
        "Wrote {output}: {machines} machines, {tags} tags. Read it through, then run `host check --config {output}`."
    );
    Ok(())
}

fn is_machine(machine: &Machine) -> bool {
    machine.good.is_some() || machine.scrap.is_some() || machine.state.is_some()
}

fn question(machine: &Machine) -> String {
    let mut text = format!("{} in {}", machine.code, machine.line);
    let parts = [
        ("good", &machine.good),
        ("scrap", &machine.scrap),
        ("state", &machine.state.as_ref().map(|s| s.node.clone())),
    ];
    for (what, node) in parts {
        if let Some(node) = node {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n  {what}: {node}");
        }
    }
    for (name, node) in &machine.tags {
        let _ = write!(text, "\n  tag {name}: {node}");
    }
    text
}

fn agreed(question: &str) -> anyhow::Result<bool> {
    println!("{question}");
    loop {
        print!("Take it? [Y/n] ");
        std::io::stdout().flush()?;
        let mut answer = String::new();
        if std::io::stdin().lock().read_line(&mut answer)? == 0 {
            bail!("the input ended before every question was answered, so nothing was written");
        }
        match answer.trim().to_lowercase().as_str() {
            "" | "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => println!("Answer y or n."),
        }
    }
}

/// The file's text.
fn plant(endpoint: &str, found: &[Machine]) -> String {
    let mut text = format!(
        "# Written by `host init` from {endpoint}. Read it through: names and counters are guessed from the server's names.\n\n\
         [plant]\nname       = \"plant\"\nenterprise = \"enterprise\"\nsite       = \"site\"\ntimezone   = \"UTC\"\n\n\
         [store]\nurl = \"sqlite://plant.db\"\n\n\
         [opc.line]\nendpoint = {}\nsecurity = \"none\"   # none | basic256sha256 | aes256-sha256-rsapss\n\n\
         [roles.reader]\n[roles.housekeeping]\n",
        quoted(endpoint)
    );
    for machine in found.iter().filter(|machine| is_machine(machine)) {
        text.push_str(&machine_table(machine));
    }
    for (name, node) in found.iter().flat_map(|machine| &machine.tags) {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n[[tags]]\nname       = {}\nconnection = \"line\"\nnode       = {}\n",
            quoted(name),
            quoted(node)
        );
    }
    text
}

fn machine_table(machine: &Machine) -> String {
    let mut text = format!(
        "\n[[machines]]\ncode       = {}\nline       = {}\nconnection = \"line\"\n",
        quoted(&machine.code),
        quoted(&machine.line)
    );
    // Writing to a String cannot fail.
    let _ = match &machine.state {
        Some(state) if state.packml => writeln!(text, "state = {{ node = {}, map = \"packml\" }}", quoted(&state.node)),
        Some(state) => writeln!(
            text,
            "# The state is {} now. Say what each number means (running, idle, down or setup), then remove the #:\n\
             # state = {{ node = {}, map = {{ 0 = \"idle\", 1 = \"running\" }} }}",
            state.now,
            quoted(&state.node)
        ),
        None => Ok(()),
    };
    if let Some(node) = &machine.good {
        if machine.good_counts_all {
            text.push_str("# This counts every piece that was processed, the defective ones too.\n");
        }
        let _ = writeln!(
            text,
            "good  = {{ node = {} }}   # max_rate = 20.0: units a second above which a jump waits for a person",
            quoted(node)
        );
    }
    if let Some(node) = &machine.scrap {
        let _ = writeln!(text, "scrap = {{ node = {} }}", quoted(node));
    }
    text
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
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
