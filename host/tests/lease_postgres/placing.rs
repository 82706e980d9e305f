//! Where people want roles to run: the database grants nothing against it, and who holds a role gives it up.

use std::time::Duration;

use host::identity::RoleKey;
use host::lease::placement::Bar;
use host::lease::{Acquired, Cause, LeaseStore};
use host::store::placements::{Author, Order, OrderError, give};

use crate::ground::{Ground, LEASE, Node, granted, key};
use crate::keeping::{Keeper, is_lost};

const AUTHOR: Author<'_> = Author { who: "a person", why: Some("a reason") };

async fn order(ground: &Ground, order: Order) -> Result<(), OrderError> {
    give(&ground.pool, &order, AUTHOR, LEASE).await
}

async fn refusal(ground: &Ground, what: Order) -> String {
    match order(ground, what).await {
        Err(OrderError::Refused(sentence)) => sentence,
        other => panic!("{other:?}"),
    }
}

/// Two nodes that live and say that they can run the reader.
async fn two(ground: &Ground) -> (Node, Node) {
    let (a, b) = (ground.node("a"), ground.node("b"));
    for node in [&a, &b] {
        node.store.register().await.unwrap();
    }
    say_that_they_can(ground).await;
    (a, b)
}

async fn say_that_they_can(ground: &Ground) {
    ground
        .run(
            "INSERT INTO plant_role_reports (role, partition, node, boot_id, state, reason, reported_at)
             SELECT 'reader', '', node, boot_id, 'standby', '', now() FROM plant_nodes ON CONFLICT DO NOTHING",
        )
        .await;
}

fn to(node: &str) -> Order {
    Order::Move { key: key("reader"), to: node.parse().unwrap(), within: Duration::from_secs(600) }
}

async fn barred(node: &Node) -> Option<Bar> {
    node.store.placements(&[key("reader")]).await.unwrap().pop().unwrap().barred
}

fn is_taken(answer: &Acquired) -> bool {
    matches!(answer, Acquired::Taken(_))
}

#[tokio::test]
async fn a_role_on_hold_is_granted_to_nobody_until_it_is_resumed() {
    let ground = Ground::new().await;
    let (a, b) = two(&ground).await;
    order(&ground, Order::Hold { key: key("reader"), at_most: None }).await.unwrap();
    assert!(is_taken(&a.acquire("reader").await) && is_taken(&b.acquire("reader").await));
    assert_eq!((barred(&a).await, barred(&b).await), (Some(Bar::Hold), Some(Bar::Hold)));
    order(&ground, Order::Resume { key: key("reader") }).await.unwrap();
    a.take("reader").await;
    assert_eq!(
        refusal(&ground, Order::Resume { key: key("reader") }).await,
        "reader is not held: there is nothing to undo"
    );
}

#[tokio::test]
async fn a_hold_for_a_time_ends_by_itself() {
    let ground = Ground::new().await;
    let (a, _) = two(&ground).await;
    order(&ground, Order::Hold { key: key("reader"), at_most: Some(Duration::from_secs(600)) }).await.unwrap();
    assert!(is_taken(&a.acquire("reader").await));
    ground.run("UPDATE plant_placements SET held_until = now() - interval '1 second'").await;
    a.take("reader").await;
}

#[tokio::test]
async fn a_pinned_role_is_granted_to_its_node_alone() {
    let ground = Ground::new().await;
    let (a, b) = two(&ground).await;
    order(&ground, Order::Pin { key: key("reader"), node: "b".parse().unwrap() }).await.unwrap();
    assert!(is_taken(&a.acquire("reader").await));
    let lease = b.take("reader").await;
    b.store.release(&key("reader"), lease.epoch, true, Cause::Release).await.unwrap();
    assert!(is_taken(&a.acquire("reader").await), "also when its node lets go");
    order(&ground, Order::Unpin { key: key("reader") }).await.unwrap();
    a.take("reader").await;
}

