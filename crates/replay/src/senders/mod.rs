//! Recovers who signed the transactions of a block, and their authorizations (EIP-7702).
//!
//! Recovery is most of the CPU time of a replay. libsecp256k1 does it, or [`recover`] in Rust where
//! the feature of that name is off; both answer alike.

use std::{panic::resume_unwind, thread};

use alloy_consensus::{SignableTransaction, Transaction as _};
use alloy_eips::eip7702::SignedAuthorization;
use alloy_primitives::{Address, B256, Signature, U256, uint};

use crate::{
    config::{ChainConfig, Fork},
    error::{BadBlock, Check},
    rules::Failure,
    source::{ChainBlock, Transaction},
};

#[cfg(any(test, not(feature = "libsecp256k1")))]
mod recover;

/// Half of the order of the curve: from Homestead on, of the two signatures that say the same only
/// the lower one is valid (EIP-2).
const HALF_ORDER: U256 =
    uint!(0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0_U256);

/// Fewer transactions than this are not worth a thread.
const THREAD_TRANSACTIONS_MIN: usize = 16;

/// Who signed a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signer {
    pub(crate) address: Address,
    /// Who signed each of its authorizations; `None` where the signature is not valid.
    pub(crate) authorities: Vec<Option<Address>>,
}

impl Signer {
    /// `address` is known to have signed the transaction.
    pub(crate) fn of(transaction: &Transaction, address: Address) -> Self {
        let signed = transaction.authorization_list().unwrap_or_default();
        Self { address, authorities: signed.iter().map(authority).collect() }
    }
}

/// Who signed an authorization, which has to be low from the start.
fn authority(signed: &SignedAuthorization) -> Option<Address> {
    let signature = signed.signature().ok().filter(|signature| signature.s() <= HALF_ORDER)?;
    recover(&signature, signed.signature_hash())
}

impl ChainBlock {
    /// The senders of its transactions, in order.
    ///
    /// # Errors
    ///
    /// A signature is not valid.
    pub fn senders(&self, config: &ChainConfig) -> Result<Vec<Address>, Box<BadBlock>> {
        let signers = signers(config, self, 1).map_err(|failure| failure.of(self))?;
        Ok(signers.into_iter().map(|signer| signer.address).collect())
    }
}

/// Who signed the transactions of a block.
pub(crate) fn signers(
    config: &ChainConfig,
    block: &ChainBlock,
    threads: usize,
) -> Result<Vec<Signer>, Failure> {
    let header = &block.block.header;
    // Before the merge the number decides; after it the fork is late enough by any number.
    let takes_high = config.fork(header.number, header.timestamp, U256::ZERO) < Fork::Homestead;
    let transactions = &block.block.body.transactions;
    let len = transactions.len().div_ceil(threads.max(1)).max(THREAD_TRANSACTIONS_MIN);
    if transactions.len() <= len {
        return signers_of(transactions, 0, takes_high);
    }
    thread::scope(|scope| {
        let chunks = transactions.chunks(len).enumerate();
        let workers: Vec<_> = chunks
            .map(|(index, chunk)| scope.spawn(move || signers_of(chunk, index * len, takes_high)))
            .collect();
        let mut signers = Vec::with_capacity(transactions.len());
        for worker in workers {
            match worker.join() {
                Ok(chunk) => signers.extend(chunk?),
                Err(panic) => resume_unwind(panic),
            }
        }
        Ok(signers)
    })
}

/// Who signed transactions of which the first has the index `first` in its block.
fn signers_of(
    transactions: &[Transaction],
    first: usize,
    takes_high: bool,
) -> Result<Vec<Signer>, Failure> {
    let transactions = transactions.iter().enumerate();
    transactions
        .map(|(index, transaction)| {
            let signature = transaction.signature();
            let sender = (takes_high || signature.s() <= HALF_ORDER)
                .then(|| recover(signature, signing_hash(transaction)))
                .flatten();
            let sender = sender.ok_or_else(|| {
                let got = format!("r {:#x}, s {:#x}", signature.r(), signature.s());
                Failure::new(Check::Transaction(first + index), "a valid signature", got)
            })?;
            Ok(Signer::of(transaction, sender))
        })
        .collect()
}

/// The public key that signed a transaction: 65 bytes, not compressed.
pub(crate) fn public_key(transaction: &Transaction) -> Option<[u8; 65]> {
    let key = transaction.signature().recover_from_prehash(&signing_hash(transaction)).ok()?;
    key.to_encoded_point(false).as_bytes().try_into().ok()
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

/// The address whose key signed `hash`, whether the signature is low or high.
#[cfg(feature = "libsecp256k1")]
fn recover(signature: &Signature, hash: B256) -> Option<Address> {
    signature.recover_address_from_prehash(&hash).ok()
}

#[cfg(not(feature = "libsecp256k1"))]
use recover::recover;

#[cfg(test)]
mod tests;
