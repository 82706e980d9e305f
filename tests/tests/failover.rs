//! Two nodes, one database, one line that goes on counting: whatever ends the holder, the books are what was made.

use std::time::{Duration, Instant};

use harness::plant::{Counts, books, role, wait_until_read, wait_until_reading};
use harness::process::wait_until;
use harness::{Node, Plant, Postgres, Simulator};
use rustix::process::Signal;

const ROUNDS: usize = 5;

/// How the holder is ended in one round, and what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    /// `kill -9`, then started again.
    Killed,
    /// SIGTERM, then started again.
    Stopped,
    /// SIGSTOP until the other has taken over, then SIGCONT.
    Frozen,
}

/// One takeover, in leases.
struct Takeover {
    from_end: f64,
    from_last_renewal: f64,
}

#[test]
fn a_killed_holder_is_succeeded_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    fail_over(End::Killed)
}

#[test]
fn a_stopped_holder_hands_over_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    fail_over(End::Stopped)
}

#[test]
fn a_frozen_holder_commits_nothing_after_it_wakes_and_the_books_are_what_was_made() -> anyhow::Result<()> {
    fail_over(End::Frozen)
}

fn fail_over(end: End) -> anyhow::Result<()> {
    let database = Postgres::start()?;
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    let plant = Plant::bottling(&database.url(), &line.url(), Some(2))?;
    let mut holder = plant.node("a")?;
    wait_until_reading(&holder, "a")?;
    let mut standby = plant.node("b")?;
    wait_until_read(&holder, 12)?;
    line.resume()?;

    let mut takeovers = Vec::new();
    for _ in 0..ROUNDS {
        let before = total(&books(&standby)?);
        wait_until("counts go on", Duration::from_secs(30), || Ok(total(&books(&standby)?) > before + 20))?;
        takeovers.push(take_over(&plant, end, &mut holder, &standby)?);
        std::mem::swap(&mut holder, &mut standby);
    }
    line.pause()?;
    let truth: Counts = line.truth()?;
    let matches = wait_until("the books are what was made", Duration::from_secs(30), || Ok(books(&holder)? == truth));
    assert_eq!(books(&holder)?, truth, "{matches:?}");
    report(end, &takeovers);
    Ok(())
}

/// Ends the holder, waits until the standby reads, and brings the old holder back as a standby.
fn take_over(plant: &Plant, end: End, holder: &mut Node, standby: &Node) -> anyhow::Result<Takeover> {
    let lease = plant.lease().as_secs_f64();
    let before = role(standby, "reader")?;
    assert_eq!(instances(standby)?, 0, "a standby has no instance");
    let since_renewal = lease - before["expires_in_ms"].as_f64().unwrap_or_default() / 1000.0;
    let ended = Instant::now();
    match end {
        End::Killed => holder.signal(Signal::KILL)?,
        End::Stopped => holder.signal(Signal::TERM)?,
        End::Frozen => holder.signal(Signal::STOP)?,
    }
    wait_until_reading(standby, standby.name())?;
    let from_end = ended.elapsed().as_secs_f64();
    let after = role(standby, "reader")?;
    assert!(after["epoch"].as_u64() > before["epoch"].as_u64(), "the epoch grew: {before} {after}");
    match end {
        End::Frozen => {
            holder.signal(Signal::CONT)?;
            wait_until("the thawed node has dropped its instance", Duration::from_secs(20), || {
                Ok(instances(holder).is_ok_and(|instances| instances == 0))
            })?;
        }
        End::Killed | End::Stopped => {
            let code = holder.wait(Duration::from_secs(20))?;
            assert_eq!(code, (end == End::Stopped).then_some(0), "how the old holder ended");
            *holder = plant.node(holder.name())?;
        }
    }
    Ok(Takeover { from_end: from_end / lease, from_last_renewal: (from_end + since_renewal) / lease })
}

/// How many instances of the reader a node has, by its own metrics.
fn instances(node: &Node) -> anyhow::Result<u64> {
    let metrics = node.text("/metrics")?;
    let line = metrics.lines().find(|l| l.starts_with("host_role_instances") && l.contains("role=\"reader\""));
    Ok(line.and_then(|l| l.rsplit(' ').next()).and_then(|n| n.parse().ok()).unwrap_or(0))
}

fn total(books: &Counts) -> u64 {
    books.values().sum()
}

fn report(end: End, takeovers: &[Takeover]) {
    println!("{end:?}: {} takeovers, in leases of 2 s", takeovers.len());
    for takeover in takeovers {
        println!("  {:.2} from the end, {:.2} from the last renewal", takeover.from_end, takeover.from_last_renewal);
    }
}
