//! Whatever a kernel computes, the portable one computes too.

use proptest::collection::vec;
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

fn coordinates(element: &Element) -> [Fq; 4] {
    [element.x, element.y, element.z, element.t]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn kernels_agree_on_fields(
        a in vec(element(), 0..40),
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
        start in vec(scalar(), 16),
        terms in vec((scalar(), vec(scalar(), 16)), 0..150),
    ) {
        let terms: Vec<(Fr, &[Fr])> = terms.iter().map(|(f, v)| (*f, &v[..])).collect();
        let (mut ours, mut theirs) = (start.clone(), start);
        Kernel::detect().add_scaled(&mut ours, &terms);
        portable::add_scaled(&mut theirs, &terms);
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn kernels_agree_on_affine_points(points in vec(point(), 0..40)) {
        let kernel = Kernel::detect();
        prop_assert_eq!(kernel.ratios(&points), portable::ratios(&points));
        let (mut ours, mut theirs) = (points.clone(), points);
        prop_assert_eq!(kernel.normalize(&mut ours), portable::normalize(&mut theirs));
        for (ours, theirs) in ours.iter().zip(&theirs) {
            prop_assert_eq!(coordinates(ours), coordinates(theirs));
        }
    }

    #[test]
    fn kernels_agree_on_bytes(
        points in vec(point(), 0..40),
        others in vec(any::<[[u64; 4]; 2]>(), 0..10),
    ) {
        let kernel = Kernel::detect();
        let encoded = kernel.encode(&points);
        prop_assert_eq!(&encoded, &portable::encode(&points));
        for (encoded, point) in encoded.iter().zip(&points) {
            let alone = [*point];
            let mut normal = alone;
            Element::normalize_many(&mut normal);
            prop_assert_eq!(encoded.x, normal[0].x.to_limbs());
            prop_assert_eq!(encoded.y, normal[0].y.to_limbs());
            prop_assert_eq!(vec![encoded.ratio], portable::ratios(&alone));
        }
        // Elements among what is on no curve.
        let reduced = |words: [u64; 4]| Fq::from_limbs(words).to_limbs();
        let mut bytes: Vec<_> = encoded.iter().map(|encoded| [encoded.x, encoded.y]).collect();
        for (at, other) in others.into_iter().enumerate() {
            bytes.insert(bytes.len().min(at * 3), other.map(reduced));
        }
        let (ours, theirs) = (kernel.decode(&bytes), portable::decode(&bytes));
        prop_assert_eq!(ours.len(), bytes.len());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            prop_assert_eq!(ours.as_ref().map(coordinates), theirs.as_ref().map(coordinates));
        }
        prop_assert_eq!(ours.iter().flatten().copied().collect::<Vec<_>>(), points);
    }

    #[test]
    fn kernels_agree_on_windows(
        points in vec(point(), 1..20), len in 1usize..300, cut in 0usize..300,
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
    fn tables_hold_all_multiples(
        factors in vec(1u64..1 << 40, 1..20), len in 1usize..300, cut in 0usize..300,
    ) {
        let points: Vec<Element> =
            factors.iter().map(|&factor| Element::generator() * Fr::from(factor)).collect();
        let starts = to_affine_many(&points, Kernel::PORTABLE);
        let total = starts.len() * len - cut % len;
        let picks: Vec<Pick> = (0..total).map(|index| Pick::new(index, false)).collect();
        let ends: Vec<u32> = (1..=total as u32).collect();
        for kernel in [Kernel::PORTABLE, Kernel::detect()] {
            let mut table = vec![Multiple::ZERO; total];
            kernel.fill_table(&starts, len, &mut table);
            let mut sums = vec![Element::IDENTITY; total];
            kernel.sum_multiples(&table, &picks, &ends, &mut sums);
            for (window, point) in sums.chunks(len).zip(&points) {
                let mut multiple = Element::IDENTITY;
                for sum in window {
                    multiple += *point;
                    prop_assert_eq!(*sum, multiple);
                }
            }
        }
    }

    /// Of few points, so that those that meet often are alike, opposite, or add up to nothing; and
    /// of many, each picked once, as sums are built that share inversions.
    #[test]
    fn sums_of_a_table_are_those_of_its_points(
        count in prop_oneof![1usize..6, Just(1_500)],
        starts in vec(point(), 0..40),
        picks in vec(any::<(u32, bool)>(), 0..1_500),
        cuts in vec(any::<u32>(), 40),
    ) {
        let factor = |i: u64| if count < 6 { i } else { i.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
        let factors: Vec<Fr> = (1..=count as u64).map(|i| Fr::from(factor(i))).collect();
        let points: Vec<Element> =
            factors.iter().map(|&factor| Element::generator() * factor).collect();
        let affine = to_affine_many(&points, Kernel::PORTABLE);
        let picks: Vec<Pick> = picks
            .into_iter()
            .enumerate()
            .map(|(at, (index, negated))| {
                Pick::new(if count < 6 { index as usize } else { at * 7 } % count, negated)
            })
            .collect();
        let mut ends: Vec<u32> =
            cuts[..starts.len()].iter().map(|&cut| cut % (picks.len() as u32 + 1)).collect();
        ends.sort_unstable();
        let mut expected = starts.clone();
        let mut from = 0;
        for (sum, &end) in expected.iter_mut().zip(&ends) {
            for pick in &picks[from..end as usize] {
                let point = points[pick.index()];
                *sum += if pick.is_negated() { -point } else { point };
            }
            from = end as usize;
        }
        for kernel in [Kernel::PORTABLE, Kernel::detect()] {
            let mut table = vec![Multiple::ZERO; count];
            kernel.fill_table(&affine, 1, &mut table);
            let mut sums = starts.clone();
            kernel.sum_multiples(&table, &picks, &ends, &mut sums);
            prop_assert_eq!(&sums, &expected);
            for sum in &sums {
                // What is on the curve, with coordinates that belong together.
                prop_assert_eq!(sum.x * sum.y, sum.z * sum.t);
                prop_assert!(!sum.z.is_zero());
            }
        }
    }

    #[test]
    fn kernels_agree_on_quotients(
        start in vec(scalar(), 16),
        groups in vec((0u8..16, vec(scalar(), 16)), 0..150),
        inverses in vec(scalar(), 31),
        weights in vec(scalar(), 16),
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
    fn kernels_agree_on_buckets(buckets in vec(point(), 0..60), len in 1usize..9) {
        let buckets = &buckets[..buckets.len() / len * len];
        prop_assert_eq!(
            Kernel::detect().weighted_sums(buckets, len),
            portable::weighted_sums(buckets, len)
        );
    }

    #[test]
    fn kernels_agree_on_sums(
        points in vec(point(), 1..6),
        starts in vec(point(), 0..20),
        picks in vec(any::<(u16, bool)>(), 0..200),
        cuts in vec(any::<u16>(), 20),
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
            prop_assert_eq!(coordinates(ours), coordinates(theirs));
        }
    }
}
