//! Splitting a batch over the cores: by ranges of keys, at any depth of any trie.
//!
//! A first descent goes down only where many operations are, and notes the ranges that are small
//! enough for one thread: its result is thrown away. Each range is then applied *and committed to* by
//! one thread, in a segment of its own. A last descent, the same as the first, finds the ranges' outcomes
//! where it met them, and restores the normal form above.
//!
//! Invariants:
//! - first and last descent meet the same ranges, since both see the same operations and pages;
//! - a range sees nothing of other ranges: they meet only in nodes that the last descent makes;
//! - what a range makes refers to earlier segments of the chain, to the pages and bytes of the first
//!   descent among them, and never to the nodes of the first descent.

use std::ops::{Range, RangeInclusive};

use crate::apply::{Outcome, Spot, Start};
use crate::node::Child;

/// A batch of fewer operations is one thread's, unless told otherwise.
pub(crate) const SPLIT_OPS_MIN: usize = 2_048;
/// No range has more operations: so that the pages that it opens stay in the core's cache until it has
/// committed to what it made. For this alone ranges are worth making on one thread too.
const TASK_OPS_MAX: usize = 1_024;
/// How many ranges there are for each thread, if the keys are spread evenly: so that none waits long.
pub(crate) const RANGES_PER_THREAD: usize = 8;

/// The sizes of the ranges that are one thread's, of which each thread is to have `each`. Smaller ranges are left to
/// the last descent.
pub(crate) fn sizes(
    ops: usize,
    split_ops: usize,
    (threads, each): (usize, usize),
) -> RangeInclusive<usize> {
    let ranges = threads * each.max(1);
    let most = (ops / ranges).min(TASK_OPS_MAX).max(split_ops / 8).max(1);
    most.div_ceil(4)..=most
}

/// What a descent does with a range of operations that others apply.
#[derive(Debug)]
pub(crate) enum Tasks {
    /// There are none.
    None,
    /// They are noted, and nothing is done.
    Find { sizes: RangeInclusive<usize>, found: Vec<Start> },
    /// They are done.
    Done { sizes: RangeInclusive<usize>, done: Vec<(usize, Outcome)> },
}

impl Tasks {
    /// Starts over.
    pub(crate) fn reset(&mut self) {
        if let Self::Find { found, .. } = self {
            found.clear();
        }
    }

    /// Whether what the descent makes of the tree is of no account.
    pub(crate) const fn for_nothing(&self) -> bool {
        matches!(self, Self::Find { .. })
    }

    /// What is known of a range already; nothing if the descent has to go on.
    pub(crate) fn meet(
        &mut self,
        old: &Option<Child>,
        spot: Spot,
        ops: &Range<usize>,
    ) -> Option<Outcome> {
        match self {
            Self::None => None,
            Self::Find { sizes, found } if ops.len() <= *sizes.end() => {
                if sizes.contains(&ops.len()) {
                    found.push(Start { old: *old, spot, ops: ops.clone() });
                }
                Some(Outcome::Same)
            }
            Self::Done { sizes, done } if sizes.contains(&ops.len()) => {
                let met = done.binary_search_by_key(&ops.start, |done| done.0);
                Some(done[met.expect("the first descent met it")].1)
            }
            _ => None,
        }
    }
}
