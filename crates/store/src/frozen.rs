//! One snapshot as a whole store, for those who read in several steps.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::sync::Arc;

use spinney_tree::{CommitOf, PageStore, Snapshot, StoreError, Table, WriteSet};

/// A store as it was at one commit, whatever is committed later.
///
/// Each snapshot of a living store is of its last commit, so two of them may differ where somebody
/// writes: a tree that was opened in the first is refused in the second. All snapshots of a frozen
/// store are the same one.
///
/// ```
/// use spinney_store::Frozen;
/// use spinney_tree::{MemoryStore, PageStore, Snapshot, Table, WriteSet};
///
/// let store = MemoryStore::new();
/// let frozen = Frozen::of(&store)?;
/// let mut set = WriteSet::new();
/// set.put(Table::Meta, b"head", *b"1");
/// store.commit(&set)?;
/// assert!(store.snapshot()?.read(Table::Meta, b"head")?.is_some());
/// assert!(frozen.snapshot()?.read(Table::Meta, b"head")?.is_none());
/// assert!(frozen.commit(&set).is_err());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Frozen<N>(Arc<N>);

impl<N> Clone for Frozen<N> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<N: Snapshot> Frozen<N> {
    /// The commit that a snapshot is of.
    pub fn new(snapshot: N) -> Self {
        Self(Arc::new(snapshot))
    }

    /// The last commit of a store.
    ///
    /// # Errors
    /// As the store's `snapshot`.
    pub fn of<'s, P: PageStore<Snapshot<'s> = N>>(store: &'s P) -> Result<Self, StoreError> {
        store.snapshot().map(Self::new)
    }

    /// The commit that a store keeps of a block, or the first one that it keeps after it: see
    /// [`PageStore::snapshot_of`]. `None` where it keeps none.
    ///
    /// ```
    /// use spinney_store::{Frozen, Keep, LogStore};
    /// use spinney_tree::mpt::Mpt;
    /// use spinney_tree::{Batch, BlockId, PageStore, Tree, TreeId};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let store = LogStore::create(folder.path())?;
    /// store.set_keep(Keep::All)?;
    /// let mut tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 1 << 20)?;
    /// let mut roots = Vec::new();
    /// for number in 0..3 {
    ///     let mut batch = Batch::new();
    ///     batch.put(b"key", &[number as u8]);
    ///     let pending = tree.prepare(&store.snapshot()?, None, batch)?;
    ///     tree.commit(&store, &pending, Some(BlockId { number, hash: [0; 32] }))?;
    ///     roots.push(tree.root());
    /// }
    /// let frozen = Frozen::kept(&store, 1)?.expect("all commits are kept");
    /// let tree = Tree::open(Mpt, TreeId(1), &frozen.snapshot()?, 1 << 20)?;
    /// assert_eq!(tree.root(), roots[1]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As the store's `snapshot_of`.
    pub fn kept<'s, P: PageStore<Snapshot<'s> = N>>(
        store: &'s P,
        block: u64,
    ) -> Result<Option<Self>, StoreError> {
        Ok(store.snapshot_of(block)?.map(Self::new))
    }
}

impl<N: Snapshot + Send + Sync> PageStore for Frozen<N> {
    type Snapshot<'a>
        = FrozenSnapshot<'a, N>
    where
        Self: 'a;

    fn snapshot(&self) -> Result<FrozenSnapshot<'_, N>, StoreError> {
        Ok(FrozenSnapshot(&self.0))
    }

    fn commit(&self, _: &WriteSet) -> Result<(), StoreError> {
        let source = "it is frozen at a commit, and takes no other".into();
        Err(StoreError::Backend { place: "the store".into(), source })
    }
}

/// The view of a [`Frozen`] store.
#[derive(Debug)]
pub struct FrozenSnapshot<'a, N>(&'a N);

impl<N: Snapshot> Snapshot for FrozenSnapshot<'_, N> {
    type Row<'s>
        = N::Row<'s>
    where
        Self: 's;

    fn read<'s>(&'s self, table: Table, key: &[u8]) -> Result<Option<N::Row<'s>>, StoreError> {
        self.0.read(table, key)
    }

    fn read_many<'s>(
        &'s self,
        table: Table,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<N::Row<'s>>>, StoreError> {
        self.0.read_many(table, keys)
    }

    fn keep<'s>(row: N::Row<'s>) -> Arc<[u8]>
    where
        Self: 's,
    {
        N::keep(row)
    }

    fn is_far(&self) -> bool {
        self.0.is_far()
    }

    fn shows(&self) -> Option<CommitOf> {
        self.0.shows()
    }

    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.0.scan(table, low, high, visit)
    }
}

#[cfg(test)]
mod tests {
    use spinney_tree::{Batch, PageStore, Tree, TreeId, mpt::Mpt};

    use super::Frozen;
    use crate::{AnyStore, RedbStore};

    fn put(store: &impl PageStore, key: &[u8]) {
        let mut tree = Tree::open(Mpt, TreeId(1), &store.snapshot().unwrap(), 1 << 20).unwrap();
        let mut batch = Batch::new();
        batch.put(key, b"value");
        let pending = tree.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
        tree.commit(store, &pending, None).unwrap();
    }

    #[test]
    fn a_tree_is_read_on_while_others_commit() {
        let folder = tempfile::tempdir().unwrap();
        let redb = RedbStore::create(folder.path(), 1 << 20).unwrap();
        for store in [AnyStore::memory(), redb.into()] {
            put(&store, b"first");
            let frozen = Frozen::of(&store).unwrap();
            let tree = Tree::open(Mpt, TreeId(1), &frozen.snapshot().unwrap(), 0).unwrap();
            put(&store, b"second");
            let living = store.snapshot().unwrap();
            let other = Tree::open(Mpt, TreeId(1), &living, 0).unwrap();
            assert_ne!(other.root(), tree.root(), "the store went on");
            let view = frozen.snapshot().unwrap();
            assert_eq!(tree.entries(&view, None, b"").map(Result::unwrap).count(), 1);
            assert!(tree.get(&view, None, b"second").unwrap().is_none());
        }
    }
}
