//! What every store promises. A store that takes part is a line at the end of this file.

use std::time::Duration;

use host::clock::BootInstant;
use host::lease::placement::Bar;
use host::lease::{Acquired, Cause, LeaseError, Renewal};

use crate::ground::{Ground, Kind, LEASE, PATIENCE, SHORT, granted, reader};

async fn a_free_lease_is_granted_and_a_held_one_is_refused_with_its_holder(ground: Ground) {
    let (a, b) = (ground.node("a"), ground.node("b"));
    let grant = a.take().await;
    assert_eq!((grant.key, grant.cause, grant.previous), (reader(), Cause::Start, None));
    let seen = b.see_taken().await;
    assert_eq!((seen.holder, seen.epoch, seen.is_dead), (Some(a.me.clone()), grant.epoch, false));
    let observed = b.store.observe(&[reader()]).await.unwrap();
    assert_eq!(observed.len(), 1);
    assert_eq!((&observed[0].holder, observed[0].epoch), (&Some(a.me.clone()), grant.epoch));
    assert!(observed[0].expires_in_ms > 0);
    ground.commit(&a, grant.epoch).await.unwrap();
    ground.refuses(&b, grant.epoch).await;
}

async fn a_lease_is_renewed_by_its_holder_at_its_epoch_and_by_nobody_else(ground: Ground) {
    let (a, b) = (ground.node("a"), ground.node("b"));
    let grant = a.take().await;
    let before = a.store.observe(&[reader()]).await.unwrap().remove(0).renewed_at_us;
    for _ in 0..3 {
        assert_eq!(a.renew(grant.epoch).await, Renewal::Confirmed);
    }
    assert!(a.store.observe(&[reader()]).await.unwrap().remove(0).renewed_at_us > before);
    assert_eq!(b.renew(grant.epoch).await, Renewal::Lost);
    assert_eq!(a.renew(grant.epoch).await, Renewal::Confirmed);
    assert_eq!(a.store.renew(&[]).await.unwrap(), []);
}

async fn two_roles_of_a_node_are_renewed_together_and_released_one_by_one(ground: Ground) {
    let (a, b) = (ground.node("a"), ground.node("b"));
    let part = host::identity::RoleKey { role: "uns".parse().unwrap(), partition: "line-1.a".to_owned() };
    let (one, two) = (a.take().await, granted(a.store.acquire(&part, None).await.unwrap()));
    let both = [(part.clone(), two.epoch), (reader(), one.epoch)];
    assert_eq!(a.store.renew(&both).await.unwrap(), [Renewal::Confirmed; 2]);
    a.release(one.epoch, true, Cause::Release).await;
    assert_eq!(a.store.renew(&both).await.unwrap(), [Renewal::Confirmed, Renewal::Lost]);
    assert!(matches!(b.store.acquire(&part, None).await.unwrap(), Acquired::Taken(_)));
}

async fn a_lease_that_ran_out_is_not_renewed_though_nobody_took_it(ground: Ground) {
    let a = ground.node("a");
    let grant = a.take().await;
    ground.expire().await;
    ground.refuses(&a, grant.epoch).await;
    assert_eq!(a.renew(grant.epoch).await, Renewal::Lost);
    ground.refuses(&a, grant.epoch).await;
    assert!(a.take().await.epoch > grant.epoch);
}

async fn a_takeover_raises_the_epoch_and_holds_effects_back_for_a_lease(ground: Ground) {
    let (a, b) = (ground.node("a"), ground.node("b"));
    let old = a.take().await;
    ground.expire().await;
    let new = b.take().await;
    assert!(new.epoch > old.epoch);
    assert_eq!((new.cause, new.previous, new.hold_back), (Cause::Expiry, Some(a.me.clone()), LEASE));
    assert_eq!(a.renew(old.epoch).await, Renewal::Lost);
    assert_eq!(b.renew(new.epoch).await, Renewal::Confirmed);
}

async fn a_lease_that_nobody_renews_runs_out_by_itself_and_no_sooner_than_it_lasts(ground: Ground) {
    let (a, b) = (ground.node_with("a", SHORT), ground.node_with("b", SHORT));
    let old = a.take().await;
    let new = b.take_soon().await;
    assert!(BootInstant::now().since(old.sent) >= SHORT);
    assert_eq!((new.cause, new.previous), (Cause::Expiry, Some(a.me.clone())));
    assert!(new.epoch > old.epoch);
    assert_eq!(a.renew(old.epoch).await, Renewal::Lost);
}

