//! Spinney's side of each case. What the engine learns to do better replaces the body of one
//! function here, and the case stays.

use std::cell::RefCell;

use spinney_tree::binary::proof::KeysProof;
use spinney_tree::mpt::{Mpt, proof::Proof};
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::{
    Batch, HashFunction, MemorySnapshot, MemoryStore, PageStore, Pending, Scheme, PreparedCommit, Tree,
    TreeError, TreeId, WriteSet, bulk,
};

use crate::inputs::Leaf;

/// Room for all pages: everything is resident.
const CACHE_BYTES: usize = 64 << 30;

/// The root of leaves sorted by key, and nothing else kept.
pub fn bulk_root(sorted: &[Leaf]) -> [u8; 32] {
    bulk::root_of_sorted(&Mpt, sorted).expect("sorted leaves")
}

/// EIP-7864 over SHA-256, as geth has it.
pub const UBT: Ubt = Ubt { hash: HashFunction::Sha256 };

/// EIP-8297 over BLAKE3.
pub const PBT: Pbt = Pbt { hash: HashFunction::Blake3 };

/// A live tree: committed to a store in memory, all pages resident.
pub struct Live<S: Scheme> {
    scheme: S,
    store: MemoryStore,
    tree: Tree<S>,
    /// Lent to each batch, so that its memory is used again.
    batch: RefCell<Batch>,
}

impl<S: Scheme<Root = [u8; 32]> + Clone> Live<S> {
    /// An empty one.
    pub fn new(scheme: S) -> Self {
        let store = MemoryStore::new();
        let snapshot = store.snapshot().expect("memory");
        let tree =
            Tree::open(scheme.clone(), TreeId(1), &snapshot, CACHE_BYTES).expect("an empty store");
        drop(snapshot);
        Self { scheme, store, tree, batch: RefCell::default() }
    }

    /// Puts entries in, by batches of so many: what a batch makes is held until it is committed.
    pub fn load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        entries: &[(K, V)],
        batch: usize,
    ) -> Result<[u8; 32], TreeError> {
        for entries in entries.chunks(batch) {
            let pending = self.root(entries)?;
            self.tree.commit(&self.store, &pending, None)?;
        }
        Ok(self.tree.root())
    }

    /// Updates and the root of the outcome; nothing is written.
    pub fn root<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        changes: &[(K, V)],
    ) -> Result<Pending<S>, TreeError> {
        self.root_on(&self.snapshot()?, changes)
    }

    /// A view of the last commit.
    pub fn snapshot(&self) -> Result<MemorySnapshot, TreeError> {
        Ok(self.store.snapshot()?)
    }

    /// As [`Live::root`], with a view of the last commit at hand.
    pub fn root_on<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        snapshot: &MemorySnapshot,
        changes: &[(K, V)],
    ) -> Result<Pending<S>, TreeError> {
        let mut batch = self.batch.borrow_mut();
        for (key, value) in changes {
            batch.put(key.as_ref(), value.as_ref());
        }
        self.tree.prepare(snapshot, None, &mut *batch)
    }

    /// Reads keys in the state after `parent`, or in the last commit; how many bytes were found.
    pub fn read<K: AsRef<[u8]>>(
        &self,
        parent: Option<&Pending<S>>,
        keys: &[K],
    ) -> Result<usize, TreeError> {
        let snapshot = self.snapshot()?;
        let mut bytes = 0;
        for key in keys {
            let value = self.tree.get(&snapshot, parent, key.as_ref())?;
            bytes += value.map_or(0, |value| value.len());
        }
        Ok(bytes)
    }

    /// Changes upon `parent`, or upon the last commit; `None` deletes.
    pub fn block<K: AsRef<[u8]>>(
        &self,
        parent: Option<&Pending<S>>,
        changes: &[(K, Option<Vec<u8>>)],
    ) -> Result<Pending<S>, TreeError> {
        let mut batch = self.batch.borrow_mut();
        for (key, value) in changes {
            match value {
                Some(value) => batch.put(key.as_ref(), value),
                None => batch.delete(key.as_ref()),
            }
        }
        self.tree.prepare(&self.snapshot()?, parent, &mut *batch)
    }

    /// The rows that a commit would write, sorted, and not written.
    pub fn write_set(&self, pending: &Pending<S>) -> Result<(WriteSet, PreparedCommit<S>), TreeError> {
        let mut set = WriteSet::new();
        let prepared = self.tree.prepare_commit(&self.store.snapshot()?, pending, None, &mut set)?;
        set.sort();
        Ok((set, prepared))
    }

    /// The write set, written to the store in memory and taken up: the tree moves on.
    pub fn commit(&mut self, pending: &Pending<S>) -> Result<(), TreeError> {
        self.tree.commit(&self.store, pending, None)?;
        Ok(())
    }
}

impl Live<Mpt> {
    /// A proof of each key, one by one.
    pub fn prove(&self, chosen: &[Leaf]) -> Result<Vec<Proof>, TreeError> {
        let snapshot = self.store.snapshot()?;
        chosen.iter().map(|(key, _)| self.tree.prove(&snapshot, None, &[key])).collect()
    }
}

impl Live<Ubt> {
    /// One proof of all keys.
    pub fn prove_all(&self, keys: &[[u8; 32]]) -> Result<KeysProof, TreeError> {
        self.tree.prove(&self.store.snapshot()?, None, keys)
    }

    /// Checks a proof against the last commit's root.
    pub fn verify_all(&self, proof: &KeysProof) {
        proof.verify(&self.scheme, &self.tree.root()).expect("a proof that was just made");
    }
}

/// Checks each proof against `root`.
pub fn verify(root: &[u8; 32], chosen: &[Leaf], proofs: &[Proof]) {
    for ((key, value), proof) in chosen.iter().zip(proofs) {
        let verified = proof.verify(root, &[key]).expect("a proof that was just made");
        assert_eq!(verified.get(key).expect("it was asked for"), Some(&value[..]));
    }
}
