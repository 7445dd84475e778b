//! The lanes at the bounds that their documentation states; random coordinates never come near.

use proptest::collection::vec;
use proptest::prelude::*;

use super::lanes::{LaneField, Lanes, WIDTH, split};
use super::points::{Points, State};
use super::{Ifma, pack};
use crate::field::{Fq, Fr};
use crate::group::Element;
use crate::group::batch::to_affine_many;
use crate::kernel::Kernel;

/// The residue of a number in limbs of 52 bits.
fn residue(limbs: [u64; 5]) -> Fq {
    limbs.iter().rev().fold(Fq::ZERO, |value, &limb| {
        (0..52).fold(value, |value, _| value.double()) + Fq::from(limb)
    })
}

/// `value + multiple * q` in limbs of 52 bits.
fn raised(value: [u64; 4], multiple: u64) -> [u64; 5] {
    let mut carry = 0;
    let mut limbs = split(&value);
    for (limb, prime) in limbs.iter_mut().zip(Fq::PRIME) {
        let sum = *limb + prime * multiple + carry;
        (*limb, carry) = (sum & ((1 << 52) - 1), sum >> 52);
    }
    assert_eq!(carry, 0, "value does not fit the lanes");
    limbs
}

/// A coordinate in the lanes' form, raised.
fn raised_form(coordinate: Fq, multiple: u64) -> [u64; 5] {
    raised(*coordinate.double().double().double().double().montgomery(), multiple)
}

fn state(element: &Element, multiples: [u64; 4]) -> State {
    let coordinates = [element.x, element.y, element.z, element.t];
    std::array::from_fn(|i| raised_form(coordinates[i], multiples[i]))
}

fn limbs() -> impl Strategy<Value = [u64; 5]> {
    let limb = prop_oneof![2 => 0..1u64 << 52, 1 => Just((1 << 52) - 1), 1 => Just(0)];
    proptest::array::uniform5(limb)
}

fn element() -> impl Strategy<Value = Element> {
    let some = any::<[u64; 4]>().prop_map(|k| Element::generator() * Fr::from_limbs(k));
    prop_oneof![8 => some, 1 => Just(Element::IDENTITY)]
}

fn coordinates(element: &Element) -> [Fq; 4] {
    [element.x, element.y, element.z, element.t]
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn multiply(a: &[[u64; 5]], b: &[[u64; 5]]) -> Vec<[u64; 5]> {
    let columns = |numbers: &[[u64; 5]]| {
        std::array::from_fn(|limb| std::array::from_fn(|lane| numbers[lane][limb]))
    };
    let product = Lanes::<Fq>::from_columns(&columns(a)).mul(&Lanes::from_columns(&columns(b)));
    let product = product.to_columns();
    (0..WIDTH).map(|lane| product.map(|column| column[lane])).collect()
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn settle(numbers: &[[u64; 5]], less: &[[u64; 5]]) -> Vec<[u64; 5]> {
    let lanes = |numbers: &[[u64; 5]]| {
        let columns = std::array::from_fn(|limb| std::array::from_fn(|lane| numbers[lane][limb]));
        Lanes::<Fq>::from_columns(&columns)
    };
    let settled = lanes(numbers).minus(&lanes(less)).plus_primes::<1>().settle().to_columns();
    (0..WIDTH).map(|lane| settled.map(|column| column[lane])).collect()
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn add_entries(start: &State, step: &Element, negated: u8) -> [Element; WIDTH] {
    let entry = pack(&to_affine_many(&[*step], Kernel::PORTABLE)[0]);
    let mut points = Points::zero();
    for lane in 0..WIDTH {
        points.set_lane(lane, start);
    }
    points.add_entries([&entry; WIDTH], negated);
    points.to_elements()
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn add(start: &State, other: &State) -> [Element; WIDTH] {
    let (mut points, mut others) = (Points::zero(), Points::zero());
    for lane in 0..WIDTH {
        points.set_lane(lane, start);
        others.set_lane(lane, other);
    }
    points.add(&others);
    points.to_elements()
}

proptest! {
    #[test]
    fn products_of_any_limbs(a in vec(limbs(), WIDTH), mut b in vec(limbs(), WIDTH)) {
        if Ifma::detect().is_none() {
            return Ok(());
        }
        // 35 q times 17 q is < 19 q; more would not fit the last limb.
        b.iter_mut().for_each(|limbs| limbs[4] >>= 1);
        // SAFETY: the instructions were just found.
        let products = unsafe { multiply(&a, &b) };
        let one = Fq::from_limbs(super::ONE);
        for ((a, b), product) in a.into_iter().zip(b).zip(products) {
            prop_assert!(product.iter().all(|limb| *limb < 1 << 52));
            prop_assert_eq!(residue(product) * one, residue(a) * residue(b));
        }
    }

    #[test]
    fn values_settle(
        values in vec((any::<[u64; 4]>(), prop_oneof![Just(0u64), Just(1), Just(u64::MAX)]), WIDTH),
    ) {
        if Ifma::detect().is_none() {
            return Ok(());
        }
        // Of the least, the largest and any residue, in multiples from 1 to 8.
        let raised: Vec<[u64; 5]> = (0..)
            .zip(&values)
            .map(|(lane, (words, kind))| {
                let value = match kind {
                    0 => Fq::ZERO,
                    1 => Fq::ZERO - Fq::ONE,
                    _ => Fq::from_limbs(*words),
                };
                raised(value.to_limbs(), lane + 1)
            })
            .collect();
        // Less nothing, and less others, so that carries and borrows are pending.
        let others: Vec<[u64; 5]> =
            values.iter().rev().map(|(words, _)| raised_form(Fq::from_limbs(*words), 1)).collect();
        for less in [vec![[0; 5]; WIDTH], others] {
            // SAFETY: the instructions were just found.
            let settled = unsafe { settle(&raised, &less) };
            for ((settled, raised), less) in settled.into_iter().zip(&raised).zip(less) {
                prop_assert!(settled.iter().all(|limb| *limb < 1 << 52));
                prop_assert!(settled[4] * 10 < Fq::PRIME[4] * 11);
                prop_assert_eq!(residue(settled), residue(*raised) - residue(less));
            }
        }
    }

    #[test]
    fn additions_at_the_bounds(start in element(), other in element(), negated in any::<u8>()) {
        if Ifma::detect().is_none() {
            return Ok(());
        }
        // The most that keeps x and y < 3 q, z < 2 q and t < 6 q.
        let raised = state(&start, [2, 2, 1, 5]);
        let affine = to_affine_many(&[other], Kernel::PORTABLE)[0];
        // SAFETY: the instructions were just found.
        let sums = unsafe { add_entries(&raised, &other, negated) };
        for (lane, sum) in sums.iter().enumerate() {
            let expected = if negated >> lane & 1 == 1 {
                start.add_prepared(-affine.x, affine.y, -affine.dxy())
            } else {
                start.add_prepared(affine.x, affine.y, affine.dxy())
            };
            prop_assert_eq!(coordinates(sum), coordinates(&expected));
        }
        // SAFETY: the instructions were just found.
        let sums = unsafe { add(&raised, &state(&other, [15; 4])) };
        for sum in &sums {
            prop_assert_eq!(coordinates(sum), coordinates(&(start + other)));
        }
    }
}
