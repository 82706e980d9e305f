//! `plant:config`: what a role may know of its own configuration and of the plant.
//!
//! The text is made once, from the checked configuration, and never holds a connection string, a password or an address.

use std::sync::Arc;

use serde::Serialize;

use super::GuestState;
use super::bindings::imports::plant::config::config::Host;
use crate::config::{Config, Machine, Plant, Reason, Role, Tag};

/// What people are told of this capability.
pub const ABOUT: super::kind::About = super::kind::About {
    package: "plant:config",
    kind: super::kind::Kind::Harmless,
    what: "reads the role's own configuration",
};

/// The two texts that guests read, shared by all instances of a role.
#[derive(Debug, Clone)]
pub struct Texts {
    role: Arc<str>,
    plant: Arc<str>,
}

/// What a guest may know of the plant: deliberately not the whole configuration.
#[derive(Serialize)]
struct PlantView<'a> {
    plant: &'a Plant,
    machines: &'a [Machine],
    tags: &'a [Tag],
    reasons: &'a [Reason],
}

impl Texts {
    /// The texts for one role of a plant.
    ///
    /// # Errors
    /// When something in the configuration has no JSON form (a number that is not finite).
    pub fn new(config: &Config, role: &Role) -> Result<Self, serde_json::Error> {
        let view = PlantView {
            plant: &config.plant,
            machines: &config.machines,
            tags: &config.tags,
            reasons: &config.reasons,
        };
        Ok(Self { role: serde_json::to_string(&role.config)?.into(), plant: serde_json::to_string(&view)?.into() })
    }
}

impl Host for GuestState {
    async fn get(&mut self) -> wasmtime::Result<String> {
        self.held.check()?;
        Ok(self.config.role.to_string())
    }

    async fn plant(&mut self) -> wasmtime::Result<String> {
        self.held.check()?;
        Ok(self.config.plant.to_string())
    }
}
