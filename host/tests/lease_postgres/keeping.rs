//! The keeper with a real database: one holder at a time, which ends in time, and a role that is always competed for again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use host::clock::BootInstant;
use host::identity::{BootId, Holder, RoleKey};
use host::lease::keeper::{self, KeeperHandle, RestartError, Snapshot};
use host::lease::postgres::Me;
use host::lease::single::SinglePostgres;
use host::lease::{Cause, Held, LeaseEvent, LeaseStore, Unfit};
use host::store::postgres::PostgresDatabase;
use host::store::{Bounds, Database, Options, Params, Statement};
use sqlx::Executor;
use tokio::sync::{broadcast, mpsc};

use crate::ground::{Ground, key, store_at};
use crate::proxy::Proxy;

const LEASE: Duration = Duration::from_secs(3);
/// Nothing here takes this long unless it never happens.
pub const PATIENCE: Duration = Duration::from_secs(60);
const HEARTBEAT: &str = "SELECT (extract(epoch FROM heartbeat_at) * 1000000)::bigint FROM plant_nodes WHERE node = 'a'";

/// Until when unfenceable effects wait, in microseconds. The very first holder waits a lease too: a row that is missing may have been
/// deleted.
const HELD_BACK_UNTIL: &str = "SELECT (extract(epoch FROM effects_not_before) * 1000000)::bigint FROM plant_fences";

pub struct Keeper {
    pub handle: KeeperHandle,
    granted: mpsc::Receiver<Held>,
    events: broadcast::Receiver<LeaseEvent>,
}

impl Keeper {
    fn at(url: &str, name: &str) -> Self {
        Self::of(url, name, LEASE)
    }

    pub fn of(url: &str, name: &str, lease: Duration) -> Self {
        let me = Holder { node: name.parse().unwrap(), boot: BootId::random() };
        Self::with(Arc::new(store_at(url, me.clone(), Some(lease))), me)
    }

    /// One of an active-standby pair, with a short lease.
    pub fn of_a_pair(url: &str, name: &str, pair: RoleKey) -> Self {
        let me = Holder { node: name.parse().unwrap(), boot: BootId::random() };
        Self::in_scope(Arc::new(store_at(url, me.clone(), Some(LEASE))), me, Some(pair))
    }

    fn with(store: Arc<dyn LeaseStore>, me: Holder) -> Self {
        Self::in_scope(store, me, None)
    }

    fn in_scope(store: Arc<dyn LeaseStore>, me: Holder, pair: Option<RoleKey>) -> Self {
        let (events, heard) = broadcast::channel(64);
        let (handle, granted) = keeper::start(keeper::Settings {
            store,
            me,
            roles: vec![key("reader")],
            pair,
            unfit: Unfit::never(),
            events,
        })
        .unwrap();
        Self { handle, granted, events: heard }
    }

    pub async fn held(&mut self) -> Held {
        tokio::time::timeout(PATIENCE, self.granted.recv()).await.unwrap().unwrap()
    }

    /// Waits until the snapshot says so.
    pub async fn says(&self, what: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let mut snapshot = self.handle.snapshot();
        tokio::time::timeout(PATIENCE, snapshot.wait_for(|now| what(now))).await.unwrap().unwrap().clone()
    }

    /// The next thing that it tells.
    async fn told(&mut self) -> LeaseEvent {
        tokio::time::timeout(PATIENCE, self.events.recv()).await.unwrap().unwrap()
    }
}

pub async fn is_lost(held: &Held) {
    tokio::time::timeout(PATIENCE, held.lost()).await.unwrap();
}

#[tokio::test]
async fn a_standby_takes_over_only_after_the_holder_that_went_silent_has_fenced_itself() {
    let ground = Ground::new().await;
    let cable = Proxy::to(ground.server.port()).await;
    let mut a = Keeper::at(&cable.url(), "a");
    let old = a.held().await;
    let mut b = Keeper::at(&ground.server.url(), "b");
    b.says(|now| now.seen.contains_key(&key("reader"))).await;
    cable.freeze();
    let new = b.held().await;
    assert!(old.check().is_err(), "the old holder has stopped by itself");
    assert!(new.epoch() > old.epoch());
    assert!(new.hold_back().is_some(), "what it may still do is waited for");
    is_lost(&old).await;
    let LeaseEvent::Taken { from, epoch, .. } = b.told().await else { panic!("b has taken it") };
    assert_eq!((from, epoch), (Some("a".parse().unwrap()), new.epoch()));
    assert!(matches!(a.told().await, LeaseEvent::Taken { from: None, cause: Cause::Start, .. }));
    let LeaseEvent::Lost { key: lost, epoch, .. } = a.told().await else { panic!("a has lost it") };
    assert_eq!((lost, epoch), (key("reader"), old.epoch()));
    let (a, b) = (a.says(|now| now.demotions == 1).await, b.says(|now| now.takeovers == 1).await);
    assert!(a.held.is_empty() && a.last_error.is_some(), "{a:?}");
    assert!(b.holds(&key("reader")) && b.demotions == 0, "{b:?}");
}

