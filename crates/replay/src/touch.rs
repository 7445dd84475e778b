//! Pages that a block will need, read before its turn comes.

use std::collections::BTreeSet;

use alloy_consensus::Transaction as _;
use alloy_primitives::{Address, B256};
use spinney_state::StateRead;

use crate::{senders::Signer, source::ChainBlock};

/// Reads what a block is known to look at: its senders, whom they call, its access lists. What was read is not
/// handed on, since blocks before it may change it; its pages are in memory then. What cannot be read is told
/// to whoever needs it.
pub(crate) fn touch<R: StateRead>(reader: &R, block: &ChainBlock, signers: &[Signer]) {
    let (mut accounts, mut slots) =
        (BTreeSet::<Address>::new(), BTreeSet::<(Address, B256)>::new());
    accounts.insert(block.block.header.beneficiary);
    for (transaction, signer) in block.block.body.transactions.iter().zip(signers) {
        accounts.insert(signer.address);
        accounts.extend(transaction.to());
        accounts.extend(signer.authorities.iter().flatten());
        for item in transaction.access_list().into_iter().flat_map(|list| &list.0) {
            accounts.insert(item.address);
            slots.extend(item.storage_keys.iter().map(|slot| (item.address, *slot)));
        }
    }
    for account in block.access_list.iter().flatten() {
        accounts.insert(account.address);
        let written = account.storage_changes.iter().map(|change| change.slot);
        let looked_at = written.chain(account.storage_reads.iter().copied());
        slots.extend(looked_at.map(|slot| (account.address, slot.into())));
    }
    for address in accounts {
        if reader.account(address).is_err() {
            return;
        }
    }
    for (address, slot) in slots {
        if reader.storage(address, slot).is_err() {
            return;
        }
    }
}
