use std::time::Duration;

use super::*;

const CROWDED: Bounds = Bounds { high_water: 0, limit: 100 };

fn sample(item: u32, value: Value) -> Sample {
    Sample { item, value, status: 0, source: None, server: None, data_type: None }
}

fn count(item: u32, n: u64) -> Sample {
    sample(item, Value::Uint(n))
}

fn change(connection: &str, connected: bool) -> ConnectionChange {
    ConnectionChange { connection: connection.to_owned(), connected, since: 1, detected: 2, reason: String::new() }
}

fn crowded(coalesce: bool) -> EventQueue {
    let queue = EventQueue::new(CROWDED);
    queue.declare("line", &[1, 2], coalesce);
    queue
}

fn counts(queue: &EventQueue) -> Vec<(u32, u64)> {
    let mut all = Vec::new();
    while let Some(batch) = queue.try_next(1000) {
        if let Batch::Samples(samples) = batch {
            all.extend(samples.iter().map(|s| match s.value {
                Value::Uint(n) => (s.item, n),
                _ => (s.item, u64::MAX),
            }));
        }
    }
    all
}

#[test]
fn every_value_is_delivered_while_the_queue_is_short() {
    let queue = EventQueue::default();
    queue.declare("line", &[1], true);
    queue.push_samples((0..1000).map(|n| count(1, n)));
    assert_eq!(counts(&queue), (0..1000).map(|n| (1, n)).collect::<Vec<_>>());
    assert_eq!(queue.losses("line"), Losses::default());
}

#[test]
fn a_crowded_queue_keeps_the_newest_of_rising_values() {
    let queue = crowded(true);
    queue.push_samples([count(1, 10), count(1, 11), count(1, 12), count(1, 12), count(1, 13)]);
    assert_eq!(counts(&queue), [(1, 10), (1, 13)], "the first value is the baseline and is kept");
    assert_eq!(queue.losses("line"), Losses { coalesced: 3, dropped: 0 });
}

#[test]
fn a_fall_and_what_it_ended_on_are_never_coalesced() {
    let queue = crowded(true);
    queue.push_samples([count(1, 1000), count(1, 0), count(1, 1200)]);
    assert_eq!(counts(&queue), [(1, 1000), (1, 0), (1, 1200)]);
}

#[test]
fn a_fall_is_kept_when_the_value_before_it_was_delivered_already() {
    let queue = crowded(true);
    queue.push_samples([count(1, 1000)]);
    assert_eq!(counts(&queue), [(1, 1000)]);
    queue.push_samples([count(1, 0), count(1, 1200)]);
    assert_eq!(counts(&queue), [(1, 0), (1, 1200)]);
}

#[test]
fn a_change_of_quality_or_of_type_is_never_coalesced() {
    let queue = crowded(true);
    let bad = Sample { status: 0x8005_0000, ..count(1, 12) };
    queue.push_samples([count(1, 10), count(1, 11), bad, count(1, 12), sample(1, Value::Int(13)), count(1, 14)]);
    assert_eq!(queue.waiting(), 6);
    assert_eq!(queue.losses("line"), Losses::default());
}

#[test]
fn a_source_time_that_goes_back_is_never_coalesced() {
    let queue = crowded(true);
    let at = |n, time| Sample { source: Some(time), ..count(1, n) };
    queue.push_samples([at(1, 100), at(2, 101), at(3, 50), at(4, 51)]);
    assert_eq!(counts(&queue), [(1, 1), (1, 2), (1, 3), (1, 4)]);
}

#[test]
fn info_bits_of_a_good_status_do_not_prevent_coalescing() {
    let queue = crowded(true);
    let overflow = |n| Sample { status: 0x480, ..count(1, n) };
    queue.push_samples([count(1, 1), overflow(2), overflow(3)]);
    assert_eq!(counts(&queue), [(1, 1), (1, 3)]);
}

#[test]
fn items_that_do_not_coalesce_keep_every_value() {
    let queue = crowded(false);
    queue.push_samples([count(1, 1), count(1, 2), count(1, 3)]);
    assert_eq!(counts(&queue), [(1, 1), (1, 2), (1, 3)]);
}

#[test]
fn no_value_moves_before_a_change_of_its_connection() {
    let queue = crowded(true);
    queue.push_samples([count(1, 1), count(1, 2)]);
    queue.push_connection(change("line", false));
    queue.push_connection(change("line", true));
    queue.push_samples([count(1, 3), count(1, 4)]);
    assert_eq!(queue.try_next(10), Some(Batch::Samples(vec![count(1, 1), count(1, 2)])));
    assert_eq!(queue.try_next(10), Some(Batch::Connection(change("line", false))));
    assert_eq!(queue.try_next(10), Some(Batch::Connection(change("line", true))));
    assert_eq!(queue.try_next(10), Some(Batch::Samples(vec![count(1, 4)])));
    assert_eq!(queue.try_next(10), None);
}

