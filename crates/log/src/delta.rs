//! A row as changes of the row before.
//!
//! ```text
//! delta = (copy, length * 2 + other, [skip]: LEB128 each, literal bytes)*
//! ```
//! An edit copies so many bytes of the row before, and puts the literal bytes in place of those
//! behind them: of as many, or, if `other` is 1, of `skip`. What is left of the row before is
//! copied.
//!
//! ```
//! use spinney_log::delta;
//!
//! let (old, new) = ([7; 100], [[7; 50], [8; 50]].concat());
//! let (mut changes, mut made) = (Vec::new(), Vec::new());
//! assert!(delta::diff(&old, &new, 60, &mut changes));
//! delta::apply(&old, &changes, &mut made).unwrap();
//! assert_eq!(made, new);
//! ```

use crate::format::{Bytes, put_number};

/// So many equal bytes between two edits are copied by an edit of their own.
const GAP: usize = 4;
/// So many bytes are compared at once.
const STEP: usize = 32;

/// Appends what makes `new` of `old`. Answers `false`, and leaves `out` as it was, if that takes
/// more than `limit` bytes.
pub fn diff(old: &[u8], new: &[u8], limit: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let mut delta = Edits { out, copy: 0, limit: start + limit };
    let fits =
        if old.len() == new.len() { delta.aligned(old, new) } else { delta.spliced(old, new) };
    if !fits {
        out.truncate(start);
    }
    fits
}

struct Edits<'a> {
    out: &'a mut Vec<u8>,
    /// Bytes of the row before that come before the next edit.
    copy: usize,
    limit: usize,
}

impl Edits<'_> {
    fn edit(&mut self, literal: &[u8], skip: usize) -> bool {
        put_number(self.out, std::mem::take(&mut self.copy) as u64);
        let is_other = skip != literal.len();
        put_number(self.out, (literal.len() as u64) << 1 | u64::from(is_other));
        if is_other {
            put_number(self.out, skip as u64);
        }
        self.out.extend_from_slice(literal);
        self.out.len() <= self.limit
    }

    /// Edits between two stretches of one length.
    fn aligned(&mut self, old: &[u8], new: &[u8]) -> bool {
        let (len, mut at) = (old.len(), 0);
        while at < len {
            let from = same_until(old, new, at);
            self.copy += from - at;
            if from == len {
                break;
            }
            let (mut end, mut next) = (from + 1, from + 1);
            while next < len && next - end <= GAP {
                if old[next] != new[next] {
                    end = next + 1;
                }
                next += 1;
            }
            if !self.edit(&new[from..end], end - from) {
                return false;
            }
            at = end;
        }
        self.out.len() <= self.limit
    }

    /// One stretch longer or shorter than it was, and edits on both sides of it.
    fn spliced(&mut self, old: &[u8], new: &[u8]) -> bool {
        let short = old.len().min(new.len());
        let (more_old, more_new) = (old.len() - short, new.len() - short);
        let (old_end, new_end) = (&old[more_old..], &new[more_new..]);
        // Bytes that differ if all before a place is aligned to the starts, and the rest to the
        // ends: a step at a time, then within the steps beside the best place.
        let differ = |from: usize, end: usize| {
            differing(&old[from..end], &new[from..end]) as isize
                - differing(&old_end[from..end], &new_end[from..end]) as isize
        };
        let mut cost = differing(old_end, new_end) as isize;
        let (mut best, mut place) = (cost, 0);
        for from in (0..short).step_by(STEP) {
            let end = short.min(from + STEP);
            cost += differ(from, end);
            if cost < best {
                (best, place) = (cost, end);
            }
        }
        let from = place.saturating_sub(STEP);
        cost = best - differ(from, place);
        for at in from..short.min(place + STEP) {
            cost += differ(at, at + 1);
            if cost < best {
                (best, place) = (cost, at + 1);
            }
        }
        best as usize <= self.limit
            && self.aligned(&old[..place], &new[..place])
            && self.edit(&new[place..place + more_new], more_old)
            && self.aligned(&old_end[place..], &new_end[place..])
    }
}

