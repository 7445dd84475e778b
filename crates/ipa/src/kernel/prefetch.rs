//! Asks for table entries ahead of their use: a table is much larger than the caches.

/// Starts to bring an entry of one or two cache lines into the caches. Does nothing but on x86-64.
#[inline]
pub(super) fn prefetch<T>(entry: &T) {
    #[cfg(target_arch = "x86_64")]
    ask::<{ std::arch::x86_64::_MM_HINT_T0 }, T>(entry);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = entry;
}

/// [`prefetch`] of what is used later than that: into the core's second cache, which has more room.
#[inline]
pub(super) fn prefetch_far<T>(entry: &T) {
    #[cfg(target_arch = "x86_64")]
    ask::<{ std::arch::x86_64::_MM_HINT_T1 }, T>(entry);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = entry;
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "an instruction that takes a raw pointer")]
#[inline]
fn ask<const HINT: i32, T>(entry: &T) {
    use std::arch::x86_64::_mm_prefetch;

    let pointer: *const i8 = std::ptr::from_ref(entry).cast();
    // SAFETY: a prefetch reads nothing and cannot fault, and SSE is part of x86-64. Both addresses
    // are within the entry.
    unsafe {
        _mm_prefetch::<HINT>(pointer);
        if size_of::<T>() > 64 {
            _mm_prefetch::<HINT>(pointer.add(64));
        }
    }
}
