//! Which commits leave a note of themselves, for the record of takeovers.
//!
//! A note is one more row to write, so not every commit may have one: the first that changes something at an epoch, the first that
//! books, and from then on at most four a second. It commits with what it is about, so it survives whatever ends the holder.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::identity::{Epoch, RoleKey};

/// How often a holder that commits all the time notes it; the resolution of a takeover's `last_commit_at`.
const EVERY: Duration = Duration::from_millis(250);

/// The newest note of each role that commits here.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<HashMap<RoleKey, Note>>);

#[derive(Debug, Clone, Copy)]
struct Note {
    epoch: Epoch,
    at: Instant,
    booked: bool,
}

impl Notes {
    /// Whether a commit at `now` is to be noted.
    pub(super) fn due(&self, key: &RoleKey, epoch: Epoch, books: bool, now: Instant) -> bool {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.get(key).is_none_or(|note| {
            note.epoch != epoch || (books && !note.booked) || now.saturating_duration_since(note.at) >= EVERY
        })
    }

    /// One has committed.
    pub(super) fn committed(&self, key: &RoleKey, epoch: Epoch, books: bool, at: Instant) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let booked = books || noted.get(key).is_some_and(|note| note.epoch == epoch && note.booked);
        noted.insert(key.clone(), Note { epoch, at, booked });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_commit_the_first_booking_and_four_a_second_are_noted() -> Result<(), Box<dyn std::error::Error>> {
        let (notes, key, start) =
            (Notes::default(), RoleKey { role: "reader".parse()?, partition: String::new() }, Instant::now());
        let epoch = |number| Epoch { timeline: 1, number };
        assert!(notes.due(&key, epoch(1), false, start));
        notes.committed(&key, epoch(1), false, start);
        assert!(!notes.due(&key, epoch(1), false, start));
        assert!(notes.due(&key, epoch(1), true, start), "the first that books");
        notes.committed(&key, epoch(1), true, start);
        assert!(!notes.due(&key, epoch(1), true, start + EVERY / 2));
        assert!(notes.due(&key, epoch(1), true, start + EVERY));
        assert!(notes.due(&key, epoch(2), false, start), "another tenure");
        Ok(())
    }
}
