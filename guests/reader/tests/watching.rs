//! The rules of watching, one test each.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "what tests share may fail as a test does")]

use plant_role::db::{Array, Params};
use plant_role::opc::{Sample, Value};
use reader::connection::Link;
use reader::counter::Clock;
use reader::floor::{Floor, Machine};
use reader::plan::StateMap;
use reader::state::{Reader, packml};

const SECOND: i64 = 1_000_000_000;

fn floor() -> Floor {
    let map = StateMap::Numbers(
        [("0", "idle"), ("1", "running"), ("4", "down")].map(|(n, s)| (n.to_owned(), s.to_owned())).into(),
    );
    let mut floor = Floor::default();
    floor.machines.push(Machine::new(
        "FILL01".to_owned(),
        "line".to_owned(),
        1,
        Some(Reader::new(&map).expect("a map")),
    ));
    floor.bind_state(0, 0);
    floor
}

fn shows(floor: &mut Floor, number: i64, status: u32, source: Option<i64>, now: i64) {
    floor.take(&[Sample { item: 0, value: Value::Int(number), status, source, server: None }], now);
    floor.accept(now, true);
}

fn change(floor: &mut Floor, connected: bool, since: i64, detected: i64) {
    let link = Link { connected, reason: "test".to_owned(), started_at: since, detected_at: detected };
    floor.change("line", &link, detected);
    floor.accept(detected, false);
}

/// The newest state's name and start.
fn open(floor: &Floor) -> Option<(&'static str, i64)> {
    floor.machines[0].watch.open.map(|s| (s.state, s.started_at))
}

#[test]
fn a_disconnected_machine_has_no_open_state_from_the_last_evidence_on() {
    let mut floor = floor();
    change(&mut floor, true, SECOND, SECOND);
    shows(&mut floor, 1, 0, Some(2 * SECOND), 2 * SECOND);
    change(&mut floor, false, 5 * SECOND, 12 * SECOND);
    assert_eq!((open(&floor), floor.machines[0].watch.not_before), (None, 5 * SECOND));
    let link = floor.machines[0].link.clone().expect("a link");
    assert_eq!((link.connected, link.started_at, link.detected_at), (false, 5 * SECOND, 12 * SECOND));
}

#[test]
fn what_a_machine_says_after_a_reconnect_does_not_reach_back_into_the_unknown() {
    let mut floor = floor();
    change(&mut floor, true, SECOND, SECOND);
    shows(&mut floor, 1, 0, Some(2 * SECOND), 2 * SECOND);
    change(&mut floor, false, 5 * SECOND, 12 * SECOND);
    change(&mut floor, true, 20 * SECOND, 20 * SECOND);
    shows(&mut floor, 1, 0, Some(2 * SECOND), 21 * SECOND);
    assert_eq!(open(&floor), Some(("running", 21 * SECOND)));
}

#[test]
fn the_same_news_twice_changes_nothing() {
    let mut floor = floor();
    change(&mut floor, true, SECOND, SECOND);
    shows(&mut floor, 1, 0, Some(2 * SECOND), 2 * SECOND);
    let link = floor.machines[0].link.clone().expect("a link");
    floor.change("line", &link, 3 * SECOND);
    assert!(floor.tables.is_empty());
    floor.take(
        &[Sample { item: 0, value: Value::Int(1), status: 0, source: Some(3 * SECOND), server: None }],
        3 * SECOND,
    );
    assert!(floor.tables.is_empty());
}

#[test]
fn states_follow_each_other_without_overlap_also_when_the_clock_goes_back() {
    let mut floor = floor();
    shows(&mut floor, 1, 0, Some(10 * SECOND), 10 * SECOND);
    shows(&mut floor, 0, 0, Some(4 * SECOND), 12 * SECOND);
    assert_eq!(open(&floor), Some(("idle", 12 * SECOND)));
    assert_eq!(floor.machines[0].watch.open.map(|s| s.started_by), Some(Clock::Arrival));
    shows(&mut floor, 4, 0, Some(12 * SECOND), 12 * SECOND);
    assert_eq!(open(&floor), Some(("down", 12 * SECOND + 1_000)));
}

#[test]
fn the_source_time_is_used_where_it_is_there_and_said_so() {
    let mut floor = floor();
    shows(&mut floor, 1, 0, Some(9 * SECOND), 10 * SECOND);
    assert_eq!(floor.machines[0].watch.open.map(|s| (s.started_at, s.started_by)), Some((9 * SECOND, Clock::Source)));
}

#[test]
fn a_bad_or_unexplained_state_is_unknown_and_named() {
    let mut floor = floor();
    shows(&mut floor, 1, 0, Some(SECOND), SECOND);
    let strange = Sample { item: 0, value: Value::Int(77), status: 0, source: Some(2 * SECOND), server: None };
    let heard = floor.take(&[strange], 2 * SECOND);
    assert!(heard.lines[0].contains("FILL01") && heard.lines[0].contains("77"), "{:?}", heard.lines);
    assert_eq!(open(&floor), None);
    floor.accept(2 * SECOND, true);
    shows(&mut floor, 0, 0, Some(3 * SECOND), 3 * SECOND);
    shows(&mut floor, 0, 0x8000_0000, Some(4 * SECOND), 4 * SECOND);
    assert_eq!(open(&floor), None);
}

