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

use alloy_primitives::{Address, B256, Bytes};
use spinney_tree::{Batch, Pending, Scheme, Table, TreeId, WriteSet};

use super::Word;
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
pub(super) struct EmbeddedLayer<S: Scheme> {
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

pub(super) fn stems_key(tree: TreeId, address: &Address) -> Vec<u8> {
    [&tree.0.to_be_bytes()[..], b"s", address.as_slice()].concat()
}

pub(super) fn stem_key(tree: TreeId, address: &Address, index: &Word) -> Vec<u8> {
    [&stems_key(tree, address)[..], index].concat()
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