#[tokio::test]
async fn a_drained_node_is_granted_nothing() {
    let ground = Ground::new().await;
    let (a, b) = two(&ground).await;
    order(&ground, Order::Drain { node: "a".parse().unwrap() }).await.unwrap();
    assert!(is_taken(&a.acquire("reader").await));
    assert_eq!((barred(&a).await, barred(&b).await), (Some(Bar::Drain), None));
    b.take("reader").await;
    let sentence = refusal(&ground, to("a")).await;
    assert_eq!(sentence, "node a is drained: let it work again with `host node undrain a`");
    order(&ground, Order::Undrain { node: "a".parse().unwrap() }).await.unwrap();
    assert_eq!(barred(&a).await, None);
}

#[tokio::test]
async fn a_moved_role_is_granted_to_the_node_it_is_moved_to_and_then_to_anyone() {
    let ground = Ground::new().await;
    let (a, b) = two(&ground).await;
    let lease = a.take("reader").await;
    order(&ground, to("b")).await.unwrap();
    assert_eq!((barred(&a).await, barred(&b).await), (Some(Bar::Move), None));
    a.store.release(&key("reader"), lease.epoch, true, Cause::Move).await.unwrap();
    assert!(is_taken(&a.acquire("reader").await));
    let moved = b.take("reader").await;
    assert_eq!(moved.cause, Cause::Move);
    assert!(moved.hold_back <= lease.hold_back, "it was handed over clean: {moved:?}");
    b.store.release(&key("reader"), moved.epoch, true, Cause::Release).await.unwrap();
    a.take("reader").await;
}

#[tokio::test]
async fn a_role_that_the_other_node_does_not_take_in_time_is_anyones_again() {
    let ground = Ground::new().await;
    let (a, _b) = two(&ground).await;
    let lease = a.take("reader").await;
    order(&ground, to("b")).await.unwrap();
    a.store.release(&key("reader"), lease.epoch, true, Cause::Move).await.unwrap();
    assert!(is_taken(&a.acquire("reader").await));
    ground.run("UPDATE plant_placements SET move_until = now() - interval '1 second'").await;
    a.take("reader").await;
}

#[tokio::test]
async fn an_instance_is_started_anew_though_the_role_is_to_go() {
    let ground = Ground::new().await;
    let (a, _b) = two(&ground).await;
    let lease = a.take("reader").await;
    order(&ground, Order::Hold { key: key("reader"), at_most: None }).await.unwrap();
    let again = granted(a.store.restart(&key("reader"), lease.epoch).await.unwrap());
    assert!(again.epoch > lease.epoch);
}

#[tokio::test]
async fn what_can_not_be_carried_out_is_refused_with_what_to_do() {
    let ground = Ground::new().await;
    assert_eq!(refusal(&ground, to("z")).await, "the plant knows no node z: there is none now");
    let (a, _b) = two(&ground).await;
    assert_eq!(refusal(&ground, to("z")).await, "the plant knows no node z: there are a, b");
    a.take("reader").await;
    assert_eq!(refusal(&ground, to("a")).await, "node a runs reader already");
    let other = Order::Move { key: key("other"), to: "b".parse().unwrap(), within: LEASE };
    let sentence = refusal(&ground, other).await;
    assert!(sentence.starts_with("node b has not said that it can run other"), "{sentence}");
    order(&ground, Order::Pin { key: key("reader"), node: "a".parse().unwrap() }).await.unwrap();
    assert!(refusal(&ground, to("b")).await.contains("reader is pinned to node a"));
    order(&ground, Order::Unpin { key: key("reader") }).await.unwrap();
    order(&ground, Order::Hold { key: key("reader"), at_most: None }).await.unwrap();
    assert!(refusal(&ground, to("b")).await.contains("end that first with `host role resume reader`"));
    ground.run("UPDATE plant_nodes SET heartbeat_at = now() - interval '1 hour' WHERE node = 'b'").await;
    assert_eq!(refusal(&ground, to("b")).await, "node b does not say that it lives: start it first");
    ground.until("SELECT count(*) FROM plant_audit WHERE who = 'a person' AND why = 'a reason'", 3).await;
}

