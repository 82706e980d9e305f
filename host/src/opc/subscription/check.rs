//! Finds items that the server has stopped publishing.
//!
//! When a node is deleted and made again under the same id (a PLC's online download, a gateway that reads its configuration anew), many
//! servers leave the old monitored item behind: it says nothing ever again, also not that the node is gone, and looks like a tag that does
//! not change. Nothing in the protocol tells the two apart but reading. So every 2 s at most 20 items are read, in turn: a plant of 1,000
//! items is looked through in 100 s, for one small request in 2 s of the server's time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use opcua::types::StatusCode;

use super::super::Sample;
use super::super::link::{Link, Newest, fingerprint};
use super::refused::is_missing;
use super::stream::Subscription;

const EVERY: Duration = Duration::from_secs(2);
/// The most items read at once; arrays and long texts are not read.
const ITEMS: usize = 20;
/// A server whose reads and publishes differ for good must not be asked for the same item again and again.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// What is known of one session's monitored items by reading them.
#[derive(Default)]
pub(super) struct Check {
    last: Option<Instant>,
    /// The item that was read last.
    cursor: Option<u32>,
    doubts: BTreeMap<u32, Doubt>,
    /// Items that were monitored anew because they had been silent, and until when that is not done again.
    remade: BTreeMap<u32, (Instant, Duration)>,
}

/// A value was read that was not published.
struct Doubt {
    /// How many publishes of the item there had been by then.
    published: u64,
    /// By when it should have been published.
    until: Instant,
}

/// What reading items has shown.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Found {
    /// Their nodes are gone.
    pub(super) missing: Vec<(u32, StatusCode)>,
    /// The server does not publish them any more.
    pub(super) silent: Vec<u32>,
}

impl Check {
    /// The items to read now, if it is time: those in doubt first, then the next ones in turn.
    pub(super) fn due_reads(&mut self, open: &[Subscription], link: &Link, now: Instant) -> Vec<u32> {
        if self.last.is_some_and(|last| now < last + EVERY) {
            return Vec::new();
        }
        self.last = Some(now);
        let monitored: BTreeSet<u32> = open.iter().flat_map(|s| s.items.keys().copied()).collect();
        self.doubts.retain(|item, _| monitored.contains(item));
        let due = self.doubts.iter().filter(|(_, doubt)| doubt.until <= now).map(|(item, _)| *item);
        let mut items: Vec<u32> = due.take(ITEMS).collect();
        let after = self.cursor.map_or(0, |cursor| cursor.saturating_add(1));
        let in_turn = monitored.range(after..).chain(monitored.range(..after)).copied();
        let unsuspected = in_turn.filter(|item| !self.doubts.contains_key(item));
        let small = unsuspected.filter(|item| link.newest(*item).is_none_or(|newest| !newest.is_large));
        let next: Vec<u32> = small.take(ITEMS.saturating_sub(items.len())).collect();
        self.cursor = next.last().copied().or(self.cursor);
        items.extend(next);
        items
    }

    /// Compares what was read with what was published last. A value that differs must come with a publish in good time; it is silent
    /// when it still differs then and nothing was published of the item in between.
    pub(super) fn judge(&mut self, read: &[Sample], open: &[Subscription], link: &Link, now: Instant) -> Found {
        let mut found = Found::default();
        for sample in read {
            let item = sample.item;
            let Some(monitored) = open.iter().find_map(|s| s.items.get(&item)) else { continue };
            let status = StatusCode::from(sample.status);
            if is_missing(status) {
                self.doubts.remove(&item);
                found.missing.push((item, status));
                continue;
            }
            let newest = link.newest(item).unwrap_or_default();
            if sample.status >> 30 != 0 || fingerprint(sample) == newest.fingerprint {
                self.doubts.remove(&item);
                continue;
            }
            if self.is_silent(item, newest, now + monitored.grace, now) {
                self.rest(item, now);
                found.silent.push(item);
            }
        }
        found
    }

    fn is_silent(&mut self, item: u32, newest: Newest, until: Instant, now: Instant) -> bool {
        match self.doubts.get(&item) {
            Some(doubt) if doubt.published != newest.published => {
                self.doubts.remove(&item);
                false
            }
            Some(doubt) => doubt.until <= now && self.doubts.remove(&item).is_some(),
            None if self.remade.get(&item).is_some_and(|(rests, _)| now < *rests) => false,
            None => {
                self.doubts.insert(item, Doubt { published: newest.published, until });
                false
            }
        }
    }

    fn rest(&mut self, item: u32, now: Instant) {
        let pause = self.remade.get(&item).map_or(FIRST_PAUSE, |(_, pause)| (*pause * 2).min(LONGEST_PAUSE));
        self.remade.insert(item, (now + pause, pause));
    }
}

#[cfg(test)]
mod tests;
