//! The few loops that take all the time, in a portable form and in one that fills SIMD lanes.
//!
//! A kernel is a set of batch operations. All kernels agree on every result; they differ in speed
//! and in the form in which [`Entry`] keeps its coordinates.

mod portable;

use crate::field::Fq;
use crate::group::{Affine, Element};

/// Which implementation of the batch operations runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kernel {
    /// Plain Rust, one element at a time.
    Portable,
}

/// A curve point prepared for mixed addition: x, y and d*x*y in the kernel's own form, each packed
/// into four words. Only the kernel that packed an entry may read it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Entry(pub(crate) [[u64; 4]; 3]);

/// A reference to an entry: twice its index, plus one where the point is to be subtracted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick(u32);

impl Entry {
    /// Fills a table before its points are known.
    pub(crate) const ZERO: Self = Self([[0; 4]; 3]);
}

impl Pick {
    /// Entry `index`, negated or not. Indices stay below 2^31.
    #[inline]
    pub(crate) fn new(index: usize, negated: bool) -> Self {
        debug_assert!(index < 1 << 31);
        Self((index as u32) << 1 | u32::from(negated))
    }

    #[inline]
    const fn index(self) -> usize {
        (self.0 >> 1) as usize
    }

    #[inline]
    const fn is_negated(self) -> bool {
        self.0 & 1 == 1
    }
}

impl Kernel {
    /// The fastest kernel this machine can run. Looked up once.
    pub fn detect() -> Self {
        Self::Portable
    }

    /// How many independent tasks run side by side in one thread.
    pub(crate) const fn lanes(self) -> usize {
        match self {
            Self::Portable => 1,
        }
    }

    /// Prepares a point for [`Self::sum`].
    pub(crate) fn pack(self, point: &Affine) -> Entry {
        match self {
            Self::Portable => portable::pack(point),
        }
    }

    /// Adds to each `sums[i]` the entries that `picks[ends[i - 1]..ends[i]]` name.
    ///
    /// # Panics
    /// If `ends` and `sums` differ in length, `ends` decreases or leaves `picks`, or a pick leaves
    /// `entries`.
    pub(crate) fn sum(self, entries: &[Entry], picks: &[Pick], ends: &[u32], sums: &mut [Element]) {
        assert_eq!(ends.len(), sums.len(), "one end per sum");
        match self {
            Self::Portable => portable::sum(entries, picks, ends, sums),
        }
    }

    /// Replaces every element by its inverse, and zero by zero.
    pub(crate) fn invert_many(self, elements: &mut [Fq]) {
        match self {
            Self::Portable => Fq::invert_many(elements),
        }
    }

    /// Each element to the power [`crate::field::ROOT_EXPONENT`].
    pub(crate) fn root_powers(self, elements: &[Fq]) -> Vec<Fq> {
        match self {
            Self::Portable => portable::root_powers(elements),
        }
    }
}
