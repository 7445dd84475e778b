//! Tables of multiples, one window in each lane.

use super::lanes::{Lanes, WIDTH};
use super::points::Points;
use super::{ONE, invert_ends, pack};
use crate::field::Fq;
use crate::group::{Affine, Element};
use crate::kernel::{Entry, Multiple};

/// Multiples made affine together: their coordinates should stay in the caches.
const BLOCK: usize = 128;

/// A form in which multiples are kept, made of points in lanes.
pub(super) trait LaneForm: Copy {
    /// What the points are divided by: `< 2 q`.
    ///
    /// # Safety
    /// The machine has AVX-512F and AVX-512IFMA.
    unsafe fn denominator(points: &Points) -> Lanes<Fq>;

    /// The form of the points, given the inverse of that, `< 2 q`.
    ///
    /// # Safety
    /// The machine has AVX-512F and AVX-512IFMA.
    unsafe fn of(points: &Points, inverse: &Lanes<Fq>) -> [Self; WIDTH];
}

impl LaneForm for Entry {
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn denominator(points: &Points) -> Lanes<Fq> {
        *points.z()
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn of(points: &Points, inverse: &Lanes<Fq>) -> [Self; WIDTH] {
        points.to_entries(inverse)
    }
}

impl LaneForm for Multiple {
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn denominator(points: &Points) -> Lanes<Fq> {
        points.short_denominator()
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn of(points: &Points, inverse: &Lanes<Fq>) -> [Self; WIDTH] {
        points.to_multiples(inverse)
    }
}

/// Fills window k, the entries from `k * len` on, with the multiples 1, 2 .. of `starts[k]`.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn fill_windows<F: LaneForm>(starts: &[Affine], len: usize, out: &mut [F]) {
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
fn store_block<F: LaneForm>(block: &[Points], first: usize, len: usize, out: &mut [F]) {
    let mut products = Vec::with_capacity(block.len());
    let mut product = Lanes::<Fq>::splat(&ONE);
    // SAFETY: this function is called where the instructions are.
    let denominator = |points: &Points| unsafe { F::denominator(points) };
    for points in block {
        products.push(product);
        product = product.mul(&denominator(points));
    }
    // Both factors are in the lanes' form, so `ends` are 2^260 times the products.
    let mut inverse = invert_ends::<260>(product);
    for (index, (points, product)) in block.iter().zip(&products).enumerate().rev() {
        // SAFETY: this function is called where the instructions are.
        let affine = unsafe { F::of(points, &inverse.mul(product)) };
        inverse = inverse.mul(&denominator(points));
        for (lane, entry) in affine.into_iter().enumerate() {
            if let Some(slot) = out.get_mut(lane * len + first + index) {
                *slot = entry;
            }
        }
    }
}
