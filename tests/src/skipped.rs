//! Tests that this machine can not run are said to be skipped, by name and with the reason: nobody is to take them for passed.

use std::fs::File;
use std::io::Write;

use anyhow::Context;

/// Says that the running test is skipped, for a reason that reads on after its name: on standard error, and in the file that
/// `PLANT_SKIPPED` names, which `cargo xtask test` prints in the end. The test is to return then.
///
/// # Errors
/// When the file can not be written.
pub fn skipped(why: &str) -> anyhow::Result<()> {
    let named = std::env::var("NEXTEST_TEST_NAME").ok();
    let named = named.or_else(|| std::thread::current().name().map(str::to_owned)).unwrap_or_default();
    let line = format!("{named}: {why}\n");
    // Past what the test runner captures.
    std::io::stderr().write_all(format!("SKIPPED {line}").as_bytes())?;
    let Some(list) = std::env::var_os("PLANT_SKIPPED") else { return Ok(()) };
    let mut list = File::options().create(true).append(true).open(&list).with_context(|| format!("{list:?}"))?;
    // One write: tests run at once.
    Ok(list.write_all(line.as_bytes())?)
}
