//! `[[machines]]`, `[[tags]]` and `[[reasons]]`: what is counted, watched and recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use toml::de::DeValue;

use super::raw::{Section, seen};
use super::{Counter, Machine, OnFall, OnReset, Reason, State, StateMap, Tag, Uncertain, suggest};

const STATES: [&str; 4] = ["running", "idle", "down", "setup"];

/// The names that were seen, to find one that is given twice.
#[derive(Default)]
struct Unique(BTreeSet<String>);

impl Unique {
    fn check(&mut self, section: &Section<'_>, key: &'static str, name: &str) {
        if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            section.wrong(key, format!("is {name:?}: use a name without spaces"));
        }
        if !self.0.insert(name.to_owned()) {
            section.wrong(key, format!("is {name:?}, which is there already: give each its own"));
        }
    }
}

/// Messages speak of `machines[FILL01]` rather than of `machines[3]`, where there is a name.
fn named<'a>(section: Section<'a>, of: &str, key: &'static str) -> Section<'a> {
    match section.value(key).and_then(|value| value.as_str()).filter(|name| !name.is_empty()) {
        Some(name) => section.called(format!("{of}[{name}]")),
        None => section,
    }
}

pub(super) fn machines(root: &Section<'_>, connections: &BTreeSet<&str>) -> Vec<Machine> {
    let mut codes = Unique::default();
    let mut counted = BTreeMap::new();
    let sections = root.list("machines").into_iter().map(|section| named(section, "machines", "code"));
    sections.filter_map(|section| machine(section, connections, &mut codes, &mut counted)).collect()
}

fn machine(
    section: Section<'_>,
    connections: &BTreeSet<&str>,
    codes: &mut Unique,
    counted: &mut BTreeMap<(String, String), String>,
) -> Option<Machine> {
    let code = section.required("code", "give the machine a code, such as \"FILL01\"");
    if let Some(code) = code {
        codes.check(&section, "code", code);
    }
    let line = section.required("line", "name the line that it stands in, such as \"line-1\"");
    let connection = connection(&section, connections);
    let state = section.section("state").and_then(state);
    let good = section.section("good").and_then(counter);
    let scrap = section.section("scrap").and_then(counter);
    if !["state", "good", "scrap"].into_iter().any(|key| section.has(key)) {
        section
            .doubtful_here(format!("{} has neither state nor good nor scrap: nothing is read from it", section.path()));
    }
    for (key, counter) in [("good", &good), ("scrap", &scrap)] {
        let Some(counter) = counter else { continue };
        let place = (connection.unwrap_or_default().to_owned(), counter.node.clone());
        if let Some(other) = counted.insert(place, section.key(key)) {
            section.doubtful(key, format!("reads the same node as {other}: its pieces are counted twice"));
        }
    }
    section.finish();
    let (code, line, connection) = (code?.to_owned(), line?.to_owned(), connection?.to_owned());
    Some(Machine { code, line, connection, state, good, scrap })
}

/// The connection that is named, or the only one there is.
fn connection<'a>(section: &Section<'a>, connections: &BTreeSet<&'a str>) -> Option<&'a str> {
    if !section.has("connection") {
        if let (1, Some(only)) = (connections.len(), connections.first()) {
            return Some(only);
        }
        let hint = if connections.is_empty() {
            "add a section [opc.NAME] and name it here"
        } else {
            "name one of the sections [opc.NAME]"
        };
        section.wrong("connection", format!("is missing: {hint}"));
        return None;
    }
    let name = section.required("connection", "name one of the sections [opc.NAME]")?;
    if connections.contains(name) {
        return Some(name);
    }
    let hint = match suggest::nearest(name, connections.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("add a section [opc.{name}]"),
    };
    section.wrong("connection", format!("is {name:?}, and there is no such OPC UA connection: {hint}"));
    None
}

/// A node by its namespace's URI: an index means another namespace after the server's next start.
fn node(section: &Section<'_>) -> Option<String> {
    let wanted = "write the namespace as URI, such as \"nsu=urn:plant:simulator;s=FILL01.GoodCount\"";
    let node = section.required("node", wanted)?;
    let by_index = node.starts_with("ns=") || ["i=", "s=", "g=", "b="].iter().any(|kind| node.starts_with(kind));
    if by_index {
        section.wrong("node", format!("is {node:?}, by an index that a server may change at its next start: {wanted}"));
        return None;
    }
    let (uri, id) = node.strip_prefix("nsu=").and_then(|rest| rest.rsplit_once(';')).unwrap_or_default();
    let (kind, id) = id.split_once('=').unwrap_or_default();
    let good = match kind {
        "s" | "b" => !id.is_empty(),
        "i" => id.parse::<u32>().is_ok(),
        "g" => id.parse::<uuid::Uuid>().is_ok(),
        _ => false,
    };
    if uri.is_empty() || !good {
        section.wrong("node", format!("is {node:?}: {wanted}"));
        return None;
    }
    Some(node.to_owned())
}

fn state(section: Section<'_>) -> Option<State> {
    let node = node(&section);
    let map = state_map(&section);
    section.finish();
    Some(State { node: node?, map: map? })
}

