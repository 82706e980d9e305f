//! How much one request may ask of a server.
//!
//! Small PLCs say in their `OperationLimits` (OPC UA Part 5, 6.3.11) how many nodes they take at once, and some take fewer than they say.
//! What is asked is kept within what the server says, and is halved where it answers that it was too much all the same.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opcua::client::Session;
use opcua::types::{DataValue, Error, ReadValueId, StatusCode, TimestampsToReturn, VariableId, Variant};
use tokio::time::timeout;

/// Monitored items in one request.
const CREATE: usize = 1000;
/// Values read in one request; small PLCs allow no more than a few hundred.
const READ: usize = 500;
/// Nodes browsed in one request.
const BROWSE: usize = 100;

/// Any request but those that open a session is answered within so long, or never.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);

/// A request with a deadline; one that passes it is `BadTimeout`, whatever the server still does.
pub(super) async fn answered<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let late = |_| Err(Error::new(StatusCode::BadTimeout, "the server did not answer in time"));
    timeout(ANSWER_WITHIN, request).await.unwrap_or_else(late)
}

/// The limits of one session.
#[derive(Debug)]
pub struct Limits {
    /// Monitored items created or deleted in one request.
    pub create: Most,
    /// Values read in one request.
    pub read: Most,
    /// Nodes browsed in one request.
    pub browse: Most,
}

impl Default for Limits {
    fn default() -> Self {
        Self { create: Most::new(CREATE), read: Most::new(READ), browse: Most::new(BROWSE) }
    }
}

impl Limits {
    /// Asks the server for its limits; what it does not say, or calls unlimited (0), stays at what suits most servers.
    pub async fn of(session: &Session) -> Self {
        let limits = Self::default();
        let asked = [
            (&limits.create, VariableId::Server_ServerCapabilities_OperationLimits_MaxMonitoredItemsPerCall),
            (&limits.read, VariableId::Server_ServerCapabilities_OperationLimits_MaxNodesPerRead),
            (&limits.browse, VariableId::Server_ServerCapabilities_OperationLimits_MaxNodesPerBrowse),
        ];
        let nodes = asked.each_ref().map(|(_, id)| ReadValueId::new_value((*id).into()));
        // A server without them is an ordinary one.
        let Ok(read) = session.read(&nodes, TimestampsToReturn::Neither, 0.0).await else { return limits };
        for ((most, _), data) in asked.iter().zip(read) {
            if let Some(Variant::UInt32(said @ 1..)) = data.value {
                most.lower(usize::try_from(said).unwrap_or(usize::MAX));
            }
        }
        limits
    }

    /// Reads any number of attributes, in as many requests as the server wants.
    ///
    /// # Errors
    /// The server's answer to one of them.
    pub async fn read_all(&self, session: &Session, asked: &[ReadValueId]) -> Result<Vec<DataValue>, Error> {
        let mut values = Vec::with_capacity(asked.len());
        let mut rest = asked;
        while !rest.is_empty() {
            let (chunk, later) = rest.split_at(self.read.of(rest.len()));
            match answered(session.read(chunk, TimestampsToReturn::Both, 0.0)).await {
                Ok(read) if read.len() == chunk.len() => values.extend(read),
                Ok(_) => return Err(Error::new(StatusCode::BadUnknownResponse, "fewer values than were asked for")),
                Err(e) if self.read.was_too_many(chunk.len(), e.status()) => continue,
                Err(e) => return Err(e),
            }
            rest = later;
        }
        Ok(values)
    }
}

/// The most of one thing in one request; only ever lowered.
#[derive(Debug)]
pub struct Most(AtomicUsize);

impl Most {
    fn new(most: usize) -> Self {
        Self(AtomicUsize::new(most))
    }

    fn lower(&self, to: usize) {
        self.0.fetch_min(to.max(1), Ordering::Relaxed);
    }

    /// How many to ask for now, of so many that remain; at least one.
    pub fn of(&self, remaining: usize) -> usize {
        self.0.load(Ordering::Relaxed).min(remaining).max(1)
    }

    /// So many at once took too long: half of it is the most.
    pub fn was_too_slow(&self, asked: usize) {
        self.lower(asked.div_ceil(2));
    }

    /// So many at once were too many, if the server's answer says so and fewer can be asked for: then half of it is the most.
    pub fn was_too_many(&self, asked: usize, answer: StatusCode) -> bool {
        let fewer = is_too_much(answer) && asked > 1;
        if fewer {
            self.lower(asked.div_ceil(2));
        }
        fewer
    }
}

fn is_too_much(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BadTooManyOperations
            | StatusCode::BadRequestTooLarge
            | StatusCode::BadResponseTooLarge
            | StatusCode::BadEncodingLimitsExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_too_much_is_halved_down_to_one_and_no_further() {
        let most = Most::new(500);
        assert_eq!(most.of(40), 40);
        assert!(most.was_too_many(40, StatusCode::BadTooManyOperations));
        assert_eq!(most.of(1000), 20);
        assert!(!most.was_too_many(20, StatusCode::BadTimeout), "a server that is slow is not asked for less");
        assert!(most.was_too_many(3, StatusCode::BadResponseTooLarge));
        assert_eq!(most.of(1000), 2);
        assert!(most.was_too_many(2, StatusCode::BadTooManyOperations));
        assert!(!most.was_too_many(1, StatusCode::BadTooManyOperations), "one is the least");
        assert_eq!((most.of(7), most.of(0)), (1, 1));
    }
}
