//! Access lists as JSON, in the shape that geth 1.17 writes: quantities have no leading zeros.

use alloy_eip7928::{
    AccountChanges, BalanceChange, BlockAccessIndex, CodeChange, NonceChange, SlotChanges,
    StorageChange,
};
use alloy_primitives::{Address, Bytes, U64, U256};
use serde::{Deserialize, Serialize};

/// An account of a list, and what a block changes and reads of it.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListedAccount {
    address: Address,
    storage_changes: Vec<Slot>,
    storage_reads: Vec<U256>,
    balance_changes: Vec<Balance>,
    nonce_changes: Vec<Nonce>,
    code_changes: Vec<Code>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Slot {
    slot: U256,
    slot_changes: Vec<Value>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Value {
    block_access_index: U64,
    post_value: U256,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Balance {
    block_access_index: U64,
    post_balance: U256,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Nonce {
    block_access_index: U64,
    post_nonce: U64,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Code {
    block_access_index: U64,
    new_code: Bytes,
}

const fn index(index: BlockAccessIndex) -> U64 {
    U64::from_limbs([index.0])
}

fn of_index(index: U64) -> BlockAccessIndex {
    BlockAccessIndex::new(index.to())
}

impl From<&AccountChanges> for ListedAccount {
    fn from(list: &AccountChanges) -> Self {
        let slot = |slot: &SlotChanges| Slot {
            slot: slot.slot,
            slot_changes: slot.changes.iter().map(value).collect(),
        };
        let balance = |change: &BalanceChange| Balance {
            block_access_index: index(change.block_access_index),
            post_balance: change.post_balance,
        };
        let nonce = |change: &NonceChange| Nonce {
            block_access_index: index(change.block_access_index),
            post_nonce: U64::from(change.new_nonce),
        };
        let code = |change: &CodeChange| Code {
            block_access_index: index(change.block_access_index),
            new_code: change.new_code.clone(),
        };
        Self {
            address: list.address,
            storage_changes: list.storage_changes.iter().map(slot).collect(),
            storage_reads: list.storage_reads.clone(),
            balance_changes: list.balance_changes.iter().map(balance).collect(),
            nonce_changes: list.nonce_changes.iter().map(nonce).collect(),
            code_changes: list.code_changes.iter().map(code).collect(),
        }
    }
}

fn value(change: &StorageChange) -> Value {
    Value { block_access_index: index(change.block_access_index), post_value: change.new_value }
}

impl From<ListedAccount> for AccountChanges {
    fn from(account: ListedAccount) -> Self {
        let slot = |slot: Slot| {
            let changes = slot.slot_changes.into_iter();
            let changes = changes.map(|change| {
                StorageChange::new(of_index(change.block_access_index), change.post_value)
            });
            SlotChanges::new(slot.slot, changes.collect())
        };
        let balances = account.balance_changes.into_iter();
        let nonces = account.nonce_changes.into_iter();
        let codes = account.code_changes.into_iter();
        Self {
            address: account.address,
            storage_changes: account.storage_changes.into_iter().map(slot).collect(),
            storage_reads: account.storage_reads,
            balance_changes: balances
                .map(|change| {
                    BalanceChange::new(of_index(change.block_access_index), change.post_balance)
                })
                .collect(),
            nonce_changes: nonces
                .map(|change| {
                    NonceChange::new(of_index(change.block_access_index), change.post_nonce.to())
                })
                .collect(),
            code_changes: codes
                .map(|change| CodeChange::new(of_index(change.block_access_index), change.new_code))
                .collect(),
        }
    }
}
