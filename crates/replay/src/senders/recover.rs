//! Recovers signers without libsecp256k1.
//!
//! The general-purpose recovery of k256 verifies the signature with the key that it has just found,
//! which holds by construction; this one does not, and takes half as long.

use alloy_primitives::{Address, B256, Signature, keccak256};
use k256::{
    AffinePoint, FieldBytes, ProjectivePoint, Scalar,
    elliptic_curve::{
        Group, PrimeField,
        ops::{Invert, LinearCombination, Reduce},
        point::DecompressPoint,
        sec1::ToEncodedPoint,
        subtle::Choice,
    },
};

/// The address whose key signed `hash`: of the point Q with r Q = s R - z G.
pub(super) fn recover(signature: &Signature, hash: B256) -> Option<Address> {
    let r_bytes = FieldBytes::from(signature.r().to_be_bytes::<32>());
    let r = nonzero(r_bytes)?;
    let s = nonzero(FieldBytes::from(signature.s().to_be_bytes::<32>()))?;
    let is_odd = Choice::from(u8::from(signature.v()));
    let point = Option::<AffinePoint>::from(AffinePoint::decompress(&r_bytes, is_odd))?;
    let z = <Scalar as Reduce<k256::U256>>::reduce_bytes(&FieldBytes::from(hash.0));
    let r_inverse = Option::<Scalar>::from(r.invert_vartime())?;
    let key = ProjectivePoint::lincomb(
        &ProjectivePoint::GENERATOR,
        &-(r_inverse * z),
        &point.into(),
        &(r_inverse * s),
    );
    if bool::from(key.is_identity()) {
        return None;
    }
    let key = key.to_affine().to_encoded_point(false);
    Some(Address::from_slice(&keccak256(&key.as_bytes()[1..])[12..]))
}

fn nonzero(bytes: FieldBytes) -> Option<Scalar> {
    let scalar = Option::<Scalar>::from(Scalar::from_repr(bytes))?;
    (!bool::from(scalar.is_zero())).then_some(scalar)
}
