//! The few loops that take all the time, in a portable form and in one that fills SIMD lanes.
//!
//! A kernel is a set of batch operations. All kernels agree on every result; they differ in speed
//! and in the form in which [`Entry`] keeps its coordinates.

mod huge_pages;
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "vector instructions: loads, stores and calls after detection")]
mod ifma;
mod multiples;
mod portable;
mod prefetch;
#[cfg(test)]
mod tests;

pub(crate) use huge_pages::zero_multiples;
pub(crate) use multiples::{Multiple, ask_first};

use crate::field::{Fq, Fr, sub_limbs};
use crate::group::short::Short;
use crate::group::{Affine, Element};

/// Which implementation of the batch operations runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Ifma(ifma::Ifma),
}

/// A curve point prepared for mixed addition: x, y and d*x*y in the kernel's own form, each packed
/// into four words. Only the kernel that packed an entry may read it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Entry(pub(crate) [[u64; 4]; 3]);

/// The curve point with the larger y of an element, and x/y: all integers. (0, 1) stands for the
/// neutral element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub(crate) x: [u64; 4],
    pub(crate) y: [u64; 4],
    pub(crate) ratio: [u64; 4],
}

/// A reference to an entry: twice its index, plus one where the point is to be subtracted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick(u32);

impl Encoded {
    /// Of either curve point.
    fn of(x: [u64; 4], y: [u64; 4], ratio: [u64; 4]) -> Self {
        if x == [0; 4] {
            return Self { x, y: [1, 0, 0, 0], ratio };
        }
        if Fq::is_integer_largest(&y) {
            return Self { x, y, ratio };
        }
        let [x, y] = [x, y].map(|integer| sub_limbs(&Fq::MODULUS, &integer).0);
        Self { x, y, ratio }
    }
}

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
    /// Plain Rust, one element at a time.
    pub const PORTABLE: Self = Self(Kind::Portable);

    /// The fastest kernel this machine can run: eight lanes where it has AVX-512 IFMA, the portable
    /// one elsewhere.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(ifma) = ifma::Ifma::detect() {
            return Self(Kind::Ifma(ifma));
        }
        Self::PORTABLE
    }

    /// What to call the kernel in a report.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(_) => "avx512-ifma",
        }
    }

    /// How many independent tasks run side by side in one thread.
    pub(crate) const fn lanes(self) -> usize {
        match self.0 {
            Kind::Portable => 1,
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(_) => ifma::LANES,
        }
    }

    /// Prepares a point for [`Self::sum`].
    pub(crate) fn pack(self, point: &Affine) -> Entry {
        match self.0 {
            Kind::Portable => portable::pack(point),
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(_) => ifma::pack(point),
        }
    }

    /// Adds to each `sums[i]` the entries that `picks[ends[i - 1]..ends[i]]` name.
    ///
    /// # Panics
    /// If `ends` and `sums` differ in length, `ends` leaves `picks`, or a pick leaves `entries`.
    pub(crate) fn sum(self, entries: &[Entry], picks: &[Pick], ends: &[u32], sums: &mut [Element]) {
        assert_eq!(ends.len(), sums.len(), "one end per sum");
        debug_assert!(ends.is_sorted(), "ends decrease");
        match self.0 {
            Kind::Portable => portable::sum(entries, picks, ends, sums),
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(ifma) => ifma.sum(entries, picks, ends, sums),
        }
    }

    /// Adds to each `sums[i]` the points of a table that `picks[ends[i - 1]..ends[i]]` name. Give
    /// many sums at once: they share inversions.
    ///
    /// # Panics
    /// If `ends` and `sums` differ in length, `ends` leaves `picks`, or a pick leaves the table.
    pub(crate) fn sum_multiples(
        self,
        table: &[Multiple],
        picks: &[Pick],
        ends: &[u32],
        sums: &mut [Element],
    ) {
        assert_eq!(ends.len(), sums.len(), "one end per sum");
        debug_assert!(ends.is_sorted(), "ends decrease");
        match self.0 {
            Kind::Portable => {
                let mut batch = portable::Batch::default();
                multiples::sum(self, table, picks, ends, sums, |tasks, ahead, sums| {
                    batch.add_to(table, picks, tasks, ahead, sums)
                });
            }
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(ifma) => ifma.with_batch(|batch| {
                multiples::sum(self, table, picks, ends, sums, |tasks, ahead, sums| {
                    ifma.add_batch(batch, table, picks, tasks, ahead, sums)
                });
            }),
        }
    }

    /// The point of a table.
    #[inline]
    fn unpack(self, multiple: &Multiple) -> Short {
        match self.0 {
            Kind::Portable => portable::unpack(multiple),
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(_) => ifma::unpack(multiple),
        }
    }

    /// [`Self::fill_windows`] of a table. No multiple is the neutral element.
    pub(crate) fn fill_table(self, starts: &[Affine], len: usize, out: &mut [Multiple]) {
        match self.0 {
            Kind::Portable => portable::fill_windows(starts, len, out),
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(ifma) => ifma.fill_table(starts, len, out),
        }
    }

    /// Fills window k, the entries from `k * len` on, with the multiples 1, 2 .. of `starts[k]`.
    /// The last window may be cut short.
    pub(crate) fn fill_windows(self, starts: &[Affine], len: usize, out: &mut [Entry]) {
        match self.0 {
            Kind::Portable => portable::fill_windows(starts, len, out),
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(ifma) => ifma.fill_windows(starts, len, out),
        }
    }

    /// For every window of `len` buckets the sum of `(i + 1) * window[i]`.
    pub(crate) fn weighted_sums(self, buckets: &[Element], len: usize) -> Vec<Element> {
        match self.0 {
            Kind::Portable => portable::weighted_sums(buckets, len),
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(ifma) => ifma.weighted_sums(buckets, len),
        }
    }

    /// Adds `factor * vector` of all terms to `sums`.
    ///
    /// # Panics
    /// If the length of `sums` is not a multiple of eight, or that of a vector differs from it.
    pub(crate) fn add_scaled(self, sums: &mut [Fr], terms: &[(Fr, &[Fr])]) {
        assert!(sums.len().is_multiple_of(8), "vectors have whole rows");
        assert!(terms.iter().all(|(_, vector)| vector.len() == sums.len()), "vectors are alike");
        match self.0 {
            Kind::Portable => portable::add_scaled(sums, terms),
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(ifma) => ifma.add_scaled(sums, terms),
        }
    }

    /// For every group (index, values), the shares
    /// `(values[i] - values[index]) * inverses[i - index]` are added to `sums[i]`, and their
    /// products with `weights[i]` to the group's result. The place of difference 0 in `inverses` is
    /// that of the last index.
    ///
    /// # Panics
    /// If the length of `sums` is not a multiple of eight from 8 to 256, other lengths do not
    /// follow from it, or an index is not below it.
    pub(crate) fn add_quotients(
        self,
        sums: &mut [Fr],
        groups: &[(u8, &[Fr])],
        inverses: &[Fr],
        weights: &[Fr],
    ) -> Vec<Fr> {
        let len = sums.len();
        assert!(len.is_multiple_of(8) && (8..=256).contains(&len), "vectors have whole rows");
        assert!(weights.len() == len && inverses.len() == 2 * len - 1, "tables fit the vectors");
        assert!(groups.iter().all(|(_, values)| values.len() == len), "vectors are alike");
        match self.0 {
            Kind::Portable => portable::add_quotients(sums, groups, inverses, weights),
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(ifma) => ifma.add_quotients(sums, groups, inverses, weights),
        }
    }

    /// Replaces every element by its inverse, and zero by zero.
    pub(crate) fn invert_many(self, elements: &mut [Fq]) {
        match self.0 {
            Kind::Portable => Fq::invert_many(elements),
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(ifma) => ifma.invert_many(elements),
        }
    }

    /// The integers x/y.
    pub(crate) fn ratios(self, elements: &[Element]) -> Vec<[u64; 4]> {
        match self.0 {
            Kind::Portable => portable::ratios(elements),
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(ifma) => ifma.ratios(elements),
        }
    }

    /// Brings elements to Z = 1 and the curve point with the larger y; the integers x/y.
    pub(crate) fn normalize(self, elements: &mut [Element]) -> Vec<[u64; 4]> {
        match self.0 {
            Kind::Portable => portable::normalize(elements),
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(ifma) => ifma.normalize(elements),
        }
    }

    /// What is written of elements, for one inversion.
    pub(crate) fn encode(self, elements: &[Element]) -> Vec<Encoded> {
        match self.0 {
            Kind::Portable => portable::encode(elements),
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(ifma) => ifma.encode(elements),
        }
    }

    /// The elements of points with these coordinates, integers below the modulus; nothing where
    /// they are not on the curve.
    pub(crate) fn decode(self, points: &[[[u64; 4]; 2]]) -> Vec<Option<Element>> {
        match self.0 {
            Kind::Portable => portable::decode(points),
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(ifma) => ifma.decode(points),
        }
    }

    /// Each element to the same power, an integer with limbs least significant first.
    pub fn pow_many(self, elements: &[Fq], exponent: &[u64; 4]) -> Vec<Fq> {
        match self.0 {
            Kind::Portable => portable::pow_many(elements, exponent),
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(ifma) => ifma.pow_many(elements, exponent),
        }
    }
}
