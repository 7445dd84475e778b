use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::{Address, B256};
use spinney_state::{Changes, StateRead};

use crate::witness::BlockReads;

/// The state that a replay drives. Reads see all that has been applied so far.
///
/// A replay stacks what it applies: one layer a block, or, before Byzantium, one a transaction and
/// one for the rewards. A block that turns out to be bad is taken back by [`undo_to`]; a good one
/// is closed by [`seal`]; and now and then all sealed blocks are made durable by [`commit`].
///
/// [`undo_to`]: Self::undo_to
/// [`seal`]: Self::seal
/// [`commit`]: Self::commit
pub trait WorldState: StateRead {
    /// Puts a layer of changes on top of all applied so far, and returns the root of the Merkle
    /// Patricia trie, or anything where the state [has none](Self::own_root). Called with no
    /// changes too; the layer counts all the same. A refused layer has changed nothing.
    fn apply(&mut self, changes: &Changes) -> Result<B256, Self::Error>;

    /// Puts the last layer of a block on top of all applied so far. `root` is the one that the
    /// block's header, or whoever tells of it, gives. A state that gathers blocks answers with it,
    /// with zeros where there is none, and looks whether it is right when it
    /// [commits](Self::commit); any other answers with its own.
    fn apply_last(&mut self, changes: &Changes, root: Option<B256>) -> Result<B256, Self::Error> {
        let _ = root;
        self.apply(changes)
    }

    /// The root of the tree that a state without a Merkle Patricia trie has, as of the last sealed
    /// block; `None` of a state with such a trie. With it nothing is compared with the state roots
    /// of headers, nor, before Byzantium, with the roots of receipts, which have state roots in
    /// them.
    fn own_root(&self) -> Option<B256> {
        None
    }

    /// Whether a state that gathers blocks has gathered as much as it was to: then it is to commit.
    fn is_full(&self) -> bool {
        false
    }

    /// How many layers lie above the last commit.
    fn layer_count(&self) -> usize;

    /// Takes back the newest layers until `layer_count` are left, also those of a block that was
    /// just sealed.
    fn undo_to(&mut self, layer_count: usize) -> Result<(), Self::Error>;

    /// Ends a block: all layers since the last sealed block are its layers, and it has been
    /// checked. They may be merged into one.
    fn seal(&mut self, block: &SealedBlock<'_>) -> Result<(), Self::Error>;

    /// Whether the account has any slot that is not zero: no contract is made over it (EIP-7610).
    fn has_storage(&self, address: Address) -> Result<bool, Self::Error>;

    /// The slots of an account that are not zero, if the state can list them by themselves.
    fn slots(&self, address: Address) -> Result<Option<Vec<B256>>, Self::Error> {
        let _ = address;
        Ok(None)
    }

    /// Told of each account whose code a transaction or a system call read, with the code's hash.
    /// `written` says that the block itself has written that code before. Of use to those who note
    /// what is read; code that is read is asked for by its hash all the same.
    fn code_read(&self, address: Address, hash: B256, written: bool) {
        let _ = (address, hash, written);
    }

    /// The root of another tree that the state keeps, by its name, as of the last sealed block. A
    /// state that keeps none has no such root.
    fn tree_root(&self, tree: &str) -> Option<B256> {
        let _ = tree;
        None
    }

    /// Makes all sealed blocks durable, at once or not at all. No layer is left afterwards. Over a
    /// store that [writes behind](spinney_tree::PageStore::settle) they are durable once it has
    /// settled.
    fn commit(&mut self) -> Result<(), Self::Error>;

    /// Time spent on reads so far, where the state counts it apart.
    fn read_time(&self) -> Duration {
        Duration::ZERO
    }

    /// How many commits are not durable yet.
    fn unsettled(&self) -> usize {
        0
    }

    /// Waits until all that was committed is durable.
    fn settle(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// The last commit of a state, read beside it while it goes on.
pub trait CommittedState: StateRead {
    /// Goes on to the last commit, and answers the number of its block. Later answers are of this
    /// commit or of one behind it.
    fn refresh(&self) -> Option<u64>;
}

/// A block that has been executed and checked.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SealedBlock<'a> {
    /// Its number.
    pub number: u64,
    /// Its hash; `None` where only a state difference is known.
    pub hash: Option<B256>,
    /// The root of the state afterwards.
    pub state_root: B256,
    /// All that it did to the state, over all of its layers.
    pub changes: &'a Changes,
    /// What it read, where that is [noted](crate::Replay::keep_reads).
    pub reads: Option<&'a Arc<BlockReads>>,
}

impl<'a> SealedBlock<'a> {
    /// Names a block, for those who apply changes without a [`Replay`](crate::Replay).
    pub fn new(number: u64, hash: Option<B256>, state_root: B256, changes: &'a Changes) -> Self {
        Self { number, hash, state_root, changes, reads: None }
    }
}
