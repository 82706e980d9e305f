//! Whoever takes a role over waits for no lock of the holder before.

use host::store::Options;

use crate::ground::{Ground, statement};

// A holder that froze inside a transaction would keep its rows locked until the server's own timeout.
#[tokio::test]
async fn a_takeover_ends_what_the_frozen_holder_had_begun_for_this_role_and_nothing_else() {
    let ground = Ground::new().await;
    let (a, b) = (ground.node("a"), ground.node("b"));
    let held = a.take().await;
    let insert = |machine: i32| statement(&format!("INSERT INTO counts VALUES ({machine})"));
    let mut frozen = ground.begin(&a, held.epoch, Options::default()).await.unwrap();
    frozen.execute(vec![insert(1)]).await.unwrap();
    let mut other = ground.begin_for("other", &a, held.epoch, Options::default()).await.unwrap();
    other.execute(vec![insert(2)]).await.unwrap();

    ground.expire().await;
    let taken = b.take().await;
    // The same row: it would wait, and then fail.
    let mut new = ground.begin(&b, taken.epoch, Options::default()).await.unwrap();
    new.execute(vec![insert(1)]).await.unwrap();
    new.commit().await.unwrap();
    frozen.execute(vec![insert(3)]).await.unwrap_err();
    frozen.commit().await.unwrap_err();
    other.execute(vec![insert(4)]).await.unwrap();
    assert_eq!(ground.rows().await, 1);
}
