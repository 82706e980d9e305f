//! `[roles.NAME]`: which roles this plant runs, with which modules and bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use toml::de::DeValue;

use crate::identity::RoleName;

use super::raw::Section;
use super::{Limits, Plant, Role};

pub(super) fn roles(root: &Section<'_>, plant: Option<&Plant>) -> BTreeMap<RoleName, Role> {
    let mut roles = BTreeMap::new();
    for (name, section) in root.named_sections("roles") {
        match name.parse::<RoleName>() {
            Ok(name) => {
                let role = role(&name, section);
                if role.module == "floor" && plant.is_some_and(|plant| !plant.simulated) {
                    root.wrong(
                        "roles",
                        format!("has {name}, which plays people and runs only in a simulated plant: set plant.simulated = true, or remove it"),
                    );
                }
                roles.insert(name, role);
            }
            Err(error) => section.wrong_here(format!("{} has a wrong name: {error}", section.path())),
        }
    }
    roles
}

fn role(name: &RoleName, section: Section<'_>) -> Role {
    if section.has("allow") {
        section.doubtful("allow", "is read and grants nothing in this version");
    }
    let role = Role {
        module: module(&section).unwrap_or_else(|| name.to_string()),
        sha256: sha256(&section),
        partitions: partitions(&section),
        config: section
            .value("config")
            .map_or_else(|| Value::Object(serde_json::Map::new()), |value| config(&section, value)),
        limits: limits(&section),
        timers: timers(&section),
    };
    section.finish();
    role
}

fn module(section: &Section<'_>) -> Option<String> {
    let module = section.text("module")?;
    // The same rule as for names keeps a path from leaving the directory of modules.
    if module.parse::<RoleName>().is_err() {
        section.wrong(
            "module",
            format!("is {module:?}: write the module's name without directory and .wasm, such as \"label\""),
        );
    }
    Some(module.to_owned())
}

fn sha256(section: &Section<'_>) -> Option<String> {
    let hash = section.text("sha256")?;
    if hash.len() != 64 || !hash.chars().all(|c| c.is_ascii_hexdigit()) {
        section.wrong(
            "sha256",
            format!("is {hash:?}: write the 64 hexadecimal digits that `sha256sum` prints for the module"),
        );
    }
    Some(hash.to_ascii_lowercase())
}

fn partitions(section: &Section<'_>) -> Vec<String> {
    let Some(names) = section.texts("partitions") else { return vec![String::new()] };
    if names.is_empty() {
        section.wrong("partitions", "is empty, and then the role would never run: name at least one, or leave it out");
    }
    let mut seen = BTreeSet::new();
    for name in &names {
        if name.parse::<RoleName>().is_err() {
            section.wrong("partitions", format!("has {name:?}: use 1 to 63 letters, digits, '-', '_' or '.'"));
        }
        if !seen.insert(*name) {
            section.wrong("partitions", format!("has {name:?} twice: name each once"));
        }
    }
    names.into_iter().map(str::to_owned).collect()
}

fn config(section: &Section<'_>, value: &DeValue<'_>) -> Value {
    if value.as_table().is_none() {
        section.wrong(
            "config",
            format!(
                "must be a table of the role's own keys, such as config = {{ seed = 1 }}, not {}",
                super::raw::seen(value)
            ),
        );
    }
    json(section, value)
}

fn json(section: &Section<'_>, value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.as_ref().to_owned()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Integer(number) => {
            let signed = i64::from_str_radix(number.as_str(), number.radix()).ok().map(Value::from);
            let number = signed.or_else(|| u64::from_str_radix(number.as_str(), number.radix()).ok().map(Value::from));
            number.unwrap_or_else(|| out_of_range(section, value))
        }
        DeValue::Float(number) => {
            let number = number.as_str().parse::<f64>().ok().and_then(serde_json::Number::from_f64);
            number.map_or_else(|| out_of_range(section, value), Value::Number)
        }
        DeValue::Datetime(time) => Value::String(time.to_string()),
        DeValue::Array(list) => list.iter().map(|item| json(section, item.get_ref())).collect(),
        DeValue::Table(table) => {
            let entry = |(name, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
                let name: &std::borrow::Cow<'_, str> = name.get_ref();
                (name.as_ref().to_owned(), json(section, value.get_ref()))
            };
            Value::Object(table.iter().map(entry).collect())
        }
    }
}

fn out_of_range(section: &Section<'_>, value: &DeValue<'_>) -> Value {
    section.wrong("config", format!("has {}: use a finite number of at most 64 bits", super::raw::seen(value)));
    Value::Null
}

fn limits(section: &Section<'_>) -> Limits {
    let mut limits = Limits::default();
    let Some(given) = section.section("limits") else { return limits };
    if let Some(bytes) = given.size("memory") {
        if !((1 << 20)..=(4 << 30)).contains(&bytes) {
            given.wrong("memory", "is out of bounds: use 1MiB to 4GiB");
        }
        limits.memory_bytes = bytes;
    }
    for key in ["call", "start"] {
        if given.duration(key).is_some_and(|d| d.is_zero()) {
            given.wrong(key, "is zero, and then nothing could run: use at least \"10ms\"");
        }
    }
    limits.call = given.duration("call").unwrap_or(limits.call);
    limits.start = given.duration("start").unwrap_or(limits.start);
    given.finish();
    limits
}

fn timers(section: &Section<'_>) -> BTreeMap<String, Duration> {
    let mut timers = BTreeMap::new();
    for (name, timer) in section.named_sections("timers") {
        if !timer.has("every") {
            timer.wrong("every", "is missing: say how often it ticks, such as { every = \"1s\" }");
        }
        if let Some(every) = timer.duration("every") {
            if every < Duration::from_millis(10) {
                timer.wrong("every", "is too short: at least \"10ms\"");
            }
            timers.insert(name.to_owned(), every);
        }
        timer.finish();
    }
    timers
}
