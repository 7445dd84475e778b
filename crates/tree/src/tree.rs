//! A tree over a store: its last commit, and states prepared on top of it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use smallvec::SmallVec;

use crate::batch::Operation;
use crate::cache::{Cache, Mark};
use crate::costs::{Meter, TreeCosts};
use crate::edit::{self, Trial};
use crate::error::TreeError;
use crate::image::{Codec, NodeView, PageKind, SUM_BYTES, unseal};
use crate::node::{Child, Link, OpenPage, Segment, Top};
use crate::open::corrupt;
use crate::page_key::{PageKey, Space, whole};
use crate::pool::Pool;
use crate::read::{Entry, Reader, Value, Walk};
use crate::root_record::{RootRecord, version};
use crate::row::Row;
use crate::scheme::{Scheme, SchemeId};
use crate::store::{PageStore, Snapshot, Table, WriteSet};
use crate::write;

/// Names a tree within its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u32);

impl fmt::Display for TreeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tree {}", self.0)
    }
}

/// A block, by number and hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockId {
    /// Its number.
    pub number: u64,
    /// Its hash.
    pub hash: [u8; 32],
}

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
    pub(crate) cache: Cache<S::Commit>,
    pub(crate) pool: Arc<Pool<S>>,
    pub(crate) meter: Meter,
    writing: Mutex<write::Buffers>,
    /// Batches of at least so many operations are split over the threads.
    pub(crate) split_ops: usize,
    /// Whether no root record names its generation yet.
    hidden: bool,
    /// How batches are tried that may only edit pages.
    pub(crate) trial: Trial,
}

/// The last commit.
#[derive(Debug)]
pub(crate) struct Head<S: Scheme> {
    /// Names the state: the last batch committed, or this opening of the tree. No other tree of the
    /// process has it, so a pending state can be told from another tree's, and from an older one.
    pub(crate) layer: u64,
    pub(crate) commit: u64,
    block: Option<BlockId>,
    pub(crate) segment: Arc<Segment<S::Commit>>,
    pub(crate) top: Option<Top<S::Commit>>,
    pub(crate) root: S::Root,
}

/// What a batch would make of a tree: a root, and all that a commit needs. Discarding it costs nothing.
///
/// Any number of pending states may stand on the last commit or on one another.
#[derive(Debug)]
pub struct Pending<S: Scheme> {
    /// The commit's own segment, then those of each batch.
    pub(crate) segments: Segments<S>,
    /// The layer and the number of the commit it was prepared on.
    pub(crate) base: (u64, u64),
    pub(crate) top: Option<Top<S::Commit>>,
    pub(crate) root: S::Root,
    /// Where the segments' memory goes.
    pub(crate) pool: Arc<Pool<S>>,
    /// Whether the second segment has edits of pages and no nodes: see `edit.rs`.
    pub(crate) edited: bool,
    /// The same state with all of its nodes, if some of its batch are edits, and somebody asked for them.
    pub(crate) twin: OnceLock<Nodes<S>>,
}

/// The nodes of a state: its segments, and its topmost node.
pub(crate) type Nodes<S> = (Segments<S>, Option<Top<<S as Scheme>::Commit>>);

pub(crate) type Segments<S> = SmallVec<[Arc<Segment<<S as Scheme>::Commit>>; 8]>;

impl<S: Scheme> Clone for Pending<S> {
    fn clone(&self) -> Self {
        Self {
            segments: self.segments.clone(),
            base: self.base,
            top: self.top,
            root: self.root,
            pool: Arc::clone(&self.pool),
            edited: self.edited,
            twin: self.twin.clone(),
        }
    }
}

impl<S: Scheme> Drop for Pending<S> {
    fn drop(&mut self) {
        if let Some((mut segments, _)) = self.twin.take() {
            self.pool.recycle(segments.drain(..));
        }
        self.pool.recycle(self.segments.drain(..));
    }
}

impl<S: Scheme> Pending<S> {
    /// The root of the state.
    pub const fn root(&self) -> S::Root {
        self.root
    }

