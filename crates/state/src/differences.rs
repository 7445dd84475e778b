//! What kept blocks did, found out from the history: old values, and what came after them.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::collections::{BTreeMap, HashMap};

use alloy_primitives::{Address, B256, KECCAK256_EMPTY, U256};
use spinney_tree::{BlockId, PageStore, Snapshot as _, Table};

use crate::error::StateError;
use crate::history::KeptState;
use crate::history_row::{Record, key};
use crate::keep::decode;
use crate::mpt_entries::slot_key;
use crate::mpt_state::State;
use crate::undo::{Before, OldFields, Slot};
use crate::{Account, AccountChange, Change, Changes, StateRead as _};

impl<P: PageStore> State<P> {
    /// Shows what each of the blocks behind `after`, up to `to`, did to the state, and the root it
    /// then had: the newest block first. Applied to the state of block `after`, oldest first, they
    /// give the states of the blocks again. Code comes along where an account got it. Trees beside
    /// are not looked at.
    ///
    /// In memory are all old values that the history has of these blocks.
    ///
    /// # Errors
    /// What `see` answers; [`StateError::NotKept`] if one of the two blocks is not kept,
    /// [`StateError::NoPreimage`] if a slot is known by its hash alone; or if the store fails or
    /// the history is damaged.
    pub fn differences<E: From<StateError>>(
        &self,
        after: u64,
        to: u64,
        mut see: impl FnMut(BlockId, B256, Changes) -> Result<(), E>,
    ) -> Result<(), E> {
        let newest = self.at(to)?;
        // That it is kept, too.
        self.at(after)?;
        let mut numbers = Vec::new();
        let (low, high) = (key(after.saturating_add(1)), key(to.saturating_add(1)));
        let mut add = |key: &[u8], _: &[u8]| {
            numbers.extend(key.first_chunk().map(|number| u64::from_be_bytes(*number)));
            true
        };
        let failed = |error| E::from(StateError::from(error));
        let snapshot = newest.snapshot();
        snapshot.scan(Table::History, &low, Some(&high), &mut add).map_err(failed)?;
        let mut root = newest.root();
        let mut later = Later { newest, accounts: HashMap::new() };
        for number in numbers.into_iter().rev() {
            let row = later.newest.snapshot().read(Table::History, &key(number)).map_err(failed)?;
            let row = row.map(|row| row.to_vec()).unwrap_or_default();
            let Record { block, parent_root, undo, .. } = decode(&key(number), &row)?;
            let mut changes = Changes::default();
            for (address, before) in undo.accounts {
                let change = later.back(address, before)?;
                changes.accounts.extend(change.map(|change| (address, change)));
            }
            see(block, root, changes)?;
            root = parent_root;
        }
        Ok(())
    }
}

/// The state after a block: the newest one, and what was different then.
struct Later<'a, P: PageStore> {
    newest: KeptState<'a, P>,
    accounts: HashMap<Address, Then>,
}

/// What an account was.
#[derive(Default)]
struct Then {
    /// The account, where that is known.
    account: Option<Option<Account>>,
    /// It had none but these slots.
    alone: bool,
    /// By the hash of the slot.
    slots: BTreeMap<B256, (Slot, U256)>,
}

impl<P: PageStore> Later<'_, P> {
    /// Goes back over what a block did to an account; answers what that was.
    fn back(&mut self, address: Address, before: Before) -> Result<Option<Change>, StateError> {
        let mut then = self.accounts.remove(&address).unwrap_or_default();
        let account = match then.account {
            Some(account) => account,
            None => self.newest.account(address)?,
        };
        let change = match (&before, account) {
            (Before::Absent, None) => None,
            (_, None) => Some(Change::Deleted),
            (Before::Changed(old), Some(account)) => {
                let mut change = AccountChange {
                    nonce: old.nonce.map(|_| account.nonce),
                    balance: old.balance.map(|_| account.balance),
                    code_hash: old.code_hash.map(|_| account.code_hash),
                    ..AccountChange::default()
                };
                for slot in old.storage.keys() {
                    let value = self.slot(address, &then, *slot)?;
                    change.storage.insert(named(*slot)?, value);
                }
                Some(Change::Written(change))
            }
            (Before::Absent | Before::Whole(_), Some(account)) => {
                let mut storage = BTreeMap::new();
                for (slot, value) in self.slots(address, &then)? {
                    storage.insert(named(slot)?, value);
                }
                Some(Change::Written(AccountChange {
                    fresh: matches!(before, Before::Whole(_)),
                    nonce: Some(account.nonce),
                    balance: Some(account.balance),
                    code_hash: Some(account.code_hash),
                    code: None,
                    storage,
                }))
            }
        };
        then.go_back(account, before);
        self.accounts.insert(address, then);
        change.map(|change| self.with_code(change)).transpose()
    }

    fn with_code(&self, mut change: Change) -> Result<Change, StateError> {
        if let Change::Written(written) = &mut change
            && let Some(hash) = written.code_hash.filter(|hash| *hash != KECCAK256_EMPTY)
        {
            written.code = self.newest.code(hash)?;
        }
        Ok(change)
    }

    fn slot(&self, address: Address, then: &Then, slot: Slot) -> Result<U256, StateError> {
        let hash = slot.hash();
        match then.slots.get(&hash) {
            Some((_, value)) => Ok(*value),
            None if then.alone => Ok(U256::ZERO),
            None => {
                let key = slot_key(alloy_primitives::keccak256(address), hash);
                self.newest.slot(&key)
            }
        }
    }

    /// All slots of an account that were not zero.
    fn slots(
        &self,
        address: Address,
        then: &Then,
    ) -> Result<impl Iterator<Item = (Slot, U256)> + use<P>, StateError> {
        let mut slots = BTreeMap::new();
        if !then.alone {
            let newest = self.newest.storage_of(address)?;
            slots.extend(newest.into_iter().map(|(slot, value)| (slot.hash(), (slot, value))));
        }
        slots.extend(then.slots.iter().map(|(hash, slot)| (*hash, *slot)));
        Ok(slots.into_values().filter(|(_, value)| !value.is_zero()))
    }
}

impl Then {
    /// Becomes what the account was before, given what it was after.
    fn go_back(&mut self, after: Option<Account>, before: Before) {
        match before {
            Before::Absent => *self = Self { account: Some(None), alone: true, ..Self::default() },
            Before::Whole(old) => {
                let slots = old.storage.into_iter();
                let slots = slots.map(|(slot, value)| (slot.hash(), (slot, value))).collect();
                *self = Self { account: Some(Some(old.account)), alone: true, slots };
            }
            Before::Changed(OldFields { nonce, balance, code_hash, storage }) => {
                self.account = Some(after.map(|account| Account {
                    nonce: nonce.unwrap_or(account.nonce),
                    balance: balance.unwrap_or(account.balance),
                    code_hash: code_hash.unwrap_or(account.code_hash),
                }));
                for (slot, value) in storage {
                    self.slots.insert(slot.hash(), (slot, value.unwrap_or_default()));
                }
            }
        }
    }
}

fn named(slot: Slot) -> Result<B256, StateError> {
    match slot {
        Slot::Known(slot) => Ok(slot),
        Slot::Hashed(hash) => Err(StateError::NoPreimage { hash }),
    }
}
