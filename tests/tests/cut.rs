//! A cable that is pulled: nobody says goodbye, so the holder's lease has to run out, and the books are what was made all the same.

use std::time::{Duration, Instant, SystemTime};

use harness::node::host;
use harness::plant::{self, wait_until_booked, wait_until_read, wait_until_reading};
use harness::process::wait_until;
use harness::takeover::{Takeover, report, rounds};
use harness::{Namespace, Node, Plant, Postgres, Simulator, skipped};
use serde_json::Value;

#[test]
fn a_holder_whose_cable_is_pulled_is_succeeded_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    let network = match Namespace::new()? {
        Ok(network) => network,
        Err(refused) => return skipped(&refused),
    };
    let database = Postgres::start_for(&network)?;
    let line = Simulator::start_at(&network.near(), &["--speed", "20", "--paused"])?;
    let text = plant::head(&database.url_at(&network.near()), &line.url(), "", Some(4)) + &plant::line("");
    let plant = Plant::from_text(&text.replace("bind = \"127.0.0.1\"", "bind = \"0.0.0.0\""), 4)?;
    let mut a = Node::start_in(&network, plant.path(), "a", &[])?;
    a.wait_until_healthy()?;
    wait_until_reading(&a, "a")?;
    let b = plant.node("b")?;
    wait_until_read(&b, 12)?;
    line.resume()?;

    let mut takeovers = Vec::new();
    for _ in 0..rounds(2) {
        let lease = plant.lease().as_secs_f64();
        let left = plant::role(&b, "reader")?.get("expires_in_ms").and_then(Value::as_f64).unwrap_or_default();
        let (cut, cut_at) = (Instant::now(), SystemTime::now());
        network.cut()?;
        wait_until_reading(&b, "b")?;
        let from_end = cut.elapsed().as_secs_f64();
        let takeover = Takeover {
            ended_at: cut_at,
            from_end: from_end / lease,
            from_last_renewal: (from_end + lease - left / 1000.0) / lease,
            until_booked: None,
        };
        takeovers.push(takeover.booked(&b, plant.lease())?);
        // It has stopped by itself long ago, and finds out who reads now.
        network.mend()?;
        wait_until("the node is back, as a standby", Duration::from_secs(60), || {
            Ok(a.instances("reader").is_ok_and(|instances| instances == 0)
                && plant::node(&b, "a").is_ok_and(|node| node["live"] == Value::Bool(true)))
        })?;
        // Alive is said a moment before what it can run.
        wait_until("the reader may move there", Duration::from_secs(20), || {
            Ok(host(plant.path(), &["role", "move", "reader", "--to", "a"])?.code == Some(0))
        })?;
        wait_until_reading(&b, "a")?;
    }
    line.pause()?;
    wait_until_booked(&b, &line.truth()?)?;
    report("Cut", &takeovers, 0);
    Ok(())
}