#[test]
fn every_one_of_the_17_packml_numbers_is_a_state_and_no_other_is() {
    assert!((1..=17).all(|n| packml(n).is_some()));
    assert!([-1, 0, 18, 100].into_iter().all(|n| packml(n).is_none()));
    assert_eq!(
        (packml(6), packml(4), packml(9), packml(15)),
        (Some("running"), Some("idle"), Some("down"), Some("setup"))
    );
}

#[test]
fn downtime_begins_unlabelled() {
    let mut floor = floor();
    floor.take(&[Sample { item: 0, value: Value::Int(4), status: 0, source: Some(SECOND), server: None }], SECOND);
    let sent = floor.tables.send(|s| format!("{s:?}"));
    assert!(sent.contains("machine_states") && sent.contains("unlabelled"), "{sent}");
}

#[test]
fn a_takeover_keeps_the_state_and_a_long_gap_is_unknown() {
    let mut floor = floor();
    change(&mut floor, true, SECOND, SECOND);
    shows(&mut floor, 1, 0, Some(2 * SECOND), 2 * SECOND);
    floor.machines[0].seen_at = Some(10 * SECOND);
    floor.lose_unwatched(14 * SECOND);
    assert_eq!(open(&floor), Some(("running", 2 * SECOND)));
    floor.machines[0].seen_at = Some(10 * SECOND);
    floor.lose_unwatched(3_600 * SECOND);
    assert_eq!((open(&floor), floor.machines[0].watch.not_before), (None, 10 * SECOND));
}

#[test]
fn silence_of_a_tag_is_no_evidence_of_anything() {
    let mut floor = floor();
    change(&mut floor, true, SECOND, SECOND);
    shows(&mut floor, 1, 0, Some(2 * SECOND), 2 * SECOND);
    for second in 3..300 {
        floor.tick(second * SECOND, &[]);
        floor.accept(second * SECOND, false);
    }
    assert_eq!(open(&floor), Some(("running", 2 * SECOND)));
}

#[test]
fn machines_that_share_one_state_node_all_get_its_states() {
    let mut floor = floor();
    for (place, code) in ["CAP01", "LABEL01"].into_iter().enumerate() {
        let reader = floor.machines[0].reader.clone();
        floor.machines.push(Machine::new(code.to_owned(), "line".to_owned(), place as i64 + 2, reader));
        floor.bind_state(0, place + 1);
    }
    shows(&mut floor, 1, 0, Some(2 * SECOND), 2 * SECOND);
    let states: Vec<_> = floor.machines.iter().map(|m| m.watch.open.map(|s| (s.state, s.started_at))).collect();
    assert_eq!(states, [Some(("running", 2 * SECOND)); 3]);
}

#[test]
fn a_state_that_is_dated_into_the_future_begins_when_it_arrives_and_holds_nothing_back() {
    let mut floor = floor();
    shows(&mut floor, 1, 0, Some(9 * SECOND), 10 * SECOND);
    let ten_years = 10 * 365 * 86_400 * SECOND;
    let dated = Sample { item: 0, value: Value::Int(4), status: 0, source: Some(ten_years), server: None };
    assert_eq!(floor.take(&[dated], 20 * SECOND).future, 1);
    floor.accept(20 * SECOND, true);
    assert_eq!(open(&floor), Some(("down", 20 * SECOND)));
    assert_eq!(floor.machines[0].watch.open.map(|s| s.started_by), Some(Clock::Arrival));
    shows(&mut floor, 1, 0, Some(30 * SECOND), 30 * SECOND);
    assert_eq!(open(&floor), Some(("running", 30 * SECOND)));
    // Clocks that are kept in step differ by less than two seconds.
    shows(&mut floor, 0, 0, Some(41 * SECOND), 40 * SECOND);
    assert_eq!(open(&floor), Some(("idle", 41 * SECOND)));
}

#[test]
fn many_changes_of_one_machine_in_a_batch_are_one_row_each() {
    let mut floor = floor();
    let state = |n: i64| Sample {
        item: 0,
        value: Value::Int([0, 1][(n % 2) as usize]),
        status: 0,
        source: Some(n * SECOND),
        server: None,
    };
    let batch: Vec<Sample> = (1..=1_000).map(state).collect();
    floor.take(&batch, 2_000 * SECOND);
    let starts = floor.tables.send(|statements| {
        let [states] = statements else { panic!("one statement, not {}", statements.len()) };
        let Params::Columns(columns) = &states.params else { panic!("columns") };
        let (Array::Timestamps(starts), Array::Timestamps(ends)) = (&columns[4].values, &columns[6].values) else {
            panic!("times")
        };
        assert_eq!(columns[6].nulls, [999], "the last one is open");
        assert_eq!(ends[..999], starts[1..], "each ends where the next begins");
        starts.clone()
    });
    assert_eq!(starts, (1..=1_000).map(|n| n * SECOND).collect::<Vec<_>>());
}
