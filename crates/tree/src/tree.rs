//! A tree over a store: its last commit, and states prepared on top of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use smallvec::SmallVec;
use spinney_hash::prefetch;

use crate::batch::Operation;
use crate::cache::Cache;
use crate::costs::{Meter, TreeCosts};
use crate::error::TreeError;
use crate::head::Head;
use crate::ids::{BlockId, SchemeId, TreeId};
use crate::image::{Codec, PageKind, unseal};
use crate::node::{Arena, Link, PageRef, Top};
use crate::page::{HandleCell, Lists, Page, corrupt};
use crate::page_key::{PageKey, Space, whole};
use crate::pool::Pool;
use crate::read::{Halt, Reader, Value};
use crate::root_record::{RootRecord, version};
use crate::rows::{KeepRows, ReadRows};
use crate::scheme::Scheme;
use crate::store::{PageStore, Snapshot, Table, WriteSet};
use crate::update::{Loaded, Missing};
use crate::view::TreeView;
use crate::write;

/// So many pages ahead a row is asked for, or the index that it goes on with.
const ROWS_AHEAD: usize = 3;
/// So many pages ahead the page is asked for whose place is taken.
const PAGES_AHEAD: usize = 7;
/// From so many rows on their pages are made while the store writes them.
const PAGES_BESIDE_MIN: u64 = 64;

/// Pages of a tree that stay in memory, unless told otherwise: 256 MiB.
pub const CACHE_BYTES_DEFAULT: usize = 256 << 20;

/// One authenticated tree in a store.
///
/// ```
/// # use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeId, mpt::Mpt};
/// let store = MemoryStore::new();
/// let mut tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 1 << 20)?;
/// let mut batch = Batch::new();
/// batch.put(b"doe", b"reindeer");
/// let pending = tree.prepare(&store.snapshot()?, None, batch)?;
/// tree.commit(&store, &pending, None)?;
/// assert_eq!(tree.root(), pending.root());
/// assert_eq!(&*tree.get(&store.snapshot()?, None, b"doe")?.unwrap(), b"reindeer");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Tree<S: Scheme> {
    pub(crate) scheme: S,
    id: TreeId,
    pub(crate) space: Space,
    pub(crate) head: Head<S>,
    pub(crate) cache: Arc<Cache<S::Commit>>,
    pub(crate) pool: Arc<Pool<S>>,
    pub(crate) meter: Arc<Meter>,
    writing: Mutex<write::Buffers>,
    /// Batches of at least so many operations are split over the threads.
    pub(crate) split_ops: usize,
    /// Whether no root record names its generation yet.
    hidden: bool,
    /// Whether reads compare what nodes commit to with what is said above them.
    pub(crate) verifies: bool,
}

/// What a batch would make of a tree: a root, and all that a commit needs. Discarding it costs
/// nothing.
///
/// Any number of pending states may stand on the last commit or on one another.
#[derive(Debug)]
pub struct Pending<S: Scheme> {
    /// The commit's own arena, then those of each batch.
    pub(crate) arenas: Arenas<S>,
    /// The batch and the number of the commit it was prepared on.
    pub(crate) base: (u64, u64),
    pub(crate) top: Option<Top<S::Commit>>,
    pub(crate) root: S::Root,
    /// Where the arenas' memory goes.
    pub(crate) pool: Arc<Pool<S>>,
}

pub(crate) type Arenas<S> = SmallVec<[Arc<Arena<<S as Scheme>::Commit>>; 8]>;

impl<S: Scheme> Clone for Pending<S> {
    fn clone(&self) -> Self {
        Self {
            arenas: self.arenas.clone(),
            base: self.base,
            top: self.top,
            root: self.root,
            pool: Arc::clone(&self.pool),
        }
    }
}

impl<S: Scheme> Drop for Pending<S> {
    fn drop(&mut self) {
        self.pool.recycle(self.arenas.drain(..));
    }
}

impl<S: Scheme> Pending<S> {
    /// The root of the state.
    pub const fn root(&self) -> S::Root {
        self.root
    }

    /// Whether some of the batches that it stands on are committed.
    fn is_committed_in_part(&self) -> bool {
        self.arenas.iter().any(|arena| arena.batch.is_committed())
    }