async fn a_frozen_holder_commits_nothing_after_it_wakes(ground: Ground) {
    let (a, b) = (ground.node("a"), ground.node("b"));
    let old = a.take().await;
    ground.commit(&a, old.epoch).await.unwrap();
    ground.expire().await;
    let new = b.take().await;
    ground.refuses(&a, old.epoch).await;
    ground.commit(&b, new.epoch).await.unwrap();
    // Nor after it has asked for everything that a holder asks for.
    assert_eq!(a.renew(old.epoch).await, Renewal::Lost);
    assert!(matches!(a.restart(old.epoch).await, Acquired::Taken(_)));
    a.release(old.epoch, true, Cause::Release).await;
    ground.refuses(&a, old.epoch).await;
    ground.commit(&b, new.epoch).await.unwrap();
    assert_eq!(ground.pieces().await, 3);
}

async fn epochs_never_go_back_though_everything_that_was_kept_is_deleted(ground: Ground) {
    let (a, b) = (ground.node("a"), ground.node("b"));
    for _ in 0..5 {
        let grant = a.take().await;
        a.release(grant.epoch, true, Cause::Release).await;
    }
    let old = a.take().await;
    assert_eq!(b.see_taken().await.epoch, old.epoch);
    ground.forget().await;
    let new = b.take_soon().await;
    assert!(new.epoch > old.epoch, "{} after {}", new.epoch, old.epoch);
    ground.refuses(&a, old.epoch).await;
    assert_eq!(a.renew(old.epoch).await, Renewal::Lost);
}

async fn a_clean_release_frees_the_lease_at_once_and_holds_nothing_back(ground: Ground) {
    let (a, b) = (ground.node("a"), ground.node("b"));
    let old = a.take().await;
    ground.run("UPDATE plant_fences SET effects_not_before = '-infinity'").await;
    a.release(old.epoch, true, Cause::Move).await;
    ground.refuses(&a, old.epoch).await;
    let new = b.take().await;
    assert_eq!((new.cause, new.hold_back), (Cause::Move, Duration::ZERO));
    assert!(new.epoch > old.epoch);
    assert_eq!(a.renew(old.epoch).await, Renewal::Lost);
}

async fn an_unclean_release_frees_the_lease_at_once_and_holds_effects_back(ground: Ground) {
    let (a, b) = (ground.node("a"), ground.node("b"));
    let old = a.take().await;
    ground.run("UPDATE plant_fences SET effects_not_before = '-infinity'").await;
    a.release(old.epoch, false, Cause::Yield).await;
    let new = b.take().await;
    assert_eq!(new.cause, Cause::Yield);
    assert!(new.hold_back > LEASE / 2 && new.hold_back <= LEASE, "{:?}", new.hold_back);
}

async fn a_release_that_comes_late_frees_nothing(ground: Ground) {
    let (a, b) = (ground.node("a"), ground.node("b"));
    let first = a.take().await;
    let second = granted(a.restart(first.epoch).await);
    a.release(first.epoch, true, Cause::Release).await;
    assert_eq!(a.renew(second.epoch).await, Renewal::Confirmed);
    b.see_taken().await;
    ground.expire().await;
    let third = b.take().await;
    a.release(second.epoch, true, Cause::Release).await;
    assert_eq!(b.renew(third.epoch).await, Renewal::Confirmed);
    a.see_taken().await;
}

async fn a_restart_raises_the_epoch_and_one_that_comes_late_changes_nothing(ground: Ground) {
    let a = ground.node("a");
    let first = a.take().await;
    let second = granted(a.restart(first.epoch).await);
    assert_eq!(second.cause, Cause::Restart);
    assert!(second.epoch > first.epoch);
    ground.refuses(&a, first.epoch).await;
    ground.commit(&a, second.epoch).await.unwrap();
    assert_eq!(a.renew(first.epoch).await, Renewal::Lost);
    assert!(matches!(a.restart(first.epoch).await, Acquired::Taken(_)));
    assert_eq!(a.renew(second.epoch).await, Renewal::Confirmed);
}

