//! Renew: one statement for all, never behind anything, and what it may call lost.

use host::lease::{Acquired, LeaseStore, Renewal};

use crate::ground::{ACQUIRE_WAITS, Ground, READER, granted, key};

// Taken for lost, a lock of a millisecond (an acquire that is refused) would demote a holder that is well.
#[tokio::test]
async fn a_lease_whose_row_somebody_has_locked_is_unconfirmed_and_not_lost() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let mut held = Vec::new();
    for role in ["floor", "reader", "uns"] {
        held.push((key(role), granted(a.leases.acquire(&key(role), None).await.unwrap()).epoch));
    }
    let mut locker = ground.pool.begin().await.unwrap();
    let lock = "SELECT FROM plant_leases WHERE role = 'reader' FOR UPDATE";
    sqlx::raw_sql(lock).execute(&mut *locker).await.unwrap();
    let answers = a.leases.renew(&held).await.unwrap();
    assert_eq!(answers, [Renewal::Confirmed, Renewal::Skipped, Renewal::Confirmed]);
    locker.rollback().await.unwrap();
    assert_eq!(a.leases.renew(&held).await.unwrap(), [Renewal::Confirmed; 3]);
}

// Revived, a lease would be held by a process that slept past it, while another node is about to take it.
#[tokio::test]
async fn a_renewal_of_a_lease_that_has_run_out_is_lost_though_nobody_took_it() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let held = a.take().await;
    ground.expire().await;
    assert_eq!(a.renew(held.epoch).await, Renewal::Lost);
    assert_eq!(ground.number("SELECT count(*) FROM plant_leases WHERE expires_at > clock_timestamp()").await, 0);
}

// A lease that was granted while the statement was under way would be called lost by it.
#[tokio::test]
async fn leases_that_were_not_asked_for_are_neither_judged_nor_renewed() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let held = a.take().await;
    granted(a.leases.acquire(&key("uns"), None).await.unwrap());
    let other = "SELECT count(*) FROM plant_leases WHERE role = 'uns' AND renewed_at = acquired_at";
    assert_eq!(a.leases.renew(&[(key(READER), held.epoch)]).await.unwrap(), [Renewal::Confirmed]);
    assert_eq!(ground.number(other).await, 1);
    assert_eq!(a.leases.renew(&[]).await.unwrap(), []);
}

// Matched by node and boot alone, the renewal of an earlier tenure would prolong the proof of an instance that is fenced.
#[tokio::test]
async fn a_renewal_for_an_earlier_epoch_or_after_a_takeover_is_lost_and_prolongs_nothing() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let first = a.take().await;
    let second = granted(a.leases.restart(&key(READER), first.epoch).await.unwrap());
    assert_eq!(a.renew(first.epoch).await, Renewal::Lost);
    assert_eq!(a.renew(second.epoch).await, Renewal::Confirmed);
    ground.expire().await;
    let taken = b.take().await;
    let before = b.see_renewed().await;
    assert_eq!(a.renew(second.epoch).await, Renewal::Lost);
    assert_eq!((b.see_renewed().await, b.renew(taken.epoch).await), (before, Renewal::Confirmed));
}

impl crate::ground::Node {
    async fn see_renewed(&self) -> i64 {
        self.leases.observe(&[key(READER)]).await.unwrap()[0].renewed_at_us
    }
}

// On one connection with the rest, a renewal would wait behind an acquire that waits behind somebody's commit.
#[tokio::test]
async fn renewals_go_on_while_everything_else_of_the_node_hangs() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let held = a.take().await;
    let other = granted(b.leases.acquire(&key("uns"), None).await.unwrap());
    let mut locker = ground.pool.begin().await.unwrap();
    let lock = "SELECT FROM plant_fences WHERE role = 'uns' FOR UPDATE";
    sqlx::raw_sql(lock).execute(&mut *locker).await.unwrap();
    let (uns, reader) = (key("uns"), [(key(READER), held.epoch)]);
    let hanging = a.leases.acquire(&uns, None);
    let renewing = async {
        ground.until(ACQUIRE_WAITS, 1).await;
        for _ in 0..5 {
            assert_eq!(a.leases.renew(&reader).await.unwrap(), [Renewal::Confirmed]);
        }
        ground.until(ACQUIRE_WAITS, 1).await;
        locker.rollback().await.unwrap();
    };
    let (answer, ()) = tokio::join!(hanging, renewing);
    assert!(matches!(answer.unwrap(), Acquired::Taken(seen) if seen.epoch == other.epoch));
}

// A commit may take long; were its lock on the heartbeat's row, the holder would lose its lease by working.
#[tokio::test]
async fn a_renewal_waits_for_no_commit() {
    let ground = Ground::new().await;
    let a = ground.node("a");
    let held = a.take().await;
    let in_flight = ground.commit_in_flight(&a, held.epoch).await;
    assert_eq!(a.renew(held.epoch).await, Renewal::Confirmed);
    in_flight.commit().await.unwrap();
}
