//! Trees of the same state in the same store and the same commits: beside the Merkle Patricia trie,
//! or without it.
//!
//! Invariants:
//! - all trees of a store are of one block, and one write set commits all of them;
//! - a tree has one layer a block, however many the block had: it is given what the block did in
//!   the end. What was applied outside of a block is given as one layer when it is committed;
//! - each layer that may have to be taken back knows the leaves that it changed;
//! - without a Merkle Patricia trie reads see what was applied since the last sealed block, then
//!   the state of that block in one of the trees. Where that is a tree in which slots stay when
//!   their account goes, no account is made again over them, so that what is read is what was
//!   written.

use std::time::Duration;

use alloy_primitives::{Address, B256, U256};
use spinney_tree::{BlockId, CommitStats, PageStore, SchemeId, TreeId};

use crate::embed::{EmbedError, EmbeddedTree, Embedding};
use crate::error::StateError;
use crate::mpt_entries::{MPT, account_after};
use crate::mpt_state::State;
use crate::secondary::{Preparing, SecondaryTree, StateTree, beside_error};
use crate::{Account, AccountChange, Change, Changes};

/// A tree of a state: see [`State::trees`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeReport {
    /// Its id in the store.
    pub id: TreeId,
    /// Its kind and hash.
    pub scheme: SchemeId,
    /// Its root, of all that was applied; of any but the Merkle Patricia trie, as of the last block
    /// sealed.
    pub root: B256,
    /// What the commits since it was opened wrote.
    pub written: CommitStats,
    /// Time spent on batches and roots.
    pub apply: Duration,
    /// Time spent on pages.
    pub encode: Duration,
}

impl<P: PageStore> State<P> {
    /// Keeps the state in one tree more from now on: it gets what each block does, and is committed
    /// and taken back along with the others. Into a store that holds a state already it can be
    /// added only if it is there, at the same block. `cache_bytes` bounds its pages in memory.
    ///
    /// ```
    /// # use alloy_primitives::{Address, U256};
    /// # use spinney_state::{AccountChange, Change, Changes, State};
    /// # use spinney_tree::{BlockId, HashFunction, MemoryStore, pbt::Pbt};
    /// let mut state = State::open(MemoryStore::new(), 1 << 20)?;
    /// state.add_tree(Pbt { hash: HashFunction::Blake3 }, 1 << 20)?;
    /// let rich = AccountChange { balance: Some(U256::from(5)), ..AccountChange::default() };
    /// let changes = Changes { accounts: [(Address::ZERO, Change::Written(rich))].into() };
    /// state.apply(&changes)?;
    /// state.seal(BlockId::default())?;
    /// state.commit()?;
    /// let [mpt, pbt] = state.trees()[..] else { unreachable!("two trees") };
    /// assert_eq!(mpt.root, state.root());
    /// assert_eq!(pbt.scheme.to_string(), "pbt:blake3");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If it is not of the same block as the rest, or the store holds something else or is damaged.
    ///
    /// # Panics
    /// If something was applied already, or a tree of this kind was added.
    pub fn add_tree<S>(&mut self, scheme: S, cache_bytes: usize) -> Result<(), StateError>
    where
        S: Embedding + Send,
        S::Commit: Send,
    {
        assert_eq!(self.layer_count(), 0, "trees are added before anything is applied");
        let (id, kind) = (S::TREE, scheme.id());
        let beside = &self.secondary.members;
        assert!(beside.iter().all(|member| member.id != id), "{kind} was added already");
        let tree = EmbeddedTree::open(scheme, &self.store.snapshot()?, cache_bytes);
        let tree = tree.map_err(beside_error(kind))?;
        let tree: Box<dyn StateTree<P>> = Box::new(Preparing { tree, prepared: None });
        let first = self.first_scheme();
        let head = if first.is_some() { self.head() } else { tree.head() };
        let is_new = |(commits, _)| commits == 0;
        if (is_new(head), head.1) != (is_new(tree.head()), tree.head().1) {
            let at = |(commits, block): (u64, Option<BlockId>)| (commits > 0).then_some(block);
            let (found, expected) = (at(tree.head()), at(head));
            let first = first.unwrap_or(kind);
            return Err(StateError::OtherBlock { tree: kind, first, found, expected });
        }
        self.secondary.unregistered.remove(&id);
        let beside = &mut self.secondary.members;
        let (written, prepared) = Default::default();
        let at = beside.partition_point(|member| member.id < id);
        let (apply, encode) = Default::default();
        let member = SecondaryTree { id, scheme: kind, tree, written, prepared, apply, encode };
        beside.insert(at, member);
        Ok(())
    }

