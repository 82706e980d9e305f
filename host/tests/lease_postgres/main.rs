//! The lease protocol against a real PostgreSQL: each test is one rule, and fails without it.
//!
//! What takes a lease to happen in a plant (an expiry) is written into the row instead of waited for; what needs two histories of one
//! database gets them, by a promotion.

#[cfg(test)]
mod acquiring;
#[cfg(test)]
mod committing;
#[cfg(test)]
mod ground;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod holding_back;
#[cfg(test)]
mod keeping;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod releasing;
#[cfg(test)]
mod renewing;
#[cfg(test)]
mod restarting;
