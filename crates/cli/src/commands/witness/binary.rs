//! Witnesses of blocks over binary trees. No standard says what they are: here, the proof of all
//! keys that a block looks up in the tree before it, as `spinney prove` makes it, with the codes
//! that it reads.

use alloy_primitives::{B256, Bytes};
use serde::Serialize;
use spinney_replay::{ChainBlock, Genesis, MadeWitness};
use spinney_state::embed::{BinaryState, Embedding};
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::{BlockId, CACHE_BYTES_DEFAULT, KeyProofs, MemoryStore, SharedStore};

use crate::trees::Name;

/// A line.
#[derive(Serialize)]
struct BinaryWitness {
    number: u64,
    hash: B256,
    tree: String,
    /// The root of the tree before the block.
    root: B256,
    keys: Vec<Bytes>,
    values: Vec<Option<Bytes>>,
    proof: Bytes,
    codes: Vec<Bytes>,
    headers: Vec<Bytes>,
}

/// A binary tree that follows the chain, a commit a block.
pub(super) trait Beside {
    /// Proves what a block looks up, checks the proof, and goes past the block. The answer is a
    /// line.
    fn witness(&mut self, made: &MadeWitness) -> anyhow::Result<String>;
    /// Goes past a block.
    fn pass(&mut self, block: BlockId, changes: &spinney_state::Changes) -> anyhow::Result<()>;
}

/// Opens a tree with the first state in it; `None` for one that is not binary.
pub(super) fn open(name: Name, genesis: &Genesis) -> anyhow::Result<Option<Box<dyn Beside>>> {
    let store = SharedStore::new(MemoryStore::new());
    let mut tree: Box<dyn Beside> = match name {
        Name::Ubt(hash) => Box::new(BinaryState::open(Ubt { hash }, store, CACHE_BYTES_DEFAULT)?),
        Name::Pbt(hash) => Box::new(BinaryState::open(Pbt { hash }, store, CACHE_BYTES_DEFAULT)?),
        _ => return Ok(None),
    };
    tree.pass(BlockId { number: 0, hash: genesis.hash.0 }, &genesis.alloc)?;
    Ok(Some(tree))
}

/// Names a block.
pub(super) fn id(block: &ChainBlock) -> BlockId {
    BlockId { number: block.block.header.number, hash: block.hash.0 }
}

impl<S: Embedding + KeyProofs> Beside for BinaryState<S, SharedStore<'static>> {
    fn witness(&mut self, made: &MadeWitness) -> anyhow::Result<String> {
        let root = self.root();
        let scheme = self.scheme().clone();
        let mut keys = Vec::new();
        for (address, slots) in made.looked_up() {
            keys.extend(scheme.account_keys(address));
            keys.extend(slots.iter().map(|slot| scheme.slot_key(address, slot)));
        }
        let sent = self.last()?.prove(&keys)?;
        scheme.verify_keys(&root.0, &sent)?;
        let (number, hash) = (made.report.number, made.report.hash);
        self.pass(BlockId { number, hash: hash.0 }, &made.report.changes)?;
        let value = |value: &Option<[u8; 32]>| value.map(|value| Bytes::copy_from_slice(&value));
        let line = BinaryWitness {
            number,
            hash,
            tree: Name::of(spinney_tree::Scheme::id(&scheme))
                .map_or_else(String::new, |name| name.to_string()),
            root,
            keys: sent.entries.iter().map(|(key, _)| Bytes::copy_from_slice(key)).collect(),
            values: sent.entries.iter().map(|(_, one)| value(one)).collect(),
            proof: sent.proof.into(),
            codes: made.witness.codes.clone(),
            headers: made.witness.headers.clone(),
        };
        Ok(serde_json::to_string(&line)? + "\n")
    }

    fn pass(&mut self, block: BlockId, changes: &spinney_state::Changes) -> anyhow::Result<()> {
        self.apply(changes)?;
        self.commit(Some(block))?;
        Ok(())
    }
}
