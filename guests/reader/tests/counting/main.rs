//! The rules of counting, one test each.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "what tests share may fail as a test does")]

mod line;
mod small;
mod steps;

use plant_role::opc::{Sample, Value};
use reader::counter::{Clock, Moment, Reading, ValueType};
use reader::floor::{Counter, Decision, Floor};
use reader::plan::{OnReset, Rules, Uncertain};
use reader::sample::{Judged, has_overflowed, judge};

use crate::line::{Line, SECOND, reading, rollover, rules, sample};

#[test]
fn the_first_reading_ever_becomes_the_baseline_and_books_nothing() {
    let line = Line::from(rules(), 412_905);
    assert_eq!((line.baseline.value, line.booked()), (412_905, 0));
}

#[test]
fn a_repeated_or_resent_reading_books_nothing() {
    let mut line = Line::from(rules(), 100);
    line.reads(&[100, 105, 105, 105]).is_taken_over().reads(&[105]);
    assert_eq!((line.booked(), line.seen.booked.len()), (5, 1));
}

#[test]
fn growth_books_the_difference_however_much_it_is() {
    let mut line = Line::from(rules(), 100);
    line.reads(&[101, 5_000_101]);
    assert_eq!(line.seen.booked, [(1, 1), (2, 5_000_000)]);
}

#[test]
fn a_fall_is_a_reset_however_small_it_is() {
    let mut line = Line::from(rules(), 1_000);
    line.reads(&[600, 700]);
    assert_eq!((line.booked(), line.kinds()), (100, vec!["reset"]));
    assert_eq!((line.seen.anomalies[0].baseline, line.seen.anomalies[0].reading), (Some(1_000), Some(600)));
    let mut line = Line::from(rules(), 1_000);
    line.reads(&[999, 1_000]);
    assert_eq!((line.booked(), line.kinds()), (1, vec!["reset"]));
}

#[test]
fn a_lower_value_with_an_old_time_is_a_stale_repeat() {
    let mut line = Line::from(rules(), 1_000);
    let old = line.baseline.at - 5 * SECOND;
    line.reads_at(990, old).reads(&[1_001]);
    assert_eq!((line.booked(), line.kinds().len()), (1, 0));
}

#[test]
fn a_low_value_that_goes_on_with_growing_times_was_a_reset_after_all() {
    let mut line = Line::from(rules(), 1_000);
    let back = line.baseline.at - 3_600 * SECOND;
    line.reads_at(600, back).is_taken_over().reads_at(700, back + SECOND);
    assert_eq!((line.booked(), line.kinds(), line.baseline.value), (100, vec!["reset"], 700));
}

#[test]
fn old_values_that_arrive_in_a_burst_are_no_reset() {
    let mut line = Line::from(rules(), 980);
    line.reads(&[990, 1_000]);
    let (now, at) = (line.now + 10, line.baseline.at);
    for (value, at) in [(980, at - 2 * SECOND), (990, at - SECOND), (1_000, at)] {
        let when = Moment::of(Some(&line.baseline), now);
        line.baseline.read(&line.rules, reading(value, at), when, &mut line.seen);
    }
    assert_eq!((line.booked(), line.kinds().len(), line.baseline.value), (20, 0, 1_000));
}

#[test]
fn a_rollover_within_max_delta_is_booked_at_once() {
    for (first, next, after_highest, books) in [
        (65_530, 4, 65_536, 10),
        (9_900, 100, 10_000, 200),
        (65_530, 0, 65_536, 6),
        (2_147_483_640, 2, 1 << 31, 10),
        (2_147_483_640, 2, (1 << 31) - 1, 9),
    ] {
        let mut line = Line::from(rollover(after_highest, 5_000), first);
        line.reads(&[next]);
        assert_eq!((line.booked(), line.kinds().len()), (books, 0), "{first} to {next}");
    }
}

#[test]
fn a_rollover_beyond_max_delta_is_a_reset_with_an_anomaly() {
    let mut line = Line::from(rollover(65_536, 5_000), 30_000);
    line.reads(&[10, 15]);
    assert_eq!((line.booked(), line.kinds()), (5, vec!["reset"]));
}

#[test]
fn a_drop_to_zero_that_returns_books_the_true_difference() {
    let mut line = Line::from(rules(), 412_905);
    line.reads(&[0]).is_taken_over().reads(&[412_906]);
    assert_eq!((line.booked(), line.kinds().len()), (1, 0));
    let mut line = Line::from(rules(), 412_905);
    line.reads(&[0, 1, 2]).is_taken_over().reads(&[412_908]);
    assert_eq!((line.booked(), line.kinds().len()), (3, 0));
}

