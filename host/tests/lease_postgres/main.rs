//! The keeper, and the histories of a database, against a real PostgreSQL. The protocol's rules one by one are in `lease_rules`.
//!
//! What takes a lease to happen in a plant (an expiry) is written into the row instead of waited for; what needs two histories of one
//! database gets them, by a promotion.

#[cfg(test)]
mod acquiring;
#[cfg(test)]
mod deaths;
#[cfg(test)]
mod ground;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod keeping;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod placing;
#[cfg(test)]
mod proxy;
