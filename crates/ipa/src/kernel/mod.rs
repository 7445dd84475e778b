//! The few loops that take all the time, in a portable form and in one that fills SIMD lanes.
//!
//! A kernel is a set of batch operations. All kernels agree on every result; they differ in speed
//! and in the form in which [`Entry`] keeps its coordinates.

mod huge_pages;
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "vector instructions: loads, stores and calls after detection")]
mod ifma;
mod portable;
mod prefetch;

pub(crate) use huge_pages::zero_entries;

use crate::field::{Fq, Fr};
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
    /// If `ends` and `sums` differ in length, `ends` decreases or leaves `picks`, or a pick leaves
    /// `entries`.
    pub(crate) fn sum(self, entries: &[Entry], picks: &[Pick], ends: &[u32], sums: &mut [Element]) {
        assert_eq!(ends.len(), sums.len(), "one end per sum");
        match self.0 {
            Kind::Portable => portable::sum(entries, picks, ends, sums),
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(ifma) => ifma.sum(entries, picks, ends, sums),
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

    /// For every group (index, values), the shares `(values[i] - values[index]) * inverses[i - index]`
    /// are added to `sums[i]`, and their products with `weights[i]` to the group's result. The place
    /// of difference 0 in `inverses` is that of the last index.
    ///
    /// # Panics
    /// If the length of `sums` is not a multiple of eight from 8 to 256, other lengths do not follow
    /// from it, or an index is not below it.
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

    /// Each element to the same power, an integer with limbs least significant first.
    pub fn pow_many(self, elements: &[Fq], exponent: &[u64; 4]) -> Vec<Fq> {
        match self.0 {
            Kind::Portable => portable::pow_many(elements, exponent),
            #[cfg(target_arch = "x86_64")]
            Kind::Ifma(ifma) => ifma.pow_many(elements, exponent),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::group::batch::to_affine_many;

    fn element() -> impl Strategy<Value = Fq> {
        let largest = Fq::ZERO - Fq::ONE;
        prop_oneof![
            8 => any::<[u64; 4]>().prop_map(Fq::from_limbs),
            1 => Just(Fq::ZERO),
            1 => Just(Fq::ONE),
            1 => Just(largest),
            // The Montgomery form of this one is the largest there is.
            1 => Just(Fq::from_montgomery(largest.to_limbs())),
        ]
    }

    fn scalar() -> impl Strategy<Value = Fr> {
        let largest = Fr::ZERO - Fr::ONE;
        prop_oneof![
            8 => any::<[u64; 4]>().prop_map(Fr::from_limbs),
            1 => Just(Fr::ZERO),
            1 => Just(Fr::from_montgomery(largest.to_limbs())),
        ]
    }

    fn point() -> impl Strategy<Value = Element> {
        let some = any::<[u64; 4]>().prop_map(|k| Element::generator() * Fr::from_limbs(k));
        prop_oneof![8 => some, 1 => Just(Element::IDENTITY)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn kernels_agree_on_fields(
            a in proptest::collection::vec(element(), 0..40),
            exponent in any::<[u64; 4]>(),
        ) {
            let kernel = Kernel::detect();
            prop_assert_eq!(kernel.pow_many(&a, &exponent), portable::pow_many(&a, &exponent));
            prop_assert_eq!(kernel.pow_many(&a, &[2, 0, 0, 0]), portable::pow_many(&a, &[2, 0, 0, 0]));
            let (mut ours, mut theirs) = (a.clone(), a);
            kernel.invert_many(&mut ours);
            Fq::invert_many(&mut theirs);
            prop_assert_eq!(ours, theirs);
        }

        #[test]
        fn kernels_agree_on_combinations(
            start in proptest::collection::vec(scalar(), 16),
            terms in proptest::collection::vec((scalar(), proptest::collection::vec(scalar(), 16)), 0..150),
        ) {
            let terms: Vec<(Fr, &[Fr])> = terms.iter().map(|(f, v)| (*f, &v[..])).collect();
            let (mut ours, mut theirs) = (start.clone(), start);
            Kernel::detect().add_scaled(&mut ours, &terms);
            portable::add_scaled(&mut theirs, &terms);
            prop_assert_eq!(ours, theirs);
        }

        #[test]
        fn kernels_agree_on_affine_points(points in proptest::collection::vec(point(), 0..40)) {
            let kernel = Kernel::detect();
            prop_assert_eq!(kernel.ratios(&points), portable::ratios(&points));
            let (mut ours, mut theirs) = (points.clone(), points);
            prop_assert_eq!(kernel.normalize(&mut ours), portable::normalize(&mut theirs));
            for (ours, theirs) in ours.iter().zip(&theirs) {
                prop_assert_eq!([ours.x, ours.y, ours.z, ours.t], [theirs.x, theirs.y, theirs.z, theirs.t]);
            }
        }

        #[test]
        fn kernels_agree_on_tables(
            points in proptest::collection::vec(point(), 1..20), len in 1usize..300, cut in 0usize..300,
        ) {
            let starts = to_affine_many(&points, Kernel::PORTABLE);
            let total = starts.len() * len - cut % len;
            let (mut ours, mut theirs) = (vec![Entry::ZERO; total], vec![Entry::ZERO; total]);
            Kernel::detect().fill_windows(&starts, len, &mut ours);
            Kernel::PORTABLE.fill_windows(&starts, len, &mut theirs);
            // Forms differ, so let both kernels add up what they wrote.
            let picks: Vec<Pick> = (0..total).map(|index| Pick::new(index, false)).collect();
            let ends: Vec<u32> = (1..=total as u32).collect();
            let mut sums = [vec![Element::IDENTITY; total], vec![Element::IDENTITY; total]];
            Kernel::detect().sum(&ours, &picks, &ends, &mut sums[0]);
            Kernel::PORTABLE.sum(&theirs, &picks, &ends, &mut sums[1]);
            prop_assert_eq!(&sums[0], &sums[1]);
        }

        #[test]
        fn kernels_agree_on_quotients(
            start in proptest::collection::vec(scalar(), 16),
            groups in proptest::collection::vec((0u8..16, proptest::collection::vec(scalar(), 16)), 0..150),
            inverses in proptest::collection::vec(scalar(), 31),
            weights in proptest::collection::vec(scalar(), 16),
        ) {
            let groups: Vec<(u8, &[Fr])> = groups.iter().map(|(i, v)| (*i, &v[..])).collect();
            let (mut ours, mut theirs) = (start.clone(), start);
            prop_assert_eq!(
                Kernel::detect().add_quotients(&mut ours, &groups, &inverses, &weights),
                portable::add_quotients(&mut theirs, &groups, &inverses, &weights)
            );
            prop_assert_eq!(ours, theirs);
        }

        #[test]
        fn kernels_agree_on_buckets(buckets in proptest::collection::vec(point(), 0..60), len in 1usize..9) {
            let buckets = &buckets[..buckets.len() / len * len];
            prop_assert_eq!(
                Kernel::detect().weighted_sums(buckets, len),
                portable::weighted_sums(buckets, len)
            );
        }

        #[test]
        fn kernels_agree_on_sums(
            points in proptest::collection::vec(point(), 1..6),
            starts in proptest::collection::vec(point(), 0..20),
            picks in proptest::collection::vec(any::<(u16, bool)>(), 0..200),
            cuts in proptest::collection::vec(any::<u16>(), 20),
        ) {
            let picks: Vec<Pick> = picks
                .into_iter()
                .map(|(index, negated)| Pick::new(usize::from(index) % points.len(), negated))
                .collect();
            let mut ends: Vec<u32> = cuts[..starts.len()]
                .iter()
                .map(|&cut| u32::from(cut) % (picks.len() as u32 + 1))
                .collect();
            ends.sort_unstable();
            let affine =
                to_affine_many(&points, Kernel::PORTABLE);
            let results = [Kernel::PORTABLE, Kernel::detect()].map(|kernel| {
                let entries: Vec<Entry> = affine.iter().map(|point| kernel.pack(point)).collect();
                let mut sums = starts.clone();
                kernel.sum(&entries, &picks, &ends, &mut sums);
                sums
            });
            for (ours, theirs) in results[0].iter().zip(&results[1]) {
                // The same formulas: the very coordinates agree.
                prop_assert_eq!([ours.x, ours.y, ours.z, ours.t], [theirs.x, theirs.y, theirs.z, theirs.t]);
            }
        }
    }
}
