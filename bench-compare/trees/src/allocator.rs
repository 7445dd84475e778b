//! The system's allocator, which counts.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Calls, and bytes asked for: a reallocation that grows counts for those, one that shrinks does
/// not.
pub fn counts() -> (u64, u64) {
    let stats = ALLOCATOR.stats();
    ((stats.allocations + stats.reallocations) as u64, stats.bytes_allocated as u64)
}
