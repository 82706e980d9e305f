//! A simulated bottling line: an OPC UA server, deterministic by seed.
