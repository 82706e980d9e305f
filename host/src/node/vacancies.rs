//! How long roles have had no holder, as this node has seen it.
//!
//! Time in which the database did not answer is unknown, and is not counted: nobody may have been asked to hold the role, or somebody may
//! hold it all the time.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::identity::RoleKey;
use crate::store::vacancy::Look;

/// What has changed for one role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// It has had no holder for so long, which is too long.
    Vacant(RoleKey, Duration),
    /// It was said to be vacant, and is not any more; so long after it began.
    Over(RoleKey, Duration),
}

struct Vacancy {
    since: Instant,
    /// This node has said so.
    told: bool,
}

/// The roles that nobody holds.
pub(super) struct Vacancies {
    patience: Duration,
    vacant: BTreeMap<RoleKey, Vacancy>,
}

impl Vacancies {
    /// A role without a holder for `patience` is worth saying.
    pub(super) fn longer_than(patience: Duration) -> Self {
        Self { patience, vacant: BTreeMap::new() }
    }

    /// Takes note of a look; what this node is to say of it.
    pub(super) fn saw(&mut self, look: &Look, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        self.vacant.retain(|key, vacancy| {
            let goes_on = look.vacant.contains(key);
            // Who has said the one says the other, whoever else has come meanwhile.
            if !goes_on && vacancy.told {
                changes.push(Change::Over(key.clone(), now.duration_since(vacancy.since)));
            }
            goes_on
        });
        for key in &look.vacant {
            let vacancy = self.vacant.entry(key.clone()).or_insert(Vacancy { since: now, told: false });
            let lasted = now.duration_since(vacancy.since);
            if look.is_first && !vacancy.told && lasted >= self.patience {
                vacancy.told = true;
                changes.push(Change::Vacant(key.clone(), lasted));
            }
        }
        changes
    }

    /// The look has failed: what was not said yet is counted anew.
    pub(super) fn saw_nothing(&mut self) {
        self.vacant.retain(|_, vacancy| vacancy.told);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(12);

    fn key() -> RoleKey {
        RoleKey { role: "reader".parse().unwrap(), partition: String::new() }
    }

    fn look(is_vacant: bool, is_first: bool) -> Look {
        Look { vacant: if is_vacant { vec![key()] } else { Vec::new() }, is_first }
    }

    #[test]
    fn a_role_that_stays_vacant_is_told_once_and_so_is_its_end() {
        let (mut vacancies, start) = (Vacancies::longer_than(PATIENCE), Instant::now());
        assert!(vacancies.saw(&look(true, true), start).is_empty());
        assert!(vacancies.saw(&look(true, true), start + PATIENCE / 2).is_empty());
        assert_eq!(vacancies.saw(&look(true, true), start + PATIENCE), [Change::Vacant(key(), PATIENCE)]);
        assert!(vacancies.saw(&look(true, true), start + PATIENCE * 2).is_empty());
        assert_eq!(vacancies.saw(&look(false, true), start + PATIENCE * 3), [Change::Over(key(), PATIENCE * 3)]);
        assert!(vacancies.saw(&look(false, true), start + PATIENCE * 4).is_empty());
    }

    #[test]
    fn a_role_that_is_taken_in_time_is_not_spoken_of() {
        let (mut vacancies, start) = (Vacancies::longer_than(PATIENCE), Instant::now());
        assert!(vacancies.saw(&look(true, true), start).is_empty());
        assert!(vacancies.saw(&look(false, true), start + PATIENCE / 2).is_empty());
        assert!(vacancies.saw(&look(true, true), start + PATIENCE).is_empty(), "counted anew");
    }

    #[test]
    fn only_the_first_node_speaks_and_the_next_one_when_it_is_gone() {
        let (mut vacancies, start) = (Vacancies::longer_than(PATIENCE), Instant::now());
        assert!(vacancies.saw(&look(true, false), start).is_empty());
        assert!(vacancies.saw(&look(true, false), start + PATIENCE).is_empty());
        assert_eq!(vacancies.saw(&look(true, true), start + PATIENCE * 2), [Change::Vacant(key(), PATIENCE * 2)]);
        // One that comes before it again does not end the story for it.
        assert_eq!(vacancies.saw(&look(false, false), start + PATIENCE * 3), [Change::Over(key(), PATIENCE * 3)]);
    }

    #[test]
    fn time_without_the_database_is_not_counted() {
        let (mut vacancies, start) = (Vacancies::longer_than(PATIENCE), Instant::now());
        assert!(vacancies.saw(&look(true, true), start).is_empty());
        vacancies.saw_nothing();
        assert!(vacancies.saw(&look(true, true), start + PATIENCE).is_empty());
        assert_eq!(vacancies.saw(&look(true, true), start + PATIENCE * 2).len(), 1);
        vacancies.saw_nothing();
        assert_eq!(vacancies.saw(&look(false, true), start + PATIENCE * 3).len(), 1, "what was said is taken back");
    }
}
