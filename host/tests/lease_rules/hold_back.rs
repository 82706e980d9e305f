//! The hold-back of unfenceable effects: a whole lease from the takeover itself, never lowered, inherited by everybody after.

use std::time::Duration;

use host::lease::{Cause, LeaseStore};

use crate::ground::{Ground, LEASE, READER, granted, key};

/// The moment until which effects wait, as microseconds; 0 when there never was one.
const UNTIL: &str = "SELECT CASE WHEN effects_not_before = '-infinity' THEN 0 \
     ELSE round(extract(epoch FROM effects_not_before) * 1000000)::bigint END FROM plant_fences WHERE role = 'reader'";

// Counted from the last renewal, the wait would be over at once after a fail-over that lost the newer renewals, or after a step of the clock.
#[tokio::test]
async fn effects_wait_a_whole_lease_from_the_takeover_however_old_the_last_renewal_is() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    a.take().await;
    ground
        .run("UPDATE plant_leases SET renewed_at = now() - interval '1 h', expires_at = now() - interval '59 min'")
        .await;
    assert_eq!(b.take().await.hold_back, LEASE);
}

#[tokio::test]
async fn after_a_clean_release_effects_wait_for_nothing() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    a.take().await;
    let held = a.take().await;
    ground.run("UPDATE plant_fences SET effects_not_before = '-infinity'").await;
    a.leases.release(&key(READER), held.epoch, true, Cause::Release).await.unwrap();
    let taken = b.take().await;
    assert_eq!((taken.hold_back, taken.cause), (Duration::ZERO, Cause::Release));
}

// A holder that releases with an effect on its way would have the next holder's effect overtaken by it.
#[tokio::test]
async fn after_an_unclean_release_effects_wait_a_whole_lease() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let held = a.take().await;
    // The very first holder was held back as well, and what it waited for is over.
    ground.run("UPDATE plant_fences SET effects_not_before = '-infinity'").await;
    a.leases.release(&key(READER), held.epoch, false, Cause::Yield).await.unwrap();
    let taken = b.take().await;
    assert_eq!(taken.cause, Cause::Yield);
    assert!(taken.hold_back > LEASE / 2 && taken.hold_back <= LEASE, "{:?}", taken.hold_back);
}

// The clean release says that its own effects are answered: nothing of those of the holder before it, which may still be asleep.
#[tokio::test]
async fn a_clean_release_does_not_forget_an_older_hold_back() {
    let ground = Ground::new().await;
    let (a, b, c) = (ground.node("a"), ground.node("b"), ground.node("c"));
    a.take().await;
    ground.expire().await;
    let second = b.take().await;
    let until = ground.number(UNTIL).await;
    b.leases.release(&key(READER), second.epoch, true, Cause::Move).await.unwrap();
    let third = c.take().await;
    assert!(third.hold_back > LEASE / 2 && third.hold_back <= LEASE, "{:?}", third.hold_back);
    assert_eq!(ground.number(UNTIL).await, until);
}

// Started anew after a trap, an instance would act at once although its node has just taken the role over.
#[tokio::test]
async fn a_restart_inherits_the_hold_back_and_adds_none() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    a.take().await;
    ground.expire().await;
    let taken = b.take().await;
    let until = ground.number(UNTIL).await;
    let again = granted(b.leases.restart(&key(READER), taken.epoch).await.unwrap());
    assert!(again.hold_back > LEASE / 2 && again.hold_back <= LEASE, "{:?}", again.hold_back);
    assert_eq!(ground.number(UNTIL).await, until);
    ground.run("UPDATE plant_fences SET effects_not_before = '-infinity'").await;
    let again = granted(b.leases.restart(&key(READER), again.epoch).await.unwrap());
    assert_eq!((again.hold_back, ground.number(UNTIL).await), (Duration::ZERO, 0));
}

// The answer to the first call was lost, and with it the hold-back that it carried.
#[tokio::test]
async fn a_node_that_asks_again_for_what_it_holds_is_held_back() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    a.take().await;
    ground.expire().await;
    b.take().await;
    assert_eq!(b.take().await.hold_back, LEASE);
}

#[tokio::test]
async fn a_hold_back_is_never_lowered() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let held = a.take().await;
    ground.run("UPDATE plant_fences SET effects_not_before = clock_timestamp() + interval '1 h'").await;
    let until = ground.number(UNTIL).await;
    a.leases.release(&key(READER), held.epoch, false, Cause::Release).await.unwrap();
    assert!(b.take().await.hold_back > Duration::from_secs(59 * 60));
    assert_eq!(ground.number(UNTIL).await, until);
}

// Whoever held it is unknown and may still act; and its epoch must not be issued again.
#[tokio::test]
async fn a_deleted_lease_is_an_unknown_holder_and_its_epoch_still_rises() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let held = a.take().await;
    ground.run("DELETE FROM plant_leases").await;
    let taken = b.take().await;
    assert!(taken.epoch > held.epoch);
    assert_eq!(taken.hold_back, LEASE);
    assert_eq!(a.renew(held.epoch).await, host::lease::Renewal::Lost);
}

// With both rows gone the database would begin at 1 again; whoever has seen an epoch of the role says so.
#[tokio::test]
async fn epochs_go_on_from_what_a_node_has_seen_though_every_row_is_deleted() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    for _ in 0..5 {
        a.take().await;
    }
    let seen = b.see_taken(None).await;
    ground.run("DELETE FROM plant_leases; DELETE FROM plant_fences").await;
    let taken = b.take().await;
    assert!(taken.epoch > seen.epoch, "{:?} after {:?}", taken.epoch, seen.epoch);
    ground.run("DELETE FROM plant_fences").await;
    let again = granted(b.leases.restart(&key(READER), taken.epoch).await.unwrap());
    assert!(again.epoch > taken.epoch, "{:?} after {:?}", again.epoch, taken.epoch);
}
