//! Guesses what the variables of an unknown server are, by their names and types.
//!
//! A guess is offered to a person, never used by itself. What it cannot tell, such as what a state's numbers mean, it leaves open.

use std::collections::{BTreeMap, BTreeSet};

use super::Value;
use super::browse::{Found, Tree, Variable};

/// One machine: the variables that belong together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Machine {
    /// Its code, made of its object's name.
    pub code: String,
    /// The line it stands in: the object above its own, or `line-1`.
    pub line: String,
    /// The node id of its counter of good pieces.
    pub good: Option<String>,
    /// The good counter counts defective pieces too (PackML's `ProdProcessedCount`).
    pub good_counts_all: bool,
    /// The node id of its counter of scrap.
    pub scrap: Option<String>,
    /// Where its state is.
    pub state: Option<State>,
    /// Its other numbers: name and node id.
    pub tags: Vec<(String, String)>,
}

impl Machine {
    /// Whether it has more than tags.
    #[must_use]
    pub fn is_machine(&self) -> bool {
        self.good.is_some() || self.scrap.is_some() || self.state.is_some()
    }
}

/// A state's node.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Its node id.
    pub node: String,
    /// Its numbers are PackML's.
    pub packml: bool,
    /// Its number now.
    pub now: String,
}

/// What a variable seems to be; of two for one purpose, the smaller wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Good,
    Processed,
    Scrap,
    PackmlState,
    State,
    /// A count of something: good pieces, when nothing better is there.
    SomeCount,
    Number,
}

/// What variables have in common: the object they are below, and what their names begin with up to the last dot.
type Group = (Option<usize>, String);

