//! What only `nats` does: a bucket whose keys live for a lease, and epochs that its revisions drive.

use std::time::Duration;

use async_nats::jetstream::kv;
use host::config::Bus;
use host::identity::RoleKey;
use host::lease::nats::NatsStore;
use host::lease::{Acquired, Cause, LeaseError, LeaseStore, Renewal};

use crate::conformance::renewed_in_the_end;
use crate::ground::{BUCKET, Ground, Kind, LEASE, PATIENCE, SHORT, bus, granted, me, reader};

async fn bucket(ground: &Ground) -> kv::Store {
    ground.jetstream().await.get_key_value(BUCKET).await.unwrap()
}

#[tokio::test]
async fn the_bucket_is_made_by_its_first_use_and_keeps_keys_for_a_lease() {
    let ground = Ground::of(Kind::Nats).await;
    let a = ground.node("a");
    a.store.register().await.unwrap();
    let made = bucket(&ground).await.stream.cached_info().config.clone();
    assert_eq!((made.max_age, made.max_messages_per_subject, made.num_replicas), (LEASE, 1, 1));
    a.take().await;
    let value: serde_json::Value =
        serde_json::from_slice(&bucket(&ground).await.get("reader").await.unwrap().unwrap()).unwrap();
    assert_eq!(value, serde_json::json!({ "node": "a", "boot": a.me.boot.to_string() }));
}

#[tokio::test]
async fn a_bucket_that_keeps_keys_for_another_time_is_refused_with_both() {
    let ground = Ground::of(Kind::Nats).await;
    ground.node("a").store.register().await.unwrap();
    let b = ground.node_with("b", SHORT);
    for answer in [b.store.register().await, b.store.acquire(&reader(), None).await.map(drop)] {
        let Err(LeaseError::Refused(sentence)) = answer else { panic!("{answer:?}") };
        assert!(
            sentence.starts_with("the NATS bucket leases keeps its keys for 60s and a lease lasts 2s: set "),
            "{sentence}"
        );
    }
    assert_eq!(ground.number("SELECT count(*) FROM plant_nodes WHERE node = 'b'").await, 0);
}

#[tokio::test]
async fn of_two_nodes_that_make_the_bucket_at_once_both_have_it() {
    let ground = Ground::of(Kind::Nats).await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let (one, two) = tokio::join!(a.store.register(), b.store.register());
    one.unwrap();
    two.unwrap();
}

#[tokio::test]
async fn in_a_bucket_that_was_made_anew_the_epoch_is_one_more_than_the_last() {
    let ground = Ground::of(Kind::Nats).await;
    let a = ground.node("a");
    let mut last = a.take().await.epoch;
    for _ in 0..5 {
        last = granted(a.restart(last).await).epoch;
    }
    a.release(last, true, Cause::Release).await;
    ground.jetstream().await.delete_key_value(BUCKET).await.unwrap();
    // One that has seen nothing of it.
    let b = ground.node("b");
    let new = b.take().await;
    assert!(new.epoch > last, "{} after {last}", new.epoch);
    let revision = bucket(&ground).await.entry("reader").await.unwrap().unwrap().revision;
    assert!(revision < new.epoch.number);
}

#[tokio::test]
async fn where_the_fences_are_gone_the_epoch_is_the_keys_revision() {
    let ground = Ground::of(Kind::Nats).await;
    let a = ground.node("a");
    let mut last = a.take().await.epoch;
    for _ in 0..5 {
        last = granted(a.restart(last).await).epoch;
        assert_eq!(a.renew(last).await, Renewal::Confirmed);
    }
    a.release(last, true, Cause::Release).await;
    ground.run("DELETE FROM plant_leases; DELETE FROM plant_fences").await;
    let new = ground.node("b").take().await;
    assert!(new.epoch > last, "{} after {last}", new.epoch);
    let revision = bucket(&ground).await.entry("reader").await.unwrap().unwrap().revision;
    assert_eq!(new.epoch.number, revision);
}

#[tokio::test]
async fn a_renewal_whose_answer_was_lost_is_not_a_lost_lease() {
    let ground = Ground::of(Kind::Nats).await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let grant = a.take().await;
    // What it has sent and heard nothing of has advanced the key.
    let bucket = bucket(&ground).await;
    let entry = bucket.entry("reader").await.unwrap().unwrap();
    bucket.update("reader", entry.value, entry.revision).await.unwrap();
    assert_eq!(a.renew(grant.epoch).await, Renewal::Confirmed);
    b.see_taken().await;
    let entry = bucket.entry("reader").await.unwrap().unwrap();
    bucket.update("reader", entry.value, entry.revision).await.unwrap();
    a.release(grant.epoch, true, Cause::Release).await;
    b.take().await;
}