    /// Whether some of the batches that it stands on are committed.
    fn is_settled_in_part(&self) -> bool {
        self.segments.iter().any(|segment| segment.layer.is_settled())
    }

    /// What the batches did that are not committed: the oldest first, each in the order in which its operations
    /// take effect. A batch that changed nothing is left out.
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
        let settled = self.segments.iter().rposition(|segment| segment.layer.is_settled());
        // The first segment is the commit's.
        let fresh = &self.segments[settled.map_or(1, |last| last + 1)..];
        fresh.iter().flat_map(|segment| segment.ops.iter().map(|op| op.show(&segment.bytes)))
    }

    /// Bytes of memory that the state holds beside the tree's pages, those of its ancestors included.
    pub fn memory(&self) -> usize {
        let (settled, fresh) = self.sizes();
        // Of its twin, the first two segments are its own.
        let twin = self.twin.get().map_or(&[][..], |(segments, _)| &segments[..]);
        settled + fresh + twin.iter().skip(2).map(|segment| segment.capacity()).sum::<usize>()
    }

    /// Names the state as a head is named.
    pub(crate) fn position(&self) -> u64 {
        self.layers().last().unwrap_or(self.base.0)
    }

    /// Bytes of the segments that are committed already, and of those that are not.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let (mut settled, mut fresh) = (0, 0);
        for segment in &self.segments[1..] {
            fresh += segment.capacity();
            if segment.layer.is_settled() {
                settled += std::mem::take(&mut fresh);
            }
        }
        (settled, fresh)
    }

    /// The batches that it stands on, by name.
    pub(crate) fn layers(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.segments.iter().map(|segment| segment.layer.id).filter(|&layer| layer != 0)
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

/// A pending state whose rows are in a write set: [`Tree::adopt`] it once the store took them.
#[derive(Debug)]
#[must_use = "the tree does not know of the commit until it adopts it"]
pub struct Staged<S: Scheme> {
    pending: Pending<S>,
    rows: Vec<(PageKey, Option<Row>)>,
    marks: Vec<Mark<S::Commit>>,
    drops: Vec<(Vec<u8>, Vec<u8>)>,
    block: Option<BlockId>,
    /// Whether there is a new root record: it counts the commits.
    recorded: bool,
    stats: CommitStats,
}

impl<S: Scheme> Staged<S> {
    /// What the commit writes.
    pub const fn stats(&self) -> CommitStats {
        self.stats
    }
}

impl<S: Scheme> Tree<S> {
    /// Opens a tree, which is empty if the store does not know it. `cache_bytes` bounds the pages that
    /// stay in memory, with what is remembered of them and what it takes to find them.
    ///
    /// # Errors
    /// If the store holds a tree of another scheme under this id, one of a newer format, or damage.
    pub fn open<N: Snapshot>(
        scheme: S,
        id: TreeId,
        snapshot: &N,
        cache_bytes: usize,
    ) -> Result<Self, TreeError> {
        let record = match snapshot.read(Table::Roots, &RootRecord::key(id))? {
            Some(row) => Some(RootRecord::decode(id, &row)?),
            None => None,
        };
        let (expected, generation) = (scheme.id(), record.as_ref().map_or(0, |r| r.generation));
        if let Some(found) = record.as_ref().map(|r| r.scheme).filter(|found| *found != expected) {
            return Err(TreeError::OtherScheme { tree: id, found, expected });
        }
        let space = Space { tree: id, generation };
        let (cache, pool) = (Cache::new(cache_bytes), Arc::default());
        let empty = scheme.root(None);
        let segment = Arc::new(Segment::new());
        let layer = next_layer();
        let head = Head { layer, commit: 0, block: None, segment, top: None, root: empty };
        let mut tree = Self {
            scheme,
            id,
            space,
            head,
            cache,
            pool,
            meter: Meter::default(),
            writing: Mutex::default(),
            split_ops: S::SPLIT_OPS_MIN,
            hidden: false,
            trial: Trial::default(),
        };
        if let Some(record) = record {
            tree.load(snapshot, &record)?;
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
        let segment = Arc::new(Segment::new());
        let head = Head { layer: next_layer(), commit: 0, block: None, segment, top: None, root };
        let (cache, pool) = (Cache::new(cache_bytes), Arc::clone(&self.pool));
        let (id, split_ops, meter) = (self.id, self.split_ops, Meter::default());
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
            trial: Trial::default(),
        }
    }

    /// Becomes what another generation is, once the root record names that.
    pub(crate) fn take_over(&mut self, fresh: Self, block: Option<BlockId>) {
        let commit = self.head.commit + 1;
        self.space = fresh.space;
        self.head = Head { commit, block, ..fresh.head };
        self.cache.replace(fresh.cache);
    }

    /// Takes up the commit that a root record names.
    pub(crate) fn load<N: Snapshot>(
        &mut self,
        snapshot: &N,
        record: &RootRecord,
    ) -> Result<(), TreeError> {
        let key = PageKey::page(self.space, &[], 0);
        let row = snapshot.read(Table::Pages, key.as_bytes())?.map(|row| Arc::<[u8]>::from(&*row));
        if let Some(row) = &row {
            unseal(key.as_bytes(), row).map_err(|what| corrupt(&key, what))?;
        }
        self.head = self.head_of(row.clone())?;
        self.cache.put(row.map(|row| (key.clone(), Some(row))));
        (self.head.commit, self.head.block) = (record.commit, record.block);
        if self.head.root.as_ref() != record.root {
            return Err(corrupt(&key, "its root is not that of the root record"));
        }
        Ok(())
    }

    /// The head whose root page this is.
    fn head_of(&self, row: Option<Arc<[u8]>>) -> Result<Head<S>, TreeError> {
        let mut segment = Segment::new();
        let mut top = None;
        if let Some(row) = row {
            let key = PageKey::page(self.space, &[], 0);
            let at = SUM_BYTES + 1;
            if row.get(SUM_BYTES) != Some(&(PageKind::Root as u8)) {
                return Err(corrupt(&key, "it is no root page"));
            }
            let (node, _) = self.codec().node(&row, at, 0).map_err(|what| corrupt(&key, what))?;
            let (terminal, commit) = match node {
                NodeView::Terminal(view) => (true, view.commit),
                NodeView::Branch(view) => (false, Some(view.commit)),
            };
            let Some(commit) = commit else {
                return Err(corrupt(&key, "its node has no commitment"));
            };
            let link = Link::Stored { segment: 0, page: 0, at: at as u16 };
            let child = Child { link, commit: Child::NOWHERE, digit: 0, terminal };
            top = Some(Top { child, commit });
            segment.pages.push(OpenPage { key, row, stale: false });
        }
        let root = self.scheme.root(top.as_ref().map(|top| &top.commit));
        let segment = Arc::new(segment);
        Ok(Head { layer: self.head.layer, commit: 0, block: None, segment, top, root })
    }

    pub(crate) const fn codec(&self) -> Codec<'_, S> {
        Codec { scheme: &self.scheme }
    }

    /// Splits batches of at least `operations` operations over the threads of the current rayon pool, by
    /// ranges of keys; 2,048 unless told otherwise. Roots and pages do not depend on it.
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

    /// Whether a snapshot shows the last commit: pages of another one must not be taken for its own.
    pub(crate) fn current<N: Snapshot>(&self, snapshot: &N) -> Result<(), TreeError> {
        if self.hidden {
            return Ok(());
        }
        let row = snapshot.read(Table::Roots, &RootRecord::key(self.id))?;
        let found = match row {
            Some(row) => RootRecord::decode(self.id, &row)?.commit,
            None => 0,
        };
        if found == self.head.commit {
            Ok(())
        } else {
            Err(TreeError::OtherSnapshot { tree: self.id, found, head: self.head.commit })
        }
    }

    /// Reads pages that have to be there, and keeps them.
    pub(crate) fn read_rows<N: Snapshot>(
        &self,
        snapshot: &N,
        keys: &[PageKey],
    ) -> Result<Vec<Arc<[u8]>>, TreeError> {
        self.current(snapshot)?;
        self.read_rows_of(snapshot, keys)
    }

    /// As [`Tree::read_rows`], of a snapshot that is known to show the last commit.
    pub(crate) fn read_rows_of<N: Snapshot>(
        &self,
        snapshot: &N,
        keys: &[PageKey],
    ) -> Result<Vec<Arc<[u8]>>, TreeError> {
        let bytes: Vec<&[u8]> = keys.iter().map(PageKey::as_bytes).collect();
        let rows = snapshot.read_many(Table::Pages, &bytes)?;
        self.meter.read(keys.len());
        let mut shared = Vec::with_capacity(keys.len());
        for (key, row) in keys.iter().zip(rows) {
            let row =
                row.ok_or_else(|| corrupt(key, "the page above names it, and it is missing"))?;
            unseal(key.as_bytes(), &row).map_err(|what| corrupt(key, what))?;
            shared.push(Arc::<[u8]>::from(&*row));
        }
        self.cache.put(keys.iter().cloned().zip(shared.iter().cloned().map(Some)));
        Ok(shared)
    }

    /// Puts what a pending state would write, and the root record, into a write set that may serve
    /// several trees. The tree stays as it is until it adopts the answer.
    ///
    /// `snapshot` is a view of the last commit.
    ///
    /// # Errors
    /// If `pending` stands on an older commit or belongs to another tree, if another writer has
    /// committed to the tree, or if a page is damaged.
    pub fn stage<N: Snapshot>(
        &self,
        snapshot: &N,
        pending: &Pending<S>,
        block: Option<BlockId>,
        set: &mut WriteSet,
    ) -> Result<Staged<S>, TreeError> {
        self.standing(pending)?;
        self.current(snapshot)?;
        let (rebased, remade);
        let mut pending = pending;
        // Rows are those that differ from the last commit's: what is committed already is made anew on it.
        if pending.is_settled_in_part() && pending.position() != self.head.layer {
            rebased = self.rebase(snapshot, pending)?;
            pending = &rebased;
        }
        let mut rows = None;
        if pending.edited && pending.position() != self.head.layer {
            rows = self.rows(pending)?;
            // If a page that it edits is not in memory any more, its nodes are made after all.
            if rows.is_none() {
                remade = self.rebase(snapshot, pending)?;
                pending = &remade;
            }
        }
        let mut rows = match rows {
            Some(rows) => rows,
            None => self.rows(pending)?.unwrap_or_default(),
        };
        if pending.top.is_none() && self.head.top.is_some() {
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
        for (key, row) in &rows.puts {
            stats.bytes += (key.as_bytes().len() + row.len()) as u64;
            set.put_row(Table::Pages, key.as_bytes(), row.clone());
        }
        let mut changes: Vec<_> =
            rows.puts.into_iter().map(|(key, row)| (key, Some(row))).collect();
        changes.extend(rows.deletes.into_iter().map(|key| (key, None)));
        let changed = pending.root != self.head.root || stats != CommitStats::default();
        let recorded = (changed || block != self.head.block) && !self.hidden;
        if recorded {
            let record = self.record(self.head.commit + 1, block, pending.root);
            set.put(Table::Roots, &RootRecord::key(self.id), record.encode(self.id));
        }
        let (drops, marks) = (rows.drops, rows.marks);
        Ok(Staged { pending: pending.clone(), rows: changes, marks, drops, block, recorded, stats })
    }

    /// The rows of a state that differ from the last commit's; nothing if it is one of edits, and a page of them is
    /// not in the cache.
    fn rows(&self, pending: &Pending<S>) -> Result<Option<write::Rows<S::Commit>>, TreeError> {
        if pending.position() == self.head.layer {
            return Ok(Some(write::Rows::default()));
        }
        let top = pending.top.as_ref().map(|top| &top.child);
        let (codec, segments) = (self.codec(), &pending.segments);
        let kept = || self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffers = std::mem::take(&mut *kept());
        buffers.forget_rows();
        let rows = if pending.edited {
            edit::rows(codec, self.space, &self.cache, segments, top, &mut buffers)?
        } else {
            Some(write::rows(codec, self.space, segments, top, &mut buffers)?)
        };
        *kept() = buffers;
        Ok(rows)
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
    /// If it was staged by another tree, or before the last commit.
    pub fn adopt(&mut self, staged: Staged<S>) {
        let Staged { pending, rows, marks, drops, block, recorded, .. } = staged;
        assert!(
            self.standing(&pending).is_ok(),
            "staged by another tree, or before its last commit"
        );
        let root_key = PageKey::page(self.space, &[], 0);
        let commit = self.head.commit + u64::from(recorded);
        let root_row = rows.iter().find(|(key, _)| *key == root_key);
        if let Some((_, row)) = root_row {
            self.head = self
                .head_of(row.as_ref().map(|row| Arc::clone(row.own())))
                .expect("a root page that was just written");
        }
        self.cache.drop_ranges(&drops);
        self.cache.take_up(rows, &marks);
        self.writing.get_mut().unwrap_or_else(PoisonError::into_inner).forget_rows();
        self.head.commit = commit;
        self.head.block = block;
        for segment in pending.segments.iter().filter(|segment| segment.layer.id != 0) {
            self.head.layer = segment.layer.id;
            segment.layer.settle();
        }
    }

    /// Writes a pending state to the store and takes it up: one durable commit of this tree alone.
    ///
    /// # Errors
    /// As [`Tree::stage`], or if the store fails; then nothing has changed.
    pub fn commit<P: PageStore>(
        &mut self,
        store: &P,
        pending: &Pending<S>,
        block: Option<BlockId>,
    ) -> Result<CommitStats, TreeError> {
        let mut set = WriteSet::new();
        let staged = self.stage(&store.snapshot()?, pending, block, &mut set)?;
        let stats = staged.stats();
        if !set.is_empty() {
            set.sort();
            store.commit(&set)?;
            drop(set);
            self.adopt(staged);
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
        if let Some(state) = state {
            self.standing(state)?;
        }
        let fetch = |key: &PageKey| self.fetch(snapshot, key);
        let (segments, top) = self.nodes(snapshot, state)?;
        let top = top.map(|top| &top.child);
        let reader = Reader { codec: self.codec(), space: self.space, segments, fetch: &fetch };
        reader.get(top, key)
    }

    fn fetch<N: Snapshot>(&self, snapshot: &N, key: &PageKey) -> Result<Arc<[u8]>, TreeError> {
        match self.cache.get(key) {
            Some(row) => Ok(row),
            None => Ok(self.read_rows(snapshot, std::slice::from_ref(key))?.remove(0)),
        }
    }

    /// The segments of `state`, or of the last commit, and its topmost node.
    #[expect(clippy::type_complexity, reason = "the two halves of one state")]
    pub(crate) fn nodes<'a, N: Snapshot>(
        &'a self,
        snapshot: &N,
        state: Option<&'a Pending<S>>,
    ) -> Result<(&'a [Arc<Segment<S::Commit>>], Option<&'a Top<S::Commit>>), TreeError> {
        let Some(state) = state else {
            return Ok((std::slice::from_ref(&self.head.segment), self.head.top.as_ref()));
        };
        if !state.edited {
            return Ok((&state.segments, state.top.as_ref()));
        }
        if state.twin.get().is_none() {
            let mut twin = self.rebase(snapshot, state)?;
            // Somebody else may have been faster: theirs is as good.
            let _ = state.twin.set((std::mem::take(&mut twin.segments), twin.top));
        }
        let (segments, top) = state.twin.get().expect("it was just made");
        Ok((segments, top.as_ref()))
    }

    /// The entries of `state`, or of the last commit, from the key `start` on, in order of keys.
    pub fn entries<'a, N: Snapshot>(
        &'a self,
        snapshot: &'a N,
        state: Option<&'a Pending<S>>,
        start: &[u8],
    ) -> Entries<'a, S, N> {
        self.range(snapshot, state, start, None)
    }

    /// The entries whose keys begin with `prefix`, in order of keys.
    ///
    /// ```
    /// # use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeId, mpt::Mpt};
    /// # let store = MemoryStore::new();
    /// # let tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 1 << 20)?;
    /// # let mut batch = Batch::new();
    /// # for key in ["cat", "doe", "dog", "emu"] { batch.put(key.as_bytes(), b"x"); }
    /// # let pending = tree.prepare(&store.snapshot()?, None, batch)?;
    /// let snapshot = store.snapshot()?;
    /// let keys = tree.prefix(&snapshot, Some(&pending), b"do").map(|entry| Ok(entry?.key));
    /// assert_eq!(keys.collect::<Result<Vec<_>, spinney_tree::TreeError>>()?, [b"doe", b"dog"]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefix<'a, N: Snapshot>(
        &'a self,
        snapshot: &'a N,
        state: Option<&'a Pending<S>>,
        prefix: &[u8],
    ) -> Entries<'a, S, N> {
        // The first key beyond the prefix: its last byte that can grow grows, the rest goes.
        let kept = prefix.iter().rposition(|&byte| byte != 0xff).map(|last| &prefix[..=last]);
        let end = kept.map(|kept| {
            let mut end = kept.to_vec();
            let last = end.len() - 1;
            end[last] += 1;
            end
        });
        self.range(snapshot, state, prefix, end.as_deref())
    }

    /// The entries with `start <= key < end`, in order of keys; no `end` is the end of the tree.
    pub fn range<'a, N: Snapshot>(
        &'a self,
        snapshot: &'a N,
        state: Option<&'a Pending<S>>,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Entries<'a, S, N> {
        let mut refused = state.and_then(|state| self.standing(state).err());
        let sound = state.filter(|_| refused.is_none());
        let (segments, top) = self.nodes(snapshot, sound).unwrap_or_else(|failed| {
            refused = Some(failed);
            (std::slice::from_ref(&self.head.segment), None)
        });
        let top = top.map(|top| &top.child);
        let fetch =
            |_: &PageKey| -> Result<Arc<[u8]>, TreeError> { unreachable!("nothing is read yet") };
        let reader = Reader { codec: self.codec(), space: self.space, segments, fetch: &fetch };
        let walk = Walk::new(&reader, top, start);
        let end = end.map(<[u8]>::to_vec);
        Entries { tree: self, snapshot, segments, walk, end, refused, done: false }
    }

    /// An empty tree of the same kind, for a store of its own.
    pub(crate) fn sibling<N: Snapshot>(
        &self,
        snapshot: &N,
        cache_bytes: usize,
    ) -> Result<Self, TreeError>
    where
        S: Clone,
    {
        let mut tree = Self::open(self.scheme.clone(), self.id, snapshot, cache_bytes)?;
        tree.space = self.space;
        Ok(tree)
    }

    /// The bounds of the tree's rows in [`Table::Pages`]: the lower inclusive, the upper exclusive.
    pub fn page_range(&self) -> (Vec<u8>, Vec<u8>) {
        whole(self.space)
    }
}

