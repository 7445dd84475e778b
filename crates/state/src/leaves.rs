//! Accounts as leaves of the trie, for whoever builds it without a state.

use alloy_primitives::{Address, B256, KECCAK256_EMPTY, U256, keccak256};
use spinney_tree::mpt::{account_value, slot_value};

use crate::AccountChange;
use crate::mpt_state::slot_key;

/// Hands the leaves of an account that is made by a change to `take`: key and value, the account's own
/// first, then those of its slots that are not zero, in no order of keys. `preimage` is told the hash of the
/// address and of each of these slots, and what is behind it.
///
/// # Errors
/// Whatever `take` answers.
pub fn leaves_of<E>(
    address: Address,
    change: &AccountChange,
    mut preimage: impl FnMut(B256, &[u8]),
    mut take: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let key = keccak256(address);
    preimage(key, address.as_slice());
    let balance = change.balance.unwrap_or_default().to_be_bytes();
    let code_hash = match (&change.code_hash, &change.code) {
        (Some(hash), _) => *hash,
        (None, Some(code)) => keccak256(code),
        (None, None) => KECCAK256_EMPTY,
    };
    let value = account_value(change.nonce.unwrap_or_default(), &balance, &code_hash.0);
    take(key.as_slice(), &value)?;
    for (slot, word) in change.storage.iter().filter(|(_, word)| **word != U256::ZERO) {
        leaf_of_slot(key, slot, *word, &mut preimage, &mut take)?;
    }
    Ok(())
}

/// Hands the leaf of a slot that is not zero to `take`, as [`leaves_of`] does. `account` is the hash of the
/// address.
///
/// # Errors
/// Whatever `take` answers.
pub fn leaf_of_slot<E>(
    account: B256,
    slot: &B256,
    word: U256,
    mut preimage: impl FnMut(B256, &[u8]),
    mut take: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let hash = keccak256(slot);
    preimage(hash, slot.as_slice());
    take(&slot_key(account, hash), &slot_value(&word.to_be_bytes()))
}
