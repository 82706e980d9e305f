//! A plant that uses every key of the contract is read as it is meant.

use std::path::Path;
use std::time::Duration;

use host::config::{Config, Leases, MailSecurity, OnFall, OnReset, Security, StateMap, Store, Uncertain};

#[cfg(test)]
fn environment(name: &str) -> Option<String> {
    matches!(name, "PLANT_SECRET" | "PLANT_TOKEN").then(|| "0123456789abcdef".to_owned())
}

#[cfg(test)]
fn load(text: &str) -> Config {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plant.toml");
    std::fs::write(&file, text).unwrap();
    Config::load_with(&file, &environment).unwrap_or_else(|errors| panic!("{errors}"))
}

#[cfg(test)]
fn every_key() -> Config {
    let text = include_str!("config_good/plant.toml");
    load(text)
}

#[test]
fn a_plant_with_only_a_name_has_defaults_that_suit_a_small_plant() {
    let config = load("[plant]\nname = \"bottling\"\n");
    assert_eq!(config.plant.timezone, "UTC");
    assert!(!config.plant.simulated);
    assert_eq!((config.serve.bind.as_str(), config.serve.api_port), ("127.0.0.1", 8080));
    assert!(config.redundancy.is_none());
    let Store::Sqlite { path } = config.store else { panic!("SQLite is the default") };
    assert!(path.ends_with("plant.db"));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn every_key_of_a_counter_is_read() {
    let config = every_key();
    let machine = &config.machines[0];
    let good = machine.good.as_ref().unwrap();
    assert_eq!(good.node, "nsu=urn:plant:simulator;s=FILL01.GoodCount");
    assert_eq!((good.on_fall, good.rollover, good.max_delta), (OnFall::Rollover, Some(65536), Some(5000)));
    assert_eq!((good.on_reset, good.uncertain), (OnReset::FromZero, Uncertain::Book));
    assert_eq!((good.restart_glitch, good.max_rate), (Duration::from_secs(30), Some(20.0)));
    let Some(StateMap::Numbers(map)) = machine.state.as_ref().map(|state| &state.map) else { panic!("a map") };
    assert_eq!(map.get(&4).map(String::as_str), Some("down"));
}

#[test]
fn roles_keep_their_own_configuration_as_json() {
    let config = every_key();
    let label = config.roles.iter().find(|(name, _)| name.as_str() == "label").unwrap().1;
    assert_eq!(
        label.config,
        serde_json::json!({ "printer": "line-1", "copies": 2, "scale": 1.5, "nested": { "on": true } })
    );
    assert_eq!(label.partitions, ["line-1"]);
    assert_eq!(label.limits.memory_bytes, 32 << 20);
    assert_eq!(label.limits.call, Duration::from_secs(5));
    assert_eq!(label.timers.get("tick"), Some(&Duration::from_secs(1)));
    let reader = config.roles.iter().find(|(name, _)| name.as_str() == "reader").unwrap().1;
    assert_eq!((reader.module.as_str(), reader.partitions.as_slice()), ("reader", [String::new()].as_slice()));
}

#[test]
fn redundancy_and_secrets_are_read() {
    let config = every_key();
    assert_eq!(config.redundancy.as_ref().map(|r| r.lease), Some(Duration::from_secs(4)));
    assert_eq!(config.serve.secret_key.as_deref(), Some("0123456789abcdef"));
    assert_eq!(config.opc.get("line").map(|line| line.security), Some(Security::Basic256Sha256));
}

#[cfg(test)]
fn redundant(keys: &str) -> Config {
    load(&format!(
        "[plant]\nname = \"bottling\"\n[store]\nurl = \"postgres://plant@127.0.0.1/bottling\"\n\
         [serve]\nsecret_key_env = \"PLANT_SECRET\"\n[redundancy]\n{keys}"
    ))
}

#[test]
fn each_lease_store_is_read_with_its_keys_and_defaults() {
    let leases = |keys: &str| redundant(keys).redundancy.unwrap().leases;
    assert!(matches!(leases(""), Leases::Postgres));
    assert!(matches!(leases("store = \"postgres\""), Leases::Postgres));
    let lock = leases("store = \"postgres-lock\"");
    assert!(matches!(lock, Leases::PostgresLock { key: 5_715_144_172_572_004_183 }));
    let lock = leases("store = \"postgres-lock\"\nlock_key = 7");
    assert!(matches!(lock, Leases::PostgresLock { key: 7 }));
    // The only bus there is, or the one that is named.
    let one = "store = \"nats\"\n[bus.main]\nurl = \"nats://10.0.0.1:4222\"";
    let Leases::Nats { bus, bucket } = leases(one) else { panic!("nats") };
    assert_eq!(
        (bus.name.as_str(), bus.url.as_str(), bucket.as_str()),
        ("main", "nats://10.0.0.1:4222", "plant_leases")
    );
    let two = "store = \"nats\"\nbus = \"spare\"\nbucket = \"line-1\"\n[bus.main]\nurl = \"mqtt://10.0.0.1\"\n\
               [bus.spare]\nurl = \"tls://10.0.0.2\"\nuser = \"plant\"\npassword_env = \"PLANT_TOKEN\"\nca_file = \"ca.pem\"";
    let Leases::Nats { bus, bucket } = leases(two) else { panic!("nats") };
    assert_eq!((bus.name.as_str(), bucket.as_str()), ("spare", "line-1"));
    assert_eq!(bus.login, Some(("plant".to_owned(), "0123456789abcdef".to_owned())));
    assert!(bus.ca_file.unwrap().ends_with("ca.pem"));
}

#[test]
fn a_key_of_another_lease_store_is_said_to_do_nothing() {
    let config = redundant("lock_key = 7\nbucket = \"leases\"");
    let text = config.warnings.join("\n");
    for key in
        ["redundancy.lock_key has no effect with redundancy.store = \"postgres\"", "redundancy.bucket has no effect"]
    {
        assert!(text.contains(key), "{key} in {text}");
    }
}

/// A warning without its line's number.
#[cfg(test)]
fn from_key(warning: &str) -> &str {
    warning.split_once(": ").unwrap().1
}

#[test]
fn what_this_version_does_not_do_yet_is_said() {
    let config = every_key();
    let text = config.warnings.join("\n");
    let later = text.lines().filter(|line| line.contains("in this version"));
    let later: Vec<&str> = later.map(|line| line.rsplit_once("plant.toml:").unwrap().1).map(from_key).collect();
    assert_eq!(
        later,
        [
            "plant.enterprise is told to roles and has no effect in this version: no bundled role publishes",
            "plant.site is told to roles and has no effect in this version: no bundled role publishes",
            "plant.timezone is told to roles and has no effect in this version: every time that is shown is UTC",
            "opc.line.writer is read and has no effect in this version: no role can write to a server",
            "roles.label.allow is read and grants nothing in this version",
            "tags is read and has no effect in this version: no tag is recorded",
            "reasons is read and has no effect in this version: no stop is given a reason",
            "series is read and has no effect in this version: no code or serial is given",
        ]
    );
    assert!(text.contains("machines[FILL01].scrap.max_rate is missing"), "{text}");
    // Alerts use it.
    assert!(!text.contains("bus is read"), "{text}");
    let unused = load("[plant]\nname = \"p\"\n[bus.main]\nurl = \"nats://10.0.0.1\"\n").warnings.join("\n");
    assert!(unused.contains("bus is read and has no effect"), "{unused}");
}

#[test]
fn every_channel_for_alerts_is_read() {
    let alerts = every_key().alerts;
    assert_eq!(alerts.webhook.as_deref(), Some("http://127.0.0.1:9000/alerts"));
    let (bus, subject) = alerts.bus.unwrap();
    assert_eq!((bus.name.as_str(), subject.as_str()), ("main", "plant.alerts"));
    let email = alerts.email.unwrap();
    assert_eq!((email.server.host.as_str(), email.server.port), ("mail.example", 2587));
    assert_eq!(email.server.security, MailSecurity::StartTls);
    assert_eq!(email.from.email.to_string(), "plant@example.com");
    assert_eq!(email.to.len(), 1);
    assert_eq!(email.login, Some(("plant".to_owned(), "0123456789abcdef".to_owned())));
}

#[test]
fn alerts_without_a_channel_and_a_password_sent_in_the_clear_are_warned_of() {
    let warned = |keys: &str| load(&format!("[plant]\nname = \"p\"\n[alerts]\n{keys}")).warnings.join("\n");
    assert!(warned("").contains("alerts names no channel"));
    let login = "user = \"plant\", password_env = \"PLANT_TOKEN\"";
    let clear =
        format!("email = {{ server = \"smtp://mail\", from = \"a@b.example\", to = [\"c@d.example\"], {login} }}");
    assert!(warned(&clear).contains("alerts.email.user sends its password"));
    assert_eq!(warned(&clear.replace("smtp:", "smtps:")), "");
}

#[test]
fn what_is_logged_by_accident_shows_no_secret() {
    let config = every_key();
    let shown = format!("{config:?}");
    assert!(!shown.contains("0123456789abcdef"), "{shown}");
}

#[test]
fn the_machines_connection_may_be_left_out_where_there_is_only_one() {
    let config = load(
        "[plant]\nname = \"p\"\n[opc.line]\nendpoint = \"opc.tcp://plc:4840\"\n[[machines]]\ncode = \"M\"\nline = \"l\"\n\
         good = { node = \"nsu=urn:x;i=5\", max_rate = 1 }\n",
    );
    assert_eq!(config.machines[0].connection, "line");
}

#[test]
fn a_path_without_a_directory_is_relative_to_the_current_one() {
    let error = Config::load_with(Path::new("no-such-plant.toml"), &environment).unwrap_err();
    assert!(error.to_string().starts_with("no-such-plant.toml: "));
}