/// The machines and tags of a server, in its order. A group without counter or state has only tags.
#[must_use]
pub fn machines(tree: &Tree) -> Vec<Machine> {
    let mut groups: Vec<(Group, Vec<(Kind, &Found)>)> = Vec::new();
    let mut known: BTreeMap<Group, usize> = BTreeMap::new();
    for found in &tree.nodes {
        let Some(kind) = found.variable.as_ref().and_then(|variable| kind(&found.name, variable)) else { continue };
        // Some servers have no objects, only names such as FILL01.GoodCount.
        let prefix = found.name.rsplit_once('.').map(|(prefix, _)| prefix.to_owned()).unwrap_or_default();
        let key = (found.parent, prefix);
        let at = *known.entry(key.clone()).or_insert_with(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        if let Some((_, members)) = groups.get_mut(at) {
            members.push((kind, found));
        }
    }
    let mut codes = BTreeSet::new();
    groups.into_iter().map(|((parent, prefix), members)| machine(tree, parent, &prefix, members, &mut codes)).collect()
}

fn machine(
    tree: &Tree,
    parent: Option<usize>,
    prefix: &str,
    members: Vec<(Kind, &Found)>,
    codes: &mut BTreeSet<String>,
) -> Machine {
    let object = parent.and_then(|at| tree.nodes.get(at));
    let above = object.and_then(|object| object.parent).and_then(|at| tree.nodes.get(at));
    let (name, line) = match (prefix, object) {
        ("", Some(object)) => (object.name.as_str(), above),
        ("", None) => ("server", None),
        (prefix, object) => (prefix, object),
    };
    let code = unique(&plain(name), codes);
    let line = line.map_or_else(|| "line-1".to_owned(), |line| plain(&line.name));
    let mut machine = Machine { code, line, ..Machine::default() };
    let best =
        |kinds: &[Kind]| members.iter().filter(|(kind, _)| kinds.contains(kind)).min_by_key(|(kind, _)| *kind).copied();
    let good = best(&[Kind::Good, Kind::Processed, Kind::SomeCount]);
    let scrap = best(&[Kind::Scrap]);
    let state = best(&[Kind::PackmlState, Kind::State]);
    machine.good = good.map(|(_, found)| found.node.to_string());
    machine.good_counts_all = good.is_some_and(|(kind, _)| kind == Kind::Processed);
    machine.scrap = scrap.map(|(_, found)| found.node.to_string());
    machine.state = state.map(|(kind, found)| State {
        node: found.node.to_string(),
        packml: kind == Kind::PackmlState,
        now: found.variable.as_ref().map(|variable| number(&variable.now.value)).unwrap_or_default(),
    });
    let used: Vec<_> = [good, scrap, state].into_iter().flatten().map(|(_, found)| &found.node).collect();
    let mut names = BTreeSet::new();
    for (_, found) in members.iter().filter(|(_, found)| !used.contains(&&found.node)) {
        let short = found.name.rsplit('.').next().unwrap_or(&found.name);
        let name = unique(&format!("{}.{}", machine.code, plain(short)), &mut names);
        machine.tags.push((name, found.node.to_string()));
    }
    machine
}

fn number(value: &Value) -> String {
    match value {
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        _ => "not readable".to_owned(),
    }
}

fn kind(name: &str, variable: &Variable) -> Option<Kind> {
    let whole = match variable.now.value {
        Value::Int(_) | Value::Uint(_) => true,
        Value::Real(_) => false,
        // A Bad value has no type of its own; the node's data type does.
        Value::Null => match variable.data_type.as_str() {
            "SByte" | "Int16" | "Int32" | "Int64" | "Byte" | "UInt16" | "UInt32" | "UInt64" => true,
            "Float" | "Double" => false,
            _ => return None,
        },
        _ => return None,
    };
    if !whole {
        return Some(Kind::Number);
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    let name: String = last.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let counts = has(&["count", "total", "parts", "pieces", "quantity", "produced"]);
    Some(if name == "statecurrent" {
        Kind::PackmlState
    } else if name.ends_with("state") || name == "currentstate" || name == "machinestatus" {
        Kind::State
    } else if has(&["prodprocessedcount"]) {
        Kind::Processed
    } else if has(&["scrap", "reject", "defective"]) || (counts && has(&["bad", "waste", "nok"])) {
        Kind::Scrap
    } else if has(&["good"]) {
        Kind::Good
    } else if has(&["count", "produced"]) && !has(&["alarm", "error", "fault", "cycle", "stop"]) {
        Kind::SomeCount
    } else {
        Kind::Number
    })
}

/// A name of the characters that names in `plant.toml` may have.
fn plain(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let name: String = name.chars().map(allowed).take(60).collect();
    let name = name.trim_matches(['-', '_', '.']);
    if name.is_empty() { "unnamed".to_owned() } else { name.to_owned() }
}

fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let numbered = (2..).map(|n| format!("{name}-{n}"));
    let free = std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken.contains(name));
    let free = free.unwrap_or_else(|| name.to_owned());
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opc::Sample;

    fn guess(name: &str, value: Value) -> Option<Kind> {
        let now = Sample { item: 0, value, status: 0, source: None, server: None, data_type: None };
        kind(name, &Variable { data_type: "Int32".to_owned(), now })
    }

    #[test]
    fn counters_and_states_are_told_by_name_and_type() {
        for (name, expected) in [
            ("GoodCount", Kind::Good),
            ("FILL01.Good_Count", Kind::Good),
            ("ProdProcessedCount", Kind::Processed),
            ("ProdDefectiveCount", Kind::Scrap),
            ("ScrapCount", Kind::Scrap),
            ("Rejects", Kind::Scrap),
            ("StateCurrent", Kind::PackmlState),
            ("MachineState", Kind::State),
            ("PartCount", Kind::SomeCount),
            ("AlarmCount", Kind::Number),
            ("Speed", Kind::Number),
        ] {
            assert_eq!(guess(name, Value::Int(1)), Some(expected), "{name}");
        }
        assert_eq!(guess("GoodCount", Value::Real(1.0)), Some(Kind::Number), "a counter is a whole number");
        assert_eq!(guess("GoodCount", Value::Text("1".to_owned())), None);
        assert_eq!(guess("GoodCount", Value::Null), Some(Kind::Good), "a Bad counter still has a type");
    }

    #[test]
    fn names_become_usable_and_unique() {
        let mut taken = BTreeSet::new();
        assert_eq!(unique(&plain("Füller 1"), &mut taken), "F-ller-1");
        assert_eq!(unique(&plain("F ller 1"), &mut taken), "F-ller-1-2");
        assert_eq!(plain("--"), "unnamed");
    }
}
