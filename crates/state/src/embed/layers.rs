//! What a state over a binary tree remembers beside the tree.
//!
//! ```text
//! meta: tree id (u32 BE) | 'c' | code hash (32)
//!           -> how many accounts use it (u64 BE)
//!       tree id (u32 BE) | 's' | address (20) | tree index (32)
//!           -> nothing: a stem with slots of it
//! ```
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256};
use spinney_tree::{Batch, PageStore, Pending, Scheme, Snapshot, Table, Tree, TreeId, WriteSet};

use super::Word;
use super::state::{EmbedError, Embedding};
use crate::Account;
use crate::lazy::LazySnapshot;
use crate::leaf_undo::LeafUndo;

/// Beside what a layer of changes does to the tree.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    pub(super) codes: BTreeMap<B256, Bytes>,
    /// How many accounts use a code, for the codes for which that changed.
    pub(super) uses: BTreeMap<B256, u64>,
    /// Stems, beside the header's, that got their first slots.
    pub(super) stems: BTreeSet<(Address, Word)>,
}

/// Changes applied at once.
#[derive(Debug)]
pub(super) struct Layer<S: Scheme> {
    pub(super) pending: Pending<S>,
    pub(super) metadata: Metadata,
    /// What takes it back, where somebody may want that.
    pub(super) undo: Option<LeafUndo>,
}

impl Metadata {
    pub(super) fn write(&self, tree: TreeId, set: &mut WriteSet) {
        for (hash, code) in &self.codes {
            set.put(Table::Codes, hash.as_slice(), code.to_vec());
        }
        for (hash, uses) in &self.uses {
            put_note(set, &uses_key(tree, hash), uses_row(*uses));
        }
        for (address, index) in &self.stems {
            put_note(set, &stem_key(tree, address, index), Some(Vec::new()));
        }
    }
}

/// Writes a row of `meta`, or removes it.
pub(super) fn put_note(set: &mut WriteSet, key: &[u8], row: Option<Vec<u8>>) {
    match row {
        None => set.delete(Table::Meta, key),
        Some(row) => set.put(Table::Meta, key, row),
    }
}

/// The row of a code that is used so often.
pub(super) fn uses_row(uses: u64) -> Option<Vec<u8>> {
    (uses > 0).then(|| uses.to_be_bytes().to_vec())
}

pub(super) fn uses_key(tree: TreeId, hash: &B256) -> Vec<u8> {
    [&tree.0.to_be_bytes()[..], b"c", hash.as_slice()].concat()
}

fn stems_key(tree: TreeId, address: &Address) -> Vec<u8> {
    [&tree.0.to_be_bytes()[..], b"s", address.as_slice()].concat()
}

pub(super) fn stem_key(tree: TreeId, address: &Address, index: &Word) -> Vec<u8> {
    [&stems_key(tree, address)[..], index].concat()
}

/// The state that changes apply to: the last commit, and the layers above it.
#[expect(missing_debug_implementations, reason = "named by a sealed trait, and out of reach")]
pub struct View<'a, S: Embedding, P: PageStore> {
    pub(super) tree: &'a Tree<S>,
    pub(super) layers: &'a [Layer<S>],
    pub(super) snapshot: LazySnapshot<'a, P>,
    /// What the embedding remembers of keys.
    pub(super) memo: &'a S::Memo,
}

