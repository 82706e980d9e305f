//! What becomes of a capability's effects when a role changes hands: whether the lease's epoch covers them.

use std::fmt;

/// How the effects of a capability stand to the lease. Each capability says it of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing outside the instance is changed.
    Harmless,
    /// Done if the epoch is still the lease's, in the same database transaction; else not at all.
    Fenced,
    /// May be sent twice, and whoever receives it keeps one.
    Deduplicated,
    /// May come out after another node has taken over: held back for a lease after an unclean takeover.
    Unfenceable,
}

impl Kind {
    /// What that means at a takeover, in a sentence.
    #[must_use]
    pub fn at_a_takeover(self) -> &'static str {
        match self {
            Self::Harmless => "ends with the instance; there is nothing to wait for",
            Self::Fenced => {
                "at once: what the old holder did not commit never happened, and it can commit nothing more"
            }
            Self::Deduplicated => "at once: what the old holder has sent too is received once",
            Self::Unfenceable => {
                "held back for a whole lease, unless the old holder let go of it cleanly; a process that froze between its check and its \
                 sending may still send when it wakes"
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Harmless => "harmless",
            Self::Fenced => "fenced",
            Self::Deduplicated => "deduplicated",
            Self::Unfenceable => "unfenceable",
        })
    }
}

/// A capability, for people: its WIT package, its kind, and what of it has effects.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// The WIT package, as modules import it.
    pub package: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// What it does.
    pub what: &'static str,
}

/// Every capability that this host has.
pub const ALL: [About; 7] = [
    super::config::ABOUT,
    super::db::ABOUT,
    super::lease::ABOUT,
    super::log::ABOUT,
    super::metrics::ABOUT,
    super::opc::ABOUT,
    super::timer::ABOUT,
];