#[tokio::test]
async fn a_holder_whose_key_another_has_loses_the_lease_and_its_row_is_not_taken_before_it_runs_out() {
    let ground = Ground::of(Kind::Nats).await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let old = a.take().await;
    ground.stream().await.purge().await.unwrap();
    assert_eq!(b.see_taken().await.holder, Some(a.me.clone()));
    // Who has no row keeps no key.
    assert!(bucket(&ground).await.get("reader").await.unwrap().is_none());
    ground.commit(&a, old.epoch).await.unwrap();
    assert_eq!(a.renew(old.epoch).await, Renewal::Lost);
    ground.run("UPDATE plant_leases SET expires_at = clock_timestamp()").await;
    let new = b.take().await;
    ground.refuses(&a, old.epoch).await;
    ground.commit(&b, new.epoch).await.unwrap();
}

#[tokio::test]
async fn a_key_whose_row_could_not_be_had_in_time_is_given_back() {
    let ground = Ground::of(Kind::Nats).await;
    let (a, b) = (ground.node_with("a", SHORT), ground.node_with("b", SHORT));
    let first = a.take().await;
    a.release(first.epoch, true, Cause::Release).await;
    let mut commit = ground.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM plant_fences FOR UPDATE").execute(&mut *commit).await.unwrap();
    let asked = a.store.acquire(&reader(), None).await;
    assert!(matches!(asked, Err(LeaseError::Unavailable(_))), "{asked:?}");
    assert!(bucket(&ground).await.get("reader").await.unwrap().is_none());
    commit.rollback().await.unwrap();
    assert!(b.take_soon().await.epoch > first.epoch);
}

#[tokio::test]
async fn a_key_whose_row_is_gone_is_still_a_lease() {
    let ground = Ground::of(Kind::Nats).await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let grant = a.take().await;
    ground.run("DELETE FROM plant_leases").await;
    assert_eq!(b.see_taken().await.holder, Some(a.me.clone()));
    assert_eq!(a.renew(grant.epoch).await, Renewal::Lost, "it is held only with both");
}

/// The row has run out, the key has not yet: it is looked for again soon.
#[tokio::test]
async fn a_key_that_outlives_its_row_is_waited_for() {
    let ground = Ground::of(Kind::Nats).await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    a.take().await;
    ground.run("UPDATE plant_leases SET expires_at = clock_timestamp() - interval '1 min'").await;
    let seen = b.store.observe(&[reader()]).await.unwrap().remove(0);
    assert_eq!(seen.holder, Some(a.me.clone()));
    assert!((1..1000).contains(&seen.expires_in_ms), "{}", seen.expires_in_ms);
    b.see_taken().await;
    ground.stream().await.purge().await.unwrap();
    let seen = b.store.observe(&[reader()]).await.unwrap().remove(0);
    assert!(seen.expires_in_ms <= 0);
    b.take().await;
}

#[tokio::test]
async fn a_lease_outlives_a_restart_of_nats() {
    let mut ground = Ground::of(Kind::Nats).await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let grant = a.take().await;
    ground.nats.as_mut().unwrap().kill().unwrap();
    let held = [(reader(), grant.epoch)];
    let renewed = a.store.renew(&held).await;
    assert!(matches!(renewed, Err(LeaseError::Unavailable(_))), "{renewed:?}");
    let asked = b.store.acquire(&reader(), None).await;
    let Err(LeaseError::Unavailable(sentence)) = asked else { panic!("{asked:?}") };
    assert!(sentence.starts_with("NATS at nats://127.0.0.1:"), "{sentence}");
    ground.nats.as_mut().unwrap().run().unwrap();
    renewed_in_the_end(&a, &held).await;
    b.see_taken().await;
}

#[tokio::test]
async fn a_server_without_jetstream_is_said_to_have_none() {
    let ground = Ground::of(Kind::Nats).await;
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        config.path(),
        "accounts { PLAIN { users = [{ user = a, password = secret }] } }\nno_auth_user = a\n",
    )
    .unwrap();
    let plain = harness::Nats::start_with(&["--config".to_owned(), config.path().display().to_string()]).unwrap();
    let store = NatsStore::new(&ground.database(), me("a"), LEASE, bus(&plain), BUCKET.to_owned()).unwrap();
    let answer = store.register().await;
    let Err(LeaseError::Unavailable(sentence)) = answer else { panic!("{answer:?}") };
    assert!(sentence.to_lowercase().contains("jetstream"), "{sentence}");
}