    /// The arenas of batches that are not committed.
    pub(crate) fn fresh(&self) -> &[Arc<Arena<S::Commit>>] {
        let committed = self.arenas.iter().rposition(|arena| arena.batch.is_committed());
        // The first arena is the commit's. A batch's first one has its name.
        let behind = &self.arenas[committed.map_or(1, |last| last + 1)..];
        let first = behind.iter().position(|arena| arena.batch.id != 0);
        &behind[first.unwrap_or(behind.len())..]
    }

    /// What the batches did that are not committed: the oldest first, each in the order in which
    /// its operations take effect. A batch that changed nothing is left out.
    ///
    /// ```
    /// # use spinney_tree::{Batch, MemoryStore, Operation, PageStore, Tree, TreeId, mpt::Mpt};
    /// # let store = MemoryStore::new();
    /// # let tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 1 << 20)?;
    /// let mut batch = Batch::new();
    /// batch.put(b"dog", b"puppy");
    /// batch.put(b"doe", b"reindeer");
    /// let pending = tree.prepare(&store.snapshot()?, None, batch)?;
    /// let done: Vec<_> = pending.operations().collect();
    /// assert_eq!(done, [Operation::Put(b"doe", b"reindeer"), Operation::Put(b"dog", b"puppy")]);
    /// # Ok::<_, spinney_tree::TreeError>(())
    /// ```
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        self.fresh().iter().flat_map(|arena| arena.ops.iter().map(|op| op.show(&arena.bytes)))
    }

    /// Bytes of memory that the state holds beside the tree's pages, those of its ancestors
    /// included.
    pub fn memory(&self) -> usize {
        let (committed, fresh) = self.sizes();
        committed + fresh
    }

    /// Names the state as a head is named.
    pub(crate) fn position(&self) -> u64 {
        self.batches().last().unwrap_or(self.base.0)
    }

    /// Bytes of the arenas of batches that are committed already, and of those that are not.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let bytes = |arenas: &[Arc<Arena<S::Commit>>]| -> usize {
            arenas.iter().map(|arena| arena.capacity()).sum()
        };
        let fresh = bytes(self.fresh());
        (bytes(&self.arenas[1..]) - fresh, fresh)
    }

    /// The batches that it stands on, by name.
    pub(crate) fn batches(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.arenas.iter().map(|arena| arena.batch.id).filter(|&batch| batch != 0)
    }
}

/// What a commit wrote to a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitStats {
    /// Pages and overflow rows written.
    pub rows_written: u64,
    /// Pages and overflow rows removed one by one.
    pub rows_removed: u64,
    /// Subtrees dropped as ranges.
    pub ranges_dropped: u64,
    /// Bytes of keys and values of the rows written: the logical size of the commit.
    pub bytes: u64,
}

impl std::ops::AddAssign for CommitStats {
    fn add_assign(&mut self, other: Self) {
        self.rows_written += other.rows_written;
        self.rows_removed += other.rows_removed;
        self.ranges_dropped += other.ranges_dropped;
        self.bytes += other.bytes;
    }
}

/// A pending state whose rows are in a write set: [`Tree::finalize`] it once the store took them.
#[derive(Debug)]
#[must_use = "the tree does not know of the commit until it adopts it"]
pub struct PreparedCommit<S: Scheme> {
    pending: Pending<S>,
    rows: write::Rows<S::Commit>,
    /// Whether the tree is empty by now.
    emptied: bool,
    block: Option<BlockId>,
    /// Whether there is a new root record: it counts the commits.
    recorded: bool,
    stats: CommitStats,
    /// Pages of the rows, the first ones first, as far as they are made.
    pages: Vec<Arc<Page<S::Commit>>>,
}

impl<S: Scheme> PreparedCommit<S> {
    /// What the commit writes.
    pub const fn stats(&self) -> CommitStats {
        self.stats
    }
}

/// A state's arenas, and its topmost node.
type Nodes<'a, S> = (&'a [Arc<Arena<<S as Scheme>::Commit>>], Option<Link>);

