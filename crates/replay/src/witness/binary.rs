//! Witnesses of blocks over binary trees. No standard says what they are: here, the proof of all
//! keys that a block looks up in the tree before it, as `spinney prove` makes it, with the codes
//! that it reads.

use std::fmt;

use alloy_primitives::{B256, Bytes};
use serde::Serialize;
use spinney_state::embed::{BinaryState, EmbedError, Embedding};
use spinney_state::{Changes, StateError, TreeName};
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::{BlockId, CACHE_BYTES_DEFAULT, KeyProofs, KeysFault, MemoryStore, SharedStore};

use super::make::MadeWitness;
use crate::genesis::Genesis;

/// The witness of a block.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BinaryWitness {
    /// The number of the block.
    pub number: u64,
    /// Its hash.
    pub hash: B256,
    /// The tree's name.
    pub tree: String,
    /// The root of the tree before the block.
    pub root: B256,
    /// The keys that the block looks up.
    pub keys: Vec<Bytes>,
    /// Their values before the block, in their order.
    pub values: Vec<Option<Bytes>>,
    /// What shows them.
    pub proof: Bytes,
    /// The codes that the block reads.
    pub codes: Vec<Bytes>,
    /// The headers that the block asks for.
    pub headers: Vec<Bytes>,
}

/// Why a witness could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BinaryWitnessError {
    /// The tree refused or failed.
    #[error(transparent)]
    Tree(#[from] EmbedError),
    /// The keys could not be proven.
    #[error(transparent)]
    State(#[from] StateError),
    /// The proof that was made does not hold.
    #[error(transparent)]
    Proof(#[from] KeysFault),
}

/// A binary tree that follows a chain in memory, a commit a block, and makes witnesses.
pub struct BinaryWitnessMaker {
    name: TreeName,
    tree: Box<dyn Beside>,
}

impl fmt::Debug for BinaryWitnessMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BinaryWitnessMaker({})", self.name)
    }
}

impl BinaryWitnessMaker {
    /// Begins with the genesis; `None` for a tree that is not binary.
    ///
    /// # Errors
    /// If the tree refuses the genesis.
    pub fn start(name: TreeName, genesis: &Genesis) -> Result<Option<Self>, EmbedError> {
        let store = SharedStore::new(MemoryStore::new());
        let cache = CACHE_BYTES_DEFAULT;
        let mut tree: Box<dyn Beside> = match name {
            TreeName::Ubt(hash) => Box::new(BinaryState::open(Ubt { hash }, store, cache)?),
            TreeName::Pbt(hash) => Box::new(BinaryState::open(Pbt { hash }, store, cache)?),
            _ => return Ok(None),
        };
        tree.pass(BlockId { number: 0, hash: genesis.hash.0 }, &genesis.alloc)?;
        Ok(Some(Self { name, tree }))
    }

    /// Proves what a block looks up, checks the proof, and goes past the block.
    ///
    /// # Errors
    /// If the tree fails.
    pub fn witness(&mut self, made: &MadeWitness) -> Result<BinaryWitness, BinaryWitnessError> {
        self.tree.witness(self.name, made)
    }

    /// Goes past a block, by what it did.
    ///
    /// # Errors
    /// If the tree fails.
    pub fn pass(&mut self, block: BlockId, changes: &Changes) -> Result<(), EmbedError> {
        self.tree.pass(block, changes)
    }
}

/// A binary tree, whichever it is.
trait Beside {
    fn witness(
        &mut self,
        name: TreeName,
        made: &MadeWitness,
    ) -> Result<BinaryWitness, BinaryWitnessError>;
    fn pass(&mut self, block: BlockId, changes: &Changes) -> Result<(), EmbedError>;
}

impl<S: Embedding + KeyProofs> Beside for BinaryState<S, SharedStore<'static>> {
    fn witness(
        &mut self,
        name: TreeName,
        made: &MadeWitness,
    ) -> Result<BinaryWitness, BinaryWitnessError> {
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
        Ok(BinaryWitness {
            number,
            hash,
            tree: name.to_string(),
            root,
            keys: sent.entries.iter().map(|(key, _)| Bytes::copy_from_slice(key)).collect(),
            values: sent.entries.iter().map(|(_, one)| value(one)).collect(),
            proof: sent.proof.into(),
            codes: made.witness.codes.clone(),
            headers: made.witness.headers.clone(),
        })
    }

    fn pass(&mut self, block: BlockId, changes: &Changes) -> Result<(), EmbedError> {
        self.apply(changes)?;
        self.commit(Some(block))?;
        Ok(())
    }
}