impl<S: Embedding, P: PageStore> View<'_, S, P> {
    fn top(&self) -> Option<&Pending<S>> {
        self.layers.last().map(|layer| &layer.pending)
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Word>, EmbedError> {
        let Some(value) = self.tree.get(&self.snapshot, self.top(), key)? else { return Ok(None) };
        word(key, &value).map(Some)
    }

    /// An account, and bytes of its code.
    pub(super) fn account(
        &self,
        scheme: &S,
        address: &Address,
    ) -> Result<Option<(Account, u32)>, EmbedError> {
        let keys = scheme.account_keys_by(self.memo, address);
        let leaves: Result<Vec<_>, _> = keys.iter().map(|key| self.get(key)).collect();
        scheme.read_account(address, &leaves?)
    }

    /// An account.
    pub(crate) fn account_at(
        &self,
        scheme: &S,
        address: &Address,
    ) -> Result<Option<Account>, EmbedError> {
        Ok(self.account(scheme, address)?.map(|(account, _)| account))
    }

    /// The value of a slot; zero where there is no leaf of it.
    pub(crate) fn slot(
        &self,
        scheme: &S,
        address: &Address,
        slot: &B256,
    ) -> Result<U256, EmbedError> {
        let value = self.get(&scheme.slot_key_by(self.memo, address, slot))?;
        Ok(value.map_or(U256::ZERO, U256::from_be_bytes))
    }

    /// Whether any leaf whose key begins so, and is picked, is not zeros.
    pub(super) fn has_value(
        &self,
        prefix: &[u8],
        is_slot: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, EmbedError> {
        for entry in self.tree.prefix(&self.snapshot, self.top(), prefix) {
            let entry = entry?;
            if is_slot(&entry.key) && word(&entry.key, &entry.value)? != [0; 32] {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The entries below a stem: places and values.
    pub(super) fn stem(&self, stem: &[u8; 31]) -> Result<Vec<(u8, Word)>, EmbedError> {
        let entries = self.tree.prefix(&self.snapshot, self.top(), stem);
        let entry = |entry: Result<spinney_tree::Entry<_>, _>| {
            let entry = entry?;
            let place = entry.key.last().ok_or_else(|| EmbedError::malformed(&entry.key))?;
            Ok((*place, word(&entry.key, &entry.value)?))
        };
        entries.map(entry).collect()
    }

    pub(super) fn code(&self, hash: &B256) -> Result<Option<Bytes>, EmbedError> {
        if *hash == KECCAK256_EMPTY {
            return Ok(Some(Bytes::new()));
        }
        if let Some(code) =
            self.layers.iter().rev().find_map(|layer| layer.metadata.codes.get(hash))
        {
            return Ok(Some(code.clone()));
        }
        let row = self.snapshot.read(Table::Codes, hash.as_slice())?;
        Ok(row.map(|row| Bytes::copy_from_slice(&row)))
    }

    /// How many accounts use a code.
    pub(super) fn uses(&self, hash: &B256) -> Result<u64, EmbedError> {
        if let Some(uses) = self.layers.iter().rev().find_map(|layer| layer.metadata.uses.get(hash))
        {
            return Ok(*uses);
        }
        let key = uses_key(self.tree.id(), hash);
        match self.snapshot.read(Table::Meta, &key)? {
            None => Ok(0),
            Some(row) => {
                let uses = row[..].try_into().map_err(|_| EmbedError::malformed(&key))?;
                Ok(u64::from_be_bytes(uses))
            }
        }
    }

    /// Whether a stem is noted to have slots.
    pub(super) fn has_stem(&self, noted: &(Address, Word)) -> Result<bool, EmbedError> {
        if self.layers.iter().any(|layer| layer.metadata.stems.contains(noted)) {
            return Ok(true);
        }
        let key = stem_key(self.tree.id(), &noted.0, &noted.1);
        Ok(self.snapshot.read(Table::Meta, &key)?.is_some())
    }

    /// What takes back writes and notes that are about to be made.
    pub(super) fn undo_of(
        &self,
        writes: &[Write],
        metadata: &Metadata,
    ) -> Result<LeafUndo, EmbedError> {
        let root = self.top().map_or_else(|| self.tree.root(), Pending::root);
        let mut undo = LeafUndo { root: root.into(), ..LeafUndo::default() };
        for write in writes {
            let (key, new) = match write {
                Write::Put(key, value) => (key, Some(*value)),
                Write::Delete(key) => (key, None),
                Write::DeletePrefix(prefix) => {
                    for entry in self.tree.prefix(&self.snapshot, self.top(), prefix) {
                        let entry = entry?;
                        undo.leaves
                            .insert(entry.key.clone(), Some(word(&entry.key, &entry.value)?));
                    }
                    continue;
                }
            };
            let old = self.get(key)?;
            if old != new {
                undo.leaves.insert(key.clone(), old);
            }
        }
        for hash in metadata.uses.keys() {
            undo.metadata.insert(uses_key(self.tree.id(), hash), uses_row(self.uses(hash)?));
        }
        for (address, index) in &metadata.stems {
            undo.metadata.insert(stem_key(self.tree.id(), address, index), None);
        }
        Ok(undo)
    }

    /// The tree indices of an account's stems that have slots, the header's among them.
    pub(super) fn slot_stems(&self, address: &Address) -> Result<BTreeSet<Word>, EmbedError> {
        let low = stems_key(self.tree.id(), address);
        let high = [&low[..], &[0xff; 33]].concat();
        let mut stems = BTreeSet::from([[0; 32]]);
        let mut visit = |key: &[u8], _: &[u8]| {
            stems.extend(key.last_chunk::<32>().copied());
            true
        };
        self.snapshot.scan(Table::Meta, &low, Some(&high), &mut visit)?;
        for (_, index) in self
            .layers
            .iter()
            .flat_map(|layer| layer.metadata.stems.iter().filter(|(noted, _)| noted == address))
        {
            stems.insert(*index);
        }
        Ok(stems)
    }
}

/// The value of a leaf.
pub(super) fn word(key: &[u8], value: &[u8]) -> Result<Word, EmbedError> {
    value.try_into().map_err(|_| EmbedError::malformed(key))
}

/// What changes do to one leaf, or to all whose keys begin alike. Prefixes go first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// The leaf gets a value.
    Put(Vec<u8>, Word),
    /// The leaf goes, if it is there.
    Delete(Vec<u8>),
    /// All leaves go whose keys begin so.
    DeletePrefix(Vec<u8>),
}

/// The operations that writes are.
pub(super) fn batch_of(writes: &[Write]) -> Batch {
    let mut batch = Batch::new();
    for write in writes {
        match write {
            Write::Put(key, value) => batch.put(key, value),
            Write::Delete(key) => batch.delete(key),
            Write::DeletePrefix(prefix) => batch.delete_prefix(prefix),
        }
    }
    batch
}

/// Changes on their way to a batch.
#[expect(missing_debug_implementations, reason = "named by a sealed trait, and out of reach")]
pub struct Plan<'a, S: Embedding, P: PageStore> {
    pub(super) view: View<'a, S, P>,
    pub(super) scheme: &'a S,
    pub(super) writes: Vec<Write>,
    pub(super) metadata: Metadata,
    /// How many accounts more, or fewer, use a code.
    pub(super) more_uses: BTreeMap<B256, i64>,
}

impl<S: Embedding, P: PageStore> Plan<'_, S, P> {
    pub(super) fn put(&mut self, key: &[u8], value: &Word) {
        self.writes.push(Write::Put(key.into(), *value));
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        self.writes.push(Write::Delete(key.into()));
    }

    pub(super) fn delete_prefix(&mut self, prefix: &[u8]) {
        self.writes.push(Write::DeletePrefix(prefix.into()));
    }

    /// The code of this hash, given with the change or known before.
    pub(super) fn code(
        &mut self,
        address: Address,
        hash: B256,
        given: Option<&Bytes>,
    ) -> Result<Bytes, EmbedError> {
        if let Some(code) = given {
            let found = alloy_primitives::keccak256(code);
            if found != hash {
                return Err(EmbedError::CodeHash { address, expected: hash, found });
            }
            if !code.is_empty() {
                self.metadata.codes.insert(hash, code.clone());
            }
            return Ok(code.clone());
        }
        if let Some(code) = self.metadata.codes.get(&hash) {
            return Ok(code.clone());
        }
        self.view.code(&hash)?.ok_or(EmbedError::CodeUnknown { address, hash })
    }
}