    /// The id of the tree that is read.
    pub(crate) fn first_id(&self) -> TreeId {
        match &self.mpt {
            None => self.secondary.main().map_or(MPT, |main| main.id),
            Some(_) => MPT,
        }
    }

    /// Which tree came first, if any did.
    fn first_scheme(&self) -> Option<SchemeId> {
        let mpt = self.mpt.as_ref().map(spinney_tree::Tree::scheme_id);
        mpt.or_else(|| self.secondary.main().map(|main| main.scheme))
    }

    /// The trees of the state, in order of their ids: the Merkle Patricia trie is the first one, if
    /// it is there.
    pub fn trees(&self) -> Vec<TreeReport> {
        let times = self.times();
        let mpt = self.mpt.as_ref().map(|mpt| TreeReport {
            id: MPT,
            scheme: mpt.scheme_id(),
            root: self.root(),
            written: self.written(),
            apply: times.tree,
            encode: times.encode,
        });
        let beside = self.secondary.members.iter().map(|member| TreeReport {
            id: member.id,
            scheme: member.scheme,
            root: member.tree.root(),
            written: member.written,
            apply: member.apply,
            encode: member.encode,
        });
        mpt.into_iter().chain(beside).collect()
    }

    /// Gives the trees beside what layers did, as one layer.
    pub(crate) fn feed(&mut self, first: usize, undo: bool) -> Result<(), StateError> {
        if self.secondary.are_none() {
            return Ok(());
        }
        let mut changes = Changes::default();
        for layer in &self.layers[first..] {
            changes.then(layer.changes.as_ref().expect("kept until it is committed"));
        }
        if self.mpt.is_none() {
            self.check_remains(&changes)?;
        }
        self.secondary.apply(&self.store, &changes, undo, self.sealed.len())
    }

    /// Refuses to make an account again over slots that would be its own.
    fn check_remains(&self, changes: &Changes) -> Result<(), StateError> {
        let Some(SecondaryTree { tree, scheme, .. }) = self.secondary.main() else { return Ok(()) };
        if !tree.keeps_slots() {
            return Ok(());
        }
        for (address, change) in &changes.accounts {
            if !matches!(change, Change::Written(change) if !change.fresh) {
                continue;
            }
            let remains = || {
                let there = tree.account(&self.store, *address)?.is_some();
                Ok(!there && tree.holds_slots(&self.store, *address)?)
            };
            if remains().map_err(beside_error(*scheme))? {
                return Err(StateError::Remains { address: *address, tree: *scheme });
            }
        }
        Ok(())
    }

    /// What the layers since the last sealed block did to an account, the newest first.
    fn unsealed(&self, address: Address) -> impl Iterator<Item = &Change> {
        let first = self.sealed.last().map_or(0, |(layers, _)| *layers);
        let changes = self.layers[first..].iter().rev().filter_map(|layer| layer.changes.as_ref());
        changes.filter_map(move |changes| changes.accounts.get(&address))
    }

    /// Asks the tree that is read, where there is no Merkle Patricia trie.
    fn of_main<T>(
        &self,
        ask: impl FnOnce(&dyn StateTree<P>, &P) -> Result<T, EmbedError>,
    ) -> Result<T, StateError> {
        let none = || StateError::NoMpt { held: Vec::new() };
        let main = self.secondary.main().ok_or_else(none)?;
        ask(&*main.tree, &self.store).map_err(beside_error(main.scheme))
    }

