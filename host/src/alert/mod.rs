//! Alerts: what a person should hear of without looking, sent over every channel that `[alerts]` names.
//!
//! An alert is news, not a decision: nothing that is safe depends on one, and nothing ever waits for one to be sent. It is sent at least
//! once where its receiver can be reached within an hour; its `id` tells a receiver that has it already.

pub mod channels;
mod deliver;
mod figures;
mod merge;
mod queue;

use std::fmt;

use chrono::{DateTime, SubsecRound, Utc};
use serde::Serialize;
use uuid::Uuid;

pub use self::deliver::{Alerts, Pace};
use crate::identity::{NodeName, RoleKey, RoleName};

/// How soon somebody has to do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The plant has helped itself; somebody should find out why it had to.
    Warning,
    /// Something does not run, or may not.
    Critical,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        })
    }
}

/// What an alert is about: a stable code, for receivers that sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A role has another holder.
    Takeover,
    /// A node has lost a lease that it held.
    Demotion,
    /// A role has had no holder for three leases.
    Vacant,
    /// A role that was vacant has a holder again.
    HeldAgain,
    /// A node may not take part, most often because another one has its name.
    Refused,
    /// A role changes hands again and again.
    Flapping,
}

impl Kind {
    /// How bad it is.
    #[must_use]
    pub fn severity(self) -> Severity {
        match self {
            Self::Takeover | Self::HeldAgain | Self::Flapping => Severity::Warning,
            Self::Demotion | Self::Vacant | Self::Refused => Severity::Critical,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Takeover => "takeover",
            Self::Demotion => "demotion",
            Self::Vacant => "vacant",
            Self::HeldAgain => "held_again",
            Self::Refused => "refused",
            Self::Flapping => "flapping",
        })
    }
}

/// One alert, as webhook and broker get it in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Alert {
    /// The same whenever this alert is sent again.
    pub id: Uuid,
    /// What it is about.
    pub kind: Kind,
    /// How bad it is.
    pub severity: Severity,
    /// The plant's name.
    pub plant: String,
    /// The node that says it.
    pub node: NodeName,
    /// The role that it is about, where it is about one; `node` is the lease of an active-standby pair.
    pub role: Option<RoleName>,
    /// The role's partition, `""` for a singleton.
    pub partition: String,
    /// When it happened by the node's clock; in JSON RFC 3339 in UTC.
    pub at: DateTime<Utc>,
    /// One sentence for people.
    pub text: String,
    /// How often it happened: more than once where repeats were merged.
    pub times: u32,
}

impl Alert {
    /// Something that has happened just now.
    #[must_use]
    pub fn now(plant: &str, node: &NodeName, kind: Kind, key: Option<&RoleKey>, text: String) -> Self {
        Self {
            id: Uuid::new_v4(),
            kind,
            severity: kind.severity(),
            plant: plant.to_owned(),
            node: node.clone(),
            role: key.map(|key| key.role.clone()),
            partition: key.map(|key| key.partition.clone()).unwrap_or_default(),
            at: Utc::now().trunc_subsecs(3),
            text,
            times: 1,
        }
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use std::sync::{Arc, Mutex, PoisonError};

    use async_trait::async_trait;

    use super::channels::{Channel, SendError};
    use super::*;

    /// A receiver that is away for its first tries.
    #[derive(Default)]
    pub(crate) struct Receiver {
        refuses: usize,
        tries: Mutex<Vec<Alert>>,
    }

    impl Receiver {
        pub(crate) fn away(refuses: usize) -> Arc<Self> {
            Arc::new(Self { refuses, ..Self::default() })
        }

        /// What it was sent, each time.
        pub(crate) fn tries(&self) -> Vec<Alert> {
            self.tries.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }
    }

    #[async_trait]
    impl Channel for Arc<Receiver> {
        fn name(&self) -> &'static str {
            "test"
        }

        async fn send(&self, alert: &Alert) -> Result<(), SendError> {
            let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
            tries.push(alert.clone());
            if tries.len() > self.refuses { Ok(()) } else { Err(SendError("away".to_owned())) }
        }
    }

    /// A takeover of a role by node `b`.
    pub(crate) fn takeover(role: &str) -> Alert {
        let key = RoleKey { role: role.parse().unwrap(), partition: String::new() };
        Alert::now("bottling", &"b".parse().unwrap(), Kind::Takeover, Some(&key), format!("role {role} moved"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_is_the_documented_json() {
        let mut alert = samples::takeover("reader");
        alert.at = DateTime::from_timestamp_millis(1_700_000_000_123).unwrap();
        let expected = serde_json::json!({
            "id": alert.id.to_string(), "kind": "takeover", "severity": "warning", "plant": "bottling", "node": "b",
            "role": "reader", "partition": "", "at": "2023-11-14T22:13:20.123Z", "text": "role reader moved", "times": 1
        });
        assert_eq!(serde_json::to_value(&alert).unwrap(), expected);
    }

    #[test]
    fn a_kind_is_shown_as_it_is_in_json() {
        for kind in [Kind::Takeover, Kind::Demotion, Kind::Vacant, Kind::HeldAgain, Kind::Refused, Kind::Flapping] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.to_string());
            assert_eq!(serde_json::to_value(kind.severity()).unwrap(), kind.severity().to_string());
        }
    }
}
