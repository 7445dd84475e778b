//! Batches, and the states that they lead to.

use std::fmt;
use std::sync::Arc;

use spinney_tree::{Batch, PageStore, Pending, PreparedCommit, StoreError, TreeId, WriteSet};

use crate::error::Error;
use crate::kind::TreeKind;
use crate::live::Core;
use crate::shared::Shared;

/// Puts and deletions to apply as one, in any order: see [`DbTree::batch`](crate::DbTree::batch)
/// and [`PendingState::batch`]. Two operations on one key are an error.
pub struct TreeBatch<S: TreeKind, P: PageStore + 'static = crate::AnyStore> {
    core: Arc<Core<S, P>>,
    parent: Option<Pending<S>>,
    ops: Batch,
}

impl<S: TreeKind, P: PageStore> fmt::Debug for TreeBatch<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeBatch")
            .field("tree", &self.core.name)
            .field("ops", &self.ops)
            .finish_non_exhaustive()
    }
}

impl<S: TreeKind, P: PageStore> TreeBatch<S, P> {
    pub(crate) const fn on(core: Arc<Core<S, P>>, parent: Option<Pending<S>>) -> Self {
        Self { core, parent, ops: Batch::new() }
    }

    /// Sets a key. In a Merkle Patricia trie and in a sum tree an empty value deletes it.
    #[must_use]
    pub fn put(mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.ops.put(&S::stored_key(key.as_ref()), value.as_ref());
        self
    }

    /// Sets many keys.
    #[must_use]
    pub fn put_all<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        entries.into_iter().fold(self, |batch, (key, value)| batch.put(key, value))
    }

    /// Removes a key; that it is not there is no error.
    #[must_use]
    pub fn delete(mut self, key: impl AsRef<[u8]>) -> Self {
        self.ops.delete(&S::stored_key(key.as_ref()));
        self
    }

    /// Removes all keys that begin so, before anything is put.
    #[must_use]
    pub fn delete_prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.ops.delete_prefix(&S::stored_key(prefix.as_ref()));
        self
    }

    /// How many operations were gathered.
    pub const fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Applies the batch and computes the root. Nothing is written.
    ///
    /// # Errors
    /// If the tree refuses an operation, or the state below is [stale](Error::Stale); if the tree
    /// was dropped, or the store fails or is damaged.
    pub fn prepare(self) -> Result<PendingState<S, P>, Error> {
        let state = self.core.prepare(self.parent.as_ref(), self.ops)?;
        Ok(PendingState { core: self.core, state })
    }
}

/// What a batch makes of a tree: a root, and all that a commit needs. Dropping it costs nothing.
///
/// Any number of them may stand on the last commit, or on one another. Once one of them is
/// committed, those that stand on it are good, and all others are [stale](Error::Stale).
///
/// ```
/// # use spinney::{Database, Error, Mpt};
/// let tree = Database::memory().tree::<Mpt>("accounts")?;
/// let first = tree.batch().put(b"doe", b"reindeer").prepare()?;
/// let second = first.batch().put(b"dog", b"puppy").prepare()?;
/// let other = tree.batch().put(b"doe", b"a deer").prepare()?;
/// first.commit()?;
/// second.commit()?; // or without `first` before it: it has all that `first` has
/// assert!(matches!(other.commit(), Err(Error::Stale { .. })));
/// assert_eq!(tree.root()?, second.root());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct PendingState<S: TreeKind, P: PageStore + 'static = crate::AnyStore> {
    core: Arc<Core<S, P>>,
    state: Pending<S>,
}

impl<S: TreeKind, P: PageStore> Clone for PendingState<S, P> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), state: self.state.clone() }
    }
}

impl<S: TreeKind, P: PageStore> fmt::Debug for PendingState<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingState")
            .field("tree", &self.core.name)
            .field("root", &self.root())
            .finish_non_exhaustive()
    }
}

impl<S: TreeKind, P: PageStore> PendingState<S, P> {
    pub(crate) const fn state(&self) -> &Pending<S> {
        &self.state
    }

    /// The root of the state.
    pub const fn root(&self) -> S::Root {
        self.state.root()
    }

    /// Bytes of memory that the state holds beside the tree's pages, those of states below it
    /// included.
    pub fn memory(&self) -> usize {
        self.state.memory()
    }

    /// Operations on this state, to be gathered.
    pub fn batch(&self) -> TreeBatch<S, P> {
        TreeBatch::on(Arc::clone(&self.core), Some(self.state.clone()))
    }

