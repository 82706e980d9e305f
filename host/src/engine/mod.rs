//! The only place that touches wasmtime's configuration: limits, deadlines, the cache of compiled modules.