async fn a_lease_that_ran_out_is_not_restarted(ground: Ground) {
    let a = ground.node("a");
    let grant = a.take().await;
    ground.expire().await;
    assert!(matches!(a.restart(grant.epoch).await, Acquired::Taken(_)));
}

async fn whoever_asks_again_for_what_it_holds_gets_a_new_epoch(ground: Ground) {
    let (a, b) = (ground.node("a"), ground.node("b"));
    let first = a.take().await;
    let second = a.take().await;
    assert!(second.epoch > first.epoch);
    assert_eq!(a.renew(first.epoch).await, Renewal::Lost);
    assert_eq!(a.renew(second.epoch).await, Renewal::Confirmed);
    b.see_taken().await;
}

async fn another_boot_of_the_same_name_has_no_privilege(ground: Ground) {
    let (first, second) = (ground.node("a"), ground.node("a"));
    let grant = first.take().await;
    assert_eq!(second.see_taken().await.holder, Some(first.me.clone()));
    assert!(matches!(second.restart(grant.epoch).await, Acquired::Taken(_)));
    assert_eq!(second.renew(grant.epoch).await, Renewal::Lost);
    second.release(grant.epoch, true, Cause::Release).await;
    assert_eq!(first.renew(grant.epoch).await, Renewal::Confirmed);
    ground.refuses(&second, grant.epoch).await;
}

async fn whoever_waits_hears_of_a_release_at_once(ground: Ground) {
    let waits = match ground.kind {
        Kind::PostgresLock => "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted",
        _ => "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'",
    };
    let (a, b) = (ground.node("a"), ground.node("b"));
    let grant = a.take().await;
    let waiting = tokio::spawn(async move {
        // The first wait only begins to listen.
        loop {
            b.store.released(PATIENCE * 10).await;
            if let Acquired::Granted(grant) = b.store.acquire(&reader(), None).await.unwrap() {
                return grant;
            }
        }
    });
    ground.until(waits, 1).await;
    assert!(!waiting.is_finished());
    a.release(grant.epoch, true, Cause::Release).await;
    let next = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(next.epoch > grant.epoch);
}

async fn whoever_is_not_wanted_takes_nothing_and_keeps_nobody_from_it(ground: Ground) {
    let (a, b) = (ground.node("a"), ground.node("b"));
    ground.run("INSERT INTO plant_drained_nodes VALUES ('a', now())").await;
    let placed = a.store.placements(&[reader()]).await.unwrap();
    assert_eq!(placed.iter().map(|placed| placed.barred).collect::<Vec<_>>(), [Some(Bar::Drain)]);
    assert_eq!(a.see_taken().await.holder, None);
    b.take().await;
}

async fn a_holder_that_dies_is_succeeded_long_before_its_lease_runs_out(ground: Ground) {
    const WATCHED: &str = "SELECT count(*) FROM pg_locks l JOIN plant_nodes n
         ON l.classid = (n.lock_key >> 32)::oid AND l.objid = (n.lock_key & 4294967295)::oid
         WHERE l.locktype = 'advisory' AND NOT l.granted AND n.node = 'a'";
    let (a, b) = (ground.node("a"), ground.node("b"));
    a.store.register().await.unwrap();
    let old = a.take().await;
    b.store.register().await.unwrap();
    assert_eq!(b.store.heartbeat().await.unwrap(), 1);
    ground.until(WATCHED, 1).await;
    b.see_taken().await;
    let holder = a.me.clone();
    drop(a);
    let new = b.take_soon().await;
    assert!(BootInstant::now().since(old.sent) < LEASE);
    assert_eq!((new.cause, new.previous, new.hold_back), (Cause::Death, Some(holder), LEASE));
    assert_eq!(b.renew(new.epoch).await, Renewal::Confirmed);
}

async fn of_two_nodes_that_ask_at_once_one_is_granted(ground: Ground) {
    let (a, b) = (ground.node("a"), ground.node("b"));
    let mut last = None;
    for _ in 0..10 {
        let key = reader();
        let (one, two) = tokio::join!(a.store.acquire(&key, None), b.store.acquire(&key, None));
        let answers = [(&a, one.unwrap()), (&b, two.unwrap())];
        let mut grants = answers.into_iter().filter_map(|(node, answer)| match answer {
            Acquired::Granted(grant) => Some((node, grant)),
            Acquired::Taken(_) => None,
        });
        let (winner, grant) = grants.next().unwrap();
        assert!(grants.next().is_none(), "both were granted it");
        assert!(last < Some(grant.epoch), "{} after {last:?}", grant.epoch);
        last = Some(grant.epoch);
        assert_eq!(winner.renew(grant.epoch).await, Renewal::Confirmed);
        winner.release(grant.epoch, true, Cause::Release).await;
    }
}

