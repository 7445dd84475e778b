//! Accounts and slots as entries of the Merkle Patricia trie: their keys and values, and what
//! changes do to them.

use alloy_primitives::{B256, Bytes, KECCAK256_EMPTY, U256, keccak256};
use spinney_hash::{Inputs, keccak256_many};
use spinney_tree::mpt::{account_value, decode_account_value, decode_slot_value, slot_value};
use spinney_tree::{Batch, TreeId};

use crate::error::StateError;
use crate::{Account, AccountChange, Change, Changes};

/// The id of the Merkle Patricia trie in a store of Ethereum state.
pub const MPT: TreeId = TreeId(1);

/// The hashed keys of a set of changes, account by account.
pub(crate) struct Keys(pub(crate) Vec<AccountKeys>);

/// The hashed address of an account, and its hashed slots in the order of the change.
pub(crate) struct AccountKeys {
    pub(crate) account: B256,
    pub(crate) slots: Vec<B256>,
}

impl Keys {
    pub(crate) fn of(changes: &Changes) -> Self {
        let slots = |change| match change {
            &Change::Deleted => None,
            Change::Written(AccountChange { storage, .. }) => Some(storage.keys()),
        };
        let names = changes.accounts.iter().flat_map(|(address, change)| {
            let slots = slots(change).into_iter().flatten();
            std::iter::once(&address[..]).chain(slots.map(|slot| &slot[..]))
        });
        let mut hashes = hashes_of(names).into_iter();
        let mut hash = || hashes.next().expect("one for each name");
        let keys = |change| AccountKeys {
            account: hash(),
            slots: slots(change).into_iter().flatten().map(|_| hash()).collect(),
        };
        Self(changes.accounts.values().map(keys).collect())
    }
}

/// The Keccak-256 digests of names, many at a time.
pub(crate) fn hashes_of<'n>(names: impl Iterator<Item = &'n [u8]>) -> Vec<B256> {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for name in names {
        bytes.extend_from_slice(name);
        ends.push(u32::try_from(bytes.len()).expect("changes are far smaller than that"));
    }
    let mut digests = vec![[0; 32]; ends.len()];
    keccak256_many(Inputs::new(&bytes, &ends), &mut digests);
    digests.into_iter().map(B256::new).collect()
}

/// The key of a slot in the tree.
pub(crate) fn slot_key(account: B256, slot: B256) -> [u8; 64] {
    let mut key = [0; 64];
    key[..32].copy_from_slice(account.as_slice());
    key[32..].copy_from_slice(slot.as_slice());
    key
}

/// The code that changes write, with its hashes.
pub(crate) fn codes_of(changes: &Changes) -> Result<Vec<(B256, &Bytes)>, StateError> {
    let mut codes = Vec::new();
    for (address, change) in &changes.accounts {
        let Change::Written(AccountChange { code: Some(code), code_hash: Some(hash), .. }) = change
        else {
            continue;
        };
        let (found, expected) = (keccak256(code), *hash);
        if found != expected {
            return Err(StateError::CodeHash { address: *address, expected, found });
        }
        if found != KECCAK256_EMPTY {
            codes.push((found, code));
        }
    }
    Ok(codes)
}

/// What changes do to the tree, given the accounts before.
pub(crate) fn batch_of(changes: &Changes, keys: &Keys, old: &[Option<Account>]) -> Batch {
    let mut batch = Batch::new();
    for ((change, keys), old) in changes.accounts.values().zip(&keys.0).zip(old) {
        let Change::Written(change) = change else {
            batch.delete_prefix(keys.account.as_slice());
            continue;
        };
        if change.fresh {
            batch.delete_prefix(keys.account.as_slice());
        }
        let (account, moved) = account_after(change, *old);
        if moved {
            put_account(&mut batch, keys.account, &account);
        }
        for (slot, value) in keys.slots.iter().zip(change.storage.values()) {
            // Zero is the empty value, which deletes.
            batch.put(&slot_key(keys.account, *slot), &slot_value(&value.to_be_bytes()));
        }
    }
    batch
}

/// An account after a change, and whether it is another one than there was before.
pub(crate) fn account_after(change: &AccountChange, old: Option<Account>) -> (Account, bool) {
    let old = old.filter(|_| !change.fresh);
    let base = old.unwrap_or_default();
    let account = Account {
        nonce: change.nonce.unwrap_or(base.nonce),
        balance: change.balance.unwrap_or(base.balance),
        code_hash: change.code_hash.unwrap_or(base.code_hash),
    };
    (account, old != Some(account))
}

/// Puts an account under its hashed address.
pub(crate) fn put_account(batch: &mut Batch, key: B256, account: &Account) {
    let Account { nonce, balance, code_hash } = account;
    batch.put(key.as_slice(), &account_value(*nonce, &balance.to_be_bytes(), &code_hash.0));
}

/// Reads the value of an account.
pub(crate) fn decode_account(value: &[u8]) -> Result<Account, StateError> {
    let (nonce, balance, code_hash) =
        decode_account_value(value).ok_or_else(|| malformed("an account", value))?;
    Ok(Account { nonce, balance: U256::from_be_bytes(balance), code_hash: code_hash.into() })
}

/// Reads the value of a slot.
pub(crate) fn decode_slot(value: &[u8]) -> Result<U256, StateError> {
    let word = decode_slot_value(value).ok_or_else(|| malformed("a slot", value))?;
    Ok(U256::from_be_bytes(word))
}

/// What is said of a value that is not what belongs there.
pub(crate) fn malformed(what: &str, bytes: &[u8]) -> StateError {
    let bytes = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    StateError::Malformed { what: what.into(), bytes }
}
