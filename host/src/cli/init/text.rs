//! The text of a first `plant.toml`.

use std::fmt::Write as _;

use super::rates::{self, Rates, TIMES, UNSEEN, WATCHED};
use crate::cli::arguments::Login;
use crate::config::Security;
use crate::opc::guess::Machine;

/// The whole file, for a server that was reached by `endpoint` and `login`.
pub fn plant(endpoint: &str, login: &Login, found: &[Machine], rates: &Rates) -> String {
    let mut text = format!(
        "# Written by `host init` from {endpoint}. Read it through: names and counters are guessed from the server's names.\n\n\
         [plant]\nname = \"plant\"\n\n\
         [store]\nurl = \"sqlite://plant.db\"\n\n{}\n[roles.reader]\n",
        connection(endpoint, login)
    );
    for machine in found.iter().filter(|machine| machine.is_machine()) {
        text.push_str(&table(machine, rates));
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

fn connection(endpoint: &str, login: &Login) -> String {
    let words = Security::WORDS.map(|(word, _)| word).join(" | ");
    let security = login.security.unwrap_or(Security::None).word();
    let mut text = format!("[opc.line]\nendpoint = {}\nsecurity = \"{security}\"   # {words}\n", quoted(endpoint));
    let certificate = login.certificate.as_ref().map(|file| file.display().to_string());
    let keys = [("user", &login.user), ("password_env", &login.password_env), ("certificate", &certificate)];
    for (key, value) in keys {
        if let Some(value) = value {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{key} = {}", quoted(value));
        }
    }
    text
}

fn table(machine: &Machine, rates: &Rates) -> String {
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
        text.push_str(&counter("good", node, rates));
    }
    if let Some(node) = &machine.scrap {
        text.push_str(&counter("scrap", node, rates));
    }
    text
}

fn counter(name: &str, node: &str, rates: &Rates) -> String {
    let watched = WATCHED.as_secs();
    let rate = match rates.get(node) {
        Some(fastest) => format!(
            "# Units a second; a jump by more waits for a person. It made {fastest} in the fastest of the {watched} seconds that\n\
             # `host init` watched it, and this is {TIMES} times as much, at least 10: make it what the machine can do.\n\
             max_rate = {:.1}\n",
            rates::proposed(*fastest)
        ),
        None => format!(
            "# It stood still for the {watched} seconds that `host init` watched it, and without max_rate a jump of any size is booked.\n\
             # Write how many units a second are possible, then remove the #:\n\
             # max_rate = {UNSEEN:.1}\n"
        ),
    };
    format!("[machines.{name}]\nnode     = {}\n{rate}", quoted(node))
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
