//! A tree built anew from sorted leaves, into a generation of its own.
//!
//! Invariants:
//! - the rows of a new generation are invisible until the root record names it, in the last commit;
//!   a rebuild that ends before leaves the tree as it was;
//! - memory is bounded: leaves are held back up to [`HELD_BYTES_MAX`], and only pages at the right
//!   edge of the tree are ever read again;
//! - rows of a generation that the root record does not name belong to nobody but a rebuild under
//!   way, which a row of its own in [`Table::Meta`] names; [`Tree::sweep`] removes them in bounded
//!   steps, and that row first, so that a rebuild which was swept is never finished;
//! - who sweeps or rebuilds stands on the last commit.

use std::fmt;

use crate::batch::Batch;
use crate::error::TreeError;
use crate::ids::{BlockId, TreeId};
use crate::page_key::{Space, whole};
use crate::root_record::RootRecord;
use crate::rows::{KeepRows, ReadRows};
use crate::scheme::Scheme;
use crate::store::{PageStore, Table, WriteSet};
use crate::tree::{CommitStats, Tree, next_batch};

/// Leaves are written whenever they take so many bytes.
const HELD_BYTES_MAX: usize = 16 << 20;
/// Pages of the new generation kept in memory: its right edge, many times over.
const CACHE_BYTES: usize = 16 << 20;
/// How many rows one commit of a sweep removes.
const SWEEP_ROWS: usize = 20_000;

/// A rebuild under way: see [`Tree::rebuild`].
pub struct Rebuild<'a, S: Scheme> {
    tree: &'a mut Tree<S>,
    store: &'a dyn KeepRows,
    /// The new generation.
    fresh: Tree<S>,
    held: Batch,
    held_bytes: usize,
    held_bytes_max: usize,
    last: Option<Vec<u8>>,
    /// What the store's row of this rebuild says.
    token: [u8; 8],
    stats: CommitStats,
}

/// The row that names the rebuild under way.
pub(crate) fn rebuild_key(tree: TreeId) -> Vec<u8> {
    [b"rebuild", &tree.0.to_be_bytes()[..]].concat()
}

impl<S: Scheme + Clone> Tree<S> {
    /// Builds the tree anew from leaves that come sorted by key. What it held before stays, and is
    /// all that anybody sees, until [`Rebuild::finish`].
    ///
    /// ```
    /// # use spinney_tree::{MemoryStore, PageStore, Tree, TreeId, mpt::Mpt};
    /// let store = MemoryStore::new();
    /// let mut tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 1 << 20)?;
    /// let mut rebuild = tree.rebuild(&store)?;
    /// for (key, value) in [("doe", "reindeer"), ("dog", "puppy"), ("dogglesworth", "cat")] {
    ///     rebuild.push(key.as_bytes(), value.as_bytes())?;
    /// }
    /// rebuild.finish(None)?;
    /// assert_eq!(tree.root()[..4], [0x8a, 0xad, 0x78, 0x9d]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If another writer has committed to the tree, or the store fails.
    pub fn rebuild<'a, P: PageStore>(
        &'a mut self,
        store: &'a P,
    ) -> Result<Rebuild<'a, S>, TreeError> {
        self.rebuild_in(store)
    }

    fn rebuild_in<'a>(&'a mut self, store: &'a dyn KeepRows) -> Result<Rebuild<'a, S>, TreeError> {
        // An earlier rebuild may have ended halfway.
        self.sweep_in(store)?;
        let token = next_batch().to_be_bytes();
        let mut set = WriteSet::new();
        set.put(Table::Meta, &rebuild_key(self.id()), token);
        store.put(set)?;
        let generation = self.space.generation.wrapping_add(1);
        let space = Space { generation, ..self.space };
        let fresh = self.generation(space, CACHE_BYTES);
        let (held, stats) = (Batch::new(), CommitStats::default());
        Ok(Rebuild {
            tree: self,
            store,
            fresh,
            held,
            held_bytes: 0,
            held_bytes_max: HELD_BYTES_MAX,
            last: None,
            token,
            stats,
        })
    }
}

impl<S: Scheme> Tree<S> {
    /// Whether the rebuild under way has this name. The snapshot has to be of the last commit.
    pub(crate) fn is_rebuilt_by(
        &self,
        snapshot: &dyn ReadRows,
        name: &[u8],
    ) -> Result<bool, TreeError> {
        self.current(snapshot)?;
        let mut same = false;
        let see = &mut |row: &[u8]| same = row == name;
        snapshot.show(Table::Meta, &rebuild_key(self.id()), see)?;
        Ok(same)
    }

