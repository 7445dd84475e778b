//! The first block whose state roots differ.

use super::error::BisectError;
use super::found::BlockSeen;
use super::side::Side;

/// The blocks that both sides have, as far as they are wanted.
pub(super) fn common(
    sides: [&dyn Side; 2],
    (from, to): (Option<u64>, Option<u64>),
) -> Result<(u64, u64), BisectError> {
    let [left, right] = sides;
    let blocks = [left.blocks()?, right.blocks()?];
    let [(a, b), (c, d)] = blocks;
    let first = a.max(c).max(from.unwrap_or_default());
    let last = b.min(d).min(to.unwrap_or(u64::MAX));
    if first > last {
        let (left, right) = (left.name(), right.name());
        return Err(BisectError::NoCommonBlock { left, right, blocks, from, to });
    }
    Ok((first, last))
}

/// A block as each side has it, with different state roots.
pub(super) struct Parted {
    pub(super) seen: [BlockSeen; 2],
    /// Whether the block before has the same root on both sides.
    pub(super) is_first: bool,
}

/// The first block of a range whose roots differ, if those of the last one do.
///
/// Roots that are the same at one block are taken to be the same before it: sides that part by what
/// a block does stay apart.
pub(super) fn first_parted(
    sides: [&dyn Side; 2],
    (first, last): (u64, u64),
) -> Result<Option<Parted>, BisectError> {
    let [left, right] = sides;
    let look = |number: u64| Ok::<_, BisectError>([left.block(number)?, right.block(number)?]);
    let is_parted = |[left, right]: &[BlockSeen; 2]| left.root != right.root;
    let mut parted = look(last)?;
    if !is_parted(&parted) {
        return Ok(None);
    }
    // Blocks before `low` are not parted; the one of `parted` is.
    let (mut low, mut high) = (first, last);
    while low < high {
        // The block before the last one first: where a follower stopped, or a node was caught.
        let middle = if high == last { high - 1 } else { low + (high - low) / 2 };
        let seen = look(middle)?;
        if is_parted(&seen) {
            (high, parted) = (middle, seen);
        } else {
            low = middle + 1;
        }
    }
    Ok(Some(Parted { seen: parted, is_first: low > first }))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use alloy_primitives::B256;

    use super::{BisectError, BlockSeen, Side, common, first_parted};
    use crate::bisect::side::SideState;

    /// Blocks `blocks`, and other roots from `parted` on.
    struct Chain {
        blocks: (u64, u64),
        parted: u64,
        asked: Cell<usize>,
    }

    impl Side for Chain {
        fn name(&self) -> String {
            "a chain".into()
        }

        fn blocks(&self) -> Result<(u64, u64), BisectError> {
            Ok(self.blocks)
        }

        fn block(&self, number: u64) -> Result<BlockSeen, BisectError> {
            assert!((self.blocks.0..=self.blocks.1).contains(&number));
            self.asked.set(self.asked.get() + 1);
            let root = B256::with_last_byte(u8::from(number >= self.parted));
            Ok(BlockSeen { number, hash: None, root })
        }

        fn state(&self, _: &BlockSeen) -> Result<Box<dyn SideState + '_>, BisectError> {
            Err(BisectError::NoState)
        }
    }

    fn chain(blocks: (u64, u64), parted: u64) -> Chain {
        Chain { blocks, parted, asked: Cell::new(0) }
    }

    #[test]
    fn the_first_block_is_found_wherever_it_is() {
        for first in 0..4 {
            for last in first..40 {
                for parted in 0..42 {
                    let good = chain((0, 50), u64::MAX);
                    let other = chain((first, last), parted);
                    let range = common([&good, &other], (None, None)).unwrap();
                    assert_eq!(range, (first, last));
                    let found = first_parted([&good, &other], range).unwrap();
                    let found = found.map(|found| (found.seen[1].number, found.is_first));
                    let expected = (parted <= last).then(|| (parted.max(first), parted > first));
                    assert_eq!(found, expected, "{first} {last} {parted}");
                    assert!(other.asked.get() <= 9, "{} questions", other.asked.get());
                }
            }
        }
    }

    #[test]
    fn a_range_is_that_of_both() {
        let (old, new) = (chain((0, 9), 0), chain((5, 20), 0));
        let of = |from, to| common([&old, &new], (from, to));
        assert_eq!(of(None, None).unwrap(), (5, 9));
        assert_eq!(of(Some(7), Some(8)).unwrap(), (7, 8));
        let error = of(Some(10), None).unwrap_err().to_string();
        assert!(error.contains("0 to 9") && error.contains("from 10 on"), "{error}");
        assert!(matches!(of(None, Some(4)), Err(BisectError::NoCommonBlock { .. })));
    }
}
