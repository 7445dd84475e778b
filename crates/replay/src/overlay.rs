//! What a block has done so far, over the state it started from.
//!
//! - An account is what `now` says; `base` is what it was before the block.
//! - A slot that is not cached is read from the state below, unless the account is `wiped`: then
//!   nothing of its earlier storage shows through.
//! - `vanished` is set once an account that was there before the block is absent between two
//!   transactions: if it is there at the end, it is a fresh one.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{
    Address, B256, Bytes, U256,
    map::{AddressMap, B256Map},
};
use revm::state::{Account as EvmAccount, EvmState};
use spinney_state::{Account, AccountChange, Change, Changes, EMPTY_CODE_HASH};

use crate::block_state::{BlockState, StateFailed};

#[derive(Debug, Default)]
pub(crate) struct Overlay {
    accounts: AddressMap<Entry>,
    /// Code that this block has written.
    codes: B256Map<Bytes>,
}

#[derive(Debug, Default)]
struct Entry {
    base: Option<Account>,
    now: Option<Account>,
    wiped: bool,
    vanished: bool,
    slots: B256Map<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    base: U256,
    now: U256,
}

impl Overlay {
    pub(crate) fn account(
        &mut self,
        state: &dyn BlockState,
        address: Address,
    ) -> Result<Option<Account>, StateFailed> {
        self.entry(state, address).map(|entry| entry.now)
    }

    pub(crate) fn storage(
        &mut self,
        state: &dyn BlockState,
        address: Address,
        slot: B256,
    ) -> Result<U256, StateFailed> {
        let entry = self.entry(state, address)?;
        if let Some(slot) = entry.slots.get(&slot) {
            return Ok(slot.now);
        }
        let hides = entry.wiped || entry.base.is_none();
        let value = if hides { U256::ZERO } else { state.storage(address, slot)? };
        entry.slots.insert(slot, Slot { base: value, now: value });
        Ok(value)
    }

    /// Whether the account is there and has slots that are not zero, for an account without code
    /// and nonce: nothing can have cleared slots of it in this block.
    pub(crate) fn has_storage(
        &mut self,
        state: &dyn BlockState,
        address: Address,
    ) -> Result<bool, StateFailed> {
        let entry = self.entry(state, address)?;
        if entry.now.is_none() {
            return Ok(false);
        }
        let is_set = entry.slots.values().any(|slot| !slot.now.is_zero());
        let hides = entry.wiped || entry.base.is_none();
        Ok(is_set || (!hides && state.has_storage(address)?))
    }

    pub(crate) fn code(
        &self,
        state: &dyn BlockState,
        hash: B256,
    ) -> Result<Option<Bytes>, StateFailed> {
        if hash == EMPTY_CODE_HASH {
            return Ok(Some(Bytes::new()));
        }
        if let Some(code) = self.codes.get(&hash) {
            return Ok(Some(code.clone()));
        }
        state.code(hash)
    }

    /// Whether the block has written this code.
    pub(crate) fn has_code(&self, hash: &B256) -> bool {
        self.codes.contains_key(hash)
    }

    /// Takes over what a transaction did, and returns it when asked.
    ///
    /// Touched empty accounts are removed; before EIP-158 the EVM does not report them as touched,
    /// or reports them as created.
    pub(crate) fn commit(
        &mut self,
        state: &dyn BlockState,
        touched: EvmState,
        wants_changes: bool,
    ) -> Result<Changes, StateFailed> {
        let mut changes = Changes::default();
        for (address, account) in touched {
            if !account.is_touched() {
                continue;
            }
            let is_gone =
                account.is_selfdestructed() || (account.is_empty() && !account.is_created());
            let change = if is_gone {
                self.remove(state, address)?
            } else {
                self.write(state, address, &account)?
            };
            if wants_changes && let Some(change) = change {
                changes.accounts.insert(address, change);
            }
        }
        Ok(changes)
    }

    /// Takes over what a transaction did, where that is known without executing it, and returns it
    /// in the form that [`commit`](Self::commit) gives it. `emptied` are the accounts that are to
    /// be removed again.
    pub(crate) fn take(
        &mut self,
        state: &dyn BlockState,
        known: &Changes,
        emptied: &BTreeSet<Address>,
    ) -> Result<Changes, StateFailed> {
        let mut changes = Changes::default();
        for (address, change) in &known.accounts {
            let change = match change {
                Change::Written(change) if !emptied.contains(address) => {
                    self.take_written(state, *address, change)?.map(Change::Written)
                }
                _ => self.remove(state, *address)?,
            };
            changes.accounts.extend(change.map(|change| (*address, change)));
        }
        Ok(changes)
    }

    fn take_written(
        &mut self,
        state: &dyn BlockState,
        address: Address,
        known: &AccountChange,
    ) -> Result<Option<AccountChange>, StateFailed> {
        let mut storage = BTreeMap::new();
        for (slot, value) in &known.storage {
            if self.storage(state, address, *slot)? != *value {
                storage.insert(*slot, *value);
            }
        }
        if let (Some(hash), Some(code)) = (known.code_hash, &known.code) {
            self.codes.insert(hash, code.clone());
        }
        let entry = self.entry(state, address)?;
        let before = entry.now;
        let old = before.unwrap_or_default();
        let now = Account {
            nonce: known.nonce.unwrap_or(old.nonce),
            balance: known.balance.unwrap_or(old.balance),
            code_hash: known.code_hash.unwrap_or(old.code_hash),
        };
        entry.now = Some(now);
        for (slot, value) in &storage {
            // It was just read.
            if let Some(slot) = entry.slots.get_mut(slot) {
                slot.now = *value;
            }
        }
        let change = difference(before, now, &self.codes);
        if storage.is_empty() {
            return Ok(change);
        }
        Ok(Some(AccountChange { storage, ..change.unwrap_or_default() }))
    }

