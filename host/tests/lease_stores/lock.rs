//! What only `postgres-lock` does: one lock for the whole plant, and a session that is looked at with every renewal.

use host::identity::RoleKey;
use host::lease::{Acquired, Cause, LeaseError, Renewal};

use crate::ground::{Ground, Kind, granted, reader};

fn other() -> RoleKey {
    RoleKey { role: "uns".parse().unwrap(), partition: String::new() }
}

#[tokio::test]
async fn whoever_has_one_role_has_them_all() {
    let ground = Ground::of(Kind::PostgresLock).await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let first = a.take().await;
    // Nobody holds it; its leader is told all the same, by the name of its session.
    let Acquired::Taken(seen) = b.store.acquire(&other(), None).await.unwrap() else { panic!("it does not lead") };
    assert_eq!(seen.holder, Some(a.me.clone()));
    let second = granted(a.store.acquire(&other(), None).await.unwrap());
    a.release(first.epoch, true, Cause::Release).await;
    b.see_taken().await;
    a.store.release(&other(), second.epoch, true, Cause::Release).await.unwrap();
    granted(b.store.acquire(&other(), None).await.unwrap());
    b.take().await;
}

#[tokio::test]
async fn a_leader_whose_session_ended_leads_again_where_nobody_was_faster() {
    let ground = Ground::of(Kind::PostgresLock).await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let grant = a.take().await;
    ground.end_leader().await;
    assert_eq!(a.renew(grant.epoch).await, Renewal::Confirmed);
    b.see_taken().await;
}

#[tokio::test]
async fn a_leader_whose_lock_another_has_loses_everything_with_the_next_renewal_and_its_rows_are_not_taken_before_they_run_out()
 {
    let ground = Ground::of(Kind::PostgresLock).await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let grant = a.take().await;
    ground.end_leader().await;
    // It leads now; the row is still the other's.
    let asking = b.store.acquire(&reader(), None).await.unwrap();
    assert!(matches!(asking, Acquired::Taken(seen) if seen.holder == Some(a.me.clone())));
    // Whoever has nothing leads no longer.
    assert_eq!(a.renew(grant.epoch).await, Renewal::Confirmed);
    ground.end_leader().await;
    let new = granted(b.store.acquire(&other(), None).await.unwrap());
    assert_eq!(a.renew(grant.epoch).await, Renewal::Lost);
    assert_eq!(b.store.renew(&[(other(), new.epoch)]).await.unwrap(), [Renewal::Confirmed]);
}

#[tokio::test]
async fn two_plants_with_locks_of_their_own_share_a_server() {
    let ground = Ground::of(Kind::PostgresLock).await;
    let a = ground.node("a");
    a.take().await;
    let me = crate::ground::me("b");
    let apart = host::lease::lock::LockStore::new(&ground.database(), me, crate::ground::LEASE, 7).unwrap();
    granted(host::lease::LeaseStore::acquire(&apart, &other(), None).await.unwrap());
}

#[tokio::test]
async fn a_lock_that_somebody_else_holds_is_told_and_never_taken_for_a_nodes() {
    let ground = Ground::of(Kind::PostgresLock).await;
    let mut session = ground.pool.acquire().await.unwrap().detach();
    sqlx::query("SELECT pg_advisory_lock($1)").bind(crate::ground::LOCK).execute(&mut session).await.unwrap();
    let a = ground.node("a");
    let seen = a.see_taken().await;
    assert_eq!(seen.holder, None);
    drop(session);
    a.take_soon().await;
}

/// Its session goes on with nothing said for a lease, and the server ends it.
#[tokio::test]
async fn the_server_is_told_to_end_the_session_of_a_leader_that_hangs() {
    let ground = Ground::of(Kind::PostgresLock).await;
    let a = ground.node_with("a", crate::ground::SHORT);
    let grant = a.take().await;
    ground
        .until("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 42 AND objid = 4711", 0)
        .await;
    assert_eq!(a.renew(grant.epoch).await, Renewal::Lost, "its row has run out as well");
    assert!(matches!(a.store.renew(&[]).await, Ok(_) | Err(LeaseError::Unavailable(_))));
}
