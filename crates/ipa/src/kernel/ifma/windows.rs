//! Tables of multiples, one window in each lane.

use super::lanes::{Lanes, WIDTH};
use super::points::Points;
use super::{ONE, invert_ends, pack};
use crate::field::Fq;
use crate::group::{Affine, Element};
use crate::kernel::Entry;

/// Multiples made affine together: their coordinates should stay in the caches.
const BLOCK: usize = 128;

/// Fills window k, the entries from `k * len` on, with the multiples 1, 2 .. of `starts[k]`.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn fill_windows(starts: &[Affine], len: usize, out: &mut [Entry]) {
    let mut block = Vec::with_capacity(BLOCK);
    for (starts, out) in starts.chunks(WIDTH).zip(out.chunks_mut(WIDTH * len)) {
        let lane = |lane: usize| starts.get(lane).unwrap_or(&starts[0]);
        let steps: [Entry; WIDTH] = std::array::from_fn(|i| pack(lane(i)));
        let elements: [Element; WIDTH] = std::array::from_fn(|i| (*lane(i)).into());
        let mut multiple = Points::identity();
        multiple.add(&Points::load_loose(elements.each_ref()));
        for first in (0..len.min(out.len())).step_by(BLOCK) {
            block.clear();
            for _ in first..len.min(first + BLOCK) {
                block.push(multiple);
                multiple.add_entries(steps.each_ref(), 0);
            }
            store_block(&block, first, len, out);
        }
    }
}

/// Makes the points of a block affine and writes them, from entry `first` of each window on.
#[target_feature(enable = "avx512f,avx512ifma")]
fn store_block(block: &[Points], first: usize, len: usize, out: &mut [Entry]) {
    let mut products = Vec::with_capacity(block.len());
    let mut product = Lanes::<Fq>::splat(&ONE);
    for points in block {
        products.push(product);
        product = product.mul(points.z());
    }
    // Both factors are in the lanes' form, so `ends` are 2^260 times the products.
    let mut inverse = invert_ends::<260>(product);
    for (index, (points, product)) in block.iter().zip(&products).enumerate().rev() {
        let affine = points.to_entries(&inverse.mul(product));
        inverse = inverse.mul(points.z());
        for (lane, entry) in affine.into_iter().enumerate() {
            if let Some(slot) = out.get_mut(lane * len + first + index) {
                *slot = entry;
            }
        }
    }
}