#[tokio::test]
async fn a_login_that_nats_refuses_is_said_and_no_password_is_shown() {
    let ground = Ground::of(Kind::Nats).await;
    let locked =
        harness::Nats::start_with(&["--user".to_owned(), "plant".to_owned(), "--pass".to_owned(), "right".to_owned()])
            .unwrap();
    let with = |password: &str| {
        let bus = Bus { login: Some(("plant".to_owned(), password.to_owned())), ..bus(&locked) };
        NatsStore::new(&ground.database(), me("a"), LEASE, bus, BUCKET.to_owned()).unwrap()
    };
    let answer = with("wrong").register().await;
    let Err(LeaseError::Refused(sentence)) = answer else { panic!("{answer:?}") };
    assert!(sentence.contains("bus.main") && !sentence.contains("wrong"), "{sentence}");
    with("right").register().await.unwrap();
}

#[tokio::test]
async fn roles_and_partitions_have_keys_of_their_own() {
    let ground = Ground::of(Kind::Nats).await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let key = |role: &str, partition: &str| RoleKey { role: role.parse().unwrap(), partition: partition.to_owned() };
    for key in [key("reader", "line.1"), key("reader.line", "1"), key("reader", "line-1."), key("reader", "")] {
        granted(a.store.acquire(&key, None).await.unwrap());
        assert!(matches!(b.store.acquire(&key, None).await.unwrap(), Acquired::Taken(_)), "{key}");
    }
}

#[tokio::test]
async fn a_lease_of_a_holder_that_only_lost_its_nats_is_had_by_another_after_it_ran_out() {
    let ground = Ground::of(Kind::Nats).await;
    let (a, b) = (ground.node_with("a", SHORT), ground.node_with("b", SHORT));
    let old = a.take().await;
    assert_eq!(a.renew(old.epoch).await, Renewal::Confirmed);
    let new = tokio::time::timeout(PATIENCE, b.take_soon()).await.unwrap();
    assert!(new.epoch > old.epoch && new.hold_back > Duration::ZERO);
    ground.refuses(&a, old.epoch).await;
}

#[tokio::test]
async fn in_a_cluster_a_lease_outlives_the_loss_of_one_of_three_servers() {
    let ground = Ground::of(Kind::Nats).await;
    let mut servers = harness::Nats::cluster(3).unwrap();
    let urls: Vec<String> = servers.iter().map(harness::Nats::url).collect();
    make_replicated(&urls).await;
    let node = |name: &str| {
        let (me, bus) = (me(name), Bus { url: urls.join(","), ..bus(&servers[0]) });
        let holder = me.holder.clone();
        let store = NatsStore::new(&ground.database(), me, LEASE, bus, BUCKET.to_owned()).unwrap();
        crate::ground::Node { me: holder, store: Box::new(store) }
    };
    let (a, b) = (node("a"), node("b"));
    let grant = a.take_soon().await;
    let held = [(reader(), grant.epoch)];
    for server in &mut servers {
        server.kill().unwrap();
        renewed_in_the_end(&a, &held).await;
        server.run().unwrap();
        all_replicas_are_current(&urls).await;
    }
    assert_eq!(b.see_taken().await.holder, Some(a.me.clone()));
    a.release(grant.epoch, true, Cause::Release).await;
    assert!(b.take_soon().await.epoch > grant.epoch);
}

/// The bucket as a person makes it beforehand, as soon as the cluster has a leader.
async fn make_replicated(urls: &[String]) {
    let config = kv::Config { bucket: BUCKET.to_owned(), max_age: LEASE, num_replicas: 3, ..kv::Config::default() };
    let start = std::time::Instant::now();
    loop {
        let client = async_nats::connect(urls).await.unwrap();
        let made = async_nats::jetstream::new(client).create_key_value(config.clone()).await;
        let Err(error) = made else { return };
        assert!(start.elapsed() < PATIENCE, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn all_replicas_are_current(urls: &[String]) {
    let start = std::time::Instant::now();
    loop {
        let client = async_nats::connect(urls).await.unwrap();
        let stream = async_nats::jetstream::new(client).get_stream(format!("KV_{BUCKET}")).await;
        let cluster = stream.ok().and_then(|stream| stream.cached_info().cluster.clone());
        if cluster
            .as_ref()
            .is_some_and(|cluster| cluster.replicas.iter().filter(|replica| replica.current).count() == 2)
        {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{cluster:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
