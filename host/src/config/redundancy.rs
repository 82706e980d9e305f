//! `[redundancy]`: that there are several nodes, and where it is decided which of them works.

use std::collections::BTreeMap;
use std::time::Duration;

use super::raw::Section;
use super::{Bus, Leases, OnDemotion, PAIR, Redundancy, Scope, Serve, Store, bus};

/// The advisory lock of `postgres-lock`, unless the plant names another.
const LOCK_KEY: i64 = 5_715_144_172_572_004_183;
const BUCKET: &str = "plant_leases";

/// The words of `redundancy.store`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Postgres,
    PostgresLock,
    Nats,
}

const KINDS: [(&str, Kind); 3] =
    [("postgres", Kind::Postgres), ("postgres-lock", Kind::PostgresLock), ("nats", Kind::Nats)];

pub(super) fn redundancy(
    root: &Section<'_>,
    store: Option<&Store>,
    serve: Option<&Serve>,
    buses: &BTreeMap<String, Bus>,
) -> Option<Redundancy> {
    let section = root.section("redundancy")?;
    let seconds =
        section.whole("lease_seconds", 2..=3600, "use a whole number of seconds from 2 to 3600; 10 is the default");
    let kind = section.choice("store", &KINDS).unwrap_or(Kind::Postgres);
    needs_postgres(&section, store, kind);
    let secret_is_named = root.section("serve").is_some_and(|serve| serve.has("secret_key_env"));
    if serve.is_some() && !secret_is_named {
        section.wrong_here(
            "redundancy needs a key that all nodes share and serve.secret_key_env is missing: \
             name there the environment variable that holds it",
        );
    }
    let scope = section.choice("scope", &[("role", Scope::Role), ("node", Scope::Node)]).unwrap_or(Scope::Role);
    let demotions = [("standby", OnDemotion::Standby), ("exit", OnDemotion::Exit)];
    let on_demotion = section.choice("on_demotion", &demotions).unwrap_or(OnDemotion::Standby);
    if scope == Scope::Node && root.section("roles").is_some_and(|roles| roles.has(PAIR)) {
        section.wrong(
            "scope",
            format!("is \"node\", which makes `{PAIR}` the lease of the pair: call the role [roles.{PAIR}] otherwise"),
        );
    }
    let leases = leases(&section, kind, buses);
    section.finish();
    Some(Redundancy { lease: Duration::from_secs(seconds.unwrap_or(10)), leases, scope, on_demotion })
}

fn needs_postgres(section: &Section<'_>, store: Option<&Store>, kind: Kind) {
    if !matches!(store, Some(Store::Sqlite { .. })) {
        return;
    }
    section.wrong_here(if kind == Kind::Nats {
        "redundancy.store = \"nats\" keeps leases in NATS and their fences in PostgreSQL, and store.url is SQLite: \
         set store.url to postgres://…, or remove [redundancy]"
    } else {
        "redundancy needs PostgreSQL and store.url is SQLite, which only one node can use: \
         set store.url to postgres://…, or remove [redundancy]"
    });
}

/// What the store needs to know; keys that belong to another store are read for mistakes, and said to do nothing.
fn leases(section: &Section<'_>, kind: Kind, buses: &BTreeMap<String, Bus>) -> Leases {
    let key = section.whole("lock_key", 0..=i64::MAX as u64, "use a whole number of up to 63 bits");
    let bucket = section.text("bucket");
    if let Some(name) = bucket.filter(|name| !bucket_name(name)) {
        section.wrong("bucket", format!("is {name:?}: name the bucket with letters, digits, '-' and '_'"));
    }
    let bus = if kind == Kind::Nats { nats(section, buses) } else { section.text("bus").and(None) };
    let word = KINDS.iter().find(|(_, named)| *named == kind).map_or("", |(word, _)| *word);
    for (name, owner) in [("lock_key", Kind::PostgresLock), ("bus", Kind::Nats), ("bucket", Kind::Nats)] {
        if owner != kind && section.has(name) {
            section.doubtful(name, format!("has no effect with redundancy.store = {word:?}"));
        }
    }
    match (kind, bus) {
        (Kind::PostgresLock, _) => {
            Leases::PostgresLock { key: key.and_then(|key| i64::try_from(key).ok()).unwrap_or(LOCK_KEY) }
        }
        (Kind::Nats, Some(bus)) => Leases::Nats { bus: bus.clone(), bucket: bucket.unwrap_or(BUCKET).to_owned() },
        // Without a bus it was reported, and nothing is started with what is here.
        (Kind::Postgres | Kind::Nats, _) => Leases::Postgres,
    }
}

fn bucket_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

/// The broker that keeps the leases: the one that is named, or the only one there is.
fn nats<'b>(section: &Section<'_>, buses: &'b BTreeMap<String, Bus>) -> Option<&'b Bus> {
    let bus = match section.text("bus") {
        Some(name) => bus::named(section, "bus", name, name, buses)?,
        None if section.has("bus") => return None,
        None => match buses.len() {
            0 => {
                section.wrong(
                    "store",
                    "is \"nats\", and no [bus.NAME] says where NATS is: add one with url = \"nats://HOST:4222\"",
                );
                return None;
            }
            1 => buses.values().next()?,
            _ => {
                let known = bus::names(buses);
                section.wrong("store", format!("is \"nats\", and redundancy.bus is missing: name one of {known}"));
                return None;
            }
        },
    };
    let at = if section.has("bus") { "bus" } else { "store" };
    bus::is_nats(section, at, bus).then_some(bus)
}
