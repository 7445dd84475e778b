//! What it takes to go back: old values, account by account.
//!
//! An [`Undo`] turns the state after some changes into the state before them. That of a block is
//! made of those of its layers, and that of a range of blocks of those of its blocks: where two
//! name the same thing, the older one is right.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256, U256, keccak256};

use crate::error::StateError;
use crate::mpt_entries::{Keys, slot_key};
use crate::{Account, AccountChange, Change, Changes};

/// Old values of whatever changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Undo {
    pub(crate) accounts: BTreeMap<Address, Before>,
}

/// What an account was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// There was none.
    Absent,
    /// It is still there, and this of it changed.
    Changed(OldFields),
    /// It is gone, or was made again: this is all it was.
    Whole(OldAccount),
}

/// Old values of the fields and slots that changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OldFields {
    pub(crate) nonce: Option<u64>,
    pub(crate) balance: Option<U256>,
    pub(crate) code_hash: Option<B256>,
    /// `None` where a slot was absent: in some trees that is not the same as zero.
    pub(crate) storage: BTreeMap<Slot, Option<U256>>,
}

impl OldFields {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// An account with all of its slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OldAccount {
    pub(crate) account: Account,
    pub(crate) storage: BTreeMap<Slot, U256>,
}

/// A slot, or its digest where the slot itself is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Slot {
    Known(B256),
    Hashed(B256),
}

impl Slot {
    pub(crate) fn hash(self) -> B256 {
        match self {
            Self::Known(slot) => keccak256(slot),
            Self::Hashed(hash) => hash,
        }
    }
}

impl Undo {
    /// How many accounts and slots it has old values of.
    pub(crate) fn count(&self) -> usize {
        let slots = self.accounts.values().map(|before| match before {
            Before::Absent => 0,
            Before::Changed(old) => old.storage.len(),
            Before::Whole(old) => old.storage.len(),
        });
        slots.fold(self.accounts.len(), usize::saturating_add)
    }

    /// Whether an account that some changes write, and its slots, were there before. This has to be
    /// the undo of those changes alone.
    pub(crate) fn held(&self, address: &Address) -> Held<'_> {
        Held(self.accounts.get(address))
    }

    /// Takes up what it takes to undo later changes.
    pub(crate) fn extend(&mut self, newer: Self) {
        for (address, newer) in newer.accounts {
            match self.accounts.entry(address) {
                std::collections::btree_map::Entry::Vacant(entry) => drop(entry.insert(newer)),
                std::collections::btree_map::Entry::Occupied(mut entry) => {
                    entry.get_mut().extend(newer);
                }
            }
        }
    }
}

/// What an undo knows of an account that is written. An undo without an entry for the account says
/// that the account was there and that the changes leave it as it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<'a>(Option<&'a Before>);

impl Held<'_> {
    /// Whether the account was there before.
    pub(crate) const fn account(self) -> bool {
        !matches!(self.0, Some(Before::Absent))
    }

    /// Whether a slot that is written with `value` is known to have been there before.
    pub(crate) fn slot(self, slot: B256, value: U256) -> bool {
        let old = match self.0 {
            None => return !value.is_zero(),
            Some(Before::Absent | Before::Whole(_)) => return false,
            Some(Before::Changed(old)) => old,
        };
        old.storage.get(&Slot::Known(slot)).map_or(!value.is_zero(), Option::is_some)
    }
}

impl Before {
    fn extend(&mut self, newer: Self) {
        match (&mut *self, newer) {
            (Self::Changed(old), Self::Changed(newer)) => old.extend(newer),
            (Self::Changed(old), Self::Whole(newer)) => {
                *self = Self::Whole(newer.before(std::mem::take(old)));
            }
            // What was absent, or is known as a whole, is known. An account that changed was there
            // afterwards, so that it cannot have been absent then.
            (Self::Absent | Self::Whole(_), _) | (Self::Changed(_), Self::Absent) => {}
        }
    }
}

impl OldFields {
    fn extend(&mut self, newer: Self) {
        self.nonce = self.nonce.or(newer.nonce);
        self.balance = self.balance.or(newer.balance);
        self.code_hash = self.code_hash.or(newer.code_hash);
        for (slot, value) in newer.storage {
            self.storage.entry(slot).or_insert(value);
        }
    }
}

impl OldAccount {
    /// The account before these values changed.
    fn before(mut self, old: OldFields) -> Self {
        let account = &mut self.account;
        account.nonce = old.nonce.unwrap_or(account.nonce);
        account.balance = old.balance.unwrap_or(account.balance);
        account.code_hash = old.code_hash.unwrap_or(account.code_hash);
        for (slot, value) in old.storage {
            if let Slot::Known(_) = slot {
                // Listed from the tree, it may be there by its digest alone.
                self.storage.remove(&Slot::Hashed(slot.hash()));
            }
            match value {
                Some(value) => drop(self.storage.insert(slot, value)),
                None => drop(self.storage.remove(&slot)),
            }
        }
        self
    }
}