fn state_map(section: &Section<'_>) -> Option<StateMap> {
    let wanted = "use \"packml\", or a table from number to state, such as { 0 = \"idle\", 1 = \"running\" }";
    match section.value("map") {
        Some(DeValue::String(name)) if name == "packml" => Some(StateMap::Named("packml".to_owned())),
        Some(DeValue::Table(_)) => {
            let map = section.section("map")?;
            let numbers: BTreeMap<i64, String> =
                map.names().filter_map(|(key, value)| one_state(&map, key, value)).collect();
            if map.names().next().is_none() {
                section.wrong("map", format!("is empty: {wanted}"));
            }
            Some(StateMap::Numbers(numbers))
        }
        Some(other) => {
            section.wrong("map", format!("is {}: {wanted}", seen(other)));
            None
        }
        None => {
            section.wrong("map", format!("is missing: {wanted}"));
            None
        }
    }
}

fn one_state(map: &Section<'_>, key: &str, value: &DeValue<'_>) -> Option<(i64, String)> {
    let number = key.parse::<i64>().ok();
    if number.is_none() {
        map.wrong(key, format!("is no number: on the left stands the number that the machine shows, not {key:?}"));
    }
    let state = value.as_str().filter(|state| STATES.contains(state));
    if state.is_none() {
        let hint = value.as_str().and_then(|text| suggest::nearest(text, STATES));
        let hint = hint.map(|near| format!(" (did you mean {near:?}?)")).unwrap_or_default();
        map.wrong(key, format!("is {}: use {}{hint}", seen(value), super::raw::either(&STATES)));
    }
    Some((number?, state?.to_owned()))
}

fn counter(section: Section<'_>) -> Option<Counter> {
    let node = node(&section);
    let on_fall = section.choice("on_fall", &[("reset", OnFall::Reset), ("rollover", OnFall::Rollover)]);
    let on_reset = section.choice("on_reset", &[("rebaseline", OnReset::Rebaseline), ("from-zero", OnReset::FromZero)]);
    let uncertain = section.choice("uncertain", &[("ignore", Uncertain::Ignore), ("book", Uncertain::Book)]);
    let rollover = section.whole("rollover", 2..=u64::MAX, "use the value after the highest, such as 65536");
    let max_delta = section.whole("max_delta", 1..=u64::MAX, "use a whole number of units, at least 1");
    let max_rate = section.positive("max_rate", "use units a second, above 0");
    if !section.has("max_rate") {
        section
            .doubtful("max_rate", "is missing: a jump of any size is booked; say how many units a second are possible");
    }
    let counter = Counter {
        node: node.clone().unwrap_or_default(),
        on_fall: on_fall.unwrap_or(OnFall::Reset),
        rollover,
        max_delta,
        on_reset: on_reset.unwrap_or(OnReset::Rebaseline),
        restart_glitch: section.duration("restart_glitch").unwrap_or(Duration::from_secs(60)),
        max_rate,
        uncertain: uncertain.unwrap_or(Uncertain::Ignore),
    };
    falls(&section, &counter);
    section.finish();
    node.map(|_| counter)
}

/// What a fall may book must be bounded: without `max_delta` a reset from 30000 would pass for a rollover of 35536 units.
fn falls(section: &Section<'_>, counter: &Counter) {
    let rolls = counter.on_fall == OnFall::Rollover;
    if rolls && !section.has("rollover") {
        section.wrong(
            "on_fall",
            "is \"rollover\" without rollover: add the value after the highest, such as rollover = 65536",
        );
    }
    if rolls && !section.has("max_delta") {
        section.wrong("on_fall", "is \"rollover\" without max_delta: add the most units that one step can be, else a reset would be booked as a rollover");
    }
    if !rolls && section.has("rollover") {
        section.doubtful("rollover", "has no effect unless on_fall is \"rollover\": every fall counts as a reset");
    }
    if counter.rollover.zip(counter.max_delta).is_some_and(|(rollover, delta)| rolls && delta >= rollover) {
        section.wrong("max_delta", "is not below rollover, so that every reset would pass for a rollover: use the most units that one step can be");
    }
    if counter.on_reset == OnReset::FromZero && !section.has("max_delta") {
        section.wrong(
            "on_reset",
            "is \"from-zero\" without max_delta: add the most units that may be booked after a reset",
        );
    }
}

pub(super) fn tags(root: &Section<'_>, connections: &BTreeSet<&str>) -> Vec<Tag> {
    let mut names = Unique::default();
    let sections = root.list("tags").into_iter().map(|section| named(section, "tags", "name"));
    let tag = |section: Section<'_>| {
        let name = section.required("name", "give the tag a name, such as \"FILL01.FillWeight\"");
        if let Some(name) = name {
            names.check(&section, "name", name);
        }
        let connection = connection(&section, connections).map(str::to_owned);
        let node = node(&section);
        section.finish();
        Some(Tag { name: name?.to_owned(), connection: connection?, node: node? })
    };
    sections.filter_map(tag).collect()
}

pub(super) fn reasons(root: &Section<'_>) -> Vec<Reason> {
    let mut codes = Unique::default();
    let sections = root.list("reasons").into_iter().map(|section| named(section, "reasons", "code"));
    let reason = |section: Section<'_>| {
        let code = section.required("code", "give the reason a code, such as \"jam\"");
        if let Some(code) = code {
            codes.check(&section, "code", code);
        }
        let text = section.required("text", "write what people read, such as \"Bottle jam\"");
        section.finish();
        Some(Reason { code: code?.to_owned(), text: text?.to_owned() })
    };
    sections.filter_map(reason).collect()
}
