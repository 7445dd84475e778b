//! What a block reads.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{Address, B256, Bytes};
use spinney_state::{Account, Changes, EMPTY_CODE_HASH};

/// What a block asked of the state and of the chain before it: its witness is made of that, by
/// [`WitnessMaker`](crate::WitnessMaker) or by a state that
/// [keeps witnesses](spinney_state::State::keep_witnesses).
#[derive(Debug, Default)]
pub struct BlockReads {
    pub(super) keys: Keys,
    pub(super) codes: CodeReads,
    /// Code by its hash.
    pub(super) code: BTreeMap<B256, Bytes>,
    /// The layers that were applied; none where all that the block did is one.
    pub(super) applied: Vec<Changes>,
    /// Headers in RLP up to its parent, from the oldest whose hash it was told; `None` where one of
    /// them is not known.
    pub(crate) headers: Option<Vec<Bytes>>,
}

/// Accounts and slots that were looked up.
#[derive(Debug, Default)]
pub(super) struct Keys(pub(super) BTreeMap<Address, BTreeSet<B256>>);

impl Keys {
    pub(super) fn slot(&mut self, address: Address, slot: B256) {
        self.0.entry(address).or_default().insert(slot);
    }

    /// In order of their bytes, each once.
    pub(super) fn sorted(&self) -> Vec<Bytes> {
        let mut keys: Vec<_> = self.by_account();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Each address followed by its slots.
    pub(super) fn by_account(&self) -> Vec<Bytes> {
        let mut keys = Vec::new();
        for (address, slots) in &self.0 {
            keys.push(Bytes::copy_from_slice(address.as_slice()));
            keys.extend(slots.iter().map(|slot| Bytes::copy_from_slice(slot.as_slice())));
        }
        keys
    }
}

/// Which code was read, and what of it is in a witness.
#[derive(Debug, Default)]
pub(super) struct CodeReads {
    /// What accounts had when they were first looked up: before the block.
    before: BTreeMap<Address, B256>,
    /// By hash: whether an account that had it before the block was read.
    read: BTreeMap<B256, Option<Address>>,
}

impl CodeReads {
    pub(super) fn account(&mut self, address: Address, account: Option<&Account>) {
        let hash = account.map_or(EMPTY_CODE_HASH, |account| account.code_hash);
        self.before.entry(address).or_insert(hash);
    }

    pub(super) fn read(&mut self, address: Address, hash: B256, written: bool) {
        let had = !written && self.before.get(&address) == Some(&hash);
        let read = self.read.entry(hash).or_default();
        if had {
            read.get_or_insert(address);
        }
    }

    /// An account that had this code when it was first looked up.
    pub(super) fn account_of(&self, hash: &B256) -> Option<Address> {
        let mut accounts = self.before.iter();
        accounts.find(|(_, before)| *before == hash).map(|(address, _)| *address)
    }

    /// The code that belongs into a witness, by hash, and an account that was read for it.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (&B256, &Address)> {
        self.read.iter().filter_map(|(hash, had)| Some((hash, had.as_ref()?)))
    }

    /// Code that was read and does not belong into a witness: the block made it.
    pub(super) fn others(&self) -> impl Iterator<Item = &B256> {
        self.read.iter().filter(|(_, had)| had.is_none()).map(|(hash, _)| hash)
    }
}
