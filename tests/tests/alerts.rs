//! Alerts of real nodes, as real receivers get them: over a webhook, NATS and a mail server.

use std::time::Duration;

use anyhow::Context;
use harness::node::host;
use harness::plant::{head, line, role, text, wait_until_reading};
use harness::process::{free_port, wait_until};
use harness::{Nats, Node, Plant, Postgres, Simulator, Smtp, Webhook};
use rustix::process::Signal;
use serde_json::Value;

const END: Duration = Duration::from_secs(20);

#[test]
fn a_takeover_is_told_exactly_once_though_the_receiver_failed_at_first() -> anyhow::Result<()> {
    let (database, line) = (Postgres::start()?, Simulator::start(&["--paused"])?);
    let receiver = Webhook::refusing(1)?;
    let plant = plant(&database, &line, &webhook(&receiver))?;
    let (a, mut b) = pair_of_nodes(&plant)?;
    a.signal(Signal::KILL)?;
    wait_until_reading(&b, "b")?;

    let told = receiver.wait_for("kind", "takeover")?;
    let fields = ["severity", "plant", "node", "role", "partition"].map(|key| text(&told, key));
    assert_eq!(fields, ["warning", "bottling", "b", "reader", ""], "{told}");
    assert_eq!(told.get("times"), Some(&Value::from(1)), "{told}");
    assert!(text(&told, "text").starts_with("role reader runs on node b now: node a, which had it, has "), "{told}");
    assert!(
        ["(cause death, epoch ", "(cause expiry, epoch "].iter().any(|why| text(&told, "text").contains(why)),
        "{told}"
    );
    assert!(text(&told, "at").ends_with('Z') && text(&told, "at").contains('T'), "{told}");

    let refused = receiver.refused();
    assert_eq!(refused, [told], "the try that failed was of the same alert, with the same id");
    // A node that has ended has delivered what it had to say.
    b.signal(Signal::TERM)?;
    assert_eq!(b.wait(END)?, Some(0), "{}", b.log());
    assert_eq!(of_kind(&receiver, "takeover"), 1, "{:?}", receiver.accepted());
    assert!(!b.log().contains("the last alerts were not delivered"), "{}", b.log());
    Ok(())
}

#[test]
fn a_refused_twin_says_so_before_it_ends() -> anyhow::Result<()> {
    let (database, line) = (Postgres::start()?, Simulator::start(&["--paused"])?);
    let receiver = Webhook::refusing(0)?;
    let plant = plant(&database, &line, &webhook(&receiver))?;
    let first = plant.node("a")?;
    wait_until_reading(&first, "a")?;
    let twin = host(plant.path(), &["run", "--node", "a", "--api-port", &free_port()?.to_string()])?;
    assert_eq!(twin.code, Some(1), "{twin:?}");
    // It has ended: what it had to say is here already.
    let all = receiver.accepted();
    let told =
        all.iter().find(|alert| text(alert, "kind") == "refused").with_context(|| format!("{all:?} {twin:?}"))?;
    assert_eq!((text(told, "severity"), text(told, "node"), told.get("role")), ("critical", "a", Some(&Value::Null)));
    assert!(text(told, "text").contains("a node named a is running already, at "), "{told}");
    wait_until_reading(&first, "a")
}

#[test]
fn a_refused_twin_ends_though_nobody_receives() -> anyhow::Result<()> {
    let (database, line) = (Postgres::start()?, Simulator::start(&["--paused"])?);
    let nowhere = format!("[alerts]\nwebhook = \"http://127.0.0.1:{}/\"\n", free_port()?);
    let plant = plant(&database, &line, &nowhere)?;
    let first = plant.node("a")?;
    wait_until_reading(&first, "a")?;
    let twin = host(plant.path(), &["run", "--node", "a", "--api-port", &free_port()?.to_string()])?;
    assert_eq!(twin.code, Some(1), "{twin:?}");
    assert!(twin.errors.contains("an alert could not be delivered: it is tried again"), "{twin:?}");
    assert!(twin.errors.contains("the last alerts were not delivered within 5 s"), "{twin:?}");
    Ok(())
}

#[test]
fn a_node_that_was_frozen_past_its_lease_says_that_it_has_lost_it() -> anyhow::Result<()> {
    let (database, line) = (Postgres::start()?, Simulator::start(&["--paused"])?);
    let receiver = Webhook::refusing(0)?;
    let plant = plant(&database, &line, &webhook(&receiver))?;
    let (a, b) = pair_of_nodes(&plant)?;
    a.signal(Signal::STOP)?;
    wait_until_reading(&b, "b")?;
    a.signal(Signal::CONT)?;
    let told = receiver.wait_for("kind", "demotion")?;
    assert_eq!(["severity", "node", "role"].map(|key| text(&told, key)), ["critical", "a", "reader"], "{told}");
    assert!(text(&told, "text").starts_with("node a has lost role reader (epoch "), "{told}");
    let takeover = receiver.wait_for("kind", "takeover")?;
    assert!(text(&takeover, "text").contains("(cause expiry, epoch "), "{takeover}");
    Ok(())
}