#[tokio::test]
async fn a_role_that_went_to_and_fro_is_seen_to_flap() {
    let ground = Ground::new().await;
    let (a, b) = two(&ground).await;
    for turn in 0..5 {
        let placed = a.store.placements(&[key("reader")]).await.unwrap().pop().unwrap();
        assert!(!placed.is_flapping(), "{placed:?}");
        let node = if turn % 2 == 0 { &a } else { &b };
        let lease = node.take("reader").await;
        node.store.release(&key("reader"), lease.epoch, true, Cause::Yield).await.unwrap();
    }
    let placed = a.store.placements(&[key("reader")]).await.unwrap().pop().unwrap();
    assert!(placed.is_flapping(), "{placed:?}");
    ground.run("UPDATE plant_takeovers SET taken_at = taken_at - interval '1 hour'").await;
    let placed = a.store.placements(&[key("reader")]).await.unwrap().pop().unwrap();
    assert_eq!(placed.changes, 0, "only the last ten leases count");
}

/// What a supervisor does with a lease: gives it back when it is to be drained.
async fn serve(keeper: &Keeper, held: &host::lease::Held) -> Cause {
    tokio::time::timeout(Duration::from_secs(20), held.drain_begun()).await.unwrap();
    let cause = held.drain_cause().unwrap();
    keeper.handle.release(held, true, cause, None).await;
    cause
}

#[tokio::test]
async fn a_role_that_is_moved_is_drained_where_it_runs_and_taken_where_it_is_to_be() {
    let ground = Ground::new().await;
    let mut a = Keeper::of(&ground.server.url(), "a", LEASE);
    let old = a.held().await;
    let mut b = Keeper::of(&ground.server.url(), "b", LEASE);
    b.says(|now| now.seen.contains_key(&key("reader"))).await;
    say_that_they_can(&ground).await;
    order(&ground, to("b")).await.unwrap();
    assert_eq!(serve(&a, &old).await, Cause::Move);
    let new = b.held().await;
    assert!(new.epoch() > old.epoch() && old.check().is_err());
    assert_eq!(a.says(|now| now.held.is_empty()).await.demotions, 0, "it was no loss");
}

fn pair() -> RoleKey {
    key("node")
}

#[tokio::test]
async fn of_a_pair_only_the_node_with_the_pairs_lease_takes_roles() {
    let ground = Ground::new().await;
    let mut a = Keeper::of_a_pair(&ground.server.url(), "a", pair());
    let old = a.held().await;
    a.says(|now| now.held.len() == 2).await;
    let mut b = Keeper::of_a_pair(&ground.server.url(), "b", pair());
    b.says(|now| now.seen.contains_key(&pair())).await;
    // The role alone being free is no reason to take it.
    a.handle.release(&old, true, Cause::Yield, Some(Duration::from_secs(2))).await;
    let again = a.held().await;
    assert!(b.says(|_| true).await.held.is_empty());

    order(&ground, Order::Move { key: pair(), to: "b".parse().unwrap(), within: Duration::from_secs(600) })
        .await
        .unwrap();
    assert_eq!(serve(&a, &again).await, Cause::Move);
    let new = b.held().await;
    b.says(|now| now.held.len() == 2).await;
    let was = a.says(|now| now.held.is_empty()).await;
    assert!(new.epoch() > again.epoch());
    assert_eq!(was.demotions, 1, "it was active and is not any more");
}

#[tokio::test]
async fn whoever_loses_the_pairs_lease_loses_every_role_at_once() {
    let ground = Ground::new().await;
    let mut a = Keeper::of_a_pair(&ground.server.url(), "a", pair());
    let held = a.held().await;
    ground.run("UPDATE plant_leases SET epoch = epoch + 1 WHERE role = 'node'").await;
    // Found at the next renewal; the role's own lease is still good in the database.
    tokio::time::timeout(LEASE, is_lost(&held)).await.unwrap();
}
