//! What is behind hashed keys: addresses and slots, as they become known.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256, U256, keccak256};
use spinney_replay::ChainBlock;
use spinney_state::{Change, Changes};

use super::path::{begins, least};

/// Addresses and slots by their hashes. Whoever names one is not believed: it is hashed here.
#[derive(Debug, Default)]
pub(crate) struct Names {
    accounts: BTreeMap<B256, Address>,
    slots: BTreeMap<B256, B256>,
}

/// Slots up to this one are known: those of a contract's variables are small numbers.
const SMALL_SLOTS: u64 = 1_024;

impl Names {
    /// What anybody knows.
    pub(crate) fn known() -> Self {
        let mut names = Self::default();
        (0..SMALL_SLOTS).for_each(|slot| names.add_slot(U256::from(slot).into()));
        names
    }

    pub(crate) fn add_account(&mut self, address: Address) {
        self.accounts.insert(keccak256(address), address);
    }

    pub(crate) fn add_slot(&mut self, slot: B256) {
        self.slots.insert(keccak256(slot), slot);
    }

    /// An address whose hash begins with these digits.
    pub(crate) fn account(&self, path: &[u8]) -> Option<Address> {
        under(&self.accounts, path)
    }

    /// A slot whose hash begins with these digits.
    pub(crate) fn slot(&self, path: &[u8]) -> Option<B256> {
        under(&self.slots, path)
    }

    /// What an execution changed.
    pub(crate) fn add_changes(&mut self, changes: &Changes) {
        for (address, change) in &changes.accounts {
            self.add_account(*address);
            if let Change::Written(change) = change {
                change.storage.keys().for_each(|slot| self.add_slot(*slot));
            }
        }
    }

    /// What a block tells of whom it touches, without executing it.
    pub(crate) fn add_block(&mut self, block: &ChainBlock) {
        use alloy_consensus::Transaction as _;
        use alloy_consensus::transaction::SignerRecoverable as _;

        let (header, body) = (&block.block.header, &block.block.body);
        let withdrawals = body.withdrawals.iter().flat_map(|all| all.iter());
        let ommers = body.ommers.iter().map(|ommer| ommer.beneficiary);
        let given = withdrawals.map(|one| one.address).chain(ommers).chain([header.beneficiary]);
        let of_protocol = [
            alloy_eips::eip4788::BEACON_ROOTS_ADDRESS,
            alloy_eips::eip2935::HISTORY_STORAGE_ADDRESS,
            alloy_eips::eip7002::WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS,
            alloy_eips::eip7251::CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS,
        ];
        given.chain(of_protocol).for_each(|address| self.add_account(address));
        for transaction in &body.transactions {
            transaction.to().into_iter().for_each(|to| self.add_account(to));
            if let Ok(sender) = transaction.recover_signer() {
                self.add_account(sender);
                if transaction.to().is_none() {
                    self.add_account(sender.create(transaction.nonce()));
                }
            }
            for item in transaction.access_list().iter().flat_map(|list| list.iter()) {
                self.add_account(item.address);
                item.storage_keys.iter().for_each(|slot| self.add_slot(*slot));
            }
            for signed in transaction.authorization_list().into_iter().flatten() {
                self.add_account(*signed.address());
                signed.recover_authority().into_iter().for_each(|by| self.add_account(by));
            }
        }
        for account in block.access_list.iter().flat_map(|list| list.iter()) {
            self.add_account(account.address);
            account.storage_changes.iter().for_each(|slot| self.add_slot(slot.slot.into()));
        }
    }
}

fn under<T: Copy>(named: &BTreeMap<B256, T>, path: &[u8]) -> Option<T> {
    let (key, name) = named.range(least(path)..).next()?;
    begins(key, path).then_some(*name)
}