/// Entries in order of keys: see [`Tree::entries`]. After an error there are no more.
#[derive(Debug)]
pub struct Entries<'a, S: Scheme, N> {
    tree: &'a Tree<S>,
    snapshot: &'a N,
    segments: &'a [Arc<Segment<S::Commit>>],
    walk: Walk<S::Commit>,
    end: Option<Vec<u8>>,
    /// The state does not stand on the last commit: this is told first.
    refused: Option<TreeError>,
    done: bool,
}

impl<S: Scheme, N: Snapshot> Iterator for Entries<'_, S, N> {
    type Item = Result<Entry<S::Commit>, TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(refused) = self.refused.take() {
            self.done = true;
            return Some(Err(refused));
        }
        if self.done {
            return None;
        }
        let fetch = |key: &PageKey| self.tree.fetch(self.snapshot, key);
        let (codec, space) = (self.tree.codec(), self.tree.space);
        let reader = Reader { codec, space, segments: self.segments, fetch: &fetch };
        let next = self.walk.next(&reader).transpose();
        let beyond = |key: &[u8]| self.end.as_deref().is_some_and(|end| key >= end);
        match &next {
            Some(Ok(entry)) if !beyond(&entry.key) => next,
            Some(Ok(_)) | None => {
                self.done = true;
                None
            }
            Some(Err(_)) => {
                self.done = true;
                next
            }
        }
    }
}

pub(crate) fn next_layer() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