/// Nothing is known while nobody answers; a lease that nobody took is still held when the store is back.
async fn a_store_that_does_not_answer_says_nothing_of_a_lease(mut ground: Ground) {
    let (a, b) = (ground.node("a"), ground.node("b"));
    let grant = a.take().await;
    ground.pool.close().await;
    ground.server.kill().unwrap();
    let held = [(reader(), grant.epoch)];
    for node in [&a, &b] {
        let asked = node.store.acquire(&reader(), None).await;
        assert!(matches!(asked, Err(LeaseError::Unavailable(_))), "{asked:?}");
    }
    let renewed = a.store.renew(&held).await;
    assert!(matches!(renewed, Err(LeaseError::Unavailable(_))), "{renewed:?}");
    let restarted = a.store.restart(&reader(), grant.epoch).await;
    assert!(matches!(restarted, Err(LeaseError::Unavailable(_))), "{restarted:?}");
    ground.server.run().unwrap();
    renewed_in_the_end(&a, &held).await;
}

/// Confirmed as soon as the store answers, and never lost before.
pub async fn renewed_in_the_end(node: &crate::ground::Node, held: &[(host::identity::RoleKey, host::identity::Epoch)]) {
    let start = BootInstant::now();
    loop {
        match node.store.renew(held).await {
            Ok(answers) => return assert_eq!(answers, [Renewal::Confirmed]),
            Err(LeaseError::Unavailable(_)) => assert!(BootInstant::now().since(start) < PATIENCE),
            Err(other) => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

macro_rules! promises {
    ($module:ident, $kind:expr, $($promise:ident),+ $(,)?) => {
        mod $module {
            use crate::ground::{Ground, Kind};
            $(
                #[tokio::test]
                async fn $promise() {
                    super::$promise(Ground::of($kind).await).await;
                }
            )+
        }
    };
}

macro_rules! promises_of_redundancy {
    ($module:ident, $kind:expr) => {
        promises!(
            $module,
            $kind,
            a_free_lease_is_granted_and_a_held_one_is_refused_with_its_holder,
            a_lease_is_renewed_by_its_holder_at_its_epoch_and_by_nobody_else,
            two_roles_of_a_node_are_renewed_together_and_released_one_by_one,
            a_lease_that_ran_out_is_not_renewed_though_nobody_took_it,
            a_takeover_raises_the_epoch_and_holds_effects_back_for_a_lease,
            a_lease_that_nobody_renews_runs_out_by_itself_and_no_sooner_than_it_lasts,
            a_frozen_holder_commits_nothing_after_it_wakes,
            epochs_never_go_back_though_everything_that_was_kept_is_deleted,
            a_clean_release_frees_the_lease_at_once_and_holds_nothing_back,
            an_unclean_release_frees_the_lease_at_once_and_holds_effects_back,
            a_release_that_comes_late_frees_nothing,
            a_restart_raises_the_epoch_and_one_that_comes_late_changes_nothing,
            a_lease_that_ran_out_is_not_restarted,
            whoever_asks_again_for_what_it_holds_gets_a_new_epoch,
            another_boot_of_the_same_name_has_no_privilege,
            whoever_waits_hears_of_a_release_at_once,
            whoever_is_not_wanted_takes_nothing_and_keeps_nobody_from_it,
            a_holder_that_dies_is_succeeded_long_before_its_lease_runs_out,
            of_two_nodes_that_ask_at_once_one_is_granted,
            a_store_that_does_not_answer_says_nothing_of_a_lease,
        );
    };
}

promises_of_redundancy!(postgres, Kind::Postgres);
promises_of_redundancy!(postgres_lock, Kind::PostgresLock);
promises_of_redundancy!(nats, Kind::Nats);

// One node has nobody to give anything to; what its instances are told apart by, it promises as well.
promises!(
    single,
    Kind::Single,
    a_restart_raises_the_epoch_and_one_that_comes_late_changes_nothing,
    a_store_that_does_not_answer_says_nothing_of_a_lease,
);