impl<S: Scheme> Tree<S> {
    /// Opens a tree, which is empty if the store does not know it. `cache_bytes` bounds the pages
    /// that stay in memory, with what is remembered of them and what it takes to find them.
    ///
    /// # Errors
    /// If the store holds a tree of another scheme under this id, one of a newer format, or damage.
    pub fn open<N: Snapshot>(
        scheme: S,
        id: TreeId,
        snapshot: &N,
        cache_bytes: usize,
    ) -> Result<Self, TreeError> {
        S::engine().parts().open(scheme, id, snapshot, cache_bytes)
    }

    pub(crate) fn open_here(
        scheme: S,
        id: TreeId,
        snapshot: &dyn ReadRows,
        cache_bytes: usize,
    ) -> Result<Self, TreeError> {
        let record = RootRecord::read(id, snapshot)?;
        let (expected, generation) = (scheme.id(), record.as_ref().map_or(0, |r| r.generation));
        if let Some(found) = record.as_ref().map(|r| r.scheme).filter(|found| *found != expected) {
            return Err(TreeError::OtherScheme { tree: id, found, expected });
        }
        let space = Space { tree: id, generation };
        let batch = next_batch();
        let (cache, pool) = (Arc::new(Cache::new(cache_bytes, batch)), Arc::default());
        let empty = scheme.root(None);
        let arena = Arc::new(Arena::new());
        let head = Head::new(batch, arena, None, empty);
        let mut tree = Self {
            scheme,
            id,
            space,
            head,
            cache,
            pool,
            meter: Arc::default(),
            writing: Mutex::default(),
            split_ops: S::LAYOUT.split_ops_min,
            hidden: false,
            verifies: false,
        };
        if let Some(record) = record {
            tree.load_here(snapshot, &record)?;
        }
        Ok(tree)
    }

    /// An empty tree of the same kind in another generation, which no root record names yet.
    pub(crate) fn generation(&self, space: Space, cache_bytes: usize) -> Self
    where
        S: Clone,
    {
        let scheme = self.scheme.clone();
        let root = scheme.root(None);
        let arena = Arc::new(Arena::new());
        let batch = next_batch();
        let head = Head::new(batch, arena, None, root);
        let (cache, pool) = (Arc::new(Cache::new(cache_bytes, batch)), Arc::clone(&self.pool));
        let (id, split_ops, meter) = (self.id, self.split_ops, Arc::default());
        Self {
            scheme,
            id,
            space,
            head,
            cache,
            pool,
            meter,
            writing: Mutex::default(),
            split_ops,
            hidden: true,
            verifies: self.verifies,
        }
    }

    /// Becomes what another generation is, once the root record names that.
    pub(crate) fn take_over(&mut self, fresh: Self, block: Option<BlockId>) {
        let commit = self.head.commit + 1;
        self.space = fresh.space;
        self.head = Head { commit, block, ..fresh.head };
        fresh.cache.set_budget(self.cache.pages().budget());
        // Views of the earlier generation keep its pages, and learn that they are no more the
        // tree's.
        self.cache.move_to(fresh.head.batch, None, &[], &[]);
        self.cache = fresh.cache;
    }

    /// Takes up the commit that a root record names.
    pub(crate) fn load_here(
        &mut self,
        snapshot: &dyn ReadRows,
        record: &RootRecord,
    ) -> Result<(), TreeError> {
        let key = PageKey::page(self.space, &[], 0);
        let page = match snapshot.row(Table::Pages, key.as_bytes())? {
            Some(row) => Some(self.parsed(&key, row, 0, &mut Lists::default())?),
            None => None,
        };
        self.head = self.head_of(page.clone())?;
        self.cache.put(page);
        (self.head.commit, self.head.block) = (record.commit, record.block);
        if self.head.root.as_ref() != record.root {
            return Err(corrupt(&key, "its root is not that of the root record"));
        }
        Ok(())
    }

    /// The head whose root page this is.
    fn head_of(&self, page: Option<Arc<Page<S::Commit>>>) -> Result<Head<S>, TreeError> {
        let mut arena = Arena::new();
        let mut top = None;
        if let Some(page) = page {
            if page.kind != PageKind::Root {
                return Err(corrupt(&page.key, "it is no root page"));
            }
            let Some(commit) = page.commit(self.codec(), page.entry(0), 0) else {
                return Err(corrupt(&page.key, "its node has no commitment"));
            };
            let link = Link::Stored { page: PageRef { arena: 0, page: 0 }, entry: 0 };
            top = Some(Top { link, commit });
            arena.pages.push(page);
        }
        let root = self.scheme.root(top.as_ref().map(|top| &top.commit));
        let arena = Arc::new(arena);
        Ok(Head::new(self.head.batch, arena, top, root))
    }

