use opcua::types::{DataValue, MonitoredItemNotification, StatusCode};

use super::*;
use crate::config::{OpcConnection, Security};
use crate::opc::{Batch, EventQueue, Sample, Value};

pub(in crate::opc::subscription) fn link() -> Link {
    let config = OpcConnection {
        endpoint: "opc.tcp://127.0.0.1:4840".to_owned(),
        security: Security::None,
        connect: Duration::from_secs(15),
        publish: Duration::from_millis(200),
        sampling: Duration::from_millis(100),
        silence: Duration::from_secs(6),
        writer: None,
        user: None,
        pki: "pki".into(),
        certificate: None,
    };
    Link::new("line".to_owned(), config, Arc::new(EventQueue::default()))
}

fn subscription() -> Subscription {
    Subscription::new(1, 7, 200, Duration::from_secs(6))
}

/// A publish response that says that item 4 has this value.
fn full(sequence: u32, value: i32) -> Arrival {
    let change = MonitoredItemNotification { client_handle: 5, value: DataValue::new_now(value) };
    let changes = DataChangeNotification { monitored_items: Some(vec![change]), diagnostic_infos: None };
    Arrival { data: vec![ExtensionObject::from_message(changes)], ..empty(sequence) }
}

fn empty(sequence: u32) -> Arrival {
    Arrival { key: 1, sequence, data: Vec::new(), at: Instant::now() }
}

fn delivered(link: &Link) -> Vec<i64> {
    let Some(Batch::Samples(samples)) = link.queue.try_next(100) else { return Vec::new() };
    samples
        .iter()
        .map(|s| match s.value {
            Value::Int(n) if s.item == 4 => n,
            _ => panic!("{s:?}"),
        })
        .collect()
}

#[test]
fn sequence_numbers_wrap_around_past_zero() {
    assert_eq!(following(u32::MAX), 1);
    assert!(is_before(u32::MAX, 1));
    assert!(is_before(7, 8));
    assert!(!is_before(8, 8));
    assert!(!is_before(9, 8));
}

#[test]
fn answers_that_overtook_each_other_are_delivered_in_order_and_once() {
    let (link, mut subscription) = (link(), subscription());
    for arrival in [full(1, 10), full(3, 30), full(4, 40)] {
        assert!(subscription.take(arrival, &link).is_continue());
    }
    assert_eq!(delivered(&link), [10], "nothing overtakes what is missing");
    assert!(subscription.gap_since.is_some());
    assert!(subscription.take(full(2, 20), &link).is_continue());
    assert!(subscription.take(full(2, 20), &link).is_continue());
    assert_eq!(delivered(&link), [20, 30, 40]);
    assert!(subscription.gap_since.is_none());
}

#[test]
fn a_keep_alive_tells_of_a_publish_that_was_lost() {
    let (link, mut subscription) = (link(), subscription());
    let _ = subscription.take(full(1, 10), &link);
    let _ = subscription.take(empty(2), &link);
    assert!(subscription.gap_since.is_none(), "2 is what comes next");
    let _ = subscription.take(empty(3), &link);
    assert!(subscription.gap_since.is_some(), "2 was sent and never came");
    assert_eq!(subscription.expected, 2);
}

#[test]
fn a_keep_alive_that_repeats_the_last_number_is_no_gap() {
    let (link, mut subscription) = (link(), subscription());
    let _ = subscription.take(full(1, 10), &link);
    let _ = subscription.take(empty(1), &link);
    assert!(subscription.gap_since.is_none());
    let _ = subscription.take(full(2, 20), &link);
    assert_eq!(delivered(&link), [10, 20]);
}

#[test]
fn a_subscription_that_the_server_ended_is_made_anew() {
    let (link, mut subscription) = (link(), subscription());
    let end = StatusChangeNotification { status: StatusCode::BadTimeout, ..Default::default() };
    let arrival = Arrival { data: vec![ExtensionObject::from_message(end)], ..empty(1) };
    assert!(subscription.take(arrival, &link).is_break());
}

fn read(value: i64, source: i64) -> Sample {
    Sample { item: 4, value: Value::Int(value), status: 0, source: Some(source), server: None, data_type: None }
}

#[test]
fn a_value_that_the_server_had_kept_does_not_follow_a_newer_one_that_was_read() {
    let link = link();
    link.push_read(vec![read(1000, 50)]);
    link.push(vec![read(999, 40)]);
    link.push(vec![read(1001, 60)]);
    assert_eq!(delivered(&link), [1000, 1001]);
}

#[test]
fn a_value_that_was_read_does_not_come_again_with_the_first_notification() {
    let link = link();
    link.push_read(vec![read(1000, 50)]);
    link.push(vec![read(1000, 55)]);
    link.push(vec![read(1000, 60)]);
    assert_eq!(delivered(&link), [1000, 1000]);
}

#[test]
fn after_its_first_notification_an_item_may_go_back_in_time() {
    let link = link();
    link.push_read(vec![read(1000, 50)]);
    link.push(vec![read(1001, 55), read(1002, 20)]);
    link.push(vec![Sample { source: None, ..read(1003, 0) }]);
    assert_eq!(delivered(&link), [1000, 1001, 1002, 1003]);
}

#[test]
fn after_a_session_its_values_are_no_measure_for_the_next() {
    let link = link();
    link.push_read(vec![read(1000, 50)]);
    link.down("the server restarts, and its clock begins anew".to_owned());
    link.push(vec![read(7, 40)]);
    assert_eq!(delivered(&link), [1000]);
    assert!(matches!(link.queue.try_next(1), Some(Batch::Connection(_))));
    assert_eq!(delivered(&link), [7]);
}

#[test]
fn a_value_that_is_too_large_is_counted_and_named() {
    let link = link();
    for _ in 0..3 {
        link.push(vec![Sample { value: Value::Null, status: StatusCode::BadResponseTooLarge.bits(), ..read(0, 1) }]);
    }
    let status = link.status(|item| format!("node {item}"));
    assert_eq!((status.too_large, status.bad), (3, vec![("node 4".to_owned(), "BadResponseTooLarge".to_owned())]));
}

#[test]
fn publishes_that_nobody_takes_do_not_pile_up() {
    let (out, mut arrivals) = mpsc::channel(2);
    let link = Arc::new(link());
    let sink = Sink { key: 1, out, link: link.clone() };
    for sequence in 1..=5 {
        let change = DataChangeNotification::default();
        let data = Some(vec![ExtensionObject::from_message(change)]);
        let message = NotificationMessage { sequence_number: sequence, notification_data: data, ..Default::default() };
        sink.pass_on(message);
    }
    let mut subscription = subscription();
    while let Ok(arrival) = arrivals.try_recv() {
        assert!(subscription.take(arrival, &link).is_continue());
    }
    assert!(subscription.take(empty(6), &link).is_continue());
    assert!(subscription.gap_since.is_some(), "what had no room is a gap");
    assert_eq!(subscription.expected, 3);
}
