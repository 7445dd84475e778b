//! What a tree says of how Ethereum's state lies in it, what it reads for that, and what it writes.
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
use spinney_tree::{PageStore, Pending, Scheme, Snapshot, Table, Tree, TreeId};

use super::Word;
use super::error::EmbedError;
use super::layers::{EmbeddedLayer, Metadata, Write, stem_key, stems_key, uses_key, uses_row};
use crate::lazy::LazySnapshot;
use crate::leaf_undo::LeafUndo;
use crate::{Account, Change};

/// The id of the unified binary tree in a store of Ethereum state.
pub const UBT: TreeId = TreeId(2);
/// The id of the partitioned binary tree in a store of Ethereum state.
pub const PBT: TreeId = TreeId(3);
/// The id of the Verkle tree in a store of Ethereum state.
pub const VERKLE: TreeId = TreeId(4);

/// Leaves of a tree: keys and values.
pub type Leaves = Vec<(Vec<u8>, Word)>;

/// A tree with an embedding of Ethereum's state: [`Ubt`](spinney_tree::ubt::Ubt),
/// [`Pbt`](spinney_tree::pbt::Pbt) and [`Verkle`](spinney_tree::verkle::Verkle).
///
/// ```
/// use alloy_primitives::{Address, B256};
/// use spinney_state::embed::Embedding;
/// use spinney_tree::{HashFunction::Blake3, pbt::Pbt};
///
/// let pbt = Pbt { hash: Blake3 };
/// let nobody = pbt.account_keys(&Address::ZERO);
/// assert_eq!(nobody.len(), 3);
/// assert_eq!(pbt.read_account(&Address::ZERO, &[None; 3])?, None);
/// assert_eq!(pbt.slot_key(&Address::ZERO, &B256::ZERO)[..33], nobody[0][..33]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub trait Embedding: Scheme<Root = [u8; 32]> + Clone + 'static + sealed::Rules {
    /// The tree's id in a store of Ethereum state.
    const TREE: TreeId;

    /// The keys that say whether there is an account, and its fields.
    fn account_keys(&self, address: &Address) -> Vec<Vec<u8>> {
        self.account_keys_by(&Self::Memo::default(), address)
    }

    /// Reads the leaves under [`account_keys`](Self::account_keys), in their order: the account,
    /// and bytes of its code. `None` where there is no account.
    ///
    /// # Errors
    /// If they are no leaves of an account.
    fn read_account(
        &self,
        address: &Address,
        leaves: &[Option<Word>],
    ) -> Result<Option<(Account, u32)>, EmbedError>;

    /// The key of a slot.
    fn slot_key(&self, address: &Address, slot: &B256) -> Vec<u8> {
        self.slot_key_by(&Self::Memo::default(), address, slot)
    }

    /// The key of a chunk of an account's code.
    fn chunk_key(&self, address: &Address, code_hash: &B256, chunk: u32) -> Vec<u8> {
        self.chunk_key_by(&Self::Memo::default(), address, code_hash, chunk)
    }
}

pub(super) mod sealed {
    use super::{
        Account, Address, B256, Bytes, Change, EmbedError, Leaves, PageStore, Plan, View, Word,
    };

    /// What differs between the embeddings.
    pub trait Rules: Sized {
        /// What is worth remembering of keys that were computed.
        type Memo: Default + std::fmt::Debug + Send + Sync;

        /// Whether accounts of the same code share its leaves.
        const SHARES_CODE: bool;

        /// Whether slots stay when their account goes.
        const KEEPS_SLOTS: bool;

        /// Whether there is any slot under an address that is not zero, be the account there or
        /// not.
        fn holds_slots<P: PageStore>(
            &self,
            view: &View<'_, Self, P>,
            address: &Address,
        ) -> Result<bool, EmbedError>
        where
            Self: super::Embedding;

        /// Whether a value is a leaf: zeros are none where leaves go.
        fn has_leaf(value: &Word) -> bool;

        /// The leaves of an account's fields.
        fn header_by(
            &self,
            memo: &Self::Memo,
            address: &Address,
            account: &Account,
            code_size: u32,
            delegation: Option<&[u8]>,
        ) -> Result<Leaves, EmbedError>;

        /// Whether code lies among an account's fields.
        fn delegates(&self, _code: &[u8]) -> bool {
            false
        }

        /// The code that lies among an account's fields, as they have it.
        fn delegation_of(&self, _leaves: &[Option<Word>]) -> Option<Bytes> {
            None
        }

        /// What `meta` has to know of a slot.
        fn slot_note(_address: &Address, _slot: &B256) -> Option<Vec<u8>> {
            None
        }

        fn account_keys_by(&self, memo: &Self::Memo, address: &Address) -> Vec<Vec<u8>>;

        fn slot_key_by(&self, memo: &Self::Memo, address: &Address, slot: &B256) -> Vec<u8>;

        fn chunk_key_by(
            &self,
            memo: &Self::Memo,
            address: &Address,
            code_hash: &B256,
            chunk: u32,
        ) -> Vec<u8>;

        /// Adds what an account's change does to the batch.
        fn plan<P: PageStore>(
            plan: &mut Plan<'_, Self, P>,
            address: Address,
            change: &Change,
        ) -> Result<(), EmbedError>
        where
            Self: super::Embedding;

        /// Adds what all changes do together.
        fn finish<P: PageStore>(_: &mut Plan<'_, Self, P>) -> Result<(), EmbedError>
        where
            Self: super::Embedding,
        {
            Ok(())
        }
    }
}

/// The state that changes apply to: the last commit, and the layers above it.
#[expect(missing_debug_implementations, reason = "named by a sealed trait, and out of reach")]
pub struct View<'a, S: Embedding, P: PageStore> {
    pub(super) tree: &'a Tree<S>,
    pub(super) layers: &'a [EmbeddedLayer<S>],
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
