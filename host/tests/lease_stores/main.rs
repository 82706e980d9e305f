//! Every lease store keeps the same promises: one set of tests, run against each with the servers that it needs.
//!
//! What only one of them does is tested in a file of its own; what the rules of the protocol are, one by one, in `lease_rules`.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod ground;
#[cfg(test)]
mod lock;
#[cfg(test)]
mod nats;