/// How many bytes of two stretches of one length differ.
fn differing(old: &[u8], new: &[u8]) -> usize {
    let ((old, old_rest), (new, new_rest)) = (old.as_chunks::<STEP>(), new.as_chunks::<STEP>());
    // A byte counts those of a step: so the processor compares and counts many at once.
    let count = |(old, new): (&[u8; STEP], &[u8; STEP])| {
        let each = old.iter().zip(new).map(|(old, new)| u8::from(old != new));
        usize::from(each.sum::<u8>())
    };
    let rest = old_rest.iter().zip(new_rest).filter(|(old, new)| old != new).count();
    old.iter().zip(new).map(count).sum::<usize>() + rest
}

/// The first index from `at` on at which two stretches of one length differ.
fn same_until(old: &[u8], new: &[u8], mut at: usize) -> usize {
    while let (Some(a), Some(b)) = (old.get(at..at + STEP), new.get(at..at + STEP))
        && a == b
    {
        at += STEP;
    }
    while at < old.len() && old[at] == new[at] {
        at += 1;
    }
    at
}

/// Makes the new row. `None` if the delta is none of this row's.
pub fn apply(old: &[u8], delta: &[u8], new: &mut Vec<u8>) -> Option<()> {
    new.clear();
    new.extend_from_slice(old);
    apply_in_place(new, delta)
}

/// The same in place of the row before. `None` if the delta is none of this row's, which then is
/// another one.
pub fn apply_in_place(row: &mut Vec<u8>, delta: &[u8]) -> Option<()> {
    let (mut delta, mut at) = (Bytes(delta), 0_usize);
    while !delta.is_empty() {
        let (copy, head) = (delta.size()?, delta.size()?);
        let is_other = head & 1 == 1;
        let skip = if is_other { delta.size()? } else { head >> 1 };
        let literal = delta.take(head >> 1)?;
        at = at.checked_add(copy)?;
        let end = at.checked_add(skip)?;
        let place = row.get_mut(at..end)?;
        match place.len() == literal.len() {
            true => place.copy_from_slice(literal),
            false => drop(row.splice(at..end, literal.iter().copied())),
        }
        at += literal.len();
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::{apply, apply_in_place, diff};

    fn check(old: &[u8], new: &[u8], limit: usize) -> Option<usize> {
        let mut delta = vec![7];
        if !diff(old, new, limit, &mut delta) {
            assert_eq!(delta, [7]);
            return None;
        }
        let mut made = Vec::new();
        apply(old, &delta[1..], &mut made).unwrap();
        assert_eq!(made, new);
        let mut made = old.to_vec();
        apply_in_place(&mut made, &delta[1..]).unwrap();
        assert_eq!(made, new);
        assert!(delta.len() - 1 <= limit);
        Some(delta.len() - 1)
    }

    #[test]
    fn small_changes_take_little() {
        let old: Vec<u8> = (0..2_000_u32).map(|i| (i * i / 7) as u8).collect();
        let mut new = old.clone();
        new[100..132].fill(9);
        assert_eq!(check(&old, &new, 1_000), Some(34));
        new.splice(700..700, [1; 50]);
        assert!(check(&old, &new, 1_000).unwrap() <= 100);
        new.drain(1_500..1_600);
        check(&old, &new, 3_000).unwrap();
        assert_eq!(check(&old, &old, 0), Some(0));
        assert_eq!(check(&[], &new, 10), None);
        check(&[], &new, 9_000).unwrap();
        check(&new, &[], 9_000).unwrap();
    }

    proptest! {
        #[test]
        fn deltas_make_the_new_row(
            old in vec(0..3_u8, 0..200),
            edits in vec((any::<prop::sample::Index>(), vec(0..3_u8, 0..20), 0..20_usize), 0..4),
        ) {
            let mut new = old.clone();
            for (at, bytes, cut) in edits {
                let at = at.index(new.len() + 1);
                let end = (at + cut).min(new.len());
                new.splice(at..end, bytes);
            }
            check(&old, &new, 10_000).unwrap();
            check(&old, &new, 20);
        }

        #[test]
        fn any_bytes_are_a_delta_or_not(old in vec(any::<u8>(), 0..50), delta in vec(any::<u8>(), 0..50)) {
            apply(&old, &delta, &mut Vec::new());
        }
    }
}
