//! Block-level access lists (EIP-7928): what a block did, in values afterwards.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::collections::BTreeMap;

use alloy_eip7928::{
    AccountChanges, BalanceChange, BlockAccessIndex, CodeChange, NonceChange, SlotChanges,
    StorageChange, validate_block_access_list,
};
use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256};
use alloy_rlp::{Decodable as _, Encodable as _};
use spinney_state::{Account, AccountChange, Change, Changes};

use crate::bal_json;

/// Why a block-level access list is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// It is not the one that the header names.
    #[error("the access list has the hash {found}, and the header names {expected}")]
    Hash {
        /// The hash that the header names.
        expected: B256,
        /// The hash of the list.
        found: B256,
    },
    /// The text is no access list.
    #[error("no block-level access list in JSON: {0}")]
    Json(String),
    /// Its bytes are no access list.
    #[error("no block-level access list: {0}")]
    Rlp(String),
    /// It is not in its canonical form.
    #[error("the access list is not canonical: {0}")]
    Canonical(String),
    /// An access list cannot say what a block did.
    #[error("account {address}: {what}, which an access list cannot say")]
    Unsaid {
        /// The account.
        address: Address,
        /// What became of it.
        what: &'static str,
    },
}

/// An access list that was read, and found canonical.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessList(Vec<AccountChanges>);

impl AccessList {
    /// Reads a list, whose hash has to be the one that the block's header names.
    ///
    /// # Errors
    /// [`ListError`].
    pub fn read(rlp: &[u8], header_hash: B256) -> Result<Self, ListError> {
        let found = keccak256(rlp);
        if found != header_hash {
            return Err(ListError::Hash { expected: header_hash, found });
        }
        let mut rest = rlp;
        let list = Vec::<AccountChanges>::decode(&mut rest);
        let list = list.map_err(|error| ListError::Rlp(error.to_string()))?;
        if !rest.is_empty() {
            return Err(ListError::Rlp("it goes on behind its end".into()));
        }
        Self::canonical(list)
    }

    /// Reads a list in the JSON that geth writes, whose hash has to be the one that the block's
    /// header names.
    ///
    /// # Errors
    /// [`ListError`].
    pub fn read_json(text: &str, header_hash: B256) -> Result<Self, ListError> {
        let accounts: Vec<bal_json::ListedAccount> =
            serde_json::from_str(text).map_err(|error| ListError::Json(error.to_string()))?;
        let list = Self::canonical(accounts.into_iter().map(AccountChanges::from).collect())?;
        let found = list.hash();
        if found != header_hash {
            return Err(ListError::Hash { expected: header_hash, found });
        }
        Ok(list)
    }

    /// Takes a list that was made while a block was executed.
    ///
    /// # Errors
    /// If it is not canonical.
    pub fn made(list: Vec<AccountChanges>) -> Result<Self, ListError> {
        Self::canonical(list)
    }

    /// The JSON that geth writes.
    ///
    /// ```
    /// # use alloy_primitives::{Address, U256};
    /// # use spinney_migrate::AccessList;
    /// # use spinney_state::{AccountChange, Change, Changes};
    /// let mut all = Changes::default();
    /// let paid = AccountChange { balance: Some(U256::from(5)), ..AccountChange::default() };
    /// all.accounts.insert(Address::ZERO, Change::Written(paid));
    /// let list = AccessList::of([(1, &all)], &all, &Default::default())?;
    /// let json = list.to_json();
    /// assert!(json.contains(r#"{"blockAccessIndex":"0x1","postBalance":"0x5"}"#));
    /// assert_eq!(AccessList::read_json(&json, list.hash())?, list);
    /// # Ok::<_, spinney_migrate::ListError>(())
    /// ```
    #[expect(clippy::expect_used, reason = "it writes, and reads nothing")]
    pub fn to_json(&self) -> String {
        let accounts: Vec<_> = self.0.iter().map(bal_json::ListedAccount::from).collect();
        serde_json::to_string(&accounts).expect("lists and strings are JSON")
    }

    /// Refuses what is not in the one form that a block's list has: in order, nothing twice.
    fn canonical(list: Vec<AccountChanges>) -> Result<Self, ListError> {
        // How many transactions the block has is for whoever has the block.
        validate_block_access_list(&list, (u32::MAX as usize).saturating_sub(1))
            .map_err(|error| ListError::Canonical(error.to_string()))?;
        Ok(Self(list))
    }

    /// Writes what a block did: what each of its parts did, by index, and what all of them did
    /// together. `replaced` has the slots of accounts that were destroyed and made again: each is
    /// zero from where the account went.
    ///
    /// # Errors
    /// If an account was destroyed and made again, and its slots are not known; if code is known by
    /// its hash alone; or if an index is larger than a list can say.
    pub fn of<'c>(
        steps: impl IntoIterator<Item = (u64, &'c Changes)>,
        all: &Changes,
        replaced: &BTreeMap<Address, Vec<B256>>,
    ) -> Result<Self, ListError> {
        let unknown = |(address, change): (&Address, &Change)| {
            let is_back = *change != Change::Deleted && went(change);
            (is_back && !replaced.contains_key(address)).then_some(*address)
        };
        if let Some(address) = all.accounts.iter().find_map(unknown) {
            let what =
                "it was destroyed and made again, with slots that are not known by themselves";
            return Err(ListError::Unsaid { address, what });
        }
        if let Some(address) = all.accounts.iter().find_map(has_unknown_code) {
            let what = "it has code that is known by its hash alone";
            return Err(ListError::Unsaid { address, what });
        }
        let mut merged = BTreeMap::<u64, Changes>::new();
        for (index, changes) in steps {
            merged.entry(index).or_default().then(changes);
        }
        let mut accounts = BTreeMap::<Address, Values>::new();
        for (index, changes) in &merged {
            for (address, change) in &changes.accounts {
                let values = accounts.entry(*address).or_default();
                let index = BlockAccessIndex::new(*index);
                if let Some(slots) = replaced.get(address).filter(|_| went(change)) {
                    values.clear(index, slots);
                }
                values.take(index, change);
            }
        }
        let list = accounts.into_iter().map(|(address, values)| values.listed(address));
        Self::canonical(list.collect())
    }

