//! A tree in a store, as it is measured.

use std::time::{Duration, Instant};

use alloy_primitives::{Address, B256, keccak256};
use spinney_state::embed::{BinaryState, Embedding};
use spinney_state::{Changes, KeepHistory, Mark, State, StateRead};
use spinney_store::AnyStore;
use spinney_tree::mpt::PathNodes;
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{
    BlockId, CommitStats, HashFunction, KeyProofs, Operation, SharedStore, TreeCosts,
};

use crate::input::{Block, Touched};

/// A tree that holds a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateTree {
    /// The Merkle Patricia trie.
    Mpt,
    /// The unified binary tree of EIP-7864.
    Ubt(HashFunction),
    /// The partitioned binary tree of EIP-8297.
    Pbt(HashFunction),
    /// The Verkle tree of EIP-6800.
    Verkle,
}

/// Where the time of a tree went so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) keys: Duration,
    pub(crate) encode: Duration,
    pub(crate) store: Duration,
}

/// What is asked of a tree, whatever it is.
pub(crate) trait Subject {
    /// Applies a part of the first state, which [`keep`](Self::keep) commits.
    fn fill(&mut self, changes: &Changes) -> anyhow::Result<()>;
    /// Commits what was filled in.
    fn keep(&mut self) -> anyhow::Result<()>;
    /// Reads all that a block touches.
    fn read(&self, touched: &Touched) -> anyhow::Result<()>;
    fn apply(&mut self, block: &Block) -> anyhow::Result<B256>;
    fn commit(&mut self, block: &Block) -> anyhow::Result<CommitStats>;
    /// Shows what was done to the tree since the last commit.
    fn operations(&self, visit: &mut dyn FnMut(&mut dyn Iterator<Item = Operation<'_>>));
    fn root(&self) -> B256;
    fn spent(&self) -> Spent;
    fn costs(&self) -> TreeCosts;
    /// Proves all that a block touches, in the last commit, whatever was applied since: bytes, and
    /// how long that took.
    fn prove(&self, touched: &Touched) -> anyhow::Result<(u64, Duration)>;
}

/// Opens a tree in an empty store.
pub(crate) fn open<'s>(
    tree: StateTree,
    store: &'s AnyStore,
    cache_bytes: usize,
) -> anyhow::Result<Box<dyn Subject + 's>> {
    Ok(match tree {
        StateTree::Mpt => {
            let mut state = State::open(SharedStore::new(store), cache_bytes)?;
            // The same writes for every tree: neither history nor preimages.
            state.keep_history(KeepHistory::Blocks(0));
            state.keep_preimages(false);
            let committed = state.mark();
            Box::new(Trie { state, committed })
        }
        StateTree::Ubt(hash) => {
            Box::new(BinaryState::open(Ubt { hash }, SharedStore::new(store), cache_bytes)?)
        }
        StateTree::Pbt(hash) => {
            Box::new(BinaryState::open(Pbt { hash }, SharedStore::new(store), cache_bytes)?)
        }
        StateTree::Verkle => {
            Box::new(BinaryState::open(Verkle::shared(), SharedStore::new(store), cache_bytes)?)
        }
    })
}

/// The first state's block.
const BEFORE: BlockId = BlockId { number: 0, hash: [0; 32] };

fn id(block: &Block) -> BlockId {
    BlockId { number: block.number, hash: [0; 32] }
}

fn read_all<S: StateRead>(state: &S, touched: &Touched) -> anyhow::Result<()> {
    for (address, slots) in touched {
        state.account(*address)?;
        for slot in slots {
            state.storage(*address, *slot)?;
        }
    }
    Ok(())
}

/// The Merkle Patricia trie.
struct Trie<'s> {
    state: State<SharedStore<'s>>,
    /// The last commit.
    committed: Mark,
}

impl Trie<'_> {
    fn make_durable(&mut self) -> anyhow::Result<CommitStats> {
        let stats = self.state.commit()?;
        self.committed = self.state.mark();
        Ok(stats)
    }
}