/// The state that changes apply to, as far as taking them back asks for it.
pub(crate) trait Old {
    /// The value of a slot, by its key in the tree; `None` where it is absent.
    fn slot(&self, key: &[u8; 64]) -> Result<Option<U256>, StateError>;

    /// All slots of an account.
    fn storage(&self, account: B256) -> Result<BTreeMap<Slot, U256>, StateError>;
}

/// What takes back changes, given the accounts before and the state.
pub(crate) fn undo_of(
    state: &impl Old,
    changes: &Changes,
    keys: &Keys,
    old: &[Option<Account>],
) -> Result<Undo, StateError> {
    let mut undo = Undo::default();
    for (((address, change), keys), old) in changes.accounts.iter().zip(&keys.0).zip(old) {
        let before = match (change, old) {
            (Change::Deleted, None) => continue,
            (Change::Written(_), None) => Before::Absent,
            (
                Change::Deleted | Change::Written(AccountChange { fresh: true, .. }),
                Some(account),
            ) => {
                let storage = state.storage(keys.account)?;
                Before::Whole(OldAccount { account: *account, storage })
            }
            (Change::Written(change), Some(old)) => {
                let mut fields = changed_fields(change, old);
                for ((slot, value), hash) in change.storage.iter().zip(&keys.slots) {
                    let before = state.slot(&slot_key(keys.account, *hash))?;
                    if before.unwrap_or_default() != *value {
                        fields.storage.insert(Slot::Known(*slot), before);
                    }
                }
                if fields.is_empty() {
                    continue;
                }
                Before::Changed(fields)
            }
        };
        undo.accounts.insert(*address, before);
    }
    Ok(undo)
}

fn changed_fields(change: &AccountChange, old: &Account) -> OldFields {
    let new = change;
    OldFields {
        nonce: new.nonce.filter(|nonce| *nonce != old.nonce).map(|_| old.nonce),
        balance: new.balance.filter(|balance| *balance != old.balance).map(|_| old.balance),
        code_hash: new.code_hash.filter(|hash| *hash != old.code_hash).map(|_| old.code_hash),
        ..OldFields::default()
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{Address, B256, U256, keccak256};

    use super::{Before, OldAccount, OldFields, Slot, Undo};
    use crate::Account;

    const SLOT: B256 = B256::repeat_byte(1);

    fn one(before: Before) -> Undo {
        Undo { accounts: [(Address::ZERO, before)].into() }
    }

    fn merged(older: Before, newer: Before) -> Before {
        let mut undo = one(older);
        undo.extend(one(newer));
        undo.accounts.remove(&Address::ZERO).unwrap()
    }

    #[test]
    fn the_oldest_value_is_right() {
        let older = OldFields {
            nonce: Some(1),
            storage: [(Slot::Known(SLOT), None)].into(),
            ..OldFields::default()
        };
        let newer = OldFields {
            nonce: Some(2),
            balance: Some(U256::from(7)),
            storage: [(Slot::Known(SLOT), Some(U256::from(9)))].into(),
            ..OldFields::default()
        };
        let both = merged(Before::Changed(older.clone()), Before::Changed(newer));
        let expected = OldFields { balance: Some(U256::from(7)), ..older };
        assert_eq!(both, Before::Changed(expected));
    }

    #[test]
    fn an_account_that_changed_and_went_is_whole_as_it_was() {
        let older = OldFields {
            nonce: Some(1),
            storage: [(Slot::Known(SLOT), Some(U256::from(3))), (Slot::Known(B256::ZERO), None)]
                .into(),
            ..OldFields::default()
        };
        let hashed = Slot::Hashed(keccak256(SLOT));
        let account = Account { nonce: 2, balance: U256::from(5), ..Account::EMPTY };
        let gone = OldAccount {
            account,
            storage: [(hashed, U256::from(4)), (Slot::Known(B256::ZERO), U256::from(6))].into(),
        };
        let expected = OldAccount {
            account: Account { nonce: 1, ..account },
            storage: [(Slot::Known(SLOT), U256::from(3))].into(),
        };
        assert_eq!(merged(Before::Changed(older), Before::Whole(gone)), Before::Whole(expected));
    }

    #[test]
    fn what_was_absent_stays_so() {
        let whole = Before::Whole(OldAccount::default());
        assert_eq!(merged(Before::Absent, whole.clone()), Before::Absent);
        assert_eq!(merged(whole.clone(), Before::Absent), whole);
    }
}
