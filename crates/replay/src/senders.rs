//! Recovers who sent the transactions of a block.
//!
//! Recovery is most of the time of a replay. The general-purpose one verifies the signature with
//! the key that it has just found, which holds by construction; this one does not, and takes half
//! as long.

use std::{panic::resume_unwind, thread};

use alloy_consensus::SignableTransaction;
use alloy_primitives::{Address, B256, Signature, U256, keccak256, uint};
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

use crate::{
    config::{ChainConfig, Fork},
    error::Check,
    rules::Failure,
    source::{ChainBlock, Transaction},
};

/// Half of the order of the curve: from Homestead on, of the two signatures that say the same only
/// the lower one is valid (EIP-2).
const HALF_ORDER: U256 =
    uint!(0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0_U256);

/// Fewer transactions than this are not worth a thread.
const THREAD_TRANSACTIONS_MIN: usize = 16;

/// The senders of all transactions of a block.
pub(crate) fn senders(
    config: &ChainConfig,
    block: &ChainBlock,
    threads: usize,
) -> Result<Vec<Address>, Failure> {
    let header = &block.block.header;
    // Before the merge the number decides; after it the fork is late enough by any number.
    let takes_high = config.fork(header.number, header.timestamp, U256::ZERO) < Fork::Homestead;
    let transactions = &block.block.body.transactions;
    let len = transactions.len().div_ceil(threads.max(1)).max(THREAD_TRANSACTIONS_MIN);
    if transactions.len() <= len {
        return senders_of(transactions, 0, takes_high);
    }
    thread::scope(|scope| {
        let chunks = transactions.chunks(len).enumerate();
        let workers: Vec<_> = chunks
            .map(|(index, chunk)| scope.spawn(move || senders_of(chunk, index * len, takes_high)))
            .collect();
        let mut senders = Vec::with_capacity(transactions.len());
        for worker in workers {
            match worker.join() {
                Ok(chunk) => senders.extend(chunk?),
                Err(panic) => resume_unwind(panic),
            }
        }
        Ok(senders)
    })
}

/// The senders of transactions of which the first has the index `first` in its block.
fn senders_of(
    transactions: &[Transaction],
    first: usize,
    takes_high: bool,
) -> Result<Vec<Address>, Failure> {
    let transactions = transactions.iter().enumerate();
    transactions
        .map(|(index, transaction)| {
            let signature = transaction.signature();
            let sender = (takes_high || signature.s() <= HALF_ORDER)
                .then(|| recover(signature, signing_hash(transaction)))
                .flatten();
            sender.ok_or_else(|| {
                let got = format!("r {:#x}, s {:#x}", signature.r(), signature.s());
                Failure::new(Check::Transaction(first + index), "a valid signature", got)
            })
        })
        .collect()
}

fn signing_hash(transaction: &Transaction) -> B256 {
    match transaction {
        Transaction::Legacy(signed) => signed.tx().signature_hash(),
        Transaction::Eip2930(signed) => signed.tx().signature_hash(),
        Transaction::Eip1559(signed) => signed.tx().signature_hash(),
        Transaction::Eip4844(signed) => signed.tx().signature_hash(),
        Transaction::Eip7702(signed) => signed.tx().signature_hash(),
    }
}

/// The address whose key signed `hash`: of the point Q with r Q = s R - z G.
fn recover(signature: &Signature, hash: B256) -> Option<Address> {
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

#[cfg(test)]
mod tests {
    use alloy_consensus::crypto::secp256k1::recover_signer_unchecked;
    use k256::ecdsa::SigningKey;

    use super::*;

    fn signature(seed: u8) -> (Signature, B256) {
        let key = SigningKey::from_slice(&[seed; 32]).unwrap();
        let hash = keccak256([seed]);
        let (signature, recovery) = key.sign_prehash_recoverable(hash.as_slice()).unwrap();
        let (r, s) = signature.split_bytes();
        let (r, s) = (U256::from_be_slice(&r), U256::from_be_slice(&s));
        (Signature::new(r, s, recovery.is_y_odd()), hash)
    }

    #[test]
    fn agrees_with_the_general_purpose_recovery() {
        let order = HALF_ORDER * U256::from(2) + U256::ONE;
        for seed in 1..40 {
            let (low, hash) = signature(seed);
            let high = Signature::new(low.r(), order - low.s(), !low.v());
            let expected = recover_signer_unchecked(&low, hash).unwrap();
            assert_eq!(recover(&low, hash), Some(expected));
            assert_eq!(recover(&high, hash), Some(expected));
            let other = keccak256(hash);
            assert_eq!(recover(&low, other), recover_signer_unchecked(&low, other).ok());
        }
    }

    #[test]
    fn refuses_what_is_out_of_range() {
        let (good, hash) = signature(7);
        let order = HALF_ORDER * U256::from(2) + U256::ONE;
        let bad = [
            (U256::ZERO, good.s()),
            (good.r(), U256::ZERO),
            (order, good.s()),
            (good.r(), order),
            (U256::MAX, U256::MAX),
            // No point of the curve has this coordinate.
            (U256::from(5), good.s()),
        ];
        for (r, s) in bad {
            assert_eq!(recover(&Signature::new(r, s, false), hash), None, "{r} {s}");
        }
    }
}
