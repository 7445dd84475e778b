//! Asks for table entries ahead of their use: a table is much larger than the caches.

use super::Entry;

/// Starts to bring an entry into the caches. Does nothing but on x86-64.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "an instruction that takes a raw pointer")]
#[inline]
pub(super) fn prefetch(entry: &Entry) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    let pointer: *const i8 = std::ptr::from_ref(entry).cast();
    // SAFETY: a prefetch reads nothing and cannot fault, and SSE is part of x86-64. Both addresses
    // are within the entry, which takes two cache lines of 64 bytes.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(pointer);
        _mm_prefetch::<_MM_HINT_T0>(pointer.add(64));
    }
}

/// Starts to bring an entry into the caches. Does nothing but on x86-64.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn prefetch(_entry: &Entry) {}
