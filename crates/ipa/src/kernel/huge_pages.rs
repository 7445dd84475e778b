//! Memory for tables that are read at random: with small pages most reads also miss the TLB, and a
//! walk of the page tables costs more than the addition the entry is for.

use super::Multiple;

/// Zeros, on huge pages where the system has them to give.
pub(crate) fn zero_multiples(len: usize) -> Vec<Multiple> {
    let mut entries = Vec::with_capacity(len);
    // Before the first touch: that is when the system chooses the size of a page.
    #[cfg(target_os = "linux")]
    ask(&mut entries);
    entries.resize(len, Multiple::ZERO);
    entries
}

/// Asks for huge pages below the capacity of `entries`. Failure is of no consequence.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "a system call that takes a range of addresses")]
fn ask(entries: &mut Vec<Multiple>) {
    use rustix::mm::{Advice, madvise};

    let memory = entries.spare_capacity_mut();
    let bytes = size_of_val(memory);
    let pointer = memory.as_mut_ptr().cast::<u8>();
    // The call wants whole pages.
    let skipped = pointer.align_offset(rustix::param::page_size());
    if skipped < bytes {
        // SAFETY: the range is within the vector's own allocation, and this advice changes neither
        // what is mapped there nor what it holds.
        let _ =
            unsafe { madvise(pointer.add(skipped).cast(), bytes - skipped, Advice::LinuxHugepage) };
    }
}
