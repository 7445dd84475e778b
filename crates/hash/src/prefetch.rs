//! Asking for memory that is soon to be read.

/// What a processor brings at once.
const LINE_BYTES: usize = 64;

/// Asks for the cache lines of some items, and waits for none of them. Reading them later gives
/// what it would have given anyway, sooner. Where processors cannot be asked this does nothing.
///
/// ```
/// let row = vec![7; 2_000];
/// spinney_hash::prefetch(&row);
/// assert!(row.iter().all(|&byte| byte == 7));
/// ```
#[inline]
pub fn prefetch<T>(items: &[T]) {
    let first = items.as_ptr().cast::<u8>();
    // Lines begin where they do, not where the items do.
    let before = first.addr() % LINE_BYTES;
    for at in (0..before + size_of_val(items)).step_by(LINE_BYTES) {
        ask(first.wrapping_sub(before).wrapping_add(at));
    }
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "the instruction takes a pointer")]
fn ask(line: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction is part of SSE, which every x86-64 processor has. It is a hint: it
    // reads nothing that the program sees, and no address makes it fault.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
fn ask(_: *const u8) {}

#[cfg(test)]
mod tests {
    use super::prefetch;

    #[test]
    fn bytes_stay_as_they_are() {
        for len in [0, 1, 63, 64, 65, 4_096, 100_000] {
            let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
            prefetch(&bytes);
            prefetch(&bytes[len / 2..]);
            assert!(bytes.iter().enumerate().all(|(n, &byte)| byte == n as u8));
        }
    }
}
