//! The rules of the lease protocol against real databases, one test for each: what would happen without the rule stands with the test.
//!
//! What the steps of two processes do to each other when either freezes between any two of them is `host/tests/lease_model`; here is
//! that the database and the keeper keep the rules.

#[cfg(test)]
mod acquire;
#[cfg(test)]
mod apart;
#[cfg(test)]
mod backends;
#[cfg(test)]
mod commit;
#[cfg(test)]
mod ground;
#[cfg(test)]
mod hold_back;
#[cfg(test)]
mod release;
#[cfg(test)]
mod renew;