    pub(crate) fn account_without_mpt(
        &self,
        address: Address,
    ) -> Result<Option<Account>, StateError> {
        // Fields that later layers did not name come from earlier ones.
        let mut later: Vec<&AccountChange> = Vec::new();
        let mut account = None;
        let mut below = true;
        for change in self.unsealed(address) {
            match change {
                Change::Deleted => below = false,
                Change::Written(change) => {
                    later.push(change);
                    below = !change.fresh;
                }
            }
            if !below {
                break;
            }
        }
        if below {
            account = self.of_main(|tree, store| tree.account(store, address))?;
        }
        for change in later.into_iter().rev() {
            account = Some(account_after(change, account).0);
        }
        Ok(account)
    }

    pub(crate) fn storage_without_mpt(
        &self,
        address: Address,
        slot: B256,
    ) -> Result<U256, StateError> {
        for change in self.unsealed(address) {
            match change {
                Change::Deleted => return Ok(U256::ZERO),
                Change::Written(change) => match change.storage.get(&slot) {
                    Some(value) => return Ok(*value),
                    None if change.fresh => return Ok(U256::ZERO),
                    None => {}
                },
            }
        }
        self.of_main(|tree, store| tree.storage(store, address, slot))
    }

    /// Slots that were set since the last sealed block count, those that were cleared since may
    /// too: who asks wants to know of accounts without code, whose slots nothing can clear.
    pub(crate) fn has_storage_without_mpt(&self, address: Address) -> Result<bool, StateError> {
        for change in self.unsealed(address) {
            let Change::Written(change) = change else { return Ok(false) };
            if change.storage.values().any(|value| !value.is_zero()) {
                return Ok(true);
            }
            if change.fresh {
                return Ok(false);
            }
        }
        self.of_main(|tree, store| {
            Ok(tree.account(store, address)?.is_some() && tree.holds_slots(store, address)?)
        })
    }
}

impl Changes {
    /// How many accounts and slots they name.
    ///
    /// ```
    /// # use alloy_primitives::{Address, B256, U256};
    /// # use spinney_state::{AccountChange, Change, Changes};
    /// let storage = [(B256::ZERO, U256::from(1))].into();
    /// let change = Change::Written(AccountChange { storage, ..AccountChange::default() });
    /// assert_eq!(Changes { accounts: [(Address::ZERO, change)].into() }.count(), 2);
    /// ```
    pub fn count(&self) -> u64 {
        let slots = |change: &Change| match change {
            Change::Deleted => 0,
            Change::Written(change) => change.storage.len() as u64,
        };
        self.accounts.values().map(|change| 1 + slots(change)).sum()
    }

    /// Takes up what comes after: the two together do what they do one after the other.
    ///
    /// ```
    /// # use alloy_primitives::{Address, U256};
    /// # use spinney_state::{AccountChange, Change, Changes};
    /// let written = |nonce| AccountChange { nonce: Some(nonce), ..AccountChange::default() };
    /// let one = |change| Changes { accounts: [(Address::ZERO, change)].into() };
    /// let mut changes = one(Change::Deleted);
    /// changes.then(&one(Change::Written(written(1))));
    /// let again = AccountChange { fresh: true, ..written(1) };
    /// assert_eq!(changes, one(Change::Written(again)));
    /// ```
    pub fn then(&mut self, later: &Self) {
        for (address, later) in &later.accounts {
            let Some(change) = self.accounts.get_mut(address) else {
                self.accounts.insert(*address, later.clone());
                continue;
            };
            let Change::Written(new) = later else {
                *change = Change::Deleted;
                continue;
            };
            match change {
                Change::Written(old) if !new.fresh => {
                    old.nonce = new.nonce.or(old.nonce);
                    old.balance = new.balance.or(old.balance);
                    if new.code_hash.is_some() {
                        (old.code_hash, old.code) = (new.code_hash, new.code.clone());
                    }
                    old.storage.extend(&new.storage);
                }
                // It went, with all it had.
                _ => {
                    let mut new = new.clone();
                    new.fresh = true;
                    *change = Change::Written(new);
                }
            }
        }
    }
}
