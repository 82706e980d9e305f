//! Wasmtime's configuration, in one constructor.
//!
//! Compiled code fits only the settings it was compiled for, so the child process that compiles, the cache and the engine that runs
//! must agree: all of them come here.

use wasmtime::{Config, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

use super::EngineError;

/// How guests' memory lies in the address space; part of what code is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressing {
    /// Each memory has 4 GiB of reserved addresses, so that accesses need no check. The default.
    Reserved,
    /// Every access is checked: for a process that may not reserve much (`ulimit -v`, a small 32-bit box).
    Checked,
}

/// Instances that may exist at once. These bound addresses, not memory: a slot that was never used costs nothing resident.
const COMPONENTS: u32 = 128;
const CORE_INSTANCES: u32 = 1024;
const MEMORIES: u32 = 192;
const TABLES: u32 = 512;
/// Elements of one table. A Python guest's has about ten thousand.
const TABLE_ELEMENTS: usize = 65_536;
/// Wasmtime's bookkeeping for one instance; componentized interpreters need more than the default of 1 MiB.
const BOOKKEEPING_BYTES: usize = 4 << 20;
/// Slots kept warm for a module that ended, so that its restart finds them.
const WARM_SLOTS: u32 = 16;

/// The settings that compiled code depends on.
#[must_use]
pub fn config(addressing: Addressing) -> Config {
    let mut config = Config::new();
    config.epoch_interruption(true);
    config.wasm_component_model(true);
    config.wasm_memory64(false);
    config.cranelift_opt_level(OptLevel::Speed);
    // Deep recursion is common in interpreters; the default of 512 KiB ends them early.
    config.max_wasm_stack(1 << 20);
    config.async_stack_size(2 << 20);
    if addressing == Addressing::Checked {
        config.memory_reservation(0);
        config.memory_reservation_for_growth(1 << 20);
        config.memory_guard_size(1 << 16);
        config.memory_may_move(true);
    }
    config
}

fn pool() -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(COMPONENTS);
    pool.total_core_instances(CORE_INSTANCES);
    pool.total_memories(MEMORIES);
    pool.total_tables(TABLES);
    pool.total_stacks(COMPONENTS);
    pool.table_elements(TABLE_ELEMENTS);
    pool.max_component_instance_size(BOOKKEEPING_BYTES);
    pool.max_core_instance_size(BOOKKEEPING_BYTES);
    pool.max_tables_per_module(8);
    pool.max_memories_per_module(4);
    pool.max_unused_warm_slots(WARM_SLOTS);
    pool
}

/// The engine that runs guests: pooled, or without reservations where the process may not make them.
pub(super) fn engine() -> Result<(wasmtime::Engine, Addressing), EngineError> {
    let mut pooled = config(Addressing::Reserved);
    pooled.allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
    let refused = match wasmtime::Engine::new(&pooled) {
        Ok(engine) => return Ok((engine, Addressing::Reserved)),
        Err(refused) => refused,
    };
    tracing::warn!(
        reason = format!("{refused:#}"),
        "no address space can be reserved for guests, so their memory accesses are checked one by one; lift `ulimit -v` to avoid it"
    );
    wasmtime::Engine::new(&config(Addressing::Checked))
        .map(|engine| (engine, Addressing::Checked))
        .map_err(|e| EngineError::Start(format!("{e:#}")))
}

/// An engine that compiles for [`engine`] and runs nothing.
pub(super) fn compiling_engine(addressing: Addressing) -> Result<wasmtime::Engine, EngineError> {
    wasmtime::Engine::new(&config(addressing)).map_err(|e| EngineError::Start(format!("{e:#}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cache::Key;

    #[test]
    fn code_compiled_without_the_pool_is_code_for_the_pool() {
        let (running, addressing) = engine().unwrap();
        let compiling = compiling_engine(addressing).unwrap();
        assert_eq!(Key::of(b"module", &running), Key::of(b"module", &compiling));
    }

    #[test]
    fn code_for_checked_accesses_has_another_key() {
        let reserved = compiling_engine(Addressing::Reserved).unwrap();
        let checked = compiling_engine(Addressing::Checked).unwrap();
        assert_ne!(Key::of(b"module", &reserved), Key::of(b"module", &checked));
    }
}
