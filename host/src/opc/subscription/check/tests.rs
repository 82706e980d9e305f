use super::super::stream::Monitored;
use super::super::stream::tests::link;
use super::*;
use crate::opc::Value;

const GRACE: Duration = Duration::from_secs(3);

fn open(items: u32) -> Vec<Subscription> {
    let mut subscription = Subscription::new(1, 7, 200, Duration::from_secs(6));
    subscription.items.extend((0..items).map(|item| (item, Monitored { id: item, grace: GRACE })));
    vec![subscription]
}

fn sample(item: u32, value: u64) -> Sample {
    Sample { item, value: Value::Uint(value), status: 0, source: None, server: None, data_type: None }
}

#[test]
fn every_item_is_read_in_turn_and_few_at_once() {
    let (mut check, link, open) = (Check::default(), link(), open(50));
    let mut now = Instant::now();
    let mut read = Vec::new();
    for _ in 0..5 {
        let items = check.due_reads(&open, &link, now);
        assert!(items.len() <= ITEMS && !items.is_empty());
        assert!(check.due_reads(&open, &link, now + EVERY / 2).is_empty(), "not before it is time");
        read.extend(items);
        now += EVERY;
    }
    assert_eq!(read, (0..50).chain(0..50).collect::<Vec<_>>());
}

#[test]
fn a_value_that_is_never_published_makes_an_item_silent_and_one_that_is_late_does_not() {
    let (mut check, link, open) = (Check::default(), link(), open(2));
    let now = Instant::now();
    link.push(vec![sample(0, 1), sample(1, 1)]);
    let read = [sample(0, 2), sample(1, 2)];
    assert_eq!(check.judge(&read, &open, &link, now), Found::default(), "it may be on its way");
    link.push(vec![sample(1, 2), sample(1, 3)]);
    assert_eq!(check.judge(&read, &open, &link, now + GRACE / 2), Found::default());
    assert!(check.due_reads(&open, &link, now + GRACE).starts_with(&[0]), "what is in doubt is read first");
    let found = check.judge(&read, &open, &link, now + GRACE);
    assert_eq!(found, Found { missing: vec![], silent: vec![0] });
}

#[test]
fn a_short_pulse_that_was_read_and_not_sampled_is_no_silence() {
    let (mut check, link, open) = (Check::default(), link(), open(1));
    let now = Instant::now();
    link.push(vec![sample(0, 1)]);
    for (value, after) in [(2, 0), (1, 4), (2, 8), (1, 12)] {
        let found = check.judge(&[sample(0, value)], &open, &link, now + Duration::from_secs(after));
        assert_eq!(found, Found::default());
    }
}

#[test]
fn an_item_that_differs_for_good_is_monitored_anew_more_and_more_seldom() {
    let (mut check, link, open) = (Check::default(), link(), open(1));
    let begin = Instant::now();
    link.push(vec![sample(0, 1)]);
    let silent = |second: &u64| {
        let now = begin + Duration::from_secs(*second);
        !check.judge(&[sample(0, 2)], &open, &link, now).silent.is_empty()
    };
    let times: Vec<u64> = (0..600).step_by(2).filter(silent).collect();
    assert_eq!(times.len(), 4, "{times:?}");
}

#[test]
fn a_node_that_is_gone_is_missing_at_once_and_a_bad_value_is_neither() {
    let (mut check, link, open) = (Check::default(), link(), open(2));
    let gone = Sample { status: StatusCode::BadNodeIdUnknown.bits(), ..sample(0, 0) };
    let bad = Sample { status: StatusCode::BadSensorFailure.bits(), ..sample(1, 0) };
    let found = check.judge(&[gone, bad], &open, &link, Instant::now());
    assert_eq!(found, Found { missing: vec![(0, StatusCode::BadNodeIdUnknown)], silent: vec![] });
}
