//! Sums of prepared points, spread over lanes and threads.

use rayon::prelude::*;

use crate::group::Element;
use crate::kernel::{Entry, Kernel, Multiple, Pick};

/// Additions below which a second thread costs more than it saves.
const THREAD_WORK_MIN: usize = 2048;

/// Additions in one piece of a sum at least, so that joining the pieces stays cheap.
const PIECE_MIN: usize = 16;

/// A prepared point.
pub(crate) trait Addend: Sized + Sync {
    /// Adds to each `sums[i]` the points that `picks[ends[i - 1]..ends[i]]` name.
    fn sum(kernel: Kernel, points: &[Self], picks: &[Pick], ends: &[u32], sums: &mut [Element]);
}

impl Addend for Entry {
    fn sum(kernel: Kernel, points: &[Self], picks: &[Pick], ends: &[u32], sums: &mut [Element]) {
        kernel.sum(points, picks, ends, sums);
    }
}

impl Addend for Multiple {
    fn sum(kernel: Kernel, points: &[Self], picks: &[Pick], ends: &[u32], sums: &mut [Element]) {
        kernel.sum_multiples(points, picks, ends, sums);
    }
}

/// Many sums over one set of points, built one after the other.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) picks: Vec<Pick>,
    ends: Vec<u32>,
}

impl Sums {
    /// Sum `i` has the picks `ends[i - 1]..ends[i]`.
    pub(crate) const fn new(picks: Vec<Pick>, ends: Vec<u32>) -> Self {
        Self { picks, ends }
    }

    /// How many sums there are.
    pub(crate) const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Ends the sum that the picks pushed since the last call belong to.
    pub(crate) fn finish_sum(&mut self) {
        self.ends.push(u32::try_from(self.picks.len()).expect("a batch has less than 2^32 picks"));
    }

    /// Adds every sum to its accumulator.
    ///
    /// Few long sums are cut into pieces that run side by side.
    pub(crate) fn add_to<P: Addend>(
        &self,
        kernel: Kernel,
        points: &[P],
        accumulators: &mut [Element],
    ) {
        let threads = match self.picks.len() / THREAD_WORK_MIN {
            0 | 1 => 1,
            useful => rayon::current_num_threads().min(useful),
        };
        self.add_on(threads, kernel, points, accumulators);
    }

    /// [`Self::add_to`] on so many threads.
    pub(crate) fn add_on<P: Addend>(
        &self,
        threads: usize,
        kernel: Kernel,
        points: &[P],
        accumulators: &mut [Element],
    ) {
        let slots = threads * kernel.lanes();
        if slots == 1 {
            return P::sum(kernel, points, &self.picks, &self.ends, accumulators);
        }
        let piece_len = self.picks.len().div_ceil(slots).max(PIECE_MIN);
        let longest = (0..self.ends.len()).map(|i| self.range(i).len()).max().unwrap_or(0);
        if longest > piece_len {
            return self.add_in_pieces(kernel, points, accumulators, piece_len, threads);
        }
        run(kernel, points, &self.picks, &self.ends, accumulators, threads);
    }

    fn add_in_pieces<P: Addend>(
        &self,
        kernel: Kernel,
        points: &[P],
        accumulators: &mut [Element],
        piece_len: usize,
        threads: usize,
    ) {
        let (mut ends, mut owners) = (Vec::new(), Vec::new());
        for owner in 0..self.ends.len() {
            let range = self.range(owner);
            for start in range.clone().step_by(piece_len) {
                ends.push((start + piece_len).min(range.end) as u32);
                owners.push(owner);
            }
        }
        let mut partial = vec![Element::IDENTITY; owners.len()];
        run(kernel, points, &self.picks, &ends, &mut partial, threads);
        for (owner, partial) in owners.into_iter().zip(partial) {
            accumulators[owner] += partial;
        }
    }

    fn range(&self, index: usize) -> std::ops::Range<usize> {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        start as usize..self.ends[index] as usize
    }
}

/// Runs whole sums, a range of them on each thread.
fn run<P: Addend>(
    kernel: Kernel,
    points: &[P],
    picks: &[Pick],
    ends: &[u32],
    sums: &mut [Element],
    threads: usize,
) {
    if threads == 1 {
        return P::sum(kernel, points, picks, ends, sums);
    }
    // More parts than threads, so that a thread that is interrupted does not hold all up.
    let part = ends.len().div_ceil(threads * 2).next_multiple_of(kernel.lanes());
    sums.par_chunks_mut(part).zip(ends.par_chunks(part)).enumerate().for_each(
        |(index, (sums, part_ends))| {
            let start = if index == 0 { 0 } else { ends[index * part - 1] };
            let picks = &picks[start as usize..part_ends[part_ends.len() - 1] as usize];
            let part_ends: Vec<u32> = part_ends.iter().map(|end| end - start).collect();
            P::sum(kernel, points, picks, &part_ends, sums);
        },
    );
}