    /// Adds to a balance outside of any transaction. The account is made if it is absent, and
    /// removed if it is left empty and empty accounts are.
    pub(crate) fn credit(
        &mut self,
        state: &dyn BlockState,
        address: Address,
        amount: U256,
        removes_empty: bool,
    ) -> Result<Option<Change>, StateFailed> {
        let before = self.account(state, address)?;
        let mut account = before.unwrap_or_default();
        account.balance = account.balance.saturating_add(amount);
        if removes_empty && account.is_empty() {
            return self.remove(state, address);
        }
        self.entry(state, address)?.now = Some(account);
        Ok(difference(before, account, &self.codes).map(Change::Written))
    }

    /// Takes all of a balance outside of any transaction. The account is made if it is absent.
    pub(crate) fn drain(
        &mut self,
        state: &dyn BlockState,
        address: Address,
    ) -> Result<U256, StateFailed> {
        let entry = self.entry(state, address)?;
        let account = entry.now.get_or_insert(Account::EMPTY);
        Ok(std::mem::take(&mut account.balance))
    }

    /// All that was done since the start of the block.
    pub(crate) fn changes(&self) -> Changes {
        let accounts = self.accounts.iter();
        let changes =
            accounts.filter_map(|(address, entry)| Some((*address, entry.change(&self.codes)?)));
        Changes { accounts: changes.collect() }
    }

    fn entry(
        &mut self,
        state: &dyn BlockState,
        address: Address,
    ) -> Result<&mut Entry, StateFailed> {
        use alloy_primitives::map::Entry as MapEntry;
        match self.accounts.entry(address) {
            MapEntry::Occupied(entry) => Ok(entry.into_mut()),
            MapEntry::Vacant(vacant) => {
                let base = state.account(address)?;
                Ok(vacant.insert(Entry { base, now: base, ..Entry::default() }))
            }
        }
    }

    fn remove(
        &mut self,
        state: &dyn BlockState,
        address: Address,
    ) -> Result<Option<Change>, StateFailed> {
        let entry = self.entry(state, address)?;
        entry.slots.clear();
        entry.wiped = true;
        entry.vanished |= entry.base.is_some();
        Ok(entry.now.take().map(|_| Change::Deleted))
    }

    fn write(
        &mut self,
        state: &dyn BlockState,
        address: Address,
        account: &EvmAccount,
    ) -> Result<Option<Change>, StateFailed> {
        let info = &account.info;
        let now = Account { nonce: info.nonce, balance: info.balance, code_hash: info.code_hash };
        let before = self.account(state, address)?;
        let had_code = before.map_or(EMPTY_CODE_HASH, |before| before.code_hash);
        if now.code_hash != had_code
            && now.code_hash != EMPTY_CODE_HASH
            && let Some(code) = &info.code
        {
            self.codes.insert(now.code_hash, code.original_bytes());
        }
        let change = difference(before, now, &self.codes);
        let entry = self.entry(state, address)?;
        entry.now = Some(now);
        if account.is_created() {
            entry.slots.clear();
            entry.wiped = true;
        }
        let mut storage = BTreeMap::new();
        for (key, slot) in account.changed_storage_slots() {
            let key = B256::from(*key);
            let cached = entry
                .slots
                .entry(key)
                .or_insert(Slot { base: slot.original_value, now: slot.original_value });
            cached.now = slot.present_value;
            storage.insert(key, slot.present_value);
        }
        if before.is_none() {
            // What was never there has nothing to clear.
            storage.retain(|_, value: &mut U256| !value.is_zero());
        }
        if storage.is_empty() {
            return Ok(change.map(Change::Written));
        }
        Ok(Some(Change::Written(AccountChange { storage, ..change.unwrap_or_default() })))
    }
}

impl Entry {
    fn change(&self, codes: &B256Map<Bytes>) -> Option<Change> {
        let Some(now) = self.now else { return self.base.map(|_| Change::Deleted) };
        let fresh = self.vanished;
        let before = if fresh { None } else { self.base };
        let change = difference(before, now, codes);
        let slots = self.slots.iter();
        let storage = if before.is_none() {
            let set = slots.filter(|(_, slot)| !slot.now.is_zero());
            set.map(|(key, slot)| (*key, slot.now)).collect()
        } else {
            let changed = slots.filter(|(_, slot)| slot.now != slot.base);
            changed.map(|(key, slot)| (*key, slot.now)).collect()
        };
        let change = AccountChange { fresh, storage, ..change.unwrap_or_default() };
        (change != AccountChange::default()).then_some(Change::Written(change))
    }
}

/// The fields that changed; all that are not empty, and nonce and balance always, when the account
/// was absent.
fn difference(
    before: Option<Account>,
    now: Account,
    codes: &B256Map<Bytes>,
) -> Option<AccountChange> {
    let base = before.unwrap_or_default();
    let is_new = before.is_none();
    let has_new_code = now.code_hash != base.code_hash;
    let change = AccountChange {
        fresh: false,
        nonce: (is_new || now.nonce != base.nonce).then_some(now.nonce),
        balance: (is_new || now.balance != base.balance).then_some(now.balance),
        code_hash: has_new_code.then_some(now.code_hash),
        code: match has_new_code {
            false => None,
            true if now.code_hash == EMPTY_CODE_HASH => Some(Bytes::new()),
            true => codes.get(&now.code_hash).cloned(),
        },
        storage: BTreeMap::new(),
    };
    (change != AccountChange::default()).then_some(change)
}