#[test]
fn a_role_that_nobody_holds_is_told_and_so_is_its_end_and_a_hold_is_not() -> anyhow::Result<()> {
    let (database, line) = (Postgres::start()?, Simulator::start(&["--paused"])?);
    let receiver = Webhook::refusing(0)?;
    let plant = plant(&database, &line, &webhook(&receiver))?;
    let (mut a, b) = pair_of_nodes(&plant)?;
    let mut c = plant.node("c")?;
    let order = |arguments: &[&str]| -> anyhow::Result<()> {
        let said = host(plant.path(), arguments)?;
        anyhow::ensure!(said.code == Some(0), "{arguments:?}: {said:?}");
        Ok(())
    };
    order(&["role", "pin", "reader", "b"])?;
    wait_until_reading(&a, "b")?;
    b.signal(Signal::KILL)?;
    let told = receiver.wait_for("kind", "vacant")?;
    assert_eq!(["severity", "role"].map(|key| text(&told, key)), ["critical", "reader"], "{told}");
    assert!(text(&told, "text").contains("nobody holds role reader for "), "{told}");
    order(&["role", "unpin", "reader"])?;
    let over = receiver.wait_for("kind", "held_again")?;
    assert_eq!(["severity", "role"].map(|key| text(&over, key)), ["warning", "reader"], "{over}");

    // A hold that people want is no vacancy, however long it lasts.
    order(&["role", "hold", "reader", "--why", "a test"])?;
    let held = std::time::Instant::now();
    wait_until("four leases have passed", END, || Ok(held.elapsed() > plant.lease() * 4))?;
    for node in [&mut a, &mut c] {
        node.signal(Signal::TERM)?;
        assert_eq!(node.wait(END)?, Some(0), "{}", node.log());
    }
    // One node speaks for all; another does too only when it has heard nothing of that one for a lease.
    let by_it = |kind: &str| {
        let all = receiver.accepted();
        all.iter().filter(|alert| text(alert, "kind") == kind && text(alert, "node") == text(&told, "node")).count()
    };
    assert_eq!((by_it("vacant"), by_it("held_again")), (1, 1), "{:?}", receiver.accepted());
    Ok(())
}

#[test]
fn a_takeover_is_published_and_mailed() -> anyhow::Result<()> {
    let (database, line) = (Postgres::start()?, Simulator::start(&["--paused"])?);
    let (nats, mail) = (Nats::start()?, Smtp::start()?);
    let mut listener = nats.listen("plant.alerts")?;
    let channels = format!(
        "[bus.main]\nurl = \"{}\"\n[alerts]\nbus = \"main:plant.alerts\"\n\
         email = {{ server = \"{}\", from = \"plant@example.com\", to = [\"shift@example.com\", \"boss@example.com\"] }}\n",
        nats.url(),
        mail.url()
    );
    let plant = plant(&database, &line, &channels)?;
    let (a, b) = pair_of_nodes(&plant)?;
    a.signal(Signal::TERM)?;
    wait_until_reading(&b, "b")?;

    let told: Value = serde_json::from_str(&listener.message()?)?;
    assert_eq!(
        ["kind", "severity", "node", "role"].map(|key| text(&told, key)),
        ["takeover", "warning", "b", "reader"]
    );
    assert!(text(&told, "text").contains("(cause release, epoch "), "{told}");

    wait_until("the mail has come", Duration::from_secs(60), || Ok(!mail.mails()?.is_empty()))
        .with_context(|| b.log())?;
    let mails = mail.mails()?;
    assert_eq!(mails.len(), 1, "{mails:?}");
    let id = format!("Message-ID: <{}@example.com>", text(&told, "id"));
    for words in [
        "Subject: [bottling] warning: takeover, role reader",
        "From: plant@example.com",
        "To: shift@example.com, boss@example.com",
        &id,
        "node: b",
    ] {
        assert!(mails[0].contains(words), "no {words:?} in {}", mails[0]);
    }
    Ok(())
}

fn plant(database: &Postgres, server: &Simulator, alerts: &str) -> anyhow::Result<Plant> {
    let text = head(&database.url(), &server.url(), "", Some(2)) + "\n" + alerts + &line("");
    Plant::from_text(&text, 2)
}

fn webhook(receiver: &Webhook) -> String {
    format!("[alerts]\nwebhook = \"{}\"\n", receiver.url())
}

/// Node `a`, which reads, and node `b`, which knows that.
fn pair_of_nodes(plant: &Plant) -> anyhow::Result<(Node, Node)> {
    let a = plant.node("a")?;
    wait_until_reading(&a, "a")?;
    let b = plant.node("b")?;
    wait_until("both nodes have said what they can run", Duration::from_secs(20), || {
        let reader = role(&b, "reader")?;
        Ok(reader.get("nodes").and_then(Value::as_array).is_some_and(|nodes| nodes.len() == 2))
    })?;
    wait_until_reading(&b, "a")?;
    Ok((a, b))
}

fn of_kind(receiver: &Webhook, kind: &str) -> usize {
    receiver.accepted().iter().filter(|alert| text(alert, "kind") == kind).count()
}
