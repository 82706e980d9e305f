//! What is known of each statement text, found out once: that it may be sent, its parameters' types, and its form over arrays.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sqlparser::dialect::PostgreSqlDialect;

use super::encode::element;
use super::kind::{Kind, Target};
use crate::store::batch::{Sent, Template};
use crate::store::columns::repeats;
use crate::store::value::ColumnData;
use crate::store::{Bounds, DbError, sql};

/// The most texts that are remembered; a role has a few dozen.
const MOST: usize = 512;

/// Everything known of the texts that a role sends.
#[derive(Debug, Default)]
pub(super) struct Plans(Mutex<HashMap<String, Arc<Plan>>>);

/// One statement text.
#[derive(Debug)]
pub(super) struct Plan {
    /// Its form over arrays, where it has one.
    template: Option<Template>,
    /// Its parameters, once a server has described them.
    targets: OnceLock<Vec<Target>>,
    /// The rendered forms, by how the columns are sent.
    rendered: Mutex<HashMap<Vec<Kind>, Arc<str>>>,
}

impl Plans {
    /// What is known of a text; a text that may not be sent is an error each time.
    pub(super) fn get(&self, text: &str, bounds: &Bounds) -> Result<Arc<Plan>, DbError> {
        if let Some(plan) = self.lock().get(text) {
            return Ok(plan.clone());
        }
        let parsed = sql::parse(&PostgreSqlDialect {}, text, bounds)?;
        let template = Template::of(text, &parsed.statement);
        let plan = Arc::new(Plan { template, targets: OnceLock::new(), rendered: Mutex::default() });
        let mut plans = self.lock();
        if plans.len() >= MOST {
            plans.clear();
        }
        plans.insert(text.to_owned(), plan.clone());
        Ok(plan)
    }

    /// Forgets a text: the tables under it may have changed.
    pub(super) fn forget(&self, text: &str) {
        self.lock().remove(text);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Plan>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plan {
    /// Whether these columns can run over arrays, with the same result as one row after the other.
    pub(super) fn is_batch(&self, columns: &[ColumnData], runs: usize) -> bool {
        let Some(template) = &self.template else { return false };
        template.keys().is_none_or(|keys| !repeats(columns, keys, runs))
    }

    /// Its parameters, if they were described before.
    pub(super) fn targets(&self) -> Option<&[Target]> {
        self.targets.get().map(Vec::as_slice)
    }

    /// Its parameters, now that they are described.
    pub(super) fn describe(&self, targets: Vec<Target>) -> &[Target] {
        self.targets.get_or_init(|| targets)
    }

    /// The text over arrays for these columns, and the type of each array's elements.
    pub(super) fn over_arrays(
        &self,
        targets: &[Target],
        columns: &[ColumnData],
    ) -> Result<(Arc<str>, Vec<Kind>), String> {
        let mut elements = Vec::with_capacity(columns.len());
        for (n, (column, target)) in columns.iter().zip(targets).enumerate() {
            elements.push(element(&column.values, target).map_err(|why| format!("${}: {why}", n + 1))?);
        }
        let mut rendered = self.rendered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = rendered.get(&elements) {
            return Ok((text.clone(), elements));
        }
        let sent: Vec<Sent<'_>> =
            elements.iter().zip(targets).map(|(element, target)| sent(*element, target)).collect();
        let text = self.template.as_ref().and_then(|template| template.render(&sent));
        let text: Arc<str> = text.ok_or("a parameter of the statement has no column")?.into();
        rendered.insert(elements.clone(), text.clone());
        Ok((text, elements))
    }
}

fn sent(element: Kind, target: &Target) -> Sent<'_> {
    let same = element == target.kind && !target.own && element != Kind::Unknown;
    Sent { element: element.sql(), cast: (!same).then_some(target.name.as_str()) }
}
