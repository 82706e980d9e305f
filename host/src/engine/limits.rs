//! What one instance may use, and what it ran into.
//!
//! A guest that asks for too much gets the answer that its language understands (`memory.grow` fails: an allocation error, a
//! `MemoryError`), not a trap. Whichever way it ends afterwards, the limit that it hit is remembered here, so that the error that a
//! person reads can name it.
//!
//! The allowance covers all memories of the store together: a component may bring many core instances, each with a memory.

use std::fmt;

use wasmtime::ResourceLimiter;

/// Elements of all tables of one instance together; each costs a pointer.
const TABLE_ELEMENTS: usize = 262_144;
/// Core instances, tables and memories of one component. Componentized Python has about twenty of each of the first two.
const INSTANCES: usize = 128;
const TABLES: usize = 64;
const MEMORIES: usize = 32;

/// A limit that a guest ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitHit {
    /// Linear memory, in bytes.
    Memory {
        /// What it would have had in all.
        wanted: usize,
        /// What it may have.
        allowed: usize,
    },
    /// Elements of tables.
    TableElements {
        /// What it would have had in all.
        wanted: usize,
        /// What it may have.
        allowed: usize,
    },
}

impl fmt::Display for LimitHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { wanted, allowed } => write!(
                f,
                "the guest asked for {} of memory and may have {}: raise the role's `limits.memory`, or find out why it grows",
                Mebibytes(*wanted),
                Mebibytes(*allowed)
            ),
            Self::TableElements { wanted, allowed } => {
                write!(f, "the guest asked for {wanted} table elements and may have {allowed}: make the module smaller")
            }
        }
    }
}

struct Mebibytes(usize);

impl fmt::Display for Mebibytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = self.0.div_ceil(1024);
        if kib.is_multiple_of(1024) { write!(f, "{} MiB", kib / 1024) } else { write!(f, "{kib} KiB") }
    }
}

/// One store's allowance and what is used of it; lives in the store's data.
#[derive(Debug)]
pub struct GuestLimits {
    memory_allowed: usize,
    memory_used: usize,
    elements_used: usize,
    hit: Option<LimitHit>,
}

impl GuestLimits {
    /// An allowance of so many bytes of linear memory.
    #[must_use]
    pub fn new(memory_bytes: usize) -> Self {
        Self { memory_allowed: memory_bytes, memory_used: 0, elements_used: 0, hit: None }
    }

    /// Linear memory in use, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory_used
    }

    /// The last limit that was hit, if any was.
    #[must_use]
    pub fn hit(&self) -> Option<LimitHit> {
        self.hit
    }
}

impl ResourceLimiter for GuestLimits {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        // A growth that Wasmtime would refuse itself must not be counted: there is no safe moment to take it back, since
        // `memory_grow_failed` is also called for growths that were never asked about here.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let wanted = self.memory_used.saturating_add(desired.saturating_sub(current));
        if wanted > self.memory_allowed {
            self.hit = Some(LimitHit::Memory { wanted, allowed: self.memory_allowed });
            return Ok(false);
        }
        self.memory_used = wanted;
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let wanted = self.elements_used.saturating_add(desired.saturating_sub(current));
        if wanted > TABLE_ELEMENTS {
            self.hit = Some(LimitHit::TableElements { wanted, allowed: TABLE_ELEMENTS });
            return Ok(false);
        }
        self.elements_used = wanted;
        Ok(true)
    }

    fn instances(&self) -> usize {
        INSTANCES
    }

    fn tables(&self) -> usize {
        TABLES
    }

    fn memories(&self) -> usize {
        MEMORIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_share_one_allowance() {
        let mut limits = GuestLimits::new(3 << 20);
        assert!(limits.memory_growing(0, 2 << 20, None).unwrap());
        assert!(!limits.memory_growing(0, 2 << 20, None).unwrap());
        assert_eq!(limits.hit(), Some(LimitHit::Memory { wanted: 4 << 20, allowed: 3 << 20 }));
        assert!(limits.memory_growing(0, 1 << 20, None).unwrap());
        assert_eq!(limits.memory_bytes(), 3 << 20);
    }

    #[test]
    fn a_failed_growth_gives_nothing_back() {
        let mut limits = GuestLimits::new(2 << 20);
        assert!(limits.memory_growing(0, 2 << 20, None).unwrap());
        limits.memory_grow_failed(wasmtime::Error::msg("a growth that nobody was asked about")).unwrap();
        assert!(!limits.memory_growing(2 << 20, 3 << 20, None).unwrap());
    }

    #[test]
    fn a_growth_over_the_memory_s_own_maximum_is_not_counted() {
        let mut limits = GuestLimits::new(8 << 20);
        assert!(!limits.memory_growing(0, 2 << 20, Some(1 << 20)).unwrap());
        assert_eq!((limits.memory_bytes(), limits.hit()), (0, None));
    }

    #[test]
    fn the_limit_that_was_hit_says_what_to_do() {
        let hit = LimitHit::Memory { wanted: (64 << 20) + 65_536, allowed: 64 << 20 };
        let wanted = "the guest asked for 65600 KiB of memory and may have 64 MiB: raise the role's `limits.memory`, or find out why it grows";
        assert_eq!(hit.to_string(), wanted);
    }
}
