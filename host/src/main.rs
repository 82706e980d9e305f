//! The binary `host`.
fn main() {}
