//! One sum tree and the store that keeps it.

use std::io::Write;

use alloy_primitives::hex;
use rayon::prelude::*;
use spinney_tree::sum::{Leaf, Profile, Proven, Sum, SumNode, path};
use spinney_tree::{
    Batch, CommitStats, PageStore, Pending, PreparedCommit, RootRecord, Snapshot, Table, Tree,
    TreeError, WriteSet,
};

use super::SumError;
use super::names::{self, Namespace};
use super::turns::{self, Turn};
use crate::lazy::LazySnapshot;

/// How many leaves are proven by one thread at a time, and written by one call.
const PROOFS: usize = 512;

/// Leaves to put and to delete, in any order; two operations on one key are an error.
#[derive(Clone, Debug, Default)]
pub struct SumBatch {
    ops: Batch,
    value: Vec<u8>,
}

impl SumBatch {
    /// A batch without operations.
    pub const fn new() -> Self {
        Self { ops: Batch::new(), value: Vec::new() }
    }

    /// Sets the leaf of a key. An empty leaf deletes it.
    pub fn put(&mut self, key: &[u8; 32], leaf: &Leaf) {
        self.value.clear();
        self.value.extend_from_slice(&leaf.sum.to_be_bytes());
        self.value.extend_from_slice(&leaf.value);
        self.ops.put(&path(key), &self.value);
    }

    /// Removes the leaf of a key; that there is none is no error.
    pub fn delete(&mut self, key: &[u8; 32]) {
        self.ops.delete(&path(key));
    }

    /// Removes all leaves; what the batch puts stays.
    pub fn delete_all(&mut self) {
        self.ops.delete_prefix(&[]);
    }

    /// The number of operations.
    pub const fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there are no operations.
    pub const fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

/// A Merkle-sum tree in a store.
#[derive(Debug)]
pub struct SumTree<'s, P> {
    pub(super) store: &'s P,
    pub(super) tree: Tree<Sum>,
    namespace: Namespace,
}

impl<'s, P: PageStore> SumTree<'s, P> {
    /// Opens the tree of a name; `None` if the store holds none. `cache_bytes` bounds the pages
    /// that stay in memory.
    ///
    /// # Errors
    /// If the store fails, or is damaged.
    pub fn open(store: &'s P, name: &str, cache_bytes: usize) -> Result<Option<Self>, SumError> {
        let snapshot = store.snapshot()?;
        let Some(namespace) = names::find(&snapshot, name)? else { return Ok(None) };
        let sum = Sum { profile: namespace.profile };
        let tree = Tree::open(sum, namespace.id, &snapshot, cache_bytes)?;
        Ok(Some(Self { store, tree, namespace }))
    }

    /// Opens the tree of a name, which is made if there is none.
    ///
    /// # Errors
    /// If there is one of another profile, or the store fails or is damaged.
    pub fn create(
        store: &'s P,
        name: &str,
        profile: Profile,
        cache_bytes: usize,
    ) -> Result<Self, SumError> {
        let known = names::find(&store.snapshot()?, name)?;
        let namespace = match known {
            Some(namespace) => namespace,
            None => names::create(store, name, profile)?,
        };
        if namespace.profile != profile {
            let (is, asked) = (namespace.profile, profile);
            return Err(SumError::OtherProfile { name: namespace.name, is, asked });
        }
        let tree = Tree::open(Sum { profile }, namespace.id, &store.snapshot()?, cache_bytes)?;
        Ok(Self { store, tree, namespace })
    }

    /// The tree's name.
    pub fn name(&self) -> &str {
        &self.namespace.name
    }

    /// What its branches bind.
    pub const fn profile(&self) -> Profile {
        self.namespace.profile
    }

    /// The tree below, for what is not here: states prepared on one another, and checks.
    pub const fn tree(&self) -> &Tree<Sum> {
        &self.tree
    }

    /// The root: the hash, and the sum of all leaves.
    pub fn root(&self) -> SumNode {
        self.tree.root().node()
    }

    /// The root as a leaf of another tree: its hash as the value, and its sum.
    pub fn as_leaf(&self) -> Leaf {
        self.root().into()
    }

