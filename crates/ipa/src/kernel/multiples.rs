//! Sums of points of a table, many at a time.
//!
//! Points of a sum are added by pairs, then the sums of pairs by pairs, and so on; in each of these
//! rounds all additions of all sums share one inversion. So sums come in batches of thousands of
//! picks. What is less than a batch, and a batch in which two points that meet have one x, is added
//! one point after another.

use super::{Kernel, Pick};
use crate::group::Element;
use crate::group::short::{Running, Short};

/// Picks below which a batch costs more than it saves: it takes an inversion a round.
const BATCH_PICKS_MIN: usize = 128;

/// Picks from which on a batch is closed: their points should stay in a core's own cache.
const BATCH_PICKS_MAX: usize = 10_240;

/// A point of a table: x and y of its [`Short`] form in the kernel's own form, each packed into four
/// words. Only the kernel that packed it may read it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Multiple(pub(crate) [[u64; 4]; 2]);

impl Multiple {
    /// Fills a table before its points are known.
    pub(crate) const ZERO: Self = Self([[0; 4]; 2]);
}

/// One sum of a batch, of one pick or more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) sum: usize,
    pub(super) from: usize,
    pub(super) len: usize,
}

impl Task {
    /// Its picks.
    pub(super) fn of<'a>(&self, picks: &'a [Pick]) -> &'a [Pick] {
        &picks[self.from..self.from + self.len]
    }
}

/// Adds to each `sums[i]` the points that `picks[ends[i - 1]..ends[i]]` name.
///
/// `batch` does so for some of them, the longest first, or does nothing and says `false`.
pub(super) fn sum(
    kernel: Kernel,
    table: &[Multiple],
    picks: &[Pick],
    ends: &[u32],
    sums: &mut [Element],
    mut batch: impl FnMut(&[Task], &mut [Element]) -> bool,
) {
    let mut tasks: Vec<Task> = Vec::new();
    let (mut from, mut first) = (0, 0);
    for (sum, &end) in ends.iter().enumerate() {
        let end = end as usize;
        if from < end {
            tasks.push(Task { sum, from, len: end - from });
        }
        from = end;
        let last = sum + 1 == ends.len();
        if from - first < BATCH_PICKS_MAX && !last {
            continue;
        }
        tasks.sort_unstable_by_key(|task| std::cmp::Reverse(task.len));
        if from - first < BATCH_PICKS_MIN || !batch(&tasks, sums) {
            for task in &tasks {
                sums[task.sum] += one_by_one(kernel, table, task.of(picks));
            }
        }
        tasks.clear();
        first = from;
    }
}

/// The sum of the points that the picks name.
fn one_by_one(kernel: Kernel, table: &[Multiple], picks: &[Pick]) -> Element {
    let Some((first, rest)) = picks.split_first() else { return Element::IDENTITY };
    let mut sum = Element::IDENTITY;
    let mut running = Running::from(point(kernel, table, *first));
    for pick in rest {
        let point = point(kernel, table, *pick);
        if !running.add(&point) {
            // Points with one x are added where that makes no difference.
            sum += running.to_element();
            running = point.into();
        }
    }
    sum + running.to_element()
}

/// The point that a pick names.
#[inline]
pub(super) fn point(kernel: Kernel, table: &[Multiple], pick: Pick) -> Short {
    kernel.unpack(&table[pick.index()]).negated_if(pick.is_negated())
}