    /// Makes the state durable. One that was committed already is left as it is; one that holds
    /// what the last commit holds leaves the tree where it is.
    ///
    /// # Errors
    /// [`Error::Stale`] if another state was committed since; if the database is read-only, the
    /// tree was dropped, or the store fails. Then nothing is written.
    pub fn commit(&self) -> Result<(), Error> {
        commit(self.core.shared(), &[self])
    }
}

/// A state that can be committed along with others: a [`PendingState`] of any kind of tree.
pub trait Commit<P: PageStore>: sealed::Preparing<P> {}

impl<S: TreeKind, P: PageStore> Commit<P> for PendingState<S, P> {}

/// Commits states of several trees of one database: all of them or none, durably.
pub(crate) fn commit<P: PageStore>(
    shared: &Shared<P>,
    states: &[&dyn Commit<P>],
) -> Result<(), Error> {
    shared.writable()?;
    let _turn = shared.turn();
    let mut seen = Vec::with_capacity(states.len());
    let mut set = WriteSet::new();
    let mut prepared = Vec::with_capacity(states.len());
    for state in states {
        let (id, tree) = state.tree();
        if !std::ptr::eq(state.store(), &raw const shared.store) {
            return Err(Error::OtherDatabase { tree: tree.to_owned() });
        }
        if seen.contains(&id) {
            return Err(Error::TwoStates { tree: tree.to_owned() });
        }
        seen.push(id);
        let before = (set.rows().len(), set.drops().len());
        let commit = state.prepare_commit(&mut set)?;
        // A tree that nothing changes in stays where it is, and so do the states that stand on
        // it.
        if before != (set.rows().len(), set.drops().len()) {
            prepared.push(commit);
        }
    }
    if set.is_empty() {
        return Ok(());
    }
    set.sort();
    put_beside(&mut prepared, &mut || shared.store.commit(&set))?;
    prepared.into_iter().for_each(|prepared| prepared.finalize());
    Ok(())
}

/// Gives the store what was prepared, while the trees make their pages.
fn put_beside(
    prepared: &mut [Box<dyn sealed::Finalize + '_>],
    put: &mut dyn FnMut() -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    match prepared.split_first_mut() {
        Some((first, others)) => first.make_pages_beside(&mut || put_beside(others, put)),
        None => put(),
    }
}

struct Finalizing<'a, S: TreeKind, P: PageStore> {
    core: &'a Core<S, P>,
    prepared: PreparedCommit<S>,
}

impl<S: TreeKind, P: PageStore> sealed::Finalize for Finalizing<'_, S, P> {
    fn make_pages_beside(
        &mut self,
        put: &mut dyn FnMut() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.core.live().make_pages_beside(&mut self.prepared, put)
    }

    fn finalize(self: Box<Self>) {
        self.core.finalize(self.prepared);
    }
}

mod sealed {
    use super::{Error, PageStore, StoreError, TreeId, WriteSet};

    /// A tree's part of a write set.
    pub trait Finalize {
        /// Runs `put` while the tree makes the pages with which it goes on.
        fn make_pages_beside(
            &mut self,
            put: &mut dyn FnMut() -> Result<(), StoreError>,
        ) -> Result<(), StoreError>;

        /// Takes the commit up, once the store has it.
        fn finalize(self: Box<Self>);
    }

    pub trait Preparing<P: PageStore> {
        /// The tree, by id and name.
        fn tree(&self) -> (TreeId, &str);

        /// The store that it lies in.
        fn store(&self) -> *const P;

        /// Puts what it would write into a write set.
        fn prepare_commit<'a>(
            &'a self,
            set: &mut WriteSet,
        ) -> Result<Box<dyn Finalize + 'a>, Error>;
    }
}

impl<S: TreeKind, P: PageStore> sealed::Preparing<P> for PendingState<S, P> {
    fn tree(&self) -> (TreeId, &str) {
        (self.core.id, &self.core.name)
    }

    fn store(&self) -> *const P {
        self.core.store()
    }

    fn prepare_commit<'a>(
        &'a self,
        set: &mut WriteSet,
    ) -> Result<Box<dyn sealed::Finalize + 'a>, Error> {
        let prepared = self.core.prepare_commit(&self.state, set)?;
        Ok(Box::new(Finalizing { core: &self.core, prepared }))
    }
}