    /// Removes the rows of generations that are not the tree's: what a rebuild left behind. Answers
    /// how many there were.
    ///
    /// # Errors
    /// If another writer has committed to the tree, or the store fails; a sweep can go on another
    /// time.
    pub fn sweep<P: PageStore>(&self, store: &P) -> Result<u64, TreeError> {
        self.sweep_in(store)
    }

    pub(crate) fn sweep_in(&self, store: &dyn KeepRows) -> Result<u64, TreeError> {
        let (low, high) = whole(self.space);
        let first = Space { generation: 0, ..self.space };
        let behind = whole(Space { generation: u32::MAX, ..self.space }).1;
        let snapshot = store.view()?;
        self.current(&*snapshot)?;
        let key = rebuild_key(self.id());
        let is_under_way = snapshot.show(Table::Meta, &key, &mut |_| ())?;
        drop(snapshot);
        let mut set = WriteSet::new();
        set.delete(Table::Meta, &key);
        if is_under_way {
            store.put(set)?;
        }
        let mut swept = 0;
        for (low, high) in [(whole(first).0, low), (high, behind)] {
            loop {
                let mut set = WriteSet::new();
                let mut rows = 0;
                let snapshot = store.view()?;
                self.current(&*snapshot)?;
                snapshot.scan(Table::Pages, &low, Some(&high), &mut |key, _| {
                    set.delete(Table::Pages, key);
                    rows += 1;
                    rows < SWEEP_ROWS
                })?;
                if rows == 0 {
                    break;
                }
                drop(snapshot);
                store.put(set)?;
                swept += rows as u64;
            }
        }
        Ok(swept)
    }
}

impl<S: Scheme> fmt::Debug for Rebuild<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rebuild").field("tree", &self.tree).finish_non_exhaustive()
    }
}

impl<S: Scheme> Rebuild<'_, S> {
    /// Writes leaves whenever they take so many bytes: 16 MiB unless told otherwise.
    pub const fn hold(&mut self, bytes: usize) {
        self.held_bytes_max = bytes;
    }

    /// Takes the next leaf.
    ///
    /// # Errors
    /// If it is not behind the leaf before it, if the tree takes no such leaf, or if the store
    /// fails. The tree stays as it was.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        if let Some(before) = &self.last
            && &before[..] >= key
        {
            return Err(TreeError::Unsorted { before: before.clone(), key: key.to_vec() });
        }
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        self.held.put(key, value);
        self.held_bytes += key.len() + value.len();
        if self.held_bytes >= self.held_bytes_max { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), TreeError> {
        self.held_bytes = 0;
        let pending = self.fresh.prepare_in(&*self.store.view()?, None, &mut self.held)?;
        self.stats += self.fresh.commit_in(self.store, &pending, None)?;
        Ok(())
    }

    /// The root of the leaves so far.
    ///
    /// # Errors
    /// As [`Rebuild::push`].
    pub fn root(&mut self) -> Result<S::Root, TreeError> {
        self.write()?;
        Ok(self.fresh.root())
    }

    /// Makes the new generation the tree's, in one commit, and removes the old one. The answer
    /// counts what was written.
    ///
    /// # Errors
    /// If the tree refuses the last leaves, another writer has committed to it, or the store fails.
    /// Then the tree stays as it was, unless all that failed is removing the old rows.
    pub fn finish(mut self, block: Option<BlockId>) -> Result<CommitStats, TreeError> {
        self.write()?;
        let Self { tree, store, fresh, stats, token, .. } = self;
        let key = rebuild_key(tree.id());
        if !tree.is_rebuilt_by(&*store.view()?, &token)? {
            return Err(TreeError::Swept { tree: tree.id() });
        }
        let record = fresh.record(tree.commit_number() + 1, block, fresh.root());
        let mut set = WriteSet::new();
        set.put(Table::Roots, &RootRecord::key(tree.id()), record.encode(tree.id()));
        set.delete(Table::Meta, &key);
        store.put(set)?;
        tree.take_over(fresh, block);
        tree.sweep_in(store)?;
        Ok(stats)
    }
}
