//! Asks for table entries ahead of their use: a table is much larger than the caches.

/// Starts to bring an entry of one or two cache lines into the caches. Does nothing but on x86-64.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "an instruction that takes a raw pointer")]
#[inline]
pub(super) fn prefetch<T>(entry: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    let pointer: *const i8 = std::ptr::from_ref(entry).cast();
    // SAFETY: a prefetch reads nothing and cannot fault, and SSE is part of x86-64. Both addresses
    // are within the entry.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(pointer);
        if size_of::<T>() > 64 {
            _mm_prefetch::<_MM_HINT_T0>(pointer.add(64));
        }
    }
}

/// Starts to bring an entry of one or two cache lines into the caches. Does nothing but on x86-64.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn prefetch<T>(_entry: &T) {}
