//! Says in a plain `cargo test` what it leaves out and why, and keeps that true.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[cfg(test)]
const WANTS: [&str; 2] = ["harness::", "PLANT_PROBE"];

/// Whether a test, which is a file or a folder of them, asks the harness for what only `cargo xtask test` sets up.
#[cfg(test)]
fn wants_more(test: &Path) -> bool {
    if test.is_dir() {
        return fs::read_dir(test).unwrap().any(|file| wants_more(&file.unwrap().path()));
    }
    let text = fs::read_to_string(test).unwrap();
    // Waiting for a condition takes no server.
    let text = text.replace("harness::process::wait_until", "");
    WANTS.iter().any(|word| text.contains(word))
}

#[cfg(test)]
fn left_out() -> BTreeSet<String> {
    let manifest: toml::Table = include_str!("../Cargo.toml").parse().unwrap();
    let tests = manifest["test"].as_array().unwrap().iter();
    tests
        .filter(|test| test["test"].as_bool() == Some(false))
        .map(|test| test["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn what_needs_servers_or_guests_is_left_out_and_nothing_else() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let here = folder.join("left_out.rs");
    let tests = fs::read_dir(folder).unwrap().map(|test| test.unwrap().path()).filter(|test| *test != here);
    let wanting: BTreeSet<String> = tests
        .filter(|test| wants_more(test))
        .map(|test| test.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(left_out(), wanting, "host/Cargo.toml names those that `cargo test` leaves out: with `test = false`");
}

#[test]
#[ignore = "LEFT OUT: api_served, instances, lease_*, opc_*, store_databases and the tests of whole plants need PostgreSQL, NATS, Python's \
            asyncua or built guests: `cargo xtask test` sets those up and runs all"]
fn the_tests_that_need_servers_or_guests() {}
