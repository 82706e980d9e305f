//! What a machine does not allow: tests that find that out write a line with their name and the reason into a file, and it is printed
//! when all have run, since a runner hides what a passing test says.

use std::fs;
use std::process::Command;

use tempfile::NamedTempFile;

/// The file.
pub struct Skipped(NamedTempFile);

impl Skipped {
    /// An empty one, which the tests of `runner` are told of.
    pub fn of(runner: &mut Command) -> anyhow::Result<Self> {
        let list = NamedTempFile::with_prefix("plant-skipped-")?;
        runner.env("PLANT_SKIPPED", list.path());
        Ok(Self(list))
    }

    /// Prints what was skipped.
    pub fn tell(self) -> anyhow::Result<()> {
        print!("{}", told(&fs::read_to_string(self.0.path())?));
        Ok(())
    }
}

fn told(list: &str) -> String {
    let mut lines: Vec<&str> = list.lines().collect();
    lines.sort_unstable();
    let lines = lines.into_iter().map(|line| format!("SKIPPED {line}\n"));
    let lines: String = lines.collect();
    if lines.is_empty() {
        lines
    } else {
        format!("\nThese tests can not be run on this machine, and were not:\n{lines}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_skipped_is_told_by_name_and_reason_and_nothing_where_nothing_was() {
        assert_eq!(told(""), "");
        let list = "cut: no network namespace can be made\nclocks: no faketime\n";
        assert!(told(list).ends_with("SKIPPED clocks: no faketime\nSKIPPED cut: no network namespace can be made\n"));
    }
}
