//! Fields and group against arkworks.

use ark_ec::{AffineRepr, CurveGroup, PrimeGroup, VariableBaseMSM};
use ark_ed_on_bls12_381_bandersnatch as ark;
use ark_ff::{BigInteger, Field, PrimeField};
use proptest::prelude::*;
use spinney_ipa::{Element, Fq, Fr, multiply_sum};

fn integer() -> impl Strategy<Value = [u64; 4]> {
    let limb = prop_oneof![4 => any::<u64>(), 1 => Just(0), 1 => Just(u64::MAX)];
    prop_oneof![
        8 => proptest::array::uniform4(limb),
        1 => Just(Fq::MODULUS),
        1 => Just(Fr::MODULUS),
        1 => (0u64..4).prop_map(|small| [small, 0, 0, 0]),
        1 => (1u64..4).prop_map(|back| {
            let [low, rest @ ..] = Fq::MODULUS;
            [low - back.min(low), rest[0], rest[1], rest[2]]
        }),
    ]
}

fn le_bytes(limbs: [u64; 4]) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (out, limb) in bytes.chunks_mut(8).zip(limbs) {
        out.copy_from_slice(&limb.to_le_bytes());
    }
    bytes
}

fn base(limbs: [u64; 4]) -> (Fq, ark::Fq) {
    (Fq::from_limbs(limbs), ark::Fq::from_le_bytes_mod_order(&le_bytes(limbs)))
}

fn scalar(limbs: [u64; 4]) -> (Fr, ark::Fr) {
    (Fr::from_limbs(limbs), ark::Fr::from_le_bytes_mod_order(&le_bytes(limbs)))
}

fn same_base(ours: Fq, theirs: ark::Fq) -> bool {
    ours.to_limbs() == theirs.into_bigint().0
}

fn same_scalar(ours: Fr, theirs: ark::Fr) -> bool {
    ours.to_limbs() == theirs.into_bigint().0
}

/// The element of an arkworks point, through its bytes.
fn element(point: ark::EdwardsAffine) -> Element {
    let mut bytes = [0; 64];
    bytes[..32].copy_from_slice(&point.x.into_bigint().to_bytes_be());
    bytes[32..].copy_from_slice(&point.y.into_bigint().to_bytes_be());
    Element::from_uncompressed_trusted(&bytes).expect("point of the curve")
}

fn point(limbs: [u64; 4]) -> (Element, ark::EdwardsProjective) {
    let theirs = ark::EdwardsProjective::generator() * scalar(limbs).1;
    (element(theirs.into_affine()), theirs)
}

proptest! {
    #[test]
    fn base_field(a in integer(), b in integer()) {
        let ((a, their_a), (b, their_b)) = (base(a), base(b));
        prop_assert!(same_base(a + b, their_a + their_b));
        prop_assert!(same_base(a - b, their_a - their_b));
        prop_assert!(same_base(a * b, their_a * their_b));
        prop_assert!(same_base(-a, -their_a));
        prop_assert!(same_base(a.square(), their_a.square()));
        let their_inverse = their_a.inverse().map(|inverse| inverse.into_bigint().0);
        prop_assert_eq!(a.invert().map(|inverse| inverse.to_limbs()), their_inverse);
        prop_assert_eq!(a.legendre() == -1, their_a.legendre().is_qnr());
        prop_assert_eq!(a.legendre() == 1, their_a.legendre().is_qr());
        match a.sqrt() {
            Some(root) => prop_assert_eq!(root.square(), a),
            None => prop_assert!(their_a.sqrt().is_none()),
        }
        let largest = their_a > -their_a;
        prop_assert_eq!(a.is_largest(), largest);
        prop_assert_eq!(Fq::from_le_bytes(&a.to_le_bytes()), Ok(a));
        prop_assert_eq!(Fq::from_be_bytes(&a.to_be_bytes()), Ok(a));
    }

    #[test]
    fn scalar_field(a in integer(), b in integer()) {
        let ((a, their_a), (b, their_b)) = (scalar(a), scalar(b));
        prop_assert!(same_scalar(a + b, their_a + their_b));
        prop_assert!(same_scalar(a - b, their_a - their_b));
        prop_assert!(same_scalar(a * b, their_a * their_b));
        prop_assert!(same_scalar(-a, -their_a));
        let their_inverse = their_a.inverse().map(|inverse| inverse.into_bigint().0);
        prop_assert_eq!(a.invert().map(|inverse| inverse.to_limbs()), their_inverse);
        prop_assert_eq!(Fr::from_le_bytes(&a.to_le_bytes()), Ok(a));
    }

    #[test]
    fn only_canonical_bytes_decode(limbs in integer()) {
        let bytes = le_bytes(limbs);
        let below = |modulus: [u64; 4]| limbs.iter().rev().lt(modulus.iter().rev());
        prop_assert_eq!(Fq::from_le_bytes(&bytes).is_ok(), below(Fq::MODULUS));
        prop_assert_eq!(Fr::from_le_bytes(&bytes).is_ok(), below(Fr::MODULUS));
    }

    #[test]
    fn group_law(a in integer(), b in integer(), c in integer()) {
        let ((p, their_p), (q, their_q)) = (point(a), point(b));
        prop_assert_eq!(p + q, element((their_p + their_q).into_affine()));
        prop_assert_eq!(p - q, element((their_p - their_q).into_affine()));
        prop_assert_eq!(p.double(), element((their_p + their_p).into_affine()));
        prop_assert_eq!(p + p, p.double());
        let (factor, their_factor) = scalar(c);
        prop_assert_eq!(p * factor, element((their_p * their_factor).into_affine()));
    }

    #[test]
    fn batch_inversion(mut limbs in proptest::collection::vec(integer(), 0..40)) {
        limbs.push([0; 4]);
        let elements: Vec<Fq> = limbs.iter().map(|&limbs| Fq::from_limbs(limbs)).collect();
        let mut inverses = elements.clone();
        Fq::invert_many(&mut inverses);
        for (element, inverse) in elements.iter().zip(inverses) {
            prop_assert_eq!(element.invert().unwrap_or(Fq::ZERO), inverse);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn sums_of_products(terms in proptest::collection::vec((integer(), integer()), 0..140)) {
        let (points, factors): (Vec<_>, Vec<_>) =
            terms.iter().map(|&(p, k)| (point(p), scalar(k))).unzip();
        let (ours, theirs): (Vec<_>, Vec<_>) = points.into_iter().unzip();
        let (our_factors, their_factors): (Vec<_>, Vec<_>) = factors.into_iter().unzip();
        let theirs = ark::EdwardsProjective::normalize_batch(&theirs);
        let expected = ark::EdwardsProjective::msm(&theirs, &their_factors).expect("lengths");
        prop_assert_eq!(multiply_sum(&ours, &our_factors), element(expected.into_affine()));
    }
}

#[test]
fn the_generator_is_that_of_arkworks() {
    assert_eq!(element(ark::EdwardsAffine::generator()), Element::generator());
}
