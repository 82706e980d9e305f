//! What a module says of itself: its name and version, the capabilities it asks for, its timers and the shape of its configuration.
//!
//! The manifest is TOML in the component's custom section `plant:role`, so that it travels with the module and is read without
//! running anything of it. It asks; what a role may really do is what `plant.toml` allows of that.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jsonschema::Validator;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::duration;

/// The custom section that holds the manifest.
pub const SECTION: &str = "plant:role";
/// The largest manifest, in bytes.
const MANIFEST_BYTES: usize = 1 << 20;
/// A shorter timer would do nothing but wake up.
const SHORTEST_TIMER: Duration = Duration::from_millis(10);
/// How much of a wrong value is shown.
const SHOWN_CHARS: usize = 300;

/// A manifest that is not usable; one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ManifestError(String);

/// A capability that is not there for every role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// `plant:db`.
    Db,
    /// `plant:opc`.
    Opc,
}

/// What kind of figure a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// One metric.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// What kind of figure it is.
    pub kind: MetricKind,
    /// A sentence for whoever reads `/metrics`.
    #[serde(default)]
    pub help: String,
}

/// A checked manifest.
#[derive(Clone)]
pub struct Manifest {
    /// The module's name, which is also its file's.
    pub name: String,
    /// The module's version.
    pub version: String,
    /// A sentence for people.
    pub description: String,
    /// What it wants beyond what every role has.
    pub asks: BTreeSet<Ask>,
    /// Its timers and how often each is due.
    pub timers: BTreeMap<String, Duration>,
    /// Its metrics, by their names without `role_<role>_`.
    pub metrics: BTreeMap<String, Metric>,
    schema: Option<(Value, Validator)>,
}

impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manifest").field("name", &self.name).field("version", &self.version).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    version: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    asks: RawAsks,
    #[serde(default)]
    timers: BTreeMap<String, RawTimer>,
    #[serde(default)]
    metrics: BTreeMap<String, Metric>,
    #[serde(default)]
    config: RawConfig,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawAsks {
    #[serde(default)]
    db: bool,
    #[serde(default)]
    opc: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTimer {
    every: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    schema: Option<Value>,
}

impl Manifest {
    /// Reads a manifest's bytes, as they stand in the custom section or in a file.
    ///
    /// # Errors
    /// One sentence with the line or key, what was seen and what is wanted.
    pub fn read(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > MANIFEST_BYTES {
            return Err(ManifestError(format!("its manifest has {} bytes and may have {MANIFEST_BYTES}", bytes.len())));
        }
        let text = std::str::from_utf8(bytes).map_err(|e| ManifestError(format!("its manifest is not UTF-8: {e}")))?;
        let raw: Raw = toml::from_str(text).map_err(|e| at_line(text, &e))?;
        raw.checked()
    }

    /// Checks a role's own configuration against the module's schema; without a schema everything is good. No configuration counts as
    /// an empty one.
    ///
    /// # Errors
    /// One sentence with the path below the role's `config`, what was seen and what is wanted.
    pub fn check_config(&self, config: &Value) -> Result<(), String> {
        let Some((_, validator)) = &self.schema else { return Ok(()) };
        let nothing = Value::Object(serde_json::Map::new());
        let config = if config.is_null() { &nothing } else { config };
        let Err(error) = validator.validate(config) else { return Ok(()) };
        let place = dotted(error.instance_path().as_str());
        Err(format!(
            "`config{place}` is not what the module {} {} wants: {}",
            self.name,
            self.version,
            shortened(&error.to_string())
        ))
    }

    /// The schema of the role's configuration, if it has one.
    #[must_use]
    pub fn schema(&self) -> Option<&Value> {
        self.schema.as_ref().map(|(schema, _)| schema)
    }
}

impl Raw {
    fn checked(self) -> Result<Manifest, ManifestError> {
        if self.name.is_empty() || self.version.is_empty() {
            return Err(ManifestError("its manifest has an empty `name` or `version`: give both".into()));
        }
        let mut timers = BTreeMap::new();
        for (name, timer) in self.timers {
            let wrong = |reason: String| ManifestError(format!("`timers.{name}.every` in its manifest: {reason}"));
            let every = duration::parse(&timer.every).map_err(wrong)?;
            if every < SHORTEST_TIMER {
                return Err(wrong(format!("{:?} is too short: use at least \"10ms\"", timer.every)));
            }
            timers.insert(name, every);
        }
        let asks = [(self.asks.db, Ask::Db), (self.asks.opc, Ask::Opc)];
        Ok(Manifest {
            name: self.name,
            version: self.version,
            description: self.description,
            asks: asks.into_iter().filter_map(|(wanted, ask)| wanted.then_some(ask)).collect(),
            timers,
            metrics: self.metrics,
            schema: self.config.schema.map(schema).transpose()?,
        })
    }
}

/// A schema is a TOML table, or JSON in a string for those who have it already.
fn schema(given: Value) -> Result<(Value, Validator), ManifestError> {
    let wrong = |reason: String| ManifestError(format!("`config.schema` in its manifest is no JSON Schema: {reason}"));
    let schema = match given {
        Value::String(json) => serde_json::from_str(&json).map_err(|e| wrong(e.to_string()))?,
        table @ Value::Object(_) => table,
        other => return Err(wrong(format!("saw {}, want a table or a string of JSON", shortened(&other.to_string())))),
    };
    let validator = jsonschema::validator_for(&schema).map_err(|e| {
        let place = dotted(e.instance_path().as_str());
        wrong(format!(
            "{}{}",
            if place.is_empty() { String::new() } else { format!("at `{place}`: ") },
            shortened(&e.to_string())
        ))
    })?;
    Ok((schema, validator))
}

fn at_line(text: &str, error: &toml::de::Error) -> ManifestError {
    let line = error.span().and_then(|span| text.get(..span.start)).map(|before| before.matches('\n').count() + 1);
    let place = line.map(|line| format!("line {line} of ")).unwrap_or_default();
    ManifestError(format!("{place}its manifest is wrong: {}", shortened(error.message()).replace('\n', ", ")))
}

/// A JSON pointer as people write paths: `/a/0/b` is `.a[0].b`.
fn dotted(pointer: &str) -> String {
    let steps = pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"));
    steps.map(|step| if step.parse::<usize>().is_ok() { format!("[{step}]") } else { format!(".{step}") }).collect()
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= SHOWN_CHARS {
        return text.to_owned();
    }
    let mut start: String = text.chars().take(SHOWN_CHARS).collect();
    start.push('…');
    start
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LABEL: &str = r#"
name = "label"
version = "1.2.0"
description = "prints labels"
[asks]
db = true
[timers.tick]
every = "250ms"
[metrics.printed]
kind = "counter"
help = "labels printed"
[config.schema]
type = "object"
additionalProperties = false
required = ["printer"]
[config.schema.properties]
printer = { type = "string" }
copies = { type = "array", items = { type = "integer", minimum = 1 } }
"#;

    fn refused(text: &str) -> String {
        Manifest::read(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_whole_manifest_is_read() {
        let manifest = Manifest::read(LABEL.as_bytes()).unwrap();
        assert_eq!((manifest.name.as_str(), manifest.version.as_str()), ("label", "1.2.0"));
        assert_eq!(manifest.asks, BTreeSet::from([Ask::Db]));
        assert_eq!(manifest.timers, BTreeMap::from([("tick".to_owned(), Duration::from_millis(250))]));
        assert_eq!(manifest.metrics["printed"].kind, MetricKind::Counter);
        assert_eq!(manifest.schema().unwrap()["type"], "object");
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = refused("name = \"label\"\nversion = \"1\"\n[timers.tick]\nevery = \"1s\"\nevry = \"1s\"\n");
        assert_eq!(error, "line 5 of its manifest is wrong: unknown field `evry`, expected `every`");
        let error = refused("name = \"label\"\nversion = \"1\"\n[asks]\nteleport = true\n");
        assert_eq!(error, "line 4 of its manifest is wrong: unknown field `teleport`, expected `db` or `opc`");
    }

    #[test]
    fn a_timer_that_is_no_duration_or_too_short_is_refused() {
        let with =
            |every: &str| refused(&format!("name = \"l\"\nversion = \"1\"\n[timers.tick]\nevery = \"{every}\"\n"));
        assert!(with("5").starts_with("`timers.tick.every` in its manifest: \"5\" is no duration: "), "{}", with("5"));
        assert_eq!(with("0s"), "`timers.tick.every` in its manifest: \"0s\" is too short: use at least \"10ms\"");
    }

    #[test]
    fn a_manifest_that_is_no_toml_or_no_text_is_refused() {
        assert!(refused("name = ").starts_with("line 1 of its manifest is wrong: "), "{}", refused("name = "));
        assert!(refused("version = \"1\"").contains("missing field `name`"));
        assert!(refused("name = \"\"\nversion = \"1\"").contains("empty `name` or `version`"));
        let error = Manifest::read(&[0xff, 0xfe]).unwrap_err().to_string();
        assert!(error.starts_with("its manifest is not UTF-8"), "{error}");
    }

    #[test]
    fn a_configuration_is_checked_with_path_seen_and_wanted() {
        let manifest = Manifest::read(LABEL.as_bytes()).unwrap();
        let check = |config: Value| manifest.check_config(&config).unwrap_err();
        assert_eq!(manifest.check_config(&json!({ "printer": "line-1", "copies": [1] })), Ok(()));
        assert_eq!(
            check(json!({ "printer": 7 })),
            "`config.printer` is not what the module label 1.2.0 wants: 7 is not of type \"string\""
        );
        assert_eq!(
            check(json!({ "printer": "a", "copies": [1, 0] })),
            "`config.copies[1]` is not what the module label 1.2.0 wants: 0 is less than the minimum of 1"
        );
        assert!(check(json!({ "printer": "a", "speed": 1 })).contains("'speed' was unexpected"));
        assert!(check(Value::Null).contains("\"printer\" is a required property"));
    }

    #[test]
    fn a_schema_may_be_json_in_a_string_and_must_be_a_schema() {
        let with = |schema: &str| {
            Manifest::read(format!("name = \"l\"\nversion = \"1\"\n[config]\nschema = {schema}\n").as_bytes())
        };
        let manifest = with("'{\"type\": \"object\", \"required\": [\"a\"]}'").unwrap();
        assert!(manifest.check_config(&json!({})).is_err());
        let wrong = |schema: &str| with(schema).unwrap_err().to_string();
        assert!(wrong("'{'").starts_with("`config.schema` in its manifest is no JSON Schema: "), "{}", wrong("'{'"));
        assert!(wrong("3").ends_with("saw 3, want a table or a string of JSON"), "{}", wrong("3"));
        assert!(wrong("{ type = \"strng\" }").contains("at `.type`: "), "{}", wrong("{ type = \"strng\" }"));
    }

    #[test]
    fn a_wrong_value_is_shown_in_part() {
        let manifest = Manifest::read(LABEL.as_bytes()).unwrap();
        let error = manifest.check_config(&json!({ "printer": vec!["long"; 10_000] })).unwrap_err();
        assert!(error.len() < 500, "{}", error.len());
    }
}