    /// A page that was read: its checksum is right, and it is one.
    pub(crate) fn parsed(
        &self,
        key: &PageKey,
        row: Arc<[u8]>,
        bits: u32,
        lists: &mut Lists<S::Commit>,
    ) -> Result<Arc<Page<S::Commit>>, TreeError> {
        unseal(key.as_bytes(), &row).map_err(|what| corrupt(key, what))?;
        Ok(Arc::new(Page::parse(self.codec(), key.clone(), row, bits as usize, &[], lists)?))
    }

    pub(crate) const fn codec(&self) -> Codec<'_, S> {
        Codec { scheme: &self.scheme }
    }

    /// Splits batches of at least `operations` operations over the threads of the current rayon
    /// pool, by ranges of keys; 512 unless told otherwise. Roots and pages do not depend on it.
    pub const fn split_batches_from(&mut self, operations: usize) {
        self.split_ops = operations;
    }

    /// What the tree did since it was opened.
    pub fn costs(&self) -> TreeCosts {
        self.meter.costs()
    }

    /// The tree's id in its store.
    pub const fn id(&self) -> TreeId {
        self.id
    }

    /// Which tree it is, as its root record says.
    pub fn scheme_id(&self) -> SchemeId {
        self.scheme.id()
    }

    /// The root of the last commit.
    pub const fn root(&self) -> S::Root {
        self.head.root
    }

    /// How many commits were made to the tree.
    pub const fn commit_number(&self) -> u64 {
        self.head.commit
    }

    /// The block whose state the last commit holds, if it was told.
    pub const fn block(&self) -> Option<BlockId> {
        self.head.block
    }

    /// Bytes of pages in memory, of what is remembered of them, and of what it takes to find them.
    pub fn resident_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// Whether a snapshot shows the last commit.
    pub(crate) fn current(&self, snapshot: &dyn ReadRows) -> Result<(), TreeError> {
        if self.hidden {
            return Ok(());
        }
        self.head.checked.check(self.id, self.head.commit, snapshot)
    }

    /// Reads pages that have to be there, and keeps them. The snapshot is known to show the last
    /// commit.
    pub(crate) fn read_pages(
        &self,
        snapshot: &dyn ReadRows,
        wanted: &[Missing],
    ) -> Result<Vec<Arc<Page<S::Commit>>>, TreeError> {
        let bytes: Vec<&[u8]> = wanted.iter().map(|(key, _)| key.as_bytes()).collect();
        let rows = snapshot.rows(Table::Pages, &bytes)?;
        self.meter.read(wanted.len());
        let (mut pages, mut lists) = (Vec::with_capacity(wanted.len()), Lists::default());
        for ((key, bits), row) in wanted.iter().zip(rows) {
            let row =
                row.ok_or_else(|| corrupt(key, "the page above names it, and it is missing"))?;
            pages.push(self.parsed(key, row, *bits, &mut lists)?);
        }
        self.cache.put(pages.iter().cloned());
        Ok(pages)
    }

    /// A page that is in memory.
    pub(crate) fn resident(
        &self,
        cell: Option<&HandleCell>,
        key: &dyn Fn() -> PageKey,
        loaded: &Loaded<S::Commit>,
    ) -> Option<Arc<Page<S::Commit>>> {
        if !loaded.is_empty()
            && let Some(page) = loaded.get(&key())
        {
            return Some(Arc::clone(page));
        }
        let pages = self.cache.pages();
        if let Some(page) = cell.and_then(|cell| pages.page(cell.get())) {
            return Some(Arc::clone(page));
        }
        let handle = pages.find(&key())?;
        cell.into_iter().for_each(|cell| cell.set(handle));
        pages.page(handle).cloned()
    }

    /// Puts what a pending state would write, and the root record, into a write set that may serve
    /// several trees. The tree stays as it is until it adopts the answer.
    ///
    /// `snapshot` is a view of the last commit.
    ///
    /// # Errors
    /// If `pending` stands on an older commit or belongs to another tree, if another writer has
    /// committed to the tree, or if a page is damaged.
    pub fn prepare_commit<N: Snapshot>(
        &self,
        snapshot: &N,
        pending: &Pending<S>,
        block: Option<BlockId>,
        set: &mut WriteSet,
    ) -> Result<PreparedCommit<S>, TreeError> {
        S::engine().parts().prepare_commit(self, snapshot, (pending, block), set)
    }

    pub(crate) fn prepare_commit_here(
        &self,
        snapshot: &dyn ReadRows,
        pending: &Pending<S>,
        block: Option<BlockId>,
        set: &mut WriteSet,
    ) -> Result<PreparedCommit<S>, TreeError> {
        self.standing(pending)?;
        self.current(snapshot)?;
        let rebased;
        let mut pending = pending;
        // Rows are those that differ from the last commit's: what is committed already is made anew
        // on it.
        if pending.is_committed_in_part() && pending.position() != self.head.batch {
            rebased = self.rebase(snapshot, pending)?;
            pending = &rebased;
        }
        let mut rows = self.rows(pending)?;
        let emptied = pending.top.is_none() && self.head.top.is_some();
        if emptied {
            rows.deletes.push(PageKey::page(self.space, &[], 0));
        }
        let mut stats = CommitStats {
            rows_written: rows.puts.len() as u64,
            rows_removed: rows.deletes.len() as u64,
            ranges_dropped: rows.drops.len() as u64,
            bytes: 0,
        };
        for (low, high) in &rows.drops {
            set.drop_range(Table::Pages, low.clone(), high.clone());
        }
        set.reserve(rows.deletes.len() + rows.puts.len() + 1);
        for key in &rows.deletes {
            set.delete(Table::Pages, key.as_bytes());
        }
        let mut puts = rows.puts.iter();
        while let Some(write::Written { put, old, .. }) = puts.next() {
            fetch_ahead(puts.as_slice(), |written, old| {
                // What counts who holds a row lies in front of it.
                prefetch(&written.put.row[..1]);
                old.into_iter().for_each(|old| prefetch(&old.row[..1]));
            });
            stats.bytes += put.bytes() as u64;
            let row = |page: &Arc<Page<S::Commit>>| Arc::clone(&page.row);
            let before = match old {
                Some(old) => Some(row(old)),
                None => {
                    self.resident(None, &|| put.key.clone(), &Loaded::default()).as_ref().map(row)
                }
            };
            set.put_over(Table::Pages, put.key.as_bytes(), Arc::clone(&put.row), before);
        }
        let changed = pending.root != self.head.root || stats != CommitStats::default();
        let recorded = (changed || block != self.head.block) && !self.hidden;
        if recorded {
            let record = self.record(self.head.commit + 1, block, pending.root);
            set.put(Table::Roots, &RootRecord::key(self.id), record.encode(self.id));
        }
        let (pending, pages) = (pending.clone(), Vec::new());
        Ok(PreparedCommit { pending, rows, emptied, block, recorded, stats, pages })
    }

    /// The rows of a state that differ from the last commit's.
    fn rows(&self, pending: &Pending<S>) -> Result<write::Rows<S::Commit>, TreeError> {
        if pending.position() == self.head.batch {
            return Ok(write::Rows::default());
        }
        let top = pending.top.as_ref().map(|top| top.link);
        let kept = || self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffers = std::mem::take(&mut *kept());
        let rows = write::rows(self.codec(), self.space, &pending.arenas, top, &mut buffers);
        *kept() = buffers;
        rows
    }

    pub(crate) fn record(&self, commit: u64, block: Option<BlockId>, root: S::Root) -> RootRecord {
        RootRecord {
            version: version::<S>(),
            scheme: self.scheme.id(),
            generation: self.space.generation,
            commit,
            block,
            root: root.as_ref().to_vec(),
        }
    }

    /// Takes up a commit once the store has it.
    ///
    /// # Panics
    /// If it was prepared by another tree, or before the last commit.
    pub fn finalize(&mut self, prepared: PreparedCommit<S>) {
        S::engine().parts().finalize(self, prepared);
    }

    /// Runs `put`, which gives to the store what was prepared, while another thread makes the pages
    /// with which the tree goes on. [`Tree::finalize`] makes those that are not made by then.
    pub fn make_pages_beside<T>(
        &self,
        prepared: &mut PreparedCommit<S>,
        put: impl FnOnce() -> T,
    ) -> T {
        if prepared.stats.rows_written < PAGES_BESIDE_MIN {
            return put();
        }
        rayon::in_place_scope(|scope| {
            scope.spawn(|_| S::engine().parts().make_pages(self, prepared));
            put()
        })
    }

    pub(crate) fn make_pages_here(&self, prepared: &mut PreparedCommit<S>) {
        let PreparedCommit { rows: write::Rows { puts, known, .. }, pages, .. } = prepared;
        pages.reserve(puts.len() - pages.len());
        let (mut puts, mut lists) = (puts[pages.len()..].iter(), Lists::default());
        while let Some(write::Written { put, old, is_like, known: range }) = puts.next() {
            fetch_ahead(puts.as_slice(), |written, old| match old {
                Some(old) if written.is_like => old.fetch_index(),
                _ => prefetch(&written.put.row),
            });
            let (known, row) = (&known[range.clone()], Arc::clone(&put.row));
            let page = match &old {
                Some(old) if *is_like => old.renewed(row, known),
                _ => {
                    let (key, bits) = (put.key.clone(), put.bits as usize);
                    Page::parse(self.codec(), key, row, bits, known, &mut lists)
                        .expect("a page that was just written")
                }
            };
            pages.push(Arc::new(page));
        }
    }

    pub(crate) fn finalize_here(&mut self, mut prepared: PreparedCommit<S>) {
        assert!(
            self.standing(&prepared.pending).is_ok(),
            "prepared by another tree, or before its last commit"
        );
        self.make_pages_here(&mut prepared);
        let PreparedCommit { pending, rows, emptied, block, recorded, pages, .. } = prepared;
        let commit = self.head.commit + u64::from(recorded);
        let write::Rows { puts, deletes, drops, .. } = rows;
        for (page, written) in pages.iter().zip(&puts) {
            if let Some(old) = &written.old {
                page.place.set(old.place.get());
            }
        }
        let root = pages.iter().find(|page| page.kind == PageKind::Root).cloned();
        if root.is_some() || emptied {
            self.head = self.head_of(root).expect("a root page that was just written");
        }
        (self.head.commit, self.head.block) = (commit, block);
        self.head.checked = Arc::default();
        for arena in pending.arenas.iter().filter(|arena| arena.batch.id != 0) {
            self.head.batch = arena.batch.id;
            arena.batch.set_committed();
        }
        self.cache.move_to(self.head.batch, pages, &deletes, &drops);
    }

    /// Writes a pending state to the store and takes it up: one durable commit of this tree alone.
    ///
    /// # Errors
    /// As [`Tree::prepare_commit`], or if the store fails; then nothing has changed.
    pub fn commit<P: PageStore>(
        &mut self,
        store: &P,
        pending: &Pending<S>,
        block: Option<BlockId>,
    ) -> Result<CommitStats, TreeError> {
        self.commit_in(store, pending, block)
    }

    pub(crate) fn commit_in(
        &mut self,
        store: &dyn KeepRows,
        pending: &Pending<S>,
        block: Option<BlockId>,
    ) -> Result<CommitStats, TreeError> {
        let mut set = WriteSet::new();
        let parts = S::engine().parts();
        let mut prepared =
            parts.prepare_commit(self, &*store.view()?, (pending, block), &mut set)?;
        let stats = prepared.stats();
        if !set.is_empty() {
            set.sort();
            self.make_pages_beside(&mut prepared, || store.put(set))?;
            self.finalize(prepared);
        }
        Ok(stats)
    }

    /// The value of a key in `state`, or in the last commit.
    ///
    /// # Errors
    /// If `state` stands on an older commit, or a page is damaged or cannot be read.
    pub fn get<N: Snapshot>(
        &self,
        snapshot: &N,
        state: Option<&Pending<S>>,
        key: &[u8],
    ) -> Result<Option<Value>, TreeError> {
        S::engine().parts().get(self, snapshot, state, key)
    }

    pub(crate) fn get_here(
        &self,
        snapshot: &dyn ReadRows,
        state: Option<&Pending<S>>,
        key: &[u8],
    ) -> Result<Option<Value>, TreeError> {
        if let Some(state) = state {
            self.standing(state)?;
        }
        if self.verifies {
            return self.get_verified(snapshot, state, key);
        }
        let fetch = |cell: Option<&HandleCell>, key: &dyn Fn() -> PageKey, bits: usize| {
            self.fetch(snapshot, cell, key, bits)
        };
        let (arenas, top) = self.nodes(state);
        let reader = Reader { codec: self.codec(), space: self.space, arenas, fetch: &fetch };
        Ok(reader.get(top, key)?)
    }

    /// The last commit, to be read beside the tree: by other threads, and while the tree goes on.
    /// It shares the tree's memory for pages.
    ///
    /// ```
    /// # use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeId, mpt::Mpt};
    /// # let store = MemoryStore::new();
    /// # let mut tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 1 << 20)?;
    /// let view = tree.view();
    /// let snapshot = store.snapshot()?;
    /// assert!(view.get(&snapshot, b"doe")?.is_none());
    /// let mut batch = Batch::new();
    /// batch.put(b"doe", b"reindeer");
    /// let pending = tree.prepare(&store.snapshot()?, None, batch)?;
    /// tree.commit(&store, &pending, None)?;
    /// assert_eq!(&*tree.view().get(&store.snapshot()?, b"doe")?.unwrap(), b"reindeer");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn view(&self) -> TreeView<S>
    where
        S: Clone,
    {
        let parts = (self.scheme.clone(), self.id, self.space);
        let shared = (Arc::clone(&self.cache), Arc::clone(&self.meter));
        TreeView::new(parts, &self.head, shared, self.verifies)
    }

    pub(crate) fn fetch(
        &self,
        snapshot: &dyn ReadRows,
        cell: Option<&HandleCell>,
        key: &dyn Fn() -> PageKey,
        bits: usize,
    ) -> Result<Arc<Page<S::Commit>>, Halt> {
        if let Some(page) = self.resident(cell, key, &Loaded::default()) {
            return Ok(page);
        }
        self.current(snapshot)?;
        Ok(self.read_pages(snapshot, &[(key(), bits as u32)])?.remove(0))
    }

    /// The arenas of `state`, or of the last commit, and its topmost node.
    pub(crate) fn nodes<'a>(&'a self, state: Option<&'a Pending<S>>) -> Nodes<'a, S> {
        match state {
            Some(state) => (&state.arenas, state.top.map(|top| top.link)),
            None => (std::slice::from_ref(&self.head.arena), self.head.top.map(|top| top.link)),
        }
    }

    /// The topmost node of `state`, or of the last commit, and what it commits to.
    pub(crate) fn top(&self, state: Option<&Pending<S>>) -> Option<Top<S::Commit>> {
        state.map_or(self.head.top, |state| state.top)
    }

    /// An empty tree of the same kind, for a store of its own.
    pub(crate) fn sibling(
        &self,
        snapshot: &dyn ReadRows,
        cache_bytes: usize,
    ) -> Result<Self, TreeError>
    where
        S: Clone,
    {
        let parts = S::engine().parts();
        let mut tree = parts.open(self.scheme.clone(), self.id, snapshot, cache_bytes)?;
        tree.space = self.space;
        Ok(tree)
    }

    /// The bounds of the tree's rows in [`Table::Pages`]: the lower inclusive, the upper exclusive.
    pub fn page_range(&self) -> (Vec<u8>, Vec<u8>) {
        whole(self.space)
    }
}

/// Asks for pages whose places are taken soon, and does `near` with the row that is nearer, and the
/// page that it takes the place of.
fn fetch_ahead<C>(next: &[write::Written<C>], near: impl Fn(&write::Written<C>, Option<&Page<C>>)) {
    if let Some(old) = next.get(PAGES_AHEAD).and_then(|written| written.old.as_deref()) {
        prefetch(std::slice::from_ref(old));
    }
    next.get(ROWS_AHEAD).into_iter().for_each(|written| near(written, written.old.as_deref()));
}

pub(crate) fn next_batch() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