#[test]
fn a_full_queue_drops_the_oldest_superseded_values_and_counts_them_by_connection() {
    let queue = EventQueue::new(Bounds { high_water: 4, limit: 4 });
    queue.declare("line", &[1], false);
    queue.declare("other", &[2], false);
    queue.push_samples([count(2, 7), count(1, 1), count(1, 2), count(1, 3), count(1, 4), count(1, 5)]);
    assert_eq!(counts(&queue), [(2, 7), (1, 3), (1, 4), (1, 5)], "the only value of item 2 stays");
    assert_eq!(queue.losses("line"), Losses { coalesced: 0, dropped: 2 });
    assert_eq!(queue.losses("other"), Losses::default());
}

#[test]
fn a_counter_that_keeps_falling_is_bounded_and_its_last_value_stays() {
    let queue = EventQueue::new(Bounds { high_water: 10, limit: 10 });
    queue.declare("line", &[1], true);
    queue.push_samples((0..10_000).rev().map(|n| count(1, n)));
    assert_eq!(queue.waiting(), 20);
    let left = counts(&queue);
    assert_eq!(left.last(), Some(&(1, 0)));
    assert_eq!(queue.losses("line").dropped, 10_000 - 20);
}

#[test]
fn a_queue_that_nobody_empties_stays_bounded_behind_a_value_that_must_stay() {
    let queue = EventQueue::new(Bounds { high_water: 10, limit: 10 });
    queue.declare("line", &[1, 2], false);
    queue.push_samples([count(2, 7)]);
    queue.push_connection(change("line", true));
    queue.push_samples((0..50_000).map(|n| count(1, n)));
    assert!(queue.lock().entries.len() < 2_000);
    assert_eq!(queue.try_next(1), Some(Batch::Samples(vec![count(2, 7)])));
    assert_eq!(queue.try_next(1), Some(Batch::Connection(change("line", true))));
    assert_eq!(counts(&queue), (49_992..50_000).map(|n| (1, n)).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_waiting_reader_is_woken_and_a_cancelled_one_loses_nothing() {
    let queue = std::sync::Arc::new(EventQueue::default());
    let cancelled = tokio::time::timeout(Duration::from_millis(5), queue.next(10)).await;
    assert!(cancelled.is_err(), "nothing was there");
    let reader = tokio::spawn({
        let queue = queue.clone();
        async move { queue.next(10).await }
    });
    tokio::task::yield_now().await;
    queue.push_samples([count(1, 1)]);
    let batch = tokio::time::timeout(Duration::from_secs(10), reader).await;
    assert!(matches!(batch, Ok(Ok(Batch::Samples(samples))) if samples == [count(1, 1)]));
}

fn large(item: u32) -> Sample {
    sample(item, Value::Bytes(vec![7; 1 << 20]))
}

#[test]
fn large_values_are_dropped_by_their_bytes_and_the_newest_of_an_item_never_is() {
    let queue = EventQueue::default();
    queue.declare("line", &[1, 2], false);
    queue.declare("line", &[3], true);
    queue.push_samples((0..200).map(|_| large(1)));
    assert!(queue.waiting() < 64, "{}", queue.waiting());
    queue.push_samples((0..100).map(|_| large(2)).chain((0..200).map(|_| large(3))));
    assert!((64..128).contains(&queue.waiting()), "{}", queue.waiting());
    let mut items = BTreeMap::new();
    while let Some(Batch::Samples(samples)) = queue.try_next(10_000) {
        assert!(samples.len() <= 4, "a batch has 4 MiB, not {} samples", samples.len());
        samples.iter().for_each(|s| *items.entry(s.item).or_insert(0) += 1);
    }
    assert_eq!((items[&1], items[&2]), (1, 1), "the newest of each: {items:?}");
    assert_eq!(queue.losses("line").dropped, 500 - items.values().sum::<u64>());
    queue.push_samples((0..60).map(|_| large(1)));
    assert_eq!(queue.waiting(), 60, "what was taken has made room");
}

#[test]
fn a_value_in_the_place_of_another_takes_its_own_bytes_only() {
    let queue = crowded(true);
    queue.push_samples((0..1_000_000).map(|n| count(1, n)));
    assert_eq!((queue.waiting(), queue.losses("line").dropped), (2, 0));
    queue.declare("line", &[2], false);
    queue.push_samples((0..60).map(|_| large(2)));
    assert_eq!(queue.waiting(), 62);
}

#[test]
fn small_samples_still_come_in_large_batches() {
    let queue = EventQueue::default();
    queue.push_samples((0..10_000).map(|n| count(1, n)));
    assert!(matches!(queue.try_next(10_000), Some(Batch::Samples(samples)) if samples.len() == 10_000));
}
