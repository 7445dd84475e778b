//! A converted tree that follows its chain, without execution.
//!
//! One durable base, of the last block that is final, and a layer for each block above it. An
//! access list cannot be inverted: what a reorganisation leaves behind is dropped, layer by layer.
//! Roots are known by the hash of their block, since a number may stand for several.

use alloy_primitives::{B256, keccak256};
use spinney_state::embed::{BinaryState, EmbedError};
use spinney_state::{Change, StateRead as _};
use spinney_tree::pbt::Pbt;
use spinney_tree::{BlockId, PageStore, WriteSet};

use crate::bal::{AccessList, ListError};
use crate::names::{put_account, put_slot};

/// Why a block was refused. Nothing of it was applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatchUpError {
    /// The block is not one that could follow.
    #[error(
        "block {number} ({hash}) follows {parent}, which is none of the blocks {base} to \
         {head} that are known"
    )]
    Stranger {
        /// Its number.
        number: u64,
        /// Its hash.
        hash: B256,
        /// The hash of its parent.
        parent: B256,
        /// The block of the last commit.
        base: u64,
        /// The newest block.
        head: u64,
    },
    /// Its access list is refused.
    #[error("block {number}: {source}")]
    List {
        /// Its number.
        number: u64,
        /// Why.
        source: ListError,
    },
    /// The tree refused or failed.
    #[error("block {number}: {source}")]
    Tree {
        /// The block.
        number: u64,
        /// What it says.
        source: EmbedError,
    },
    /// The store names no block whose state it holds, or not its hash, which the next block names.
    #[error("the store does not say which block its state is of, by number and hash")]
    NoBlock,
}

/// A block that is caught up with.
#[derive(Clone, Copy, Debug)]
pub struct ListedBlock<'a> {
    /// Its number and hash.
    pub id: BlockId,
    /// The hash of its parent.
    pub parent: B256,
    /// The RLP of its access list.
    pub list: &'a [u8],
    /// The hash of the list, as the header has it.
    pub list_hash: B256,
}

/// A block above the base.
#[derive(Debug)]
struct Shadow {
    id: BlockId,
    root: B256,
    /// The preimages of what it wrote.
    names: WriteSet,
}

/// A partitioned binary tree that follows its chain.
#[derive(Debug)]
pub struct CatchUp<P: PageStore> {
    state: BinaryState<Pbt, P>,
    base: BlockId,
    shadows: Vec<Shadow>,
}

impl<P: PageStore> CatchUp<P> {
    /// Begins at the block of the store's last commit. `cache_bytes` bounds the pages in memory.
    ///
    /// # Errors
    /// If the store holds no such tree or does not say of which block, or is damaged.
    pub fn open(scheme: Pbt, store: P, cache_bytes: usize) -> Result<Self, CatchUpError> {
        let opened = BinaryState::open(scheme, store, cache_bytes);
        let state = opened.map_err(|source| CatchUpError::Tree { number: 0, source })?;
        let block = state.tree().block().filter(|block| block.hash != [0; 32]);
        let base = block.ok_or(CatchUpError::NoBlock)?;
        Ok(Self { state, base, shadows: Vec::new() })
    }

    /// The block of the last commit.
    pub const fn base(&self) -> BlockId {
        self.base
    }

    /// The newest block.
    pub fn head(&self) -> BlockId {
        self.shadows.last().map_or(self.base, |shadow| shadow.id)
    }

    /// The root after the newest block.
    pub fn root(&self) -> B256 {
        self.state.root()
    }

    /// How many blocks lie above the base.
    pub const fn layers(&self) -> usize {
        self.shadows.len()
    }

    /// The root after a block, the base or one above it.
    pub fn root_of(&self, hash: B256) -> Option<B256> {
        if hash == B256::from(self.base.hash) {
            return Some(self.state.tree().root().into());
        }
        self.shadows.iter().find(|shadow| hash == shadow.id.hash).map(|shadow| shadow.root)
    }

    /// The newest block that has more than so many above it.
    pub fn at_depth(&self, depth: usize) -> Option<B256> {
        let at = self.shadows.len().checked_sub(depth + 1)?;
        Some(self.shadows[at].id.hash.into())
    }

    /// The state, to be read.
    pub const fn state(&self) -> &BinaryState<Pbt, P> {
        &self.state
    }

    /// Gives the store back; blocks above the base are gone.
    pub fn into_store(self) -> P {
        self.state.into_store()
    }

    /// Applies a block on top of its parent; layers above the parent are dropped. Answers the root
    /// after it.
    ///
    /// # Errors
    /// [`CatchUpError`]: if its parent is neither the base nor above it, its list is not the one
    /// that its header names, or the tree refuses it. A list that is refused leaves all layers as
    /// they were; where the tree refuses, those above the parent are gone.
    pub fn apply(&mut self, block: &ListedBlock<'_>) -> Result<B256, CatchUpError> {
        let number = block.id.number;
        let stranger = || CatchUpError::Stranger {
            number,
            hash: block.id.hash.into(),
            parent: block.parent,
            base: self.base.number,
            head: self.head().number,
        };
        let (parent, layers) = self.find(block.parent).ok_or_else(stranger)?;
        if parent.number.checked_add(1) != Some(number) {
            return Err(stranger());
        }
        let list = AccessList::read(block.list, block.list_hash);
        let list = list.map_err(|source| CatchUpError::List { number, source })?;
        if layers < self.shadows.len() {
            self.state.undo_to(layers);
            self.shadows.truncate(layers);
        }
        let failed = |source| CatchUpError::Tree { number, source };
        let changes = list.changes(|address| self.state.account(address)).map_err(failed)?;
        let root = self.state.apply(&changes).map_err(failed)?;
        let mut names = WriteSet::new();
        for (address, change) in &changes.accounts {
            let Change::Written(change) = change else { continue };
            let account = keccak256(address);
            put_account(&account, address, &mut names);
            for (slot, _) in change.storage.iter().filter(|(_, value)| !value.is_zero()) {
                put_slot(&account, &keccak256(slot), slot, &mut names);
            }
        }
        self.shadows.push(Shadow { id: block.id, root, names });
        Ok(root)
    }

    /// A block, and how many layers there are up to it.
    fn find(&self, hash: B256) -> Option<(BlockId, usize)> {
        if hash == B256::from(self.base.hash) {
            return Some((self.base, 0));
        }
        let at = self.shadows.iter().position(|shadow| hash == shadow.id.hash)?;
        Some((self.shadows[at].id, at + 1))
    }

    /// Makes all blocks up to one durable, in one commit: it is the new base, and nothing before it
    /// can be dropped any more. Blocks above it stay as they are.
    ///
    /// # Errors
    /// If there is no such block above the base, or the store fails.
    pub fn finalise(&mut self, hash: B256) -> Result<(), CatchUpError> {
        let (id, layers) = self.find(hash).ok_or_else(|| CatchUpError::Stranger {
            number: 0,
            hash,
            parent: B256::ZERO,
            base: self.base.number,
            head: self.head().number,
        })?;
        if layers == 0 {
            return Ok(());
        }
        let mut along = WriteSet::new();
        for shadow in &self.shadows[..layers] {
            for (table, key, value) in shadow.names.rows() {
                if let Some(value) = value {
                    along.put(table, key, value);
                }
            }
        }
        let done = self.state.commit_first(layers, Some(id), along);
        done.map_err(|source| CatchUpError::Tree { number: id.number, source })?;
        self.shadows.drain(..layers);
        self.base = id;
        Ok(())
    }
}
