//! Sums of points of a table, many at a time.
//!
//! Points of a sum are added by pairs, then the sums of pairs by pairs, and so on; in each of these
//! rounds all additions of all sums share one inversion. So sums come in batches of thousands of
//! picks. What is less than a batch, and a batch in which two points that meet have one x, is added
//! one point after another.

use super::prefetch::prefetch_far;
use super::{Kernel, Pick};
use crate::group::Element;
use crate::group::short::{Running, Short};

/// Picks below which a batch costs more than it saves: it takes an inversion a round.
const BATCH_PICKS_MIN: usize = 128;

/// Picks of a batch: its points should stay in a core's own cache, beside those of the next one.
const BATCH_PICKS_MAX: usize = 6_144;

/// A point of a table: x and y of its [`Short`] form in the kernel's own form, each packed into
/// four words. Only the kernel that packed it may read it.
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

/// The picks behind a batch: their points are asked for while it is added up, since a table is much
/// larger than the caches, and adding takes about as long as reading.
pub(super) struct Ahead<'a> {
    table: &'a [Multiple],
    picks: &'a [Pick],
}

impl Ahead<'_> {
    /// How many points are asked for at once: a core waits for a dozen or so at a time, and no
    /// more.
    pub(super) const AT_ONCE: usize = 2;

    /// Asks for the next points.
    #[inline]
    pub(super) fn ask(&mut self) {
        let (now, later) = self.picks.split_at(self.picks.len().min(Self::AT_ONCE));
        for pick in now {
            prefetch_far(&self.table[pick.index()]);
        }
        self.picks = later;
    }
}

/// Asks for the points of the picks from `known` on that are of a first batch, before which there
/// is none that would.
#[inline]
pub(crate) fn ask_first(table: &[Multiple], picks: &[Pick], known: usize) {
    if known < BATCH_PICKS_MAX {
        picks[known..].iter().for_each(|pick| prefetch_far(&table[pick.index()]));
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
    mut batch: impl FnMut(&[Task], &mut Ahead<'_>, &mut [Element]) -> bool,
) {
    let mut tasks: Vec<Task> = Vec::new();
    let (mut from, mut first) = (0, 0);
    // As large as one another.
    let most = picks.len().div_ceil(picks.len().div_ceil(BATCH_PICKS_MAX).max(1));
    for (sum, &end) in ends.iter().enumerate() {
        let end = end as usize;
        if from < end {
            tasks.push(Task { sum, from, len: end - from });
        }
        from = end;
        let last = sum + 1 == ends.len();
        if from - first < most && !last {
            continue;
        }
        tasks.sort_unstable_by_key(|task| std::cmp::Reverse(task.len));
        let next = &picks[from..picks.len().min(from + most)];
        let mut ahead = Ahead { table, picks: next };
        if from - first < BATCH_PICKS_MIN || !batch(&tasks, &mut ahead, sums) {
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
