//! `plant.toml` as typed: sections that are asked for their keys.
//!
//! Serde stops at the first mistake and forgets where it was, so the document is kept as a tree with positions. A section notes which
//! keys were asked for: what is left over in the end is unknown, and is reported with the nearest key that exists. What has the
//! wrong type is reported once and then treated as absent, so that one mistake gives one sentence.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::findings::Findings;
use super::{duration, size, suggest};

/// Where variables come from: the process's environment, or a test's.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What all sections of one document share.
pub(super) struct Document<'a> {
    pub(super) findings: Findings,
    pub(super) environment: Environment<'a>,
}

/// One table of the document.
pub(super) struct Section<'a> {
    path: String,
    at: Range<usize>,
    table: &'a DeTable<'a>,
    document: &'a Document<'a>,
    asked: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Section<'a> {
    /// The whole document.
    pub(super) fn root(table: &'a DeTable<'a>, document: &'a Document<'a>) -> Self {
        Self { path: String::new(), at: 0..0, table, document, asked: RefCell::default() }
    }

    fn within(&self, path: String, at: Range<usize>, table: &'a DeTable<'a>) -> Self {
        Self { path, at, table, document: self.document, asked: RefCell::default() }
    }

    /// The same table under a name that people know it by.
    pub(super) fn called(mut self, path: String) -> Self {
        self.path = path;
        self
    }

    /// How messages call it.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// A key's full name.
    pub(super) fn key(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn entry(&self, key: &'static str) -> Option<(Range<usize>, &'a DeValue<'a>)> {
        self.asked.borrow_mut().insert(key);
        self.table.get_key_value(key).map(|(name, value)| (name.span(), value.get_ref()))
    }

    /// Whether the key is there, whatever its value.
    pub(super) fn has(&self, key: &'static str) -> bool {
        self.entry(key).is_some()
    }

    fn position(&self, key: &str) -> Range<usize> {
        self.table.get_key_value(key).map_or_else(|| self.at.clone(), |(name, _)| name.span())
    }

    /// Reports `KEY TEXT` at the key, or at the section when the key is absent.
    pub(super) fn wrong(&self, key: &str, text: impl AsRef<str>) {
        self.document.findings.error(&self.position(key), format!("{} {}", self.key(key), text.as_ref()));
    }

    /// Warns `KEY TEXT`, likewise.
    pub(super) fn doubtful(&self, key: &str, text: impl AsRef<str>) {
        self.document.findings.warning(&self.position(key), format!("{} {}", self.key(key), text.as_ref()));
    }

    /// Reports a sentence about the section itself.
    pub(super) fn wrong_here(&self, text: impl Into<String>) {
        self.document.findings.error(&self.at, text.into());
    }

    /// Warns with a sentence about the section itself.
    pub(super) fn doubtful_here(&self, text: impl Into<String>) {
        self.document.findings.warning(&self.at, text.into());
    }

    fn wrong_type(&self, key: &str, value: &DeValue<'_>, wanted: &str) {
        self.wrong(key, format!("is {}: {wanted}", seen(value)));
    }

    /// A text.
    pub(super) fn text(&self, key: &'static str) -> Option<&'a str> {
        let (_, value) = self.entry(key)?;
        let text = value.as_str();
        if text.is_none() {
            self.wrong_type(key, value, "write a text in quotes");
        }
        text
    }

    /// A text that must be there and not be empty; `wanted` says what to write.
    pub(super) fn required(&self, key: &'static str, wanted: &str) -> Option<&'a str> {
        if !self.has(key) {
            self.wrong(key, format!("is missing: {wanted}"));
            return None;
        }
        let text = self.text(key)?;
        if text.trim().is_empty() {
            self.wrong(key, format!("is empty: {wanted}"));
            return None;
        }
        Some(text)
    }

    /// A truth value.
    pub(super) fn flag(&self, key: &'static str) -> Option<bool> {
        let (_, value) = self.entry(key)?;
        let flag = value.as_bool();
        if flag.is_none() {
            self.wrong_type(key, value, "write true or false");
        }
        flag
    }

    /// A whole number within bounds; `wanted` says which.
    pub(super) fn whole(&self, key: &'static str, bounds: std::ops::RangeInclusive<u64>, wanted: &str) -> Option<u64> {
        let (_, value) = self.entry(key)?;
        let number = value.as_integer().and_then(|i| u64::from_str_radix(i.as_str(), i.radix()).ok());
        let number = number.filter(|n| bounds.contains(n));
        if number.is_none() {
            self.wrong_type(key, value, wanted);
        }
        number
    }

    /// A number above zero.
    pub(super) fn positive(&self, key: &'static str, wanted: &str) -> Option<f64> {
        let (_, value) = self.entry(key)?;
        let written = match value {
            DeValue::Integer(i) if i.radix() == 10 => i.as_str(),
            DeValue::Float(f) => f.as_str(),
            _ => "",
        };
        let number = written.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
        if number.is_none() {
            self.wrong_type(key, value, wanted);
        }
        number
    }

    /// A duration like `"200ms"`, above zero.
    pub(super) fn duration(&self, key: &'static str) -> Option<Duration> {
        let text = self.text(key)?;
        let parsed = duration::parse(text);
        if let Err(error) = &parsed {
            self.wrong(key, format!("is wrong: {error}"));
        }
        parsed.ok()
    }

    /// A size like `"32MiB"`.
    pub(super) fn size(&self, key: &'static str) -> Option<usize> {
        let text = self.text(key)?;
        let parsed = size::parse(text);
        if let Err(error) = &parsed {
            self.wrong(key, format!("is wrong: {error}"));
        }
        parsed.ok()
    }

    /// A list of texts.
    pub(super) fn texts(&self, key: &'static str) -> Option<Vec<&'a str>> {
        let (_, value) = self.entry(key)?;
        let texts = value.as_array().and_then(|list| list.iter().map(|item| item.get_ref().as_str()).collect());
        if texts.is_none() {
            self.wrong_type(key, value, "write a list of texts, such as [\"a\", \"b\"]");
        }
        texts
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text(key)?;
        let chosen = choices.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        if chosen.is_none() {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            self.wrong(key, format!("is {text:?}: use {}", either(&words)));
        }
        chosen
    }

    /// The value of the environment variable that the key names; reported when it is not set.
    pub(super) fn variable(&self, key: &'static str) -> Option<String> {
        let name = self.required(key, "name the environment variable that holds the value")?;
        let value = (self.document.environment)(name).filter(|value| !value.is_empty());
        if value.is_none() {
            self.wrong(
                key,
                format!("names {name}, and that environment variable is not set: set it, then start again"),
            );
        }
        value
    }

    /// Like [`Self::variable`], for what not every node needs.
    pub(super) fn optional_variable(&self, key: &'static str) -> Option<String> {
        let name = self.text(key)?;
        (self.document.environment)(name).filter(|value| !value.is_empty())
    }

    /// The key's value as it stands.
    pub(super) fn value(&self, key: &'static str) -> Option<&'a DeValue<'a>> {
        self.entry(key).map(|(_, value)| value)
    }

    /// A table under a key.
    pub(super) fn section(&self, key: &'static str) -> Option<Self> {
        let (at, value) = self.entry(key)?;
        let Some(table) = value.as_table() else {
            self.wrong_type(key, value, &format!("write a section [{}]", self.key(key)));
            return None;
        };
        Some(self.within(self.key(key), at, table))
    }

    /// The tables in a table of tables, `[KEY.NAME]`, by their names.
    pub(super) fn named_sections(&self, key: &'static str) -> Vec<(&'a str, Self)> {
        self.section(key).map(|all| all.children()).unwrap_or_default()
    }

    /// The tables in this one, whatever their names; anything else is reported.
    pub(super) fn children(&self) -> Vec<(&'a str, Self)> {
        let mut found = Vec::new();
        for (name, value) in self.table.iter() {
            let text = name.get_ref().as_ref();
            match value.get_ref().as_table() {
                Some(table) => found.push((text, self.within(self.key(text), name.span(), table))),
                None => self.wrong_type(text, value.get_ref(), &format!("write a section [{}]", self.key(text))),
            }
        }
        found
    }

    /// The tables of `[[KEY]]`, in the file's order.
    pub(super) fn list(&self, key: &'static str) -> Vec<Self> {
        let Some((_, value)) = self.entry(key) else { return Vec::new() };
        let tables: Option<Vec<_>> = value.as_array().and_then(|list| {
            let each = |item: &'a Spanned<DeValue<'a>>| Some((item.span(), item.get_ref().as_table()?));
            list.iter().map(each).collect()
        });
        let Some(tables) = tables else {
            self.wrong_type(key, value, &format!("write each entry as a section [[{}]]", self.key(key)));
            return Vec::new();
        };
        let named = |(n, (at, table))| self.within(format!("{}[{}]", self.key(key), n + 1), at, table);
        tables.into_iter().enumerate().map(named).collect()
    }

    /// The keys that are there.
    pub(super) fn names(&self) -> impl Iterator<Item = (&'a str, &'a DeValue<'a>)> {
        self.table.iter().map(|(name, value)| (name.get_ref().as_ref(), value.get_ref()))
    }

    /// Reports every key that nobody asked for.
    pub(super) fn finish(self) {
        let asked = self.asked.borrow();
        for (name, _) in self.names().filter(|(name, _)| !asked.contains(name)) {
            let hint = match suggest::nearest(name, asked.iter().copied()) {
                Some(known) => format!("did you mean {known}?"),
                None => format!("known here: {}", asked.iter().copied().collect::<Vec<_>>().join(", ")),
            };
            self.wrong(name, format!("is not known: {hint}"));
        }
    }
}

/// What was written, short enough for a sentence.
pub(super) fn seen(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.chars().count() > 60 => {
            format!("{:?}", text.chars().take(59).chain(['…']).collect::<String>())
        }
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// `a, b or c`, each in quotes.
pub(super) fn either(words: &[&str]) -> String {
    match words.split_last() {
        Some((last, [])) => format!("{last:?}"),
        Some((last, rest)) => {
            let rest: Vec<String> = rest.iter().map(|word| format!("{word:?}")).collect();
            format!("{} or {last:?}", rest.join(", "))
        }
        None => String::new(),
    }
}