impl Subject for Trie<'_> {
    fn fill(&mut self, changes: &Changes) -> anyhow::Result<()> {
        self.state.apply(changes)?;
        Ok(self.state.seal(BEFORE)?)
    }

    fn keep(&mut self) -> anyhow::Result<()> {
        self.make_durable().map(drop)
    }

    fn operations(&self, visit: &mut dyn FnMut(&mut dyn Iterator<Item = Operation<'_>>)) {
        visit(&mut self.state.mark().operations());
    }

    fn read(&self, touched: &Touched) -> anyhow::Result<()> {
        read_all(&self.state, touched)
    }

    fn apply(&mut self, block: &Block) -> anyhow::Result<B256> {
        let root = self.state.apply(&block.changes)?;
        self.state.seal(id(block))?;
        Ok(root)
    }

    fn commit(&mut self, _: &Block) -> anyhow::Result<CommitStats> {
        self.make_durable()
    }

    fn root(&self) -> B256 {
        self.state.root()
    }

    fn spent(&self) -> Spent {
        let times = self.state.times();
        Spent { keys: times.key_hashing, encode: times.encode, store: times.store }
    }

    fn costs(&self) -> TreeCosts {
        self.state.costs()
    }

    /// The nodes on the paths, each once.
    fn prove(&self, touched: &Touched) -> anyhow::Result<(u64, Duration)> {
        let start = Instant::now();
        let mut keys = Vec::new();
        for (address, slots) in touched {
            let account = keccak256(address);
            keys.push(account.to_vec());
            keys.extend(slots.iter().map(|slot| [account, keccak256(slot)].concat()));
        }
        keys.sort_unstable();
        let nodes = PathNodes::join(self.state.path_nodes(&self.committed, &keys)?);
        Ok((nodes.iter().map(|node| node.len() as u64).sum(), start.elapsed()))
    }
}

impl<S: Embedding + KeyProofs> Subject for BinaryState<S, SharedStore<'_>> {
    fn fill(&mut self, changes: &Changes) -> anyhow::Result<()> {
        self.apply(changes)?;
        Ok(())
    }

    fn keep(&mut self) -> anyhow::Result<()> {
        self.commit(Some(BEFORE))?;
        Ok(())
    }

    fn operations(&self, visit: &mut dyn FnMut(&mut dyn Iterator<Item = Operation<'_>>)) {
        visit(&mut self.operations());
    }

    fn read(&self, touched: &Touched) -> anyhow::Result<()> {
        read_all(self, touched)
    }

    fn apply(&mut self, block: &Block) -> anyhow::Result<B256> {
        Ok(self.apply(&block.changes)?)
    }

    fn commit(&mut self, block: &Block) -> anyhow::Result<CommitStats> {
        Ok(self.commit(Some(id(block)))?)
    }

    fn root(&self) -> B256 {
        self.root()
    }

    fn spent(&self) -> Spent {
        let times = self.times();
        Spent { keys: times.keys, encode: times.encode, store: times.store }
    }

    fn costs(&self) -> TreeCosts {
        self.tree().costs()
    }

    /// The proof, and the values that go with it: they are in the nodes of a Merkle Patricia trie.
    fn prove(&self, touched: &Touched) -> anyhow::Result<(u64, Duration)> {
        let start = Instant::now();
        let account = |(address, slots): (&Address, &std::collections::BTreeSet<B256>)| {
            let mut keys = self.scheme().account_keys(address);
            keys.extend(slots.iter().map(|slot| self.scheme().slot_key(address, slot)));
            keys
        };
        let keys: Vec<_> = touched.iter().flat_map(account).collect();
        let sent = self.last()?.prove(&keys)?;
        let values = sent.entries.iter().filter(|(_, value)| value.is_some()).count();
        Ok((sent.proof.len() as u64 + 32 * values as u64, start.elapsed()))
    }
}
