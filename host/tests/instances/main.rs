//! Instances under a supervisor: what they may do, how they end, and what is left of them.
//!
//! The guest is the probe, the database is SQLite, the queue and the threads are the host's own. Only the keeper of the leases is the
//! test's: it gives and takes them when a test says so.

mod database;
mod deadlines;
mod failures;
mod grants;
mod leases;
#[cfg(test)]
mod plant;
mod samples;