    /// The bytes of the list, whose hash a header names.
    pub fn to_rlp(&self) -> Bytes {
        let mut rlp = Vec::new();
        self.0.encode(&mut rlp);
        rlp.into()
    }

    /// The hash that a header names.
    pub fn hash(&self) -> B256 {
        keccak256(self.to_rlp())
    }

    /// The accounts that the block changed, each with the slots that it wrote: what has to be read
    /// before it is applied.
    pub fn written(&self) -> impl Iterator<Item = (Address, impl Iterator<Item = B256>)> {
        let changed = self.0.iter().filter(|list| list.has_changes());
        changed.map(|list| {
            (list.address, list.storage_post_states().map(|(slot, _)| B256::from(slot)))
        })
    }

    /// What the block did to a state; `before` is asked for accounts as they were. An account that
    /// is left with nothing is deleted, with all of its storage.
    ///
    /// # Errors
    /// Those of `before`.
    pub fn changes<E>(
        &self,
        mut before: impl FnMut(Address) -> Result<Option<Account>, E>,
    ) -> Result<Changes, E> {
        let mut changes = Changes::default();
        for list in self.0.iter().filter(|list| list.has_changes()) {
            let old = before(list.address)?.unwrap_or_default();
            let code = list.code_post_state();
            let written = AccountChange {
                fresh: false,
                nonce: list.nonce_post_state(),
                balance: list.balance_post_state(),
                code_hash: code.map(keccak256),
                code: code.cloned(),
                storage: list
                    .storage_post_states()
                    .map(|(slot, value)| (B256::from(slot), value))
                    .collect(),
            };
            let new = Account {
                nonce: written.nonce.unwrap_or(old.nonce),
                balance: written.balance.unwrap_or(old.balance),
                code_hash: written.code_hash.unwrap_or(old.code_hash),
            };
            let change = if new.is_empty() { Change::Deleted } else { Change::Written(written) };
            changes.accounts.insert(list.address, change);
        }
        Ok(changes)
    }
}

/// Whether an account went, even if it is there again.
fn went(change: &Change) -> bool {
    match change {
        Change::Deleted => true,
        Change::Written(change) => change.fresh,
    }
}

/// An account whose code is named and not given.
fn has_unknown_code((address, change): (&Address, &Change)) -> Option<Address> {
    let Change::Written(change) = change else { return None };
    let named = change.code_hash.is_some_and(|hash| hash != KECCAK256_EMPTY);
    (named && change.code.is_none()).then_some(*address)
}

/// The values of an account, by the part of the block.
#[derive(Debug, Default)]
struct Values {
    nonces: Vec<NonceChange>,
    balances: Vec<BalanceChange>,
    codes: Vec<CodeChange>,
    slots: BTreeMap<B256, Vec<StorageChange>>,
}

impl Values {
    /// Notes that the storage went: slots that there were before the block, and those that it set
    /// so far.
    fn clear(&mut self, index: BlockAccessIndex, before: &[B256]) {
        for slot in before {
            self.slots.entry(*slot).or_default();
        }
        for changes in self.slots.values_mut() {
            if changes.last().is_none_or(|last| !last.new_value.is_zero()) {
                changes.push(StorageChange::new(index, U256::ZERO));
            }
        }
    }

    /// Takes up what a part of the block did. There is one part an index.
    fn take(&mut self, index: BlockAccessIndex, change: &Change) {
        let nothing = AccountChange { fresh: true, ..AccountChange::default() };
        let change = match change {
            Change::Written(change) => change,
            Change::Deleted => &nothing,
        };
        // Of an account that went, whether it is there again or not, what is not given is empty.
        let nonce = change.nonce.or(change.fresh.then_some(0));
        let balance = change.balance.or(change.fresh.then_some(U256::ZERO));
        let is_bare = change.code_hash.map_or(change.fresh, |hash| hash == KECCAK256_EMPTY);
        let code = change.code.clone().or_else(|| is_bare.then(Bytes::new));
        self.nonces.extend(nonce.map(|nonce| NonceChange::new(index, nonce)));
        self.balances.extend(balance.map(|balance| BalanceChange::new(index, balance)));
        self.codes.extend(code.map(|code| CodeChange::new(index, code)));
        for (slot, value) in &change.storage {
            let changes = self.slots.entry(*slot).or_default();
            // Cleared by the same part: the last value of an index is the one that is listed.
            changes.pop_if(|last| last.block_access_index == index);
            changes.push(StorageChange::new(index, *value));
        }
    }

    fn listed(self, address: Address) -> AccountChanges {
        let slots = self.slots.into_iter();
        let slots = slots.map(|(slot, changes)| SlotChanges::new(slot.into(), changes));
        AccountChanges {
            address,
            storage_changes: slots.collect(),
            storage_reads: Vec::new(),
            balance_changes: self.balances,
            nonce_changes: self.nonces,
            code_changes: self.codes,
        }
    }
}
