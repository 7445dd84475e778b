//! What an event does in the trees of stems, the unified binary tree and the Verkle tree. They
//! differ in how a stem is hashed, and in nothing else.

use std::collections::BTreeSet;

use alloy_primitives::{Address, B256};
use spinney_proof::embed::Odd;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{PageStore, TreeId};

use super::embedding::sealed::Rules;
use super::embedding::{Embedding, Leaves, Plan, UBT, VERKLE, View};
use super::error::EmbedError;
use super::layers::stem_key;
use super::rules::{ZEROS, account, balance, changed, code_size};
use super::verkle::KnownKeys;
use super::{BasicData, Word, chunkify, ubt};
use crate::{Account, Change};

/// A tree in which accounts are positions, and 256 of them a stem.
pub trait Stems: Embedding {
    /// The stem of `tree_index`, positions divided by 256.
    fn stem(&self, memo: &Self::Memo, address: &Address, tree_index: &Word) -> [u8; 31];
}

impl Stems for Ubt {
    fn stem(&self, _: &(), address: &Address, tree_index: &Word) -> [u8; 31] {
        ubt::stem(self.hash, address, tree_index)
    }
}

impl Stems for Verkle {
    fn stem(&self, known: &KnownKeys, address: &Address, tree_index: &Word) -> [u8; 31] {
        known.stem(self.crs(), address, tree_index)
    }
}

