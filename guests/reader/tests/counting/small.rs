//! Falls that look like a restart and like a reset: what is certain is booked, and the rest is said.

use reader::counter::Reading;
use reader::plan::Rules;

use crate::line::{Line, SECOND, reading, rules};

/// What is booked, and what anomalies say that there may be.
fn told(line: &Line) -> (u64, u64) {
    let open = line.seen.anomalies.iter().map(|anomaly| anomaly.quantity.unwrap_or(0) + anomaly.may_hide).sum();
    (line.booked(), open)
}

#[test]
fn a_counter_of_cartons_that_begins_again_loses_nothing() {
    let mut line = Line::from(rules(), 100);
    line.reads(&[0, 60]).is_taken_over().reads(&[120]).waits(60);
    assert_eq!(told(&line), (120, 0), "{:?}", line.seen.anomalies);
}

#[test]
fn a_counter_of_scrap_that_begins_again_loses_nothing() {
    let mut line = Line::from(rules(), 2);
    line.reads(&[0, 1, 2]).waits(60);
    assert_eq!(told(&line), (2, 0), "{:?}", line.seen.anomalies);
}

#[test]
fn straight_from_zero_to_a_small_old_value_is_for_a_person() {
    let mut line = Line::from(rules(), 2);
    line.reads(&[0]).is_taken_over().reads(&[3]);
    assert_eq!(told(&line), (1, 2));
    let asked = &line.seen.anomalies[0];
    assert_eq!((asked.kind, asked.quantity, asked.needs_decision), ("reset", Some(2), true));
}

#[test]
fn memory_that_was_saved_long_before_a_restart_is_not_booked() {
    let mut line = Line::from(rules(), 5_000);
    line.reads(&[0, 4_400, 4_401, 4_402, 4_403]);
    assert_eq!(told(&line), (3, 4_400));
    assert_eq!(line.seen.anomalies[0].quantity, Some(4_400), "a person may know better");
    let mut line = Line::from(rules(), 5_000);
    line.reads(&[0]).waits(61).is_taken_over().reads(&[4_400, 4_401]);
    assert_eq!(told(&line), (1, 4_400));
    assert_eq!(line.kinds(), ["reset", "late-return"]);
}

#[test]
fn a_fast_counter_that_begins_again_is_booked_without_asking() {
    let mut line = Line::from(rules(), 5_000);
    line.reads(&[0, 150, 300, 450, 600]);
    assert_eq!(told(&line), (600, 0), "{:?}", line.seen.anomalies);
}

#[test]
fn a_reset_at_a_source_time_that_stands_still_is_booked() {
    let mut line = Line::from(rules(), 5_000);
    let still = line.baseline.at;
    line.reads_at(5_002, still).reads_at(0, still);
    for value in 1..=70 {
        line.reads_at(value, still);
    }
    assert_eq!(told(&line), (72, 0));
    assert_eq!(line.kinds(), ["reset"]);
}

#[test]
fn a_clock_that_is_set_back_and_then_stands_still_hides_no_reset() {
    let mut line = Line::from(rules(), 5_000);
    let back = line.baseline.at - 3_600 * SECOND;
    line.reads_at(10, back);
    for value in 11..=30 {
        line.reads_at(value, back);
    }
    assert_eq!(told(&line), (20, 10));
}

#[test]
fn an_old_value_that_stays_is_told_of() {
    let mut line = Line::from(rules(), 5_000);
    let back = line.baseline.at - 3_600 * SECOND;
    line.reads_at(10, back).waits(60).waits(60);
    assert_eq!((told(&line), line.kinds()), ((0, 10), vec!["stale"]));
}

#[test]
fn what_is_held_when_a_value_is_no_count_is_said() {
    let mut line = Line::from(Rules { max_rate: Some(20.0), ..rules() }, 100);
    line.reads(&[5_100]);
    line.baseline.spoil("-1", &mut line.seen);
    assert_eq!(told(&line), (0, 5_000));
    line.reads(&[5_200]);
    assert_eq!(line.seen.anomalies.last().and_then(|anomaly| anomaly.quantity), Some(5_100));
}

#[test]
fn a_restart_that_counted_before_its_memory_was_back_says_so() {
    let mut line = Line::from(rules(), 412_905);
    let at = line.now + SECOND;
    line.takes(Reading { value: 0, ..reading(0, at) }).reads(&[40, 412_906]);
    assert_eq!(told(&line), (1, 39));
}
