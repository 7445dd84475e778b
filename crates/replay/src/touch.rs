//! What a block will need of the state, as far as it is known before its turn comes.

use std::collections::{BTreeMap, BTreeSet};

use alloy_consensus::Transaction as _;
use alloy_primitives::{Address, B256};
use spinney_state::StateRead;

use crate::{
    config::ChainConfig,
    senders::{Signer, signers},
    source::ChainBlock,
};

/// Reads what a block is known to look at. What was read is not handed on, since blocks before it
/// may change it; its pages are in memory then. What cannot be read is told to whoever needs it.
pub(crate) fn touch<R: StateRead>(reader: &R, block: &ChainBlock, signers: &[Signer]) {
    let known = known(block, signers);
    if known.keys().any(|address| reader.account(*address).is_err()) {
        return;
    }
    let mut slots =
        known.iter().flat_map(|(address, slots)| slots.iter().map(move |slot| (address, slot)));
    // It ends with the first that cannot be read.
    let _ = slots.any(|(address, slot)| reader.storage(*address, *slot).is_err());
}

impl ChainBlock {
    /// Accounts and slots that the block is known to look at before it is executed: senders, whom
    /// they call, and access lists. Of a transaction whose signature is not valid, and of those
    /// behind it, nothing is.
    pub fn known_reads(&self, config: &ChainConfig) -> BTreeMap<Address, BTreeSet<B256>> {
        known(self, &signers(config, self, 1).unwrap_or_default())
    }
}

/// Its senders, whom they call, its access lists.
fn known(block: &ChainBlock, signers: &[Signer]) -> BTreeMap<Address, BTreeSet<B256>> {
    let mut known = BTreeMap::<Address, BTreeSet<B256>>::new();
    known.entry(block.block.header.beneficiary).or_default();
    for (transaction, signer) in block.block.body.transactions.iter().zip(signers) {
        let authorities = signer.authorities.iter().flatten().copied();
        for address in authorities.chain([signer.address]).chain(transaction.to()) {
            known.entry(address).or_default();
        }
        for item in transaction.access_list().into_iter().flat_map(|list| &list.0) {
            known.entry(item.address).or_default().extend(&item.storage_keys);
        }
    }
    for account in block.access_list.iter().flatten() {
        let written = account.storage_changes.iter().map(|change| change.slot);
        let looked_at = written.chain(account.storage_reads.iter().copied());
        known.entry(account.address).or_default().extend(looked_at.map(B256::from));
    }
    known
}