/// The rules of a tree of stems.
macro_rules! rules_of_stems {
    ($tree:ty, $id:expr, $memo:ty) => {
        impl Embedding for $tree {
            const TREE: TreeId = $id;

            fn read_account(
                &self,
                address: &Address,
                leaves: &[Option<Word>],
            ) -> Result<Option<(Account, u32)>, EmbedError> {
                read(leaves).map_err(|Odd| EmbedError::malformed(&self.account_keys(address)[0]))
            }
        }

        impl Rules for $tree {
            type Memo = $memo;

            const SHARES_CODE: bool = false;

            const KEEPS_SLOTS: bool = true;

            fn holds_slots<P: PageStore>(
                &self,
                view: &View<'_, Self, P>,
                address: &Address,
            ) -> Result<bool, EmbedError> {
                for index in view.slot_stems(address)? {
                    let stem = self.stem(view.memo, address, &index);
                    if view.has_value(&stem, |key| is_slot(&index, key[31]))? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }

            fn has_leaf(_: &Word) -> bool {
                true
            }

            fn header_by(
                &self,
                memo: &$memo,
                address: &Address,
                account: &Account,
                code_size: u32,
                _: Option<&[u8]>,
            ) -> Result<Leaves, EmbedError> {
                let leaves = header(self.stem(memo, address, &ZEROS), address, account, code_size)?;
                Ok(leaves.map(|(key, value)| (key.to_vec(), value)).into())
            }

            fn slot_note(address: &Address, slot: &B256) -> Option<Vec<u8>> {
                let (index, _) = ubt::slot_position(slot);
                (index != ZEROS).then(|| stem_key($id, address, &index))
            }

            fn account_keys_by(&self, memo: &$memo, address: &Address) -> Vec<Vec<u8>> {
                let stem = self.stem(memo, address, &ZEROS);
                [ubt::BASIC_DATA, ubt::CODE_HASH].map(|place| ubt::key(stem, place).to_vec()).into()
            }

            fn slot_key_by(&self, memo: &$memo, address: &Address, slot: &B256) -> Vec<u8> {
                let (index, place) = ubt::slot_position(slot);
                ubt::key(self.stem(memo, address, &index), place).to_vec()
            }

            fn chunk_key_by(
                &self,
                memo: &$memo,
                address: &Address,
                _: &B256,
                chunk: u32,
            ) -> Vec<u8> {
                let (index, place) = ubt::chunk_position(chunk);
                ubt::key(self.stem(memo, address, &index), place).to_vec()
            }

            fn plan<P: PageStore>(
                plan: &mut Plan<'_, Self, P>,
                address: Address,
                change: &Change,
            ) -> Result<(), EmbedError> {
                apply(plan, address, change)
            }
        }
    };
}

rules_of_stems!(Ubt, UBT, ());
rules_of_stems!(Verkle, VERKLE, KnownKeys);

/// Whether a slot lies at a place of the stem of a tree index that has slots.
fn is_slot(index: &Word, place: u8) -> bool {
    *index != ZEROS || (ubt::HEADER_STORAGE..ubt::CODE).contains(&place)
}

/// The leaves of an account's header; `Odd` if they are none.
fn read(leaves: &[Option<Word>]) -> Result<Option<(Account, u32)>, Odd> {
    let header = ubt::read_header(leaves)?;
    let account = |data, code_hash: Word| account(data, code_hash.into());
    Ok(header.map(|header| (account(header.data, header.code_hash), header.data.code_size)))
}

/// The leaves of an account's header.
fn header(
    stem: [u8; 31],
    address: &Address,
    account: &Account,
    code_size: u32,
) -> Result<[(Word, Word); 2], EmbedError> {
    let balance = balance(*address, account)?;
    let data = BasicData { code_size, nonce: account.nonce, balance };
    Ok([
        (ubt::key(stem, ubt::BASIC_DATA), data.encode()),
        (ubt::key(stem, ubt::CODE_HASH), account.code_hash.0),
    ])
}

fn apply<S: Stems, P: PageStore>(
    plan: &mut Plan<'_, S, P>,
    address: Address,
    change: &Change,
) -> Result<(), EmbedError> {
    let held = plan.view.account(plan.scheme, &address)?;
    let old = held.map(|(account, _)| account);
    let stem = plan.stem(&address, &ZEROS);
    let change = match change {
        Change::Written(change) => change,
        Change::Deleted => {
            if old.is_some() {
                plan.put(&ubt::key(stem, ubt::BASIC_DATA), &ZEROS);
                plan.put(&ubt::key(stem, ubt::CODE_HASH), &ZEROS);
            }
            return Ok(());
        }
    };
    let base = old.filter(|_| !change.fresh);
    let new = changed(base, change);
    if old != Some(new) || change.fresh {
        let code = if base.is_some_and(|base| base.code_hash == new.code_hash) {
            None
        } else {
            Some(plan.code(address, new.code_hash, change.code.as_ref())?)
        };
        let code_size = match &code {
            Some(code) => code_size(address, code)?,
            None => held.map_or(0, |(_, code_size)| code_size),
        };
        for (key, value) in header(stem, &address, &new, code_size)? {
            plan.put(&key, &value);
        }
        // Chunks of longer code that was there stay, as in geth.
        let mut chunks = (ZEROS, stem);
        for (chunk, bytes) in (0..).zip(chunkify(&code.unwrap_or_default())) {
            let (index, place) = ubt::chunk_position(chunk);
            if chunks.0 != index {
                chunks = (index, plan.stem(&address, &index));
            }
            plan.put(&ubt::key(chunks.1, place), &bytes);
        }
    }
    let mut written = BTreeSet::new();
    for (slot, value) in &change.storage {
        let (index, place) = ubt::slot_position(slot);
        let key = ubt::key(plan.stem(&address, &index), place);
        let known = plan.view.get(&key)?.is_some();
        // Zeros stand for a slot that was there; one that never was is absent.
        if known || !value.is_zero() {
            plan.put(&key, &value.to_be_bytes());
            written.insert(key);
        }
        let stem = (address, index);
        if !known && !value.is_zero() && index != ZEROS && !plan.view.has_stem(&stem)? {
            plan.metadata.stems.insert(stem);
        }
    }
    if change.fresh {
        plan.zero_slots(&address, &written)?;
    }
    Ok(())
}

impl<S: Stems, P: PageStore> Plan<'_, S, P> {
    fn stem(&self, address: &Address, tree_index: &Word) -> [u8; 31] {
        self.scheme.stem(self.view.memo, address, tree_index)
    }

    /// Puts zeros to every slot known of an account, but for those in `written`.
    fn zero_slots(
        &mut self,
        address: &Address,
        written: &BTreeSet<Word>,
    ) -> Result<(), EmbedError> {
        for index in self.view.slot_stems(address)? {
            let stem = self.stem(address, &index);
            for (place, value) in self.view.stem(&stem)? {
                let key = ubt::key(stem, place);
                if is_slot(&index, place) && value != ZEROS && !written.contains(&key) {
                    self.put(&key, &ZEROS);
                }
            }
        }
        Ok(())
    }
}
