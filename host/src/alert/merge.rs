//! The same alert again and again is one alert: who is told thirty times in a minute reads none of them.
//!
//! The first goes out at once. What repeats it within the window waits for the window's end, and goes out then as one, with its number.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{Alert, Kind};
use crate::identity::RoleName;

/// What makes two alerts the same.
type Sameness = (Kind, Option<RoleName>, String);

struct Recent {
    until: Instant,
    repeats: u32,
    last: Option<Alert>,
}

/// What was sent lately, and what repeats it.
pub(super) struct Merge {
    window: Duration,
    recent: BTreeMap<Sameness, Recent>,
}

impl Merge {
    /// Merges within so long.
    pub(super) fn within(window: Duration) -> Self {
        Self { window, recent: BTreeMap::new() }
    }

    /// The alert, if it is to be sent now. What is [`Self::due`] has to be taken before.
    pub(super) fn offer(&mut self, alert: Alert, now: Instant) -> Option<Alert> {
        let same = (alert.kind, alert.role.clone(), alert.partition.clone());
        if let Some(recent) = self.recent.get_mut(&same).filter(|recent| now < recent.until) {
            recent.repeats = recent.repeats.saturating_add(1);
            recent.last = Some(alert);
            return None;
        }
        self.recent.insert(same, Recent { until: now + self.window, repeats: 0, last: None });
        Some(alert)
    }

    /// When a window ends next.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.recent.values().map(|recent| recent.until).min()
    }

    /// The repeats whose window is over, each kind as one. A new window begins for those: they may go on.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Alert> {
        self.recent.retain(|_, recent| now < recent.until || recent.repeats > 0);
        let window = self.window;
        let over = self.recent.values_mut().filter(|recent| now >= recent.until);
        over.filter_map(|recent| {
            recent.until = now + window;
            recent.merged(window)
        })
        .collect()
    }

    /// All repeats, whether their window is over or not.
    pub(super) fn rest(&mut self) -> Vec<Alert> {
        let window = self.window;
        self.recent.values_mut().filter_map(|recent| recent.merged(window)).collect()
    }
}

impl Recent {
    fn merged(&mut self, window: Duration) -> Option<Alert> {
        let (times, last) = (std::mem::take(&mut self.repeats), self.last.take()?);
        let text = match times {
            1 => last.text,
            _ => format!("{} ({times} times within {} s)", last.text, window.as_secs()),
        };
        Some(Alert { text, times, ..last })
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::takeover;
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    #[test]
    fn repeats_within_a_minute_are_one_alert_with_their_number() {
        let (mut merge, start) = (Merge::within(WINDOW), Instant::now());
        let first = takeover("reader");
        assert_eq!(merge.offer(first.clone(), start), Some(first));
        for _ in 0..3 {
            assert_eq!(merge.offer(takeover("reader"), start + WINDOW / 2), None);
        }
        assert!(merge.due(start + WINDOW / 2).is_empty());
        assert_eq!(merge.next_end(), Some(start + WINDOW));
        let merged = merge.due(start + WINDOW);
        assert_eq!((merged.len(), merged[0].times), (1, 3));
        assert_eq!(merged[0].text, "role reader moved (3 times within 60 s)");
        assert!(merge.due(start + WINDOW).is_empty(), "only once");
    }

    #[test]
    fn another_role_and_another_minute_are_other_alerts() {
        let (mut merge, start) = (Merge::within(WINDOW), Instant::now());
        assert!(merge.offer(takeover("reader"), start).is_some());
        assert!(merge.offer(takeover("uns"), start).is_some());
        assert!(merge.due(start + WINDOW).is_empty());
        assert_eq!(merge.next_end(), None, "nothing is kept for ever");
        assert!(merge.offer(takeover("reader"), start + WINDOW).is_some());
    }

    #[test]
    fn what_goes_on_is_told_once_a_minute() {
        let (mut merge, start) = (Merge::within(WINDOW), Instant::now());
        let mut told = 0;
        for second in 0..300 {
            let now = start + Duration::from_secs(second);
            told += merge.due(now).len() + usize::from(merge.offer(takeover("reader"), now).is_some());
        }
        assert_eq!(told, 5);
    }

    #[test]
    fn at_the_end_nothing_waits_for_its_minute() {
        let (mut merge, start) = (Merge::within(WINDOW), Instant::now());
        assert!(merge.rest().is_empty());
        merge.offer(takeover("reader"), start);
        merge.offer(takeover("reader"), start);
        let rest = merge.rest();
        assert_eq!((rest.len(), rest[0].times, rest[0].text.as_str()), (1, 1, "role reader moved"));
        assert!(merge.rest().is_empty());
    }
}
