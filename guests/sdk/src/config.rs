//! The role's own configuration, and what it may know of the plant.

use serde::de::DeserializeOwned;

use crate::bindings::imports::plant::config::config;

/// The role's `config`, which the host has checked against the schema in the role's manifest.
///
/// # Errors
/// One sentence, when the role's type and its schema disagree.
pub fn get<T: DeserializeOwned>() -> Result<T, String> {
    serde_json::from_str(&config::get()).map_err(|e| format!("the configuration is not what this role reads: {e}"))
}

/// What the role may know of the plant: `plant`, `machines`, `tags`, `reasons`.
///
/// # Errors
/// One sentence, when the host describes the plant in a way that the role's type does not read.
pub fn plant<T: DeserializeOwned>() -> Result<T, String> {
    serde_json::from_str(&config::plant())
        .map_err(|e| format!("the plant's description is not what this role reads: {e}"))
}
