//! One takeover: the holder is ended in one of three ways, the standby reads on, and the old holder comes back as a standby.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use chrono::DateTime;
use rustix::process::Signal;
use serde_json::Value;

use crate::plant::{books, role, takeovers, text, total, wait_until_booked, wait_until_read, wait_until_reading};
use crate::process::wait_until;
use crate::watch::Watch;
use crate::{Node, Plant, Simulator};

/// How the holder is ended, and what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// `kill -9`, then started again.
    Killed,
    /// SIGTERM, then started again.
    Stopped,
    /// SIGSTOP until the other has taken over, then SIGCONT.
    Frozen,
}

/// One takeover, in leases.
#[derive(Debug, Clone, Copy)]
pub struct Takeover {
    /// When the holder was ended.
    pub ended_at: SystemTime,
    /// From the holder's end until the standby's instance ran.
    pub from_end: f64,
    /// The same from the holder's last renewal, as the standby knew it.
    pub from_last_renewal: f64,
    /// From the holder's end until the first booking of the new holder was committed, by the database's clock, which is this box's.
    pub until_booked: Option<f64>,
}

/// How many takeovers a series has: `PLANT_ROUNDS`, else so many.
#[must_use]
pub fn rounds(otherwise: usize) -> usize {
    std::env::var("PLANT_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(otherwise)
}

/// Ends the holder, waits until the standby reads, and brings the old holder back as a standby.
///
/// # Errors
/// When any of it does not happen in time, or the old holder does not end as it was told.
pub fn take_over(
    plant: &Plant,
    end: End,
    holder: &mut Node,
    standby: &Node,
    watch: &mut Watch,
) -> anyhow::Result<Takeover> {
    let lease = plant.lease().as_secs_f64();
    let before = role(standby, "reader")?;
    let number = |of: &Value, key: &str| of.get(key).and_then(Value::as_f64).unwrap_or_default();
    let since_renewal = lease - number(&before, "expires_in_ms") / 1000.0;
    let (ended, ended_at) = (Instant::now(), SystemTime::now());
    match end {
        End::Killed => holder.signal(Signal::KILL)?,
        End::Stopped => holder.signal(Signal::TERM)?,
        End::Frozen => holder.signal(Signal::STOP)?,
    }
    wait_until_reading(standby, standby.name())?;
    let from_end = ended.elapsed().as_secs_f64();
    let after = role(standby, "reader")?;
    ensure!(number(&after, "epoch") > number(&before, "epoch"), "the epoch did not grow: {before} {after}");
    if end == End::Frozen {
        watch.waking(holder);
        holder.signal(Signal::CONT)?;
        wait_until("the thawed node has dropped its instance", Duration::from_secs(20), || {
            Ok(holder.instances("reader").is_ok_and(|instances| instances == 0))
        })?;
        watch.awake(holder);
    } else {
        let code = holder.wait(Duration::from_secs(20))?;
        ensure!(code == (end == End::Stopped).then_some(0), "the old holder ended with {code:?}: {}", holder.log());
        *holder = plant.node(holder.name())?;
        watch.started(holder);
    }
    Ok(Takeover {
        ended_at,
        from_end: from_end / lease,
        from_last_renewal: (from_end + since_renewal) / lease,
        until_booked: None,
    })
}

impl Takeover {
    /// The same, with what the plant's record says of the new holder's first booking.
    ///
    /// # Errors
    /// When there is none within half a minute.
    pub fn booked(self, holder: &Node, lease: Duration) -> anyhow::Result<Self> {
        let took = first_booking(holder)?.duration_since(self.ended_at).unwrap_or_default();
        Ok(Self { until_booked: Some(took.as_secs_f64() / lease.as_secs_f64()), ..self })
    }
}

/// When the reader's holder committed its first booking.
fn first_booking(holder: &Node) -> anyhow::Result<SystemTime> {
    let mut at = None;
    wait_until("the new holder has booked", Duration::from_secs(30), || {
        let takeovers = takeovers(holder, "reader")?;
        let newest = takeovers.first().filter(|newest| text(newest, "to") == holder.name());
        at = newest
            .and_then(|newest| DateTime::parse_from_rfc3339(text(newest, "owed_booked_at")).ok())
            .map(SystemTime::from);
        Ok(at.is_some())
    })?;
    at.context("no booking")
}

/// A pair of nodes whose holder is ended so many times while the line goes on counting. In the end the books are what was made, no two
/// nodes had an instance at one time, and the epochs only grew.
///
/// # Errors
/// When any of that is not so, or does not become so in time.
pub fn succession(plant: &Plant, line: &Simulator, end: End, times: usize) -> anyhow::Result<()> {
    succession_checked(plant, line, end, times, |_, _| Ok(()))
}

/// The same; after each takeover `check` is given who had the role and who has it.
///
/// # Errors
/// The same, and what `check` answers.
pub fn succession_checked(
    plant: &Plant,
    line: &Simulator,
    end: End,
    times: usize,
    check: impl Fn(&Node, &Node) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut holder = plant.node("a")?;
    wait_until_reading(&holder, "a")?;
    let mut standby = plant.node("b")?;
    wait_until_read(&holder, 12)?;
    let mut watch = Watch::over("reader", &[&holder, &standby]);
    line.resume()?;

    let mut takeovers = Vec::new();
    for _ in 0..times {
        let before = total(&books(&standby)?);
        wait_until("counts go on", Duration::from_secs(30), || Ok(total(&books(&standby)?) > before + 20))?;
        let takeover = take_over(plant, end, &mut holder, &standby, &mut watch)?;
        takeovers.push(takeover.booked(&standby, plant.lease())?);
        check(&holder, &standby)?;
        std::mem::swap(&mut holder, &mut standby);
    }
    line.pause()?;
    wait_until_booked(&holder, &line.truth()?)?;
    epochs_only_grow(&holder, takeovers.len())?;
    report(&format!("{end:?}"), &takeovers, watch.end()?);
    Ok(())
}

fn epochs_only_grow(node: &Node, at_least: usize) -> anyhow::Result<()> {
    let takeovers = takeovers(node, "reader")?;
    let mut epochs: Vec<(u64, u64)> = Vec::new();
    for takeover in takeovers.iter().rev() {
        let epoch = |key: &str| takeover.get(key).and_then(Value::as_u64).unwrap_or(0);
        epochs.push((epoch("from_epoch"), epoch("to_epoch")));
    }
    // A node answers with the newest 200, of five roles.
    ensure!(epochs.len() > at_least.min(30), "each is recorded, and the start: {takeovers:?}");
    ensure!(epochs.iter().all(|(from, to)| from < to), "{takeovers:?}");
    ensure!(epochs.iter().zip(epochs.iter().skip(1)).all(|(one, next)| one.1 <= next.0), "{takeovers:?}");
    Ok(())
}

/// Prints what a series of takeovers took.
pub fn report(end: &str, takeovers: &[Takeover], samples: usize) {
    println!("{end}: {} takeovers, {samples} samples of the nodes' instances; in leases:", takeovers.len());
    for takeover in takeovers {
        println!("  {:.3} from the end, {:.3} from the last renewal", takeover.from_end, takeover.from_last_renewal);
    }
    let mut booked: Vec<f64> = takeovers.iter().filter_map(|takeover| takeover.until_booked).collect();
    if booked.is_empty() {
        return;
    }
    booked.sort_by(f64::total_cmp);
    let at = |share: f64| quantile(&booked, share);
    println!("{end}, until the first booking: p50 {:.4}, p90 {:.4}, max {:.4}", at(0.5), at(0.9), at(1.0));
    if booked.len() >= 100 {
        println!("{end}, until the first booking: p99 {:.4}", at(0.99));
    }
}

/// The value below or at which this share of sorted values lies.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a small index"
    )]
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
}