// Renewals have a connection of their own: invariant 6.
#[tokio::test]
async fn transactions_that_take_every_connection_and_hold_every_row_delay_no_renewal() {
    let ground = Ground::new().await.with_work().await;
    let mut a = Keeper::at(&ground.server.url(), "a");
    let held = a.held().await;
    let bounds = Bounds { transactions: 3, acquire: PATIENCE, ..Bounds::default() };
    let database = PostgresDatabase::new(&[ground.server.url()], bounds).unwrap();
    let insert =
        || Statement { sql: "INSERT INTO work VALUES ('a piece')".to_owned(), params: Params::Row(Vec::new()) };
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut transaction = database.begin(&held, Options::default()).await.unwrap();
        transaction.execute(vec![insert()]).await.unwrap();
        open.push(transaction);
    }
    // More wait for a connection than there are.
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let (database, held) = (database.clone(), held.clone());
            tokio::spawn(async move {
                while database.begin(&held, Options::default()).await.is_err() {
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let before = held.deadline();
    let renewed = async {
        while held.deadline() < before + LEASE {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, renewed).await.unwrap();
    assert!(held.check().is_ok(), "the lease was renewed at every third of it");
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    drop(open);
    for waiting in waiting {
        waiting.await.unwrap();
    }
}

#[tokio::test]
async fn a_holder_fences_itself_three_quarters_after_its_last_confirmed_renewal_was_sent_though_the_store_never_answers()
 {
    let ground = Ground::new().await;
    let cable = Proxy::to(ground.server.port()).await;
    let mut a = Keeper::at(&cable.url(), "a");
    let old = a.held().await;
    cable.freeze();
    let frozen = BootInstant::now();
    is_lost(&old).await;
    assert!(old.deadline() <= frozen + LEASE * 3 / 4, "a renewal that was confirmed had been sent by then");
    // Losing a lease is not an error: the role is competed for again, by the next boot where others may have taken this one for dead.
    cable.thaw();
    let handle = a.handle.snapshot();
    let new = tokio::select! {
        new = a.held() => new,
        () = async { while handle.borrow().dead.is_none() { tokio::time::sleep(Duration::from_millis(20)).await; } } => {
            a = Keeper::at(&cable.url(), "a");
            a.held().await
        }
    };
    assert!(new.epoch() > old.epoch());
    a.says(|now| now.last_error.is_none()).await;
}

#[tokio::test]
async fn the_self_fence_counts_from_the_question_and_the_hold_back_from_the_answer() {
    let ground = Ground::new().await;
    ground.node("z").take("reader").await;
    ground.expire().await;
    let mut other = ground.session().await;
    other.execute("BEGIN; SELECT FROM plant_fences FOR UPDATE").await.unwrap();
    let mut a = Keeper::at(&ground.server.url(), "a");
    let asking = waits_for_a_lock(&ground, "plant_acquire").await;
    let asked = BootInstant::now();
    other.execute("COMMIT").await.unwrap();
    let held = a.held().await;
    let (deadline, left, now) = (held.deadline(), held.hold_back().unwrap(), BootInstant::now());
    assert!(left + now.since(asked) >= LEASE, "{left:?}");
    // Unless it was asked again or has been renewed, on a machine that is slow enough for that.
    let untouched = ground.number("SELECT count(*) FROM plant_leases WHERE renewed_at = acquired_at").await == 1;
    if untouched && lives(&ground, asking).await {
        assert!(deadline <= asked + LEASE * 3 / 4);
    }
}

#[tokio::test]
async fn a_renewal_that_is_answered_late_prolongs_from_when_it_was_sent() {
    let ground = Ground::new().await;
    let mut a = Keeper::at(&ground.server.url(), "a");
    let held = a.held().await;
    // One renewal gets through between two locks.
    let (mut before, mut after) = (ground.session().await, ground.session().await);
    before.execute("BEGIN; LOCK TABLE plant_leases").await.unwrap();
    let renewing = waits_for_a_lock(&ground, "SKIP LOCKED").await;
    let (asked, old) = (BootInstant::now(), held.deadline());
    let locking = tokio::spawn(async move {
        after.execute("BEGIN; LOCK TABLE plant_leases").await.unwrap();
        after
    });
    ground
        .until("SELECT count(*) FROM pg_locks WHERE relation = 'plant_leases'::regclass AND NOT granted AND mode LIKE 'AccessE%'", 1)
        .await;
    before.execute("COMMIT").await.unwrap();
    let _after = locking.await.unwrap();
    while held.deadline() == old && held.check().is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Unless it was given up, on a machine that is slow enough for that.
    if held.deadline() > old && lives(&ground, renewing).await {
        assert!(held.deadline() <= asked + LEASE * 3 / 4);
    }
}

/// The backend that waits for a lock with such a statement.
async fn waits_for_a_lock(ground: &Ground, statement: &str) -> i32 {
    let start = BootInstant::now();
    loop {
        let waiting = sqlx::query_scalar(
            "SELECT pid FROM pg_stat_activity WHERE query LIKE '%' || $1 || '%' AND wait_event_type = 'Lock'",
        );
        if let Some(pid) = waiting.bind(statement).fetch_optional(&ground.pool).await.unwrap() {
            return pid;
        }
        assert!(BootInstant::now().since(start) < PATIENCE, "nothing waits with {statement}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn lives(ground: &Ground, backend: i32) -> bool {
    let lives = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)");
    lives.bind(backend).fetch_one(&ground.pool).await.unwrap()
}

#[tokio::test]
async fn a_released_role_is_taken_by_another_and_left_alone_while_it_cools_down_here() {
    let ground = Ground::new().await;
    let mut a = Keeper::at(&ground.server.url(), "a");
    let first = a.held().await;
    let mut b = Keeper::at(&ground.server.url(), "b");
    b.says(|now| now.seen.contains_key(&key("reader"))).await;
    let before = ground.number(HELD_BACK_UNTIL).await;
    a.handle.release(&first, true, Cause::Yield, Some(PATIENCE * 10)).await;
    assert!(first.check().is_err());
    let second = b.held().await;
    assert_eq!(ground.number(HELD_BACK_UNTIL).await, before, "a clean release holds nothing back anew");
    b.handle.release(&second, true, Cause::Release, None).await;
    // It is b that takes it again.
    b.held().await;
    assert!(a.granted.try_recv().is_err());
    assert_eq!(b.says(|now| now.takeovers > 0).await.takeovers, 1);
}

#[tokio::test]
async fn a_restart_ends_the_old_proof_and_the_new_one_is_renewed() {
    let ground = Ground::new().await;
    let mut a = Keeper::at(&ground.server.url(), "a");
    let old = a.held().await;
    let new = a.handle.restart(&old).await.unwrap();
    assert!(old.check().is_err() && new.epoch() > old.epoch());
    assert_eq!(a.handle.restart(&old).await.unwrap_err(), RestartError::Lost);
    let first_deadline = new.deadline();
    let start = BootInstant::now();
    while new.deadline() == first_deadline {
        assert!(BootInstant::now().since(start) < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    new.check().unwrap();
}

#[tokio::test]
async fn a_node_that_has_withdrawn_does_not_take_again_what_it_gives_back() {
    let ground = Ground::new().await;
    let mut a = Keeper::at(&ground.server.url(), "a");
    let held = a.held().await;
    a.handle.withdraw().await;
    held.check().unwrap();
    a.handle.release(&held, true, Cause::Release, None).await;
    // It would look at the leases as often as its heart beats.
    for _ in 0..3 {
        let beat = ground.number(HEARTBEAT).await;
        while ground.number(HEARTBEAT).await == beat {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert_eq!(ground.number("SELECT count(*) FROM plant_leases WHERE node IS NULL").await, 1);
    let before = ground.number(HELD_BACK_UNTIL).await;
    let mut b = Keeper::at(&ground.server.url(), "b");
    b.held().await;
    assert_eq!(ground.number(HELD_BACK_UNTIL).await, before, "a clean release holds nothing back anew");
    a.handle.shutdown().await;
    assert!(a.granted.recv().await.is_none());
    assert_eq!(ground.number("SELECT count(*) FROM plant_nodes").await, 1, "it has left");
}

#[tokio::test]
async fn a_shutdown_gives_back_what_is_still_held_and_holds_effects_back() {
    let ground = Ground::new().await;
    let mut a = Keeper::at(&ground.server.url(), "a");
    let held = a.held().await;
    a.handle.shutdown().await;
    assert!(held.check().is_err());
    let grant = ground.node_at("b", &ground.server.url(), Some(LEASE)).take("reader").await;
    assert_eq!(grant.cause, Cause::Release);
    assert!(grant.hold_back > Duration::ZERO, "nobody said that it was clean");
}

#[tokio::test]
async fn a_keeper_whose_handle_is_gone_ends_what_it_held() {
    let ground = Ground::new().await;
    let Keeper { handle, mut granted, .. } = Keeper::at(&ground.server.url(), "a");
    let held = granted.recv().await.unwrap();
    drop(handle);
    is_lost(&held).await;
}

#[tokio::test]
async fn a_lease_that_nobody_takes_from_the_keeper_is_given_back() {
    let ground = Ground::new().await;
    let Keeper { handle: _handle, granted, .. } = Keeper::at(&ground.server.url(), "a");
    drop(granted);
    ground.until("SELECT count(*) FROM plant_leases WHERE node IS NULL", 1).await;
    let before = ground.number(HELD_BACK_UNTIL).await;
    Keeper::at(&ground.server.url(), "b").held().await;
    assert_eq!(ground.number(HELD_BACK_UNTIL).await, before, "no instance was started, so it was clean");
}

#[tokio::test]
async fn a_keeper_that_can_not_reach_its_store_says_so_and_goes_on_trying() {
    let mut ground = Ground::new().await;
    ground.server.kill().unwrap();
    let mut a = Keeper::at(&ground.server.url(), "a");
    a.says(|now| now.last_error.as_ref().is_some_and(|error| error.contains("nothing listens at"))).await;
    ground.server.run().unwrap();
    a.held().await.check().unwrap();
    a.says(|now| now.last_error.is_none() && now.last_renew_ms > 0).await;
}

#[tokio::test]
async fn a_second_process_of_one_name_is_refused_and_the_first_goes_on() {
    let ground = Ground::new().await;
    let mut first = Keeper::at(&ground.server.url(), "a");
    let held = first.held().await;
    let mut second = Keeper::at(&ground.server.url(), "a");
    let sentence = tokio::time::timeout(PATIENCE, second.handle.refused()).await.unwrap();
    assert!(sentence.starts_with("a node named a is running already, at http://plant-a:8080"), "{sentence}");
    assert!(second.granted.try_recv().is_err());
    held.check().unwrap();
}

#[tokio::test]
async fn after_a_fail_over_everything_that_was_held_ends_and_is_acquired_anew() {
    let mut ground = Ground::new().await;
    let mut a = Keeper::at(&ground.server.url(), "a");
    let old = a.held().await;
    ground.promote().await;
    is_lost(&old).await;
    let new = a.held().await;
    assert_eq!((old.epoch().timeline, new.epoch().timeline), (1, 2));
    assert!(new.hold_back().is_some());
}

#[tokio::test]
async fn a_node_without_redundancy_ends_everything_when_another_has_its_database() {
    let ground = Ground::new().await;
    let holder = Holder { node: "a".parse().unwrap(), boot: BootId::random() };
    let store = host::config::Store::Postgres { urls: vec![ground.server.url()], migrate_url: None };
    let me = Me {
        holder: holder.clone(),
        address: "http://plant-a:8080".to_owned(),
        modules: BTreeMap::new(),
        gone: Vec::new(),
    };
    let mut a = Keeper::with(Arc::new(SinglePostgres::new(&store, me).unwrap()), holder);
    let held = a.held().await;
    assert_eq!(held.deadline(), BootInstant::NEVER);
    // Another's session waits for the lock, and so is the first to have it.
    let mut other = ground.session().await;
    let waiting = tokio::spawn(async move {
        other.execute("SELECT pg_advisory_lock(objid::bigint | (classid::bigint << 32)) FROM pg_locks WHERE locktype = 'advisory'").await.unwrap();
        other
    });
    ground.until("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 1).await;
    ground.run("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted").await;
    let _session = waiting.await.unwrap();
    is_lost(&held).await;
    tokio::time::timeout(PATIENCE, a.handle.refused()).await.unwrap();
}
