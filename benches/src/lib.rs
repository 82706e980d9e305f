//! What the benchmarks share: a plant without machines to measure on, and figures that carry their conditions.
//!
//! A figure means nothing without the machine it was taken on and the thing it is compared with, so each benchmark prints both, and
//! runs both sides in one go.

pub mod accepting;
pub mod conditions;
pub mod feed;
pub mod figures;
pub mod ground;
pub mod native;
pub mod process;
