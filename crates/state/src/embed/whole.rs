//! Accounts that are given whole, as leaves: for whoever builds a tree without a state to change,
//! or reads one back by its preimages.

use std::collections::HashMap;
use std::hash::BuildHasher;

use alloy_primitives::{Address, B256, Bytes};
use spinney_tree::{Scheme, WriteSet};

use super::embedding::{Embedding, Leaves};
use super::error::EmbedError;
use super::layers::{put_note, uses_key, uses_row};
use super::{Word, chunkify};
use crate::Account;

/// Where an account, its slots and its code lie in a tree. What is worth remembering of keys is.
///
/// ```
/// use alloy_primitives::Address;
/// use spinney_state::{Account, embed::Whole};
/// use spinney_tree::{HashFunction::Blake3, pbt::Pbt};
///
/// let whole = Whole::new(Pbt { hash: Blake3 });
/// // An empty account is its code hash alone: a leaf of zeros is none.
/// assert_eq!(whole.header(&Address::ZERO, &Account::EMPTY, 0, None)?.len(), 1);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Whole<S: Embedding> {
    scheme: S,
    memo: S::Memo,
}

impl<S: Embedding> Whole<S> {
    /// Whether accounts of the same code share its leaves.
    pub const SHARES_CODE: bool = S::SHARES_CODE;

    /// Nothing is remembered yet.
    pub fn new(scheme: S) -> Self {
        Self { scheme, memo: S::Memo::default() }
    }

    /// The tree's kind and hash.
    pub const fn scheme(&self) -> &S {
        &self.scheme
    }

    /// The keys that say whether there is an account, and its fields.
    pub fn account_keys(&self, address: &Address) -> Vec<Vec<u8>> {
        self.scheme.account_keys_by(&self.memo, address)
    }

    /// The leaves of an account's fields: those under [`account_keys`](Self::account_keys) that are
    /// there. `delegation` is the account's code if it delegates, see
    /// [`delegation`](Self::delegation).
    ///
    /// # Errors
    /// If a field does not fit the tree.
    pub fn header(
        &self,
        address: &Address,
        account: &Account,
        code_size: u32,
        delegation: Option<&[u8]>,
    ) -> Result<Leaves, EmbedError> {
        self.scheme.header_by(&self.memo, address, account, code_size, delegation)
    }

    /// Code that lies among an account's fields, and not in chunks: that of a delegation, in a PBT.
    pub fn delegation<'c>(&self, code: &'c [u8]) -> Option<&'c [u8]> {
        self.scheme.delegates(code).then_some(code)
    }

    /// The same, from the leaves under [`account_keys`](Self::account_keys).
    pub fn delegation_of(&self, leaves: &[Option<Word>]) -> Option<Bytes> {
        self.scheme.delegation_of(leaves)
    }

    /// The leaves of code in chunks.
    pub fn code(&self, address: &Address, code_hash: &B256, code: &[u8]) -> Leaves {
        let chunks = self.chunk_keys(address, code_hash).zip(chunkify(code));
        chunks.filter(|(_, value)| S::has_leaf(value)).collect()
    }

    /// The keys of chunks of an account's code, from the first one on.
    pub fn chunk_keys(
        &self,
        address: &Address,
        code_hash: &B256,
    ) -> impl Iterator<Item = Vec<u8>> + use<'_, S> {
        let (address, code_hash) = (*address, *code_hash);
        let mut last: Option<Vec<u8>> = None;
        (0..).map(move |chunk| {
            // Chunks lie side by side, up to the end of a group or a stem.
            let beside = last.take().and_then(|mut key| {
                let place = key.last_mut()?;
                *place = place.checked_add(1)?;
                Some(key)
            });
            let fresh = || self.scheme.chunk_key_by(&self.memo, &address, &code_hash, chunk);
            let key = beside.unwrap_or_else(fresh);
            last = Some(key.clone());
            key
        })
    }

    /// The key of a slot.
    pub fn slot_key(&self, address: &Address, slot: &B256) -> Vec<u8> {
        self.scheme.slot_key_by(&self.memo, address, slot)
    }

    /// Notes that a slot has a value, where the tree has to know that.
    pub fn note_slot(&self, address: &Address, slot: &B256, set: &mut WriteSet) {
        if let Some(key) = S::slot_note(address, slot) {
            put_note(set, &key, Some(Vec::new()));
        }
    }

    /// Notes how many accounts use each code, where the tree has to know that.
    pub fn note_uses<H: BuildHasher>(&self, uses: &HashMap<B256, u64, H>, set: &mut WriteSet) {
        if S::SHARES_CODE {
            for (hash, uses) in uses {
                put_note(set, &uses_key(S::TREE, hash), uses_row(*uses));
            }
        }
    }

    /// The name of the tree, for messages.
    pub fn name(&self) -> String {
        Scheme::id(&self.scheme).to_string()
    }
}
