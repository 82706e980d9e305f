//! Release: it frees the tenure that it names and no other, fails what is in flight, and wakes whoever waits.

use host::lease::{Acquired, Cause, LeaseStore, Renewal};
use host::store::DbError;

use crate::ground::{Ground, PATIENCE, READER, key};

// A release that the network kept would free the tenure that came after it, under the feet of its instance.
#[tokio::test]
async fn a_release_that_comes_late_does_not_free_the_next_tenure() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let first = a.take().await;
    let second = a.take().await;
    a.leases.release(&key(READER), first.epoch, true, Cause::Release).await.unwrap();
    assert_eq!(a.renew(second.epoch).await, Renewal::Confirmed);
    ground.expire().await;
    let third = b.take().await;
    a.leases.release(&key(READER), second.epoch, true, Cause::Release).await.unwrap();
    assert_eq!(b.renew(third.epoch).await, Renewal::Confirmed);
}

// Another boot of the name knows the epoch from the tables; it could free what it does not hold.
#[tokio::test]
async fn a_release_by_another_boot_of_the_name_frees_nothing() {
    let ground = Ground::new().await;
    let (first, second) = (ground.node("a"), ground.node("a"));
    let held = first.take().await;
    second.leases.release(&key(READER), held.epoch, true, Cause::Release).await.unwrap();
    assert_eq!(first.renew(held.epoch).await, Renewal::Confirmed);
}

// Released is released: what was sent before lands after, and nobody holds the role.
#[tokio::test]
async fn a_commit_in_flight_fails_after_the_release_though_nobody_took_over() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let held = a.take().await;
    let transaction = ground.working(&a, held.epoch).await;
    a.leases.release(&key(READER), held.epoch, true, Cause::Release).await.unwrap();
    assert!(matches!(transaction.commit().await, Err(DbError::LeaseLost)));
    assert_eq!(ground.rows().await, 0);
    let fence = "SELECT epoch FROM plant_fences WHERE role = 'reader'";
    assert!(ground.number(fence).await > i64::try_from(held.epoch.number).unwrap());
}

// By polling, a clean stop would cost a third of a lease.
#[tokio::test]
async fn whoever_waits_hears_of_a_release_at_once() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let held = a.take().await;
    let (waits, mut waited) = tokio::sync::watch::channel(0);
    let waiting = tokio::spawn(async move {
        // The first wait only begins to listen, and then it looks once more.
        loop {
            waits.send_modify(|waits| *waits += 1);
            b.leases.released(PATIENCE * 10).await;
            if let Acquired::Granted(grant) = b.leases.acquire(&key(READER), None).await.unwrap() {
                return grant;
            }
        }
    });
    // From here on nothing but the word of the release makes it look again.
    tokio::time::timeout(PATIENCE, waited.wait_for(|waits| *waits == 2)).await.unwrap().unwrap();
    assert!(!waiting.is_finished());
    a.leases.release(&key(READER), held.epoch, true, Cause::Release).await.unwrap();
    let grant = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(grant.epoch > held.epoch);
}