    /// The store that keeps it.
    pub const fn store(&self) -> &'s P {
        self.store
    }

    fn snapshot(&self) -> LazySnapshot<'s, P> {
        LazySnapshot::new(self.store)
    }

    /// Applies a batch and commits it: durable when it returns. The batch comes back empty.
    ///
    /// # Errors
    /// If the sums overflow, a key is named twice, another writer has committed, or the store
    /// fails. Nothing is changed then.
    pub fn apply(&mut self, batch: &mut SumBatch) -> Result<CommitStats, SumError> {
        let pending = self.prepare(batch)?;
        let _turn = Turn::of([self.name()]);
        self.check_named()?;
        Ok(self.tree.commit(self.store, &pending, None)?)
    }

    /// Refuses a tree without commits that another handle has removed. One with commits is refused
    /// by the engine: its root record is gone, and ids are not given twice.
    pub(super) fn check_named(&self) -> Result<(), SumError> {
        if self.tree.commit_number() > 0 {
            return Ok(());
        }
        self.check_named_in(&self.store.snapshot()?)
    }

    fn check_named_in(&self, snapshot: &impl Snapshot) -> Result<(), SumError> {
        match names::find(snapshot, self.name())? {
            Some(found) if found == self.namespace => Ok(()),
            _ => Err(SumError::Removed { name: self.name().to_owned() }),
        }
    }

    /// Applies a batch and computes the root; nothing is written.
    ///
    /// # Errors
    /// As [`SumTree::apply`].
    pub fn prepare(&self, batch: &mut SumBatch) -> Result<Pending<Sum>, SumError> {
        let pending = self.tree.prepare(&self.snapshot(), None, &mut batch.ops);
        pending.map_err(|error| SumError::Tree(as_users_write(error)))
    }

    pub(super) fn prepare_commit(
        &self,
        pending: &Pending<Sum>,
        set: &mut WriteSet,
    ) -> Result<PreparedCommit<Sum>, SumError> {
        Ok(self.tree.prepare_commit(&self.snapshot(), pending, None, set)?)
    }

    pub(super) fn finalize(&mut self, prepared: PreparedCommit<Sum>) {
        self.tree.finalize(prepared);
    }

    /// Sets one leaf and commits; an empty leaf deletes.
    ///
    /// # Errors
    /// As [`SumTree::apply`].
    pub fn insert(&mut self, key: &[u8; 32], leaf: &Leaf) -> Result<CommitStats, SumError> {
        let mut batch = SumBatch::new();
        batch.put(key, leaf);
        self.apply(&mut batch)
    }

    /// Deletes one leaf and commits.
    ///
    /// # Errors
    /// As [`SumTree::apply`].
    pub fn delete(&mut self, key: &[u8; 32]) -> Result<CommitStats, SumError> {
        let mut batch = SumBatch::new();
        batch.delete(key);
        self.apply(&mut batch)
    }

    /// The leaf of a key.
    ///
    /// # Errors
    /// If the store fails, is damaged, or shows another commit.
    pub fn get(&self, key: &[u8; 32]) -> Result<Option<Leaf>, SumError> {
        let value = self.tree.get(&self.snapshot(), None, &path(key))?;
        value.map(|value| self.leaf(key, &value)).transpose()
    }

    fn leaf(&self, key: &[u8; 32], value: &[u8]) -> Result<Leaf, SumError> {
        let malformed = || SumError::Malformed { tree: self.tree.id(), key: hex::encode(key) };
        Leaf::decode(value).ok_or_else(malformed)
    }

    /// The leaf of each key, in one walk.
    ///
    /// # Errors
    /// As [`SumTree::get`].
    pub fn get_many(&self, keys: &[[u8; 32]]) -> Result<Vec<Option<Leaf>>, SumError> {
        Ok(self.prove(keys)?.into_iter().map(|proven| proven.leaf).collect())
    }

    /// The leaf of each key, or that it has none, with its proof, in one walk.
    ///
    /// # Errors
    /// As [`SumTree::get`].
    pub fn prove(&self, keys: &[[u8; 32]]) -> Result<Vec<Proven>, SumError> {
        Ok(self.tree.prove_leaves(&self.snapshot(), None, keys)?)
    }

    /// Computes the root from the leaves alone, and compares it with the tree's:
    /// [`Tree::verify_entries`](spinney_tree::Tree::verify_entries).
    ///
    /// # Errors
    /// As [`SumTree::get`]; [`TreeError::OtherRoot`](spinney_tree::TreeError::OtherRoot) if it is
    /// another.
    pub fn verify_entries(&self) -> Result<(), SumError> {
        Ok(self.tree.verify_entries(&self.snapshot(), |_| ())?)
    }

    /// Hands each leaf to `visit`, in the order of the tree, until it answers `false`.
    ///
    /// # Errors
    /// As [`SumTree::get`], or as `visit` does.
    pub fn visit<E: From<SumError>>(
        &self,
        mut visit: impl FnMut([u8; 32], Leaf) -> Result<bool, E>,
    ) -> Result<(), E> {
        for leaf in self.leaves(&self.snapshot()) {
            let (key, leaf) = leaf?;
            if !visit(key, leaf)? {
                break;
            }
        }
        Ok(())
    }

    /// All leaves, in the order of the tree.
    fn leaves<'a, N: Snapshot>(
        &'a self,
        snapshot: &'a N,
    ) -> impl Iterator<Item = Result<([u8; 32], Leaf), SumError>> {
        self.tree.entries(snapshot, None, &[]).map(|entry| {
            let entry = entry?;
            let malformed =
                || SumError::Malformed { tree: self.tree.id(), key: hex::encode(&entry.key) };
            let key = path(entry.key[..].try_into().map_err(|_| malformed())?);
            let leaf = self.leaf(&key, &entry.value)?;
            Ok((key, leaf))
        })
    }

    /// Puts all leaves into another tree, whose other leaves stay: see [`SumTree::copy_where`].
    ///
    /// # Errors
    /// If the target refuses them, or a store fails; then the target is as it was.
    pub fn copy_to<Q: PageStore>(&self, target: &mut SumTree<'_, Q>) -> Result<(), SumError> {
        self.copy_where(target, |_, _| Ok::<_, SumError>(true))
    }

    /// Puts the leaves that `take` picks into another tree: all or none of them. Into an empty tree
    /// they go one after another, in bounded memory; else they are one batch, which is held in
    /// memory.
    ///
    /// # Errors
    /// As [`SumTree::copy_to`], or as `take` does; then the target is as it was.
    pub fn copy_where<Q: PageStore, E: From<SumError>>(
        &self,
        target: &mut SumTree<'_, Q>,
        mut take: impl FnMut(&[u8; 32], &Leaf) -> Result<bool, E>,
    ) -> Result<(), E> {
        let snapshot = self.snapshot();
        let picked = self.leaves(&snapshot).filter_map(|leaf| match leaf {
            Ok((key, leaf)) => match take(&key, &leaf) {
                Ok(taken) => taken.then_some(Ok((key, leaf))),
                Err(error) => Some(Err(error)),
            },
            Err(error) => Some(Err(error.into())),
        });
        if target.root() == target.profile().empty_node(0) {
            target.rebuild(picked)?;
            return Ok(());
        }
        let mut batch = SumBatch::new();
        for leaf in picked {
            let (key, leaf) = leaf?;
            batch.put(&key, &leaf);
        }
        target.apply(&mut batch)?;
        Ok(())
    }

    /// Deletes all leaves: one range of rows.
    ///
    /// # Errors
    /// As [`SumTree::apply`].
    pub fn delete_all(&mut self) -> Result<CommitStats, SumError> {
        let mut batch = SumBatch::new();
        batch.delete_all();
        self.apply(&mut batch)
    }

    /// Replaces all leaves by those given, which come in the order of the tree, in bounded memory.
    /// Nobody sees any of them before all are in.
    ///
    /// # Errors
    /// If a leaf is out of order, the sums overflow, `leaves` fail, another writer has committed,
    /// or the store fails. The tree is as it was then.
    pub fn rebuild<E: From<SumError>>(
        &mut self,
        leaves: impl IntoIterator<Item = Result<([u8; 32], Leaf), E>>,
    ) -> Result<CommitStats, E> {
        let name = self.namespace.name.clone();
        // Not held while the leaves come: whoever gives them may commit elsewhere.
        let turn = Turn::of([&name[..]]);
        self.check_named()?;
        let store = self.store;
        let mut rebuild = self.tree.rebuild(store).map_err(SumError::from)?;
        drop(turn);
        let put = || -> Result<(), E> {
            for leaf in leaves {
                let (key, leaf) = leaf?;
                let pushed = rebuild.push(&path(&key), &leaf.encode());
                pushed.map_err(|error| SumError::Tree(as_users_write(error)))?;
            }
            Ok(())
        };
        match put() {
            Ok(()) => {
                let _turn = Turn::of([&name[..]]);
                let done = rebuild.finish(None);
                Ok(done.map_err(|error| SumError::Tree(as_users_write(error)))?)
            }
            Err(error) => {
                drop(rebuild);
                // What is left over now the next rebuild removes; the first error says more.
                let _ = self.tree.sweep(store);
                Err(error)
            }
        }
    }

    /// Removes the tree from its store: its leaves, its root and its name.
    ///
    /// # Errors
    /// As [`SumTree::apply`].
    pub fn remove(self) -> Result<(), SumError> {
        let (_names, _turn) = (turns::names(), Turn::of([self.name()]));
        let snapshot = self.store.snapshot()?;
        self.check_named_in(&snapshot)?;
        // What a rebuild that was cut off has left belongs to no other tree.
        self.tree.sweep(self.store)?;
        let mut batch = SumBatch::new();
        batch.delete_all();
        let pending = self.prepare(&mut batch)?;
        let mut set = WriteSet::new();
        let _ = self.prepare_commit(&pending, &mut set)?;
        set.delete(Table::Roots, &RootRecord::key(self.tree.id()));
        names::remove(self.name(), &snapshot, &mut set)?;
        set.sort();
        Ok(self.store.commit(&set)?)
    }

    /// Proves every leaf, in the order of the tree, on all threads of the current rayon pool:
    /// `write` appends the bytes of one, and they go out in order. Answers how many there were.
    ///
    /// # Errors
    /// If the store fails, is damaged, or is committed to meanwhile; or if `out` fails.
    pub fn write_proofs(
        &self,
        out: &mut impl Write,
        write: impl Fn(&[u8; 32], &Proven, &mut Vec<u8>) + Sync,
    ) -> Result<u64, SumError> {
        let mut written = 0;
        let mut keys = Vec::new();
        let round = PROOFS * rayon::current_num_threads();
        let mut flush = |keys: &mut Vec<[u8; 32]>| -> Result<(), SumError> {
            let part = |keys: &[[u8; 32]]| {
                let mut bytes = Vec::new();
                for (key, proven) in keys.iter().zip(self.prove(keys)?) {
                    write(key, &proven, &mut bytes);
                }
                Ok::<_, SumError>(bytes)
            };
            let parts: Result<Vec<_>, _> = keys.par_chunks(PROOFS).map(part).collect();
            for part in parts? {
                out.write_all(&part)?;
            }
            written += keys.len() as u64;
            keys.clear();
            Ok(())
        };
        self.visit(|key, _| {
            keys.push(key);
            if keys.len() == round {
                flush(&mut keys)?;
            }
            Ok::<_, SumError>(true)
        })?;
        flush(&mut keys)?;
        Ok(written)
    }
}

/// Keys as users write them, in what the engine says of them.
fn as_users_write(error: TreeError) -> TreeError {
    let written = |key: Vec<u8>| key.into_iter().map(u8::reverse_bits).collect();
    match error {
        TreeError::Duplicate { key } => TreeError::Duplicate { key: written(key) },
        TreeError::Unsorted { before, key } => {
            TreeError::Unsorted { before: written(before), key: written(key) }
        }
        other => other,
    }
}