#[test]
fn growth_from_zero_is_booked_when_the_window_is_over_without_another_reading() {
    let mut line = Line::from(rules(), 412_905);
    line.reads(&[0, 4]).is_taken_over();
    assert_eq!(line.booked(), 0);
    line.waits(60);
    assert_eq!((line.booked(), line.kinds(), line.baseline.value), (4, vec!["reset"], 4));
}

#[test]
fn three_growing_readings_end_the_hold() {
    let mut line = Line::from(rules(), 412_905);
    line.reads(&[0, 1, 2]);
    assert_eq!(line.booked(), 0);
    line.reads(&[3, 4]);
    assert_eq!((line.booked(), line.kinds()), (4, vec!["reset"]));
}

#[test]
fn the_lifetime_total_is_never_booked_however_late_it_returns() {
    let mut line = Line::from(Rules { max_rate: Some(100.0), ..rules() }, 412_905);
    line.reads(&[0]).waits(61).is_taken_over().waits(86_400);
    line.reads(&[412_910, 412_911]);
    assert_eq!((line.booked(), line.kinds()), (1, vec!["reset", "late-return"]));
    let late = &line.seen.anomalies[1];
    assert_eq!((late.needs_decision, late.quantity), (true, Some(5)));
}

#[test]
fn a_reset_first_seen_above_zero_rebaselines_and_says_what_that_may_hide() {
    let mut line = Line::from(rules(), 1_000);
    line.reads(&[40]);
    assert_eq!(line.booked(), 0);
    assert_eq!(line.seen.anomalies[0].may_hide, 40);
}

#[test]
fn a_reset_first_seen_above_zero_counts_from_zero_where_declared() {
    let mut line = Line::from(Rules { on_reset: OnReset::FromZero, max_delta: Some(50), ..rules() }, 1_000);
    line.reads(&[40]);
    assert_eq!((line.booked(), line.kinds()), (40, vec!["reset"]));
    line.reads(&[1_000]).reads(&[60]);
    let asked = line.seen.anomalies.last().expect("an anomaly");
    assert_eq!((asked.quantity, asked.needs_decision), (Some(60), true), "more than max_delta is for a person");
}

#[test]
fn a_jump_that_comes_back_was_a_spike() {
    let mut line = Line::from(Rules { max_rate: Some(20.0), ..rules() }, 100);
    line.reads(&[101, 5_000]);
    assert_eq!(line.baseline.held(), 4_899);
    line.is_taken_over().reads(&[103, 104]);
    assert_eq!((line.booked(), line.kinds()), (4, vec!["spike"]));
}

#[test]
fn a_jump_that_goes_on_waits_once_while_what_follows_is_booked() {
    let mut line = Line::from(Rules { max_rate: Some(20.0), ..rules() }, 100);
    line.reads(&[5_100]).is_taken_over().reads(&[5_100, 5_101, 5_103]);
    assert_eq!((line.booked(), line.kinds()), (3, vec!["jump"]));
    let jump = line.seen.anomalies[0].clone();
    assert_eq!((jump.quantity, jump.needs_decision), (Some(5_000), true));
    let now = line.now;
    line.baseline.decide(jump.sequence, Some(5_000), now, &mut line.seen);
    assert_eq!(line.booked(), 5_003);
}

#[test]
fn a_rejected_jump_books_nothing() {
    let mut line = Line::from(Rules { max_rate: Some(20.0), ..rules() }, 100);
    line.reads(&[5_100, 5_101]);
    let (now, sequence) = (line.now, line.seen.anomalies[0].sequence);
    line.baseline.decide(sequence, None, now, &mut line.seen);
    assert_eq!((line.booked(), line.baseline.pending.waiting), (1, None));
}

#[test]
fn a_jump_that_went_on_and_came_back_is_withdrawn_and_nothing_is_lost() {
    let mut line = Line::from(Rules { max_rate: Some(20.0), ..rules() }, 100);
    line.reads(&[1_100, 1_102]).is_taken_over().reads(&[105, 106]);
    assert_eq!((line.booked(), line.seen.withdrawn.len()), (6, 1));
}

#[test]
fn bad_quality_and_no_value_say_nothing() {
    for (value, status) in [(Value::Uint(7), 0x8000_0000), (Value::Uint(7), 0xC000_0000), (Value::Null, 0)] {
        assert_eq!(judge(&sample(value, status, 1), Uncertain::Book, 1), Judged::Unusable);
    }
}

#[test]
fn information_bits_do_not_spoil_a_good_value_and_overflow_is_counted() {
    for status in [0, 0x400, 0x480] {
        assert!(matches!(judge(&sample(Value::Uint(7), status, 1), Uncertain::Ignore, 1), Judged::Count(_)));
    }
    assert_eq!((has_overflowed(0x480), has_overflowed(0x400)), (true, false));
}

