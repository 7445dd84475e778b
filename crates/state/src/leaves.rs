//! Accounts as leaves of the trie, for whoever builds it without a state.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_primitives::{Address, B256, KECCAK256_EMPTY, U256, keccak256};
use spinney_tree::TreeError;
use spinney_tree::bulk::RootBuilder;
use spinney_tree::mpt::{MptState, account_value, slot_value};

use crate::mpt_entries::{hashes_of, slot_key};
use crate::{AccountChange, Change, Changes};

/// Hands the leaves of an account that is made by a change to `take`: key and value, the account's
/// own first, then those of its slots that are not zero, in no order of keys. `preimage` is told
/// the hash of the address and of each of these slots, and what is behind it.
///
/// # Errors
/// Whatever `take` or `preimage` answers.
pub fn leaves_of<E>(
    address: Address,
    change: &AccountChange,
    mut preimage: impl FnMut(B256, &[u8]) -> Result<(), E>,
    mut take: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let key = keccak256(address);
    preimage(key, address.as_slice())?;
    take(key.as_slice(), &account_leaf(change))?;
    for (slot, word) in change.storage.iter().filter(|(_, word)| **word != U256::ZERO) {
        leaf_of_slot(key, slot, *word, &mut preimage, &mut take)?;
    }
    Ok(())
}

/// The root of the Merkle Patricia trie of accounts that are made by changes, without a state.
/// Accounts that changes delete are not there.
///
/// ```
/// use alloy_primitives::{Address, U256};
/// use spinney_state::{AccountChange, Change, Changes, State};
/// use spinney_tree::MemoryStore;
///
/// let rich = AccountChange { balance: Some(U256::from(5)), ..AccountChange::default() };
/// let changes = Changes { accounts: [(Address::ZERO, Change::Written(rich))].into() };
/// let mut state = State::open(MemoryStore::new(), 1 << 20)?;
/// assert_eq!(spinney_state::root_of(&changes)?, state.apply(&changes)?);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Never, unless two addresses have one hash.
pub fn root_of(changes: &Changes) -> Result<B256, TreeError> {
    let made = changes.accounts.iter().filter_map(|(address, change)| match change {
        Change::Deleted => None,
        Change::Written(change) => Some((address, change)),
    });
    let made: Vec<_> = made.collect();
    let hashes = hashes_of(made.iter().map(|(address, _)| &address[..]));
    let mut order: Vec<_> = hashes.into_iter().zip(made).collect();
    order.sort_unstable_by_key(|(hash, _)| *hash);
    let mut builder = RootBuilder::new(MptState);
    for (hash, (_, change)) in order {
        builder.push(hash.as_slice(), &account_leaf(change))?;
        let slots: Vec<_> = change.storage.iter().filter(|(_, word)| !word.is_zero()).collect();
        let hashes = hashes_of(slots.iter().map(|(slot, _)| &slot[..]));
        let mut slots: Vec<_> = hashes.into_iter().zip(slots).collect();
        slots.sort_unstable_by_key(|(hash, _)| *hash);
        for (slot, (_, word)) in slots {
            builder.push(&slot_key(hash, slot), &slot_value(&word.to_be_bytes()))?;
        }
    }
    Ok(builder.finish()?.into())
}

/// The leaf of an account that is made by a change.
pub(crate) fn account_leaf(change: &AccountChange) -> Vec<u8> {
    let balance = change.balance.unwrap_or_default().to_be_bytes();
    let code_hash = match (&change.code_hash, &change.code) {
        (Some(hash), _) => *hash,
        (None, Some(code)) => keccak256(code),
        (None, None) => KECCAK256_EMPTY,
    };
    account_value(change.nonce.unwrap_or_default(), &balance, &code_hash.0)
}

/// Hands the leaf of a slot that is not zero to `take`, as [`leaves_of`] does. `account` is the
/// hash of the address.
///
/// # Errors
/// Whatever `take` or `preimage` answers.
pub fn leaf_of_slot<E>(
    account: B256,
    slot: &B256,
    word: U256,
    mut preimage: impl FnMut(B256, &[u8]) -> Result<(), E>,
    mut take: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let hash = keccak256(slot);
    preimage(hash, slot.as_slice())?;
    take(&slot_key(account, hash), &slot_value(&word.to_be_bytes()))
}
