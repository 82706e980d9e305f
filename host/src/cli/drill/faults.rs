//! What is done to the holder, how it is undone, and why some of it cannot be done here.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use rustix::process::Signal;

use super::nodes::Node;
use super::proxy::Cable;
use crate::config::{Leases, Redundancy};

/// How much later each piece of a conversation with the database arrives, while the store is slow.
const SLOW: Duration = Duration::from_millis(150);
/// How long a node that was told to stop may take.
const STOPS_WITHIN: Duration = Duration::from_secs(60);
/// How long a killed process may take to be gone.
const DIES_WITHIN: Duration = Duration::from_secs(10);
/// The program that gives a child another wall clock.
const FAKETIME: &str = "faketime";

/// One kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// The holder is killed (SIGKILL), as when its PC crashes
    Kill,
    /// The holder is stopped (SIGTERM), as for an update
    Stop,
    /// The holder is frozen (SIGSTOP) and wakes after three leases
    Freeze,
    /// The holder's way to the database is cut, and nobody is told
    Cut,
    /// The holder is frozen, and its successor's wall clock is an hour off
    Skew,
    /// The holder's database answers slowly for two leases: nothing should change hands
    SlowStore,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Kill, Self::Stop, Self::Freeze, Self::Cut, Self::Skew, Self::SlowStore];

    /// How it is typed.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Freeze => "freeze",
            Self::Cut => "cut",
            Self::Skew => "skew",
            Self::SlowStore => "slow-store",
        }
    }

    /// Does it to the holder.
    ///
    /// # Errors
    /// When the process has ended already.
    pub fn strike(self, holder: &mut Node) -> anyhow::Result<()> {
        match self {
            Self::Kill => holder.signal(Signal::KILL),
            Self::Stop => holder.signal(Signal::TERM),
            Self::Freeze | Self::Skew => holder.signal(Signal::STOP),
            Self::Cut => {
                holder.cable(Cable::Cut);
                Ok(())
            }
            Self::SlowStore => {
                holder.cable(Cable::Slow(SLOW));
                Ok(())
            }
        }
    }

    /// Undoes it, so that the old holder can become a standby.
    ///
    /// # Errors
    /// When the process does not end as it should, or does not start again.
    pub async fn mend(self, victim: &mut Node) -> anyhow::Result<()> {
        match self {
            Self::Kill => {
                victim.gone(DIES_WITHIN).await?;
                victim.start(None).await
            }
            Self::Stop => {
                let code = victim.gone(STOPS_WITHIN).await?;
                if code != Some(0) {
                    anyhow::bail!(
                        "node {} was told to stop and ended with {code:?} instead of 0: {}",
                        victim.name(),
                        victim.last_words()
                    );
                }
                victim.start(None).await
            }
            Self::Freeze | Self::Skew => victim.signal(Signal::CONT),
            Self::Cut | Self::SlowStore => {
                victim.cable(Cable::Whole);
                Ok(())
            }
        }
    }

    /// For how many leases it lasts at least, however soon another node has taken over.
    #[must_use]
    pub const fn leases(self) -> u32 {
        match self {
            Self::Kill | Self::Stop | Self::Cut => 0,
            Self::Freeze | Self::Skew => 3,
            Self::SlowStore => 2,
        }
    }

    /// Why it cannot be done to this plant on this machine; `None` when it can.
    #[must_use]
    pub fn why_not(self, redundancy: &Redundancy, behind_proxies: bool) -> Option<String> {
        match self {
            Self::Kill | Self::Stop | Self::Freeze => None,
            Self::Cut if matches!(redundancy.leases, Leases::Nats { .. }) => {
                Some("the leases are in NATS, and the drill stands between a node and PostgreSQL only".to_owned())
            }
            Self::Cut | Self::SlowStore => (!behind_proxies).then(|| {
                "the drill cannot stand between a node and this store (a socket file, a host in the URL's options, or \
                 sslmode=verify-full)"
                    .to_owned()
            }),
            Self::Skew => (!on_the_path(FAKETIME))
                .then(|| format!("{FAKETIME} is not installed (Debian: the package {FAKETIME})")),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A wall clock that is an hour off: ahead in odd rounds, behind in even ones.
#[must_use]
pub const fn clock_of_round(number: u32) -> &'static str {
    if number % 2 == 1 { "+3600s" } else { "-3600s" }
}

/// What comes before a program whose wall clock is to be `offset` off. Only the wall clock: a shifted monotonic clock would break
/// every wait of the process and prove nothing.
#[must_use]
pub fn with_clock(offset: &str) -> [&str; 5] {
    [FAKETIME, "-m", "--exclude-monotonic", "-f", offset]
}

fn on_the_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{OnDemotion, Scope};

    fn redundancy() -> Redundancy {
        Redundancy {
            lease: Duration::from_secs(2),
            leases: Leases::Postgres,
            scope: Scope::Role,
            on_demotion: OnDemotion::Standby,
        }
    }

    #[test]
    fn a_fault_is_called_what_is_typed() {
        for fault in Fault::ALL {
            let typed = fault.to_possible_value().map(|value| value.get_name().to_owned());
            assert_eq!(typed.as_deref(), Some(fault.word()));
        }
    }

    #[test]
    fn what_cannot_be_done_says_why() {
        let redundancy = redundancy();
        for fault in [Fault::Kill, Fault::Stop, Fault::Freeze] {
            assert_eq!(fault.why_not(&redundancy, false), None);
        }
        for fault in [Fault::Cut, Fault::SlowStore] {
            assert_eq!(fault.why_not(&redundancy, true), None);
            let why = fault.why_not(&redundancy, false).unwrap_or_default();
            assert!(why.starts_with("the drill cannot stand between a node and this store"), "{why}");
        }
    }

    #[test]
    fn the_clock_is_ahead_and_behind_by_turns() {
        assert_eq!([1, 2, 3].map(clock_of_round), ["+3600s", "-3600s", "+3600s"]);
    }
}