#[test]
fn uncertain_quality_books_only_where_the_counter_says_so() {
    let uncertain = sample(Value::Uint(7), 0x4090_0000, 1);
    assert_eq!(judge(&uncertain, Uncertain::Ignore, 1), Judged::Unusable);
    assert!(matches!(judge(&uncertain, Uncertain::Book, 1), Judged::Count(_)));
}

#[test]
fn a_growing_value_is_booked_although_its_time_goes_backwards() {
    let mut line = Line::from(rules(), 100);
    let back = line.baseline.at - 3_600 * SECOND;
    line.reads_at(103, back);
    assert_eq!((line.booked(), line.baseline.at, line.baseline.clock), (3, back, Clock::Source));
}

#[test]
fn another_data_type_is_a_new_baseline_with_an_anomaly() {
    let mut line = Line::from(rules(), 100);
    let at = line.now + SECOND;
    line.takes(Reading { value_type: ValueType::Signed, ..reading(150, at) });
    line.takes(Reading { value_type: ValueType::Signed, ..reading(151, at + SECOND) });
    assert_eq!((line.booked(), line.kinds()), (1, vec!["type-changed"]));
}

#[test]
fn a_value_that_is_not_whole_is_never_rounded_into_a_booking() {
    for value in [Value::Real(100.5), Value::Real(f64::NAN), Value::Int(-1), Value::Text("7".to_owned())] {
        assert!(matches!(judge(&sample(value, 0, 1), Uncertain::Ignore, 1), Judged::NotACount(_)));
    }
    let mut line = Line::from(rules(), 100);
    line.baseline.spoil("100.5", &mut line.seen);
    line.baseline.spoil("101.5", &mut line.seen);
    line.is_taken_over().reads(&[110, 112]);
    assert_eq!((line.booked(), line.kinds()), (2, vec!["not-a-count", "rebaseline"]));
    assert_eq!((line.seen.anomalies[1].quantity, line.seen.anomalies[1].needs_decision), (Some(10), true));
}

#[test]
fn a_32_bit_floating_point_counter_is_refused_where_it_can_not_count_on() {
    for (is_single, books) in [(true, 1), (false, 5)] {
        let mut floor = Floor::new(if is_single { |_| true } else { |_| false });
        floor.counters.push(Counter::new("M0 good".to_owned(), 0, 1, 0, rules()));
        floor.bind_counter(0, 0);
        let real = |value: u32, at| sample(Value::Real(f64::from(value)), 0, at);
        floor.take(&[real(16_777_214, 1)], 10);
        floor.accept(10, true);
        floor.take(&[real(16_777_215, 2), real(16_777_216, 3), real(16_777_219, 4)], 20);
        let said = floor.tables.send(|statements| format!("{statements:?}"));
        floor.accept(20, true);
        assert_eq!(floor.counters[0].committed.map(|b| b.booked), Some(books));
        assert_eq!(said.contains("32-bit floating-point"), is_single, "{said}");
    }
}

#[test]
fn one_node_counts_for_every_machine_that_names_it() {
    let mut floor = floor_of(2);
    floor.bind_counter(0, 1);
    floor.take(&[of_item(0, 100, 0, 1)], 10);
    floor.accept(10, true);
    floor.take(&[of_item(0, 110, 0, 2)], 20);
    floor.accept(20, true);
    let booked: Vec<_> = floor.counters.iter().map(|c| c.committed.map(|b| b.booked)).collect();
    assert_eq!(booked, [Some(10), Some(10)]);
}

#[test]
fn a_first_batch_whose_clock_was_set_back_is_counted() {
    let mut floor = floor_of(1);
    floor.take(&[of_item(0, 100, 0, 5_000)], 10);
    floor.accept(10, true);
    let committed = floor.counters[0].committed;
    let mut next = floor_of(1);
    (next.counters[0].committed, next.counters[0].working) = (committed, committed);
    next.take(&[of_item(0, 107, 0, 2_000)], 20);
    next.accept(20, true);
    assert_eq!(next.counters[0].committed.map(|b| b.booked), Some(7));
}

#[test]
fn unsigned_values_are_exact_over_their_whole_range() {
    let mut line = Line::from(rules(), 0);
    line.reads(&[u64::MAX - 1, u64::MAX]);
    assert_eq!(line.seen.booked, [(1, u64::MAX - 1), (2, 1)]);
}

fn floor_of(counters: usize) -> Floor {
    let mut floor = Floor::default();
    for i in 0..counters {
        floor.counters.push(Counter::new(format!("M{i} good"), 0, i as i64 + 1, 0, rules()));
        floor.bind_counter(i as u32, i);
    }
    floor
}

