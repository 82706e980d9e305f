//! The bucket that the leases' keys are in, on a connection of its own: opened when it is needed, thrown away when anything went wrong on
//! it.
//!
//! A key is written only against the revision that it was last at, so that whatever comes late (a process that froze before it sent, a
//! client that sent again after its connection was lost) changes nothing that somebody else has changed since. Keys are read from the
//! bucket's leader: a replica may be behind.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{Context, GetStreamErrorKind};
use async_nats::jetstream::kv::{self, UpdateErrorKind};
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::bus::{self, BusError};
use crate::config::Bus;
use crate::identity::Holder;
use crate::lease::LeaseError;

/// The header that marks a key as deleted.
const OPERATION: &str = "KV-Operation";
/// A replicated bucket whose keys live no longer than this can be outlived by an election among NATS's own servers.
const SHORT_FOR_A_CLUSTER: Duration = Duration::from_secs(10);

/// What stands at a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The revision that it is at.
    pub(super) revision: u64,
    /// Who has written it; `None` where it was deleted, and the marker has not run out yet.
    pub(super) holder: Option<Holder>,
}

/// What is doubtful about a bucket with so many replicas.
fn doubt(in_cluster: bool, replicas: usize, max_age: Duration) -> Option<&'static str> {
    if in_cluster && replicas < 2 {
        Some(
            "has one replica, so that no lease can be had or renewed while the server that has it is away: make it anew with three \
             (nats kv add --replicas 3) while no node runs",
        )
    } else if replicas > 1 && max_age < SHORT_FOR_A_CLUSTER {
        Some(
            "is replicated, and the cluster may take longer to choose a new leader than a lease of less than 10 s lasts: \
             set redundancy.lease_seconds to 10 or more",
        )
    } else {
        None
    }
}

/// The way to the bucket.
pub(super) struct Bucket {
    bus: Bus,
    name: String,
    /// How the server calls this connection.
    client: String,
    max_age: Duration,
    deadline: Duration,
    opened: Mutex<Option<kv::Store>>,
    has_warned: AtomicBool,
}

impl Bucket {
    /// Connects by its first use. `deadline` bounds every answer.
    pub(super) fn new(bus: Bus, name: String, client: String, max_age: Duration, deadline: Duration) -> Self {
        Self { bus, name, client, max_age, deadline, opened: Mutex::new(None), has_warned: AtomicBool::new(false) }
    }

    /// Sees that the bucket can be had, and makes it where there is none.
    ///
    /// # Errors
    /// [`LeaseError::Refused`] when its keys live for another time than a lease.
    pub(super) async fn open(&self) -> Result<(), LeaseError> {
        self.with(async |_| Ok(())).await
    }

    /// What stands at the key; `None` where there was never anything, or where it has run out.
    pub(super) async fn read(&self, key: &str) -> Result<Option<Entry>, LeaseError> {
        self.with(async |bucket| {
            let message = match bucket.stream.get_last_raw_message_by_subject(&format!("{}{key}", bucket.prefix)).await
            {
                Ok(message) => message,
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => return Ok(None),
                Err(error) => return Err(self.failed(&error)),
            };
            let deleted = message.headers.get(OPERATION).is_some();
            let holder = if deleted { None } else { Some(self.holder(key, &message.payload)?) };
            Ok(Some(Entry { revision: message.sequence, holder }))
        })
        .await
    }

    /// Writes the key if it is still at the revision `last` (0: if nothing is there); the new revision, `None` when it was not.
    pub(super) async fn put(&self, key: &str, holder: &Holder, last: u64) -> Result<Option<u64>, LeaseError> {
        let value = serde_json::to_vec(holder).map_err(|error| LeaseError::Unavailable(error.to_string()))?;
        self.with(async |bucket| match bucket.update(key, value.into(), last).await {
            Ok(revision) => Ok(Some(revision)),
            Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(None),
            Err(error) => Err(self.failed(&error)),
        })
        .await
    }

