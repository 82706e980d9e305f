//! Runs a plant's roles: WebAssembly components that exist only while their lease is held.
//!
//! A count goes one way through these modules: an OPC UA sample enters `opc`, waits in its queue, is handed by `role` to the guest,
//! comes back through `capability` as a transaction of `store`, which checks the fence of `lease` as it commits.

pub mod alert;
pub mod api;
pub mod bus;
pub mod capability;
pub mod cli;
pub mod clock;
pub mod config;
pub mod engine;
pub mod identity;
pub mod lease;
pub mod node;
pub mod opc;
pub mod role;
pub mod simulator;
pub mod store;