fn of_item(item: u32, value: u64, status: u32, at: i64) -> Sample {
    Sample { item, ..sample(Value::Uint(value), status, at) }
}

#[test]
fn one_bad_node_is_named_and_the_others_go_on() {
    let mut floor = floor_of(3);
    floor.take(&[of_item(0, 1, 0, 1), of_item(1, 1, 0, 1), of_item(2, 1, 0, 1)], 10);
    floor.accept(10, true);
    let heard = floor.take(&[of_item(0, 2, 0, 2), of_item(1, 2, 0x8034_0000, 2), of_item(2, 2, 0, 2)], 20);
    assert_eq!((floor.tables.bookings.len(), heard.bad), (2, 1));
    assert!(heard.lines[0].contains("M1 good"), "{:?}", heard.lines);
}

#[test]
fn what_fails_to_commit_moves_nothing_and_is_owed_until_it_is_measured_again() {
    let mut floor = floor_of(1);
    floor.take(&[of_item(0, 100, 0, 1)], 10);
    floor.accept(10, true);
    let before = floor.counters[0].committed;
    floor.take(&[of_item(0, 107, 0, 2)], 20);
    floor.revert();
    assert_eq!((floor.counters[0].working, floor.counters[0].owed()), (before, 7));
    floor.take(&[of_item(0, 107, 0, 2)], 30);
    assert_eq!(floor.tables.bookings.len(), 1);
    floor.accept(30, true);
    assert_eq!(floor.counters[0].owed(), 0);
    assert_eq!(floor.counters[0].committed.map(|b| b.booked), Some(7));
}

#[test]
fn fewer_baselines_written_than_sent_is_a_refusal() {
    let mut floor = floor_of(2);
    floor.take(&[of_item(0, 100, 0, 1), of_item(1, 5, 0, 1)], 10);
    assert!(floor.tables.all_written(&[2]));
    assert!(!floor.tables.all_written(&[1]));
    assert!(!floor.tables.all_written(&[]));
}

#[test]
fn a_batch_of_any_size_is_one_statement_for_each_table() {
    let mut floor = floor_of(1);
    floor.take(&[of_item(0, 0, 0, 1)], 10);
    floor.accept(10, true);
    let batch: Vec<Sample> = (1..=1_000).map(|i| of_item(0, i, 0, i as i64 + 1)).collect();
    floor.take(&batch, 20);
    assert_eq!((floor.tables.bookings.len(), floor.tables.baselines.len()), (1_000, 1));
    assert_eq!(floor.tables.send(<[_]>::len), 2);
}

#[test]
fn production_without_an_order_is_booked_unassigned() {
    let mut floor = floor_of(1);
    floor.take(&[of_item(0, 0, 0, 1)], 10);
    floor.accept(10, true);
    floor.take(&[of_item(0, 3, 0, 2)], 20);
    let sent = floor.tables.send(|s| s.iter().map(|s| s.sql.clone()).collect::<Vec<_>>());
    assert!(
        sent.iter().any(|s| s.starts_with("INSERT INTO bookings")) && sent.iter().all(|s| !s.contains("order_code"))
    );
}

#[test]
fn a_tick_writes_what_people_read_only_when_it_has_changed() {
    let mut floor = floor_of(1);
    floor.take(&[of_item(0, 100, 0, 1)], 10);
    floor.accept(10, true);
    floor.take(&[of_item(0, 100, 0, 5)], 20);
    assert!(floor.tables.is_empty());
    floor.accept(20, true);
    floor.tick(30, &[]);
    assert_eq!((floor.tables.baselines.len(), floor.tables.bookings.len()), (1, 0));
    floor.accept(30, false);
    floor.tick(40, &[]);
    assert!(floor.tables.is_empty());
}

#[test]
fn a_decision_is_booked_and_marked_applied_in_one_transaction() {
    let mut floor = floor_of(1);
    floor.take(&[of_item(0, 100, 0, 1)], 10);
    floor.accept(10, true);
    let decision = Decision { id: 7, machine: 1, counter: 0, sequence: 1, accepted: Some(40) };
    floor.tick(20, &[decision]);
    assert_eq!(floor.tables.bookings.len(), 1);
    let sent = floor.tables.send(|s| s.iter().map(|s| s.sql.clone()).collect::<Vec<_>>());
    assert!(sent.iter().any(|s| s.contains("applied_at = $2")), "{sent:?}");
    floor.revert();
    assert_eq!(floor.counters[0].committed.map(|b| b.booked), Some(0), "what fails to commit is decided again");
    floor.tick(30, &[decision]);
    floor.accept(30, false);
    assert_eq!(floor.counters[0].committed.map(|b| (b.booked, b.value)), Some((40, 100)));
}
