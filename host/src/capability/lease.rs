//! `plant:lease`: what an instance may know of the lease it exists under.
//!
//! There is nothing to acquire here and nothing to prolong: the host did. None of these functions can answer an error, so an instance
//! whose lease is gone ends in them.

use super::GuestState;
use super::bindings::imports::plant::lease::lease::{Host, Identity};

/// What people are told of this capability.
pub const ABOUT: super::kind::About = super::kind::About {
    package: "plant:lease",
    kind: super::kind::Kind::Harmless,
    what: "asks whether the lease still holds, and for how long",
};

impl Host for GuestState {
    async fn current(&mut self) -> wasmtime::Result<Identity> {
        self.held.check()?;
        let key = self.held.key();
        Ok(Identity {
            role: key.role.to_string(),
            partition: key.partition.clone(),
            node: self.held.holder().node.to_string(),
            epoch: self.held.epoch().number,
        })
    }

    async fn remaining(&mut self) -> wasmtime::Result<u64> {
        self.held.check()?;
        Ok(u64::try_from(self.held.remaining().as_nanos()).unwrap_or(u64::MAX))
    }

    async fn draining(&mut self) -> wasmtime::Result<bool> {
        self.held.check()?;
        Ok(self.held.draining())
    }
}
