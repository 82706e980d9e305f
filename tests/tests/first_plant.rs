//! A plant of one's own, as the README begins one: `host init`, `host check`, `host run`, and it counts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use harness::asyncua::{Asyncua, Setup};
use harness::node::{Said, host};
use harness::plant::{Counts, books, wait_until_read};
use harness::process::wait_until;
use harness::{Node, Simulator};
use serde_json::json;
use tempfile::TempDir;

/// Runs a subcommand that has to succeed.
fn good(plant: &Path, arguments: &[&str]) -> anyhow::Result<Said> {
    let said = host(plant, arguments)?;
    assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
    Ok(said)
}

/// Checks the plant that `init` wrote, runs it, and waits until it has read so many counters.
fn checked_and_running(plant: &Path, counters: usize) -> anyhow::Result<Node> {
    good(plant, &["check"])?;
    let mut node = Node::start(plant, "a", &[])?;
    node.wait_until_healthy()?;
    wait_until_read(&node, counters)?;
    Ok(node)
}

/// What was made since.
fn since(before: &Counts, now: &Counts) -> Counts {
    let made = |(counter, units): (&(String, String), &u64)| {
        (counter.clone(), units - before.get(counter).copied().unwrap_or_default())
    };
    now.iter().map(made).collect()
}

#[test]
fn a_line_that_runs_is_found_checked_and_counted_exactly() -> anyhow::Result<()> {
    let line = Simulator::start(&["--speed", "20"])?;
    let plant = TempDir::with_prefix("plant-")?;
    let said = good(plant.path(), &["init", "--yes", "--from", &line.url()])?;
    assert!(said.output.contains("6 machines"), "{said:?}");
    let text = std::fs::read_to_string(plant.path().join("plant.toml"))?;
    let rates = text.lines().filter_map(|line| line.strip_prefix("max_rate = ")).map(str::parse::<f64>);
    let rates = rates.collect::<Result<Vec<f64>, _>>()?;
    // Every station makes some 20 good ones a second; scrap is rare.
    assert!(rates.iter().filter(|rate| **rate >= 50.0).count() >= 6, "{rates:?} in\n{text}");

    line.pause()?;
    let before = line.truth()?;
    let node = checked_and_running(plant.path(), 12)?;
    line.resume()?;
    wait_until("units are booked", Duration::from_secs(60), || Ok(books(&node)?.values().sum::<u64>() > 500))?;
    line.pause()?;
    let made = since(&before, &line.truth()?);
    let all = wait_until("the books are what was made", Duration::from_secs(30), || Ok(books(&node)? == made));
    all.with_context(|| format!("made {made:?}\nbooked {:?}\n{text}\n{}", books(&node), node.log()))
}

const GOOD: &str = "s=FILL01.Good";

fn guarded() -> anyhow::Result<Asyncua> {
    let users = vec![("reader".to_owned(), "for tests".to_owned())];
    let mut server = Asyncua::start(Setup { users, no_anonymous: true, secure: true, ..Setup::default() })?;
    let counter = |node: &str, name: &str| json!({"do": "add", "node": node, "name": name, "parent": "s=FILL01", "type": "UInt32", "value": 7});
    for node in [
        json!({"do": "add-object", "node": "s=FILL01", "name": "FILL01"}),
        counter(GOOD, "GoodCount"),
        counter("s=FILL01.Scrap", "ScrapCount"),
    ] {
        server.command(&node)?;
    }
    Ok(server)
}

/// Counts on while `work` is done, 10 units every 100 ms or so; answers what it shows in the end.
fn counting<T>(server: &mut Asyncua, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, u64)> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let counter = scope.spawn(|| -> anyhow::Result<u64> {
            let mut shown = 7;
            while !done.load(Ordering::Relaxed) {
                shown += 10;
                server.set(GOOD, "UInt32", json!(shown))?;
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(shown)
        });
        let worked = work();
        done.store(true, Ordering::Relaxed);
        let shown = counter.join().map_err(|_| anyhow::anyhow!("the counter's thread ended"))??;
        Ok((worked?, shown))
    })
}

#[test]
fn a_server_that_wants_encryption_and_a_user_is_found_checked_and_counted() -> anyhow::Result<()> {
    let mut server = guarded()?;
    let plant = TempDir::with_prefix("plant-")?;
    let (directory, url) = (plant.path(), server.url());
    let login = ["--security", "basic256sha256", "--user", "reader", "--password-env", "LINE_PASSWORD"];
    let init = [&["init", "--yes", "--from", url.as_str()], login.as_slice()].concat();

    let refused = host(directory, &["init", "--yes", "--from", &url])?;
    assert!(refused.errors.contains("wants a user"), "{refused:?}");
    // A person decides whether it is the right server, and then it is trusted, also when the plant runs.
    let stranger = host(directory, &init)?;
    assert!(stranger.code == Some(1) && stranger.errors.contains("is not trusted"), "{stranger:?}");
    trust(&directory.join("pki"))?;
    let node = format!("nsu={};{GOOD}", harness::asyncua::NAMESPACE);
    let read = good(directory, &[&["opc", "read", url.as_str(), node.as_str()], login.as_slice()].concat())?;
    assert!(read.output.contains(&format!("{node} = 7")), "{read:?}");

    let (said, before) = counting(&mut server, || good(directory, &init))?;
    assert!(said.output.contains("1 machine, 0 tags"), "{said:?}");
    assert!(said.output.contains("stood still") && said.output.contains("FILL01 scrap"), "{said:?}");
    assert!(said.output.contains("set LINE_PASSWORD"), "{said:?}");
    let text = std::fs::read_to_string(directory.join("plant.toml"))?;
    for line in
        ["security = \"basic256sha256\"", "user = \"reader\"", "password_env = \"LINE_PASSWORD\"", "# max_rate = 20.0"]
    {
        assert!(text.lines().any(|there| there.starts_with(line)), "{line} in\n{text}");
    }
    assert_eq!(text.matches("\nmax_rate = ").count(), 1, "{text}");

    let mut node = checked_and_running(directory, 2)?;
    let (_, shown) = counting(&mut server, || {
        // It begins at 7 again, which is a reset; from there on all is counted.
        wait_until("units are booked", Duration::from_secs(60), || Ok(booked(&node)? > 50))
    })?;
    assert!(before > 7 && shown > 57);
    node.signal(rustix::process::Signal::TERM)?;
    assert_eq!(node.wait(Duration::from_secs(10))?, Some(0), "{}", node.log());
    Ok(())
}

fn booked(node: &Node) -> anyhow::Result<u64> {
    let books: BTreeMap<_, _> = books(node)?;
    Ok(books.get(&("FILL01".to_owned(), "good".to_owned())).copied().unwrap_or_default())
}

/// What a person does who knows the certificate.
fn trust(pki: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(pki.join("trusted"))?;
    for file in std::fs::read_dir(pki.join("rejected"))? {
        let file = file?;
        std::fs::rename(file.path(), pki.join("trusted").join(file.file_name()))?;
    }
    Ok(())
}
