//! What is wrong with a `plant.toml`, all of it at once.
//!
//! Somebody who configures a plant should not learn of the second mistake after mending the first. Each finding is one sentence that
//! names the key, what was seen and what is wanted, with its line where there is one.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

/// One sentence about the configuration, and where it belongs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The line in the file, from 1; `None` when it is about what is not there.
    pub line: Option<usize>,
    /// The sentence.
    pub text: String,
}

/// Everything that is wrong with one file.
#[derive(Debug, Clone, thiserror::Error)]
pub struct ConfigErrors {
    /// The file that was read.
    pub file: PathBuf,
    /// What must be mended, in the file's order; at least one.
    pub errors: Vec<Finding>,
    /// What is allowed and probably not meant.
    pub warnings: Vec<Finding>,
}

impl ConfigErrors {
    /// One error that is about the whole file.
    #[must_use]
    pub fn whole_file(file: PathBuf, text: String) -> Self {
        Self { file, errors: vec![Finding { line: None, text }], warnings: Vec::new() }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, finding) in self.errors.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", finding.in_file(&self.file.display().to_string()))?;
        }
        Ok(())
    }
}

impl Finding {
    /// `file:line: sentence`, as compilers write it, so that editors jump there.
    #[must_use]
    pub fn in_file(&self, file: &str) -> String {
        match self.line {
            Some(line) => format!("{file}:{line}: {}", self.text),
            None => format!("{file}: {}", self.text),
        }
    }
}

/// Collects findings while a file is read; shared by all its sections.
pub(super) struct Findings {
    line_starts: Vec<usize>,
    errors: RefCell<Vec<Finding>>,
    warnings: RefCell<Vec<Finding>>,
}

impl Findings {
    /// None yet, for this text.
    pub(super) fn of(text: &str) -> Self {
        let starts = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(n, _)| n + 1);
        Self {
            line_starts: std::iter::once(0).chain(starts).collect(),
            errors: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    fn finding(&self, at: &Range<usize>, text: String) -> Finding {
        let line = self.line_starts.partition_point(|start| *start <= at.start);
        Finding { line: Some(line.max(1)), text }
    }

    /// Something that must be mended.
    pub(super) fn error(&self, at: &Range<usize>, text: String) {
        self.errors.borrow_mut().push(self.finding(at, text));
    }

    /// Something that is allowed and probably not meant.
    pub(super) fn warning(&self, at: &Range<usize>, text: String) {
        self.warnings.borrow_mut().push(self.finding(at, text));
    }

    /// Errors and warnings, each in the file's order and each once.
    pub(super) fn sorted(self) -> (Vec<Finding>, Vec<Finding>) {
        let sorted = |findings: RefCell<Vec<Finding>>| {
            let mut findings = findings.into_inner();
            findings.sort();
            findings.dedup();
            findings
        };
        (sorted(self.errors), sorted(self.warnings))
    }
}
