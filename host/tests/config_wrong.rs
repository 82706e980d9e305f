//! Every kind of wrong configuration, each a folder of `tests/bad-config` with the message that people get.

use std::path::{Path, PathBuf};

use host::config::Config;

#[cfg(test)]
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/bad-config")
}

/// The variables that are set for all cases.
#[cfg(test)]
fn environment(name: &str) -> Option<String> {
    match name {
        "PLANT_SECRET" => Some("0123456789abcdef0123456789abcdef".to_owned()),
        "PLANT_TOKEN" => Some("a-token-that-is-long-enough".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

#[test]
fn every_wrong_configuration_is_refused_with_its_exact_message() {
    let mut cases: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() >= 25, "{} cases in {}", cases.len(), folder().display());
    let mut wrong = Vec::new();
    for case in &cases {
        let name = case.file_name().unwrap().to_string_lossy();
        let file = case.join("plant.toml");
        let said = match Config::load_with(&file, &environment) {
            Ok(_) => "accepted".to_owned(),
            Err(errors) => errors.to_string().replace(&file.display().to_string(), "plant.toml"),
        };
        // After a message was changed on purpose: run once with this variable, and read the difference.
        if std::env::var_os("PLANT_WRITE_EXPECTED").is_some() {
            std::fs::write(case.join("expected.txt"), format!("{said}\n")).unwrap();
        }
        let expected = std::fs::read_to_string(case.join("expected.txt")).unwrap_or_default();
        if said != expected.trim_end() {
            wrong.push(format!("{name}\n  said:     {said}\n  expected: {}", expected.trim_end()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_file_that_is_not_there_is_one_sentence() {
    let error = Config::load_with(Path::new("/nowhere/plant.toml"), &environment).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/plant.toml: the file cannot be read ("), "{error}");
    assert_eq!(error.lines().count(), 1);
}

#[test]
fn a_random_byte_in_a_good_file_never_panics() {
    let good = include_str!("../../tests/bad-config/several-errors/plant.toml");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plant.toml");
    for at in 0..good.len() {
        let mut bytes = good.as_bytes().to_vec();
        bytes[at] = b"\"[]={}.\n0a\xff"[at % 11];
        std::fs::write(&file, &bytes).unwrap();
        if let Err(errors) = Config::load_with(&file, &environment) {
            assert!(!errors.errors.is_empty());
        }
    }
}