    /// Deletes the key if it is still at the revision `last`; whether it was.
    pub(super) async fn delete(&self, key: &str, last: u64) -> Result<bool, LeaseError> {
        self.with(async |bucket| match bucket.delete_expect_revision(key, Some(last)).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(false),
            Err(error) => Err(self.failed(&error)),
        })
        .await
    }

    /// Ends the connection.
    pub(super) async fn close(&self) {
        self.opened.lock().await.take();
    }

    async fn with<T>(&self, work: impl AsyncFnOnce(&kv::Store) -> Result<T, LeaseError>) -> Result<T, LeaseError> {
        let working = async {
            let bucket = {
                let mut kept = self.opened.lock().await;
                match kept.as_ref() {
                    Some(bucket) => bucket.clone(),
                    None => kept.insert(self.connect().await?).clone(),
                }
            };
            work(&bucket).await
        };
        let done = timeout(self.deadline, working)
            .await
            .unwrap_or_else(|_| Err(self.failed(&format_args!("no answer within {} ms", self.deadline.as_millis()))));
        if matches!(done, Err(LeaseError::Unavailable(_))) {
            // Whatever it may still be doing can confuse nobody who uses the next one.
            self.close().await;
        }
        done
    }

    async fn connect(&self) -> Result<kv::Store, LeaseError> {
        let client = bus::connect(&self.bus, &self.client, self.deadline).await?;
        let mut context = async_nats::jetstream::new(client);
        context.set_timeout(self.deadline);
        let bucket = match self.find(&context).await? {
            Some(bucket) => bucket,
            None => self.make(&context).await?,
        };
        self.check(&bucket)?;
        Ok(bucket)
    }

    async fn find(&self, context: &Context) -> Result<Option<kv::Store>, LeaseError> {
        // Asked for by the stream's name first: only that tells a bucket that is not there from a server that does not answer.
        match context.get_stream(format!("KV_{}", self.name)).await {
            Ok(_) => {}
            Err(error) => {
                return match error.kind() {
                    GetStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                        Ok(None)
                    }
                    GetStreamErrorKind::JetStream(answer) => Err(self.failed(&answer)),
                    _ => {
                        Err(self
                            .failed(&format_args!("{error}; is JetStream enabled there (nats-server --jetstream)?")))
                    }
                };
            }
        }
        context.get_key_value(&self.name).await.map(Some).map_err(|error| self.failed(&error))
    }

    /// Makes the bucket; where another node was faster, it is that one's.
    async fn make(&self, context: &Context) -> Result<kv::Store, LeaseError> {
        let description =
            "Leases of a plant's roles: each key is gone when its holder has not renewed it for max_age".to_owned();
        let config = kv::Config {
            bucket: self.name.clone(),
            description,
            history: 1,
            max_age: self.max_age,
            ..kv::Config::default()
        };
        match context.create_key_value(config).await {
            Ok(bucket) => Ok(bucket),
            Err(error) => self.find(context).await?.ok_or_else(|| self.failed(&error)),
        }
    }

    /// Whether leases may be kept in it.
    fn check(&self, bucket: &kv::Store) -> Result<(), LeaseError> {
        let info = bucket.stream.cached_info();
        let config = &info.config;
        if config.max_age != self.max_age {
            return Err(LeaseError::Refused(format!(
                "the NATS bucket {} keeps its keys for {:?} and a lease lasts {:?}: set redundancy.lease_seconds to what the bucket has, \
                 delete the bucket while no node runs, or name another in redundancy.bucket",
                self.name, config.max_age, self.max_age
            )));
        }
        let cluster = info.cluster.as_ref().and_then(|cluster| cluster.name.as_deref()).filter(|name| !name.is_empty());
        let doubt = doubt(cluster.is_some(), config.num_replicas, self.max_age);
        if let Some(doubt) = doubt.filter(|_| !self.has_warned.swap(true, Ordering::Relaxed)) {
            tracing::warn!(bucket = self.name, replicas = config.num_replicas, lease = ?self.max_age, "the bucket of leases {doubt}");
        }
        Ok(())
    }

    fn holder(&self, key: &str, value: &[u8]) -> Result<Holder, LeaseError> {
        serde_json::from_slice(value).map_err(|error| {
            let name = &self.name;
            self.failed(&format_args!(
                "the key {key} of the bucket {name} was not written by a node ({error}): delete it"
            ))
        })
    }

    fn failed(&self, error: &dyn Display) -> LeaseError {
        LeaseError::Unavailable(format!("NATS at {}: {error}", self.bus.shown()))
    }
}

impl From<BusError> for LeaseError {
    fn from(error: BusError) -> Self {
        match error {
            BusError::Refused(sentence) => Self::Refused(sentence),
            BusError::Unavailable(sentence) => Self::Unavailable(sentence),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_replica_in_a_cluster_and_a_short_lease_in_a_replicated_bucket_are_doubtful() {
        let (short, long) = (Duration::from_secs(9), Duration::from_secs(10));
        assert!(doubt(true, 1, long).is_some_and(|doubt| doubt.starts_with("has one replica")));
        assert!(doubt(true, 3, short).is_some_and(|doubt| doubt.starts_with("is replicated")));
        assert_eq!(doubt(true, 3, long), None);
        // A server that stands alone.
        assert_eq!((doubt(false, 1, short), doubt(false, 1, long)), (None, None));
    }
}
