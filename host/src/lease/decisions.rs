//! What a node decides about a lease, from what it was told and its own clock alone.
//!
//! Nothing here waits, asks or remembers: the keeper asks it at each of its steps, and so does the model that tries the steps of several
//! nodes in every order (`host/tests/lease_model`). What is true there is true of this code.

use std::time::Duration;

use super::Renewal;
use crate::clock::BootInstant;
use crate::identity::Epoch;

/// Whose a lease is, as a node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Nobody: it was never held, or was released.
    Nobody,
    /// This boot.
    Me,
    /// A boot whose death was proved.
    Dead,
    /// Another boot, also another one of the same name.
    Another,
}

/// What changes with every renewal and every change of hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The lease's epoch.
    pub epoch: Epoch,
    /// When it was renewed last, by the store's clock, in microseconds.
    pub renewed_at_us: i64,
}

/// Whether to ask for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chance {
    /// It is somebody else's.
    None,
    /// It can be had as it is.
    Now,
    /// It can be had if it is still as it was seen: nobody has renewed it for a whole lease of this node's own clock.
    IfUnchanged,
}

/// Since when a lease looks as it does: since `now` where it looked otherwise `before`, or was not seen.
#[must_use]
pub fn since(before: Option<(Mark, BootInstant)>, seen: Mark, now: BootInstant) -> BootInstant {
    before.filter(|(mark, _)| *mark == seen).map_or(now, |(_, since)| since)
}

/// Whether a lease that looks as it does since `since` may be asked for. The store's clock alone would not do: after a fail-over it may be
/// behind, and the role would be held by nobody. Where leases never expire (`lease` is `None`), being the single node is proof enough.
#[must_use]
pub fn chance(
    lease: Option<Duration>,
    holds: Holds,
    expires_in_ms: i64,
    since: BootInstant,
    now: BootInstant,
) -> Chance {
    if lease.is_none_or(|lease| now.since(since) >= lease) {
        return Chance::IfUnchanged;
    }
    match holds {
        Holds::Nobody | Holds::Me | Holds::Dead => Chance::Now,
        Holds::Another if expires_in_ms <= 0 => Chance::Now,
        Holds::Another => Chance::None,
    }
}

/// Until when a holder may act whose lease was confirmed by an answer to what it sent at `sent`: three quarters of a lease, so that it has
/// stopped before anybody else can take it.
#[must_use]
pub fn deadline(lease: Option<Duration>, sent: BootInstant) -> BootInstant {
    lease.map_or(BootInstant::NEVER, |lease| sent + lease * 3 / 4)
}

/// From when on a holder may have effects that no fence covers, when the answer that granted its lease came at `received`.
#[must_use]
pub fn effects_from(received: BootInstant, hold_back: Duration) -> BootInstant {
    received + hold_back
}

/// What the answer to a renewal means for the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may go on until then, if that is later than before.
    Until(BootInstant),
    /// Nothing is known.
    Unknown,
    /// It is over.
    Over,
}

/// What the answer to a renewal that was sent at `sent` means. While a holder starts a new instance (`restarts`) its old epoch is not
/// the lease's any more, and whoever asked for the new one is told.
#[must_use]
pub fn verdict(lease: Option<Duration>, sent: BootInstant, answer: Renewal, restarts: bool) -> Verdict {
    match answer {
        Renewal::Confirmed => Verdict::Until(deadline(lease, sent)),
        Renewal::Skipped => Verdict::Unknown,
        Renewal::Lost if restarts => Verdict::Unknown,
        Renewal::Lost => Verdict::Over,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Option<Duration> = Some(Duration::from_secs(4));

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    fn mark(number: u64, renewed_at_us: i64) -> Mark {
        Mark { epoch: Epoch { timeline: 1, number }, renewed_at_us }
    }

    #[test]
    fn a_lease_looks_the_same_since_it_was_renewed_last() {
        assert_eq!(since(None, mark(1, 5), at(7)), at(7));
        assert_eq!(since(Some((mark(1, 5), at(3))), mark(1, 5), at(7)), at(3));
        assert_eq!(since(Some((mark(1, 4), at(3))), mark(1, 5), at(7)), at(7));
        assert_eq!(since(Some((mark(2, 5), at(3))), mark(1, 5), at(7)), at(7));
    }

    #[test]
    fn anothers_lease_is_asked_for_when_it_has_expired_or_outlived_a_lease() {
        assert_eq!(chance(LEASE, Holds::Another, 1, at(0), at(3)), Chance::None);
        assert_eq!(chance(LEASE, Holds::Another, 0, at(0), at(3)), Chance::Now);
        assert_eq!(chance(LEASE, Holds::Another, 9_000, at(0), at(4)), Chance::IfUnchanged);
        assert_eq!(chance(LEASE, Holds::Dead, 9_000, at(0), at(0)), Chance::Now);
        assert_eq!(chance(None, Holds::Another, i64::MAX, at(0), at(0)), Chance::IfUnchanged);
    }

    #[test]
    fn a_holder_stops_three_quarters_after_the_sending() {
        assert_eq!(verdict(LEASE, at(10), Renewal::Confirmed, false), Verdict::Until(at(13)));
        assert_eq!(verdict(None, at(10), Renewal::Confirmed, false), Verdict::Until(BootInstant::NEVER));
        assert_eq!(verdict(LEASE, at(10), Renewal::Skipped, false), Verdict::Unknown);
        assert_eq!(verdict(LEASE, at(10), Renewal::Lost, false), Verdict::Over);
        assert_eq!(verdict(LEASE, at(10), Renewal::Lost, true), Verdict::Unknown);
    }
}
