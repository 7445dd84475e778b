//! Reading: the store as it was at any block.
//!
//! Invariants:
//! - a row at a block is what its last piece at or before that block made of it; pieces are looked
//!   for from the newest segment to the oldest, and within one from the last part to the first;
//! - a view holds the segments that it was opened over: a newer manifest changes nothing for it;
//! - bytes that are not those that were written are never part of an answer.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use spinney_tree::{BlockId, PageStore, RootRecord, Snapshot, StoreError, Table, TreeId, WriteSet};

use crate::error::ArchiveError;
use crate::forms::{Forms, TreeInfo};
use crate::manifest::Manifest;
use crate::objects::Objects;
use crate::segment::{Groups, Malformed, SegmentInfo, corrupt};
use crate::shared::{Reads, Segment, Shared};
use crate::slice::Slice;
use crate::window::{archive_key, hash_key};

/// The segments of one manifest.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) manifest: Manifest,
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) forms: Forms,
    /// Of a slice, what it has.
    pub(crate) slice: Option<Slice>,
}

/// An archive, opened for reading.
///
/// ```
/// use std::sync::Arc;
/// use spinney_archive::{Archive, Folder, Options, Writer};
/// use spinney_tree::{BlockId, MemoryStore, PageStore, Snapshot, Table, WriteSet};
///
/// let folder = tempfile::tempdir()?;
/// let objects = Arc::new(Folder::new(folder.path().join("archive")));
/// let store = MemoryStore::new();
/// let mut rows = WriteSet::new();
/// rows.put(Table::Meta, b"key", *b"old");
/// store.commit(&rows)?;
/// let block = |number| BlockId { number, hash: [number as u8; 32] };
/// let (options, snapshot) = (Options::default(), store.snapshot()?);
/// let mut writer = Writer::create(objects.clone(), options, block(7), &snapshot)?;
///
/// let mut window = writer.window(8, 8)?;
/// let (key, old, new) = (&b"key"[..], &b"old"[..], &b"new"[..]);
/// writer.add(&mut window, block(8), [(Table::Meta, key, Some(old), Some(new))])?;
/// writer.publish(vec![window], block(8))?;
///
/// let archive = Archive::open(objects, 1 << 20)?;
/// assert_eq!(archive.at(7)?.read(Table::Meta, b"key")?.as_deref(), Some(&b"old"[..]));
/// assert_eq!(archive.at(8)?.read(Table::Meta, b"key")?.as_deref(), Some(&b"new"[..]));
/// assert!(archive.at(9).is_err());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Archive {
    shared: Arc<Shared>,
    contents: RwLock<Arc<Contents>>,
}

impl Contents {
    /// Those of a manifest. Segments that were open before stay so.
    pub(crate) fn of(manifest: Manifest, before: &[Arc<Segment>]) -> Result<Self, ArchiveError> {
        let open = |info: &SegmentInfo| {
            let known = before.iter().find(|segment| segment.info == *info);
            known.cloned().unwrap_or_else(|| Arc::new(Segment::new(info.clone())))
        };
        let segments = manifest.segments.iter().map(open).collect();
        let forms = Forms::of(&manifest.trees)?;
        let slice = match &manifest.slice {
            None => None,
            Some(info) => {
                let malformed = || ArchiveError::Corrupt {
                    place: format!("manifest {}", manifest.number),
                    what: "what it says of a slice makes no sense".into(),
                };
                Some(Slice::of(info, &manifest.trees).ok_or_else(malformed)?)
            }
        };
        Ok(Self { manifest, segments, forms, slice })
    }
}

impl Archive {
    /// Opens an archive; parts that are read stay in memory up to so many bytes.
    ///
    /// # Errors
    /// [`ArchiveError::Missing`] if there is none; if its newest manifest is damaged, or the place
    /// fails.
    pub fn open(objects: Arc<dyn Objects>, cache_bytes: usize) -> Result<Self, ArchiveError> {
        let manifest = Manifest::newest(&*objects)?;
        let manifest = manifest.ok_or_else(|| ArchiveError::Missing { place: objects.place() })?;
        let contents = RwLock::new(Arc::new(Contents::of(manifest, &[])?));
        Ok(Self { shared: Arc::new(Shared::new(objects, cache_bytes)), contents })
    }

    /// Reads the indexes of all segments, which the first views need else.
    ///
    /// # Errors
    /// If one is missing or damaged, or the place fails.
    pub fn load_indexes(&self) -> Result<usize, ArchiveError> {
        let contents = self.contents();
        let mut bytes = 0;
        for segment in &contents.segments {
            bytes += self.shared.opened(segment)?.memory();
        }
        Ok(bytes)
    }

    /// Forgets the parts that are in memory, as if nothing had been asked for yet.
    pub fn clear_cache(&self) {
        self.shared.clear_cache();
    }

    /// Looks for a newer manifest, and goes on with that. Answers whether there was one.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn refresh(&self) -> Result<bool, ArchiveError> {
        let objects = &self.shared.objects;
        let manifest = Manifest::newest(&**objects)?;
        let manifest = manifest.ok_or_else(|| ArchiveError::Missing { place: objects.place() })?;
        let before = self.contents();
        if manifest == before.manifest {
            return Ok(false);
        }
        let contents = Arc::new(Contents::of(manifest, &before.segments)?);
        *self.contents.write().unwrap_or_else(PoisonError::into_inner) = contents;
        Ok(true)
    }

    pub(crate) fn contents(&self) -> Arc<Contents> {
        Arc::clone(&self.contents.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn objects(&self) -> &Arc<dyn Objects> {
        &self.shared.objects
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// What it holds.
    pub fn manifest(&self) -> Manifest {
        self.contents().manifest.clone()
    }

    /// The first and the last block that it holds.
    pub fn blocks(&self) -> (u64, u64) {
        let Manifest { first, last, .. } = self.contents().manifest;
        (first, last)
    }

    /// What was read of its place so far.
    pub fn reads(&self) -> Reads {
        self.shared.reads()
    }

    /// The store as it was after a block.
    ///
    /// # Errors
    /// [`ArchiveError::Outside`] if that block is not held.
    pub fn at(&self, block: u64) -> Result<AtBlock, ArchiveError> {
        let contents = self.contents();
        let Manifest { first, last, .. } = contents.manifest;
        if !(first..=last).contains(&block) {
            let place = self.shared.objects.place();
            return Err(ArchiveError::Outside { place, block, first, last });
        }
        Ok(self.view(&contents, block))
    }

    /// The store as it was after a block that these contents hold.
    pub(crate) fn view(&self, contents: &Arc<Contents>, block: u64) -> AtBlock {
        AtBlock { shared: Arc::clone(&self.shared), contents: Arc::clone(contents), block }
    }

    /// The number of a block of this hash, if it is held.
    ///
    /// # Errors
    /// If a segment is missing or damaged, or the place fails.
    pub fn number_of(&self, hash: &[u8; 32]) -> Result<Option<u64>, ArchiveError> {
        let contents = self.contents();
        let row = self.shared.bare_at(&contents.segments, &hash_key(hash), u64::MAX)?;
        Ok(row.and_then(|row| row.try_into().ok()).map(u64::from_be_bytes))
    }

    /// A block that is held, with its hash.
    ///
    /// # Errors
    /// As [`at`](Self::at); if a segment is missing or damaged, or the place fails.
    pub fn block(&self, number: u64) -> Result<Option<BlockId>, ArchiveError> {
        let view = self.at(number)?;
        for tree in view.trees() {
            if let Some(block) = view.record(TreeId(tree.id))?.and_then(|record| record.block) {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }
}

/// A store as it was after a block. It takes no commits.
#[derive(Clone)]
pub struct AtBlock {
    shared: Arc<Shared>,
    contents: Arc<Contents>,
    block: u64,
}

impl fmt::Debug for AtBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.shared.objects.place();
        f.debug_struct("AtBlock").field("place", &place).field("block", &self.block).finish()
    }
}

impl AtBlock {
    /// The block.
    pub const fn block(&self) -> u64 {
        self.block
    }

    /// All trees that the archive has, at this block or another one, in order of their ids.
    pub fn trees(&self) -> impl Iterator<Item = TreeInfo> + use<'_> {
        self.contents.forms.iter()
    }

    /// The root record of a tree, if it was there.
    pub(crate) fn record(&self, tree: TreeId) -> Result<Option<RootRecord>, ArchiveError> {
        let row = self.row(&archive_key(Table::Roots, &RootRecord::key(tree)))?;
        Ok(row.map(|row| RootRecord::decode(tree, &row)).transpose()?)
    }

    /// The root records between two keys. The manifest names the trees, so each is read by its key
    /// and no segment is looked through.
    fn scan_roots(
        &self,
        (low, high): (&[u8], Option<&[u8]>),
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), ArchiveError> {
        for tree in self.trees() {
            let key = tree.id.to_be_bytes();
            if &key[..] < low || high.is_some_and(|high| &key[..] >= high) {
                continue;
            }
            if let Some(row) = self.row(&archive_key(Table::Roots, &key))?
                && !visit(&key, &row)
            {
                break;
            }
        }
        Ok(())
    }

    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, ArchiveError> {
        if let Some(slice) = self.contents.slice.as_ref().filter(|slice| !slice.holds(key)) {
            return Err(slice.refusal(self.shared.objects.place(), key));
        }
        let bare = self.shared.bare_at(&self.contents.segments, key, self.block)?;
        bare.map(|bare| self.contents.forms.restore(key, bare)).transpose()
    }

    /// The first key above another, of any segment; what became of its row is another question.
    fn next_key(&self, after: &[u8], inclusive: bool) -> Result<Option<Vec<u8>>, ArchiveError> {
        let mut least: Option<Vec<u8>> = None;
        for segment in self.contents.segments.iter().filter(|it| it.info.first <= self.block) {
            let opened = self.shared.opened(segment)?;
            let index = &opened.index;
            let mut part = index.floor(after, u64::MAX).unwrap_or_default();
            let found = 'parts: loop {
                if part >= index.parts.len() {
                    break None;
                }
                let bytes = self.shared.part(segment, opened, part)?;
                let mut groups = Groups::new(&bytes, segment.info.first);
                while let Some(pieces) = groups.next() {
                    let malformed = |_: Malformed| {
                        corrupt(&*self.shared.objects, &segment.info.name, "a part is malformed")
                    };
                    pieces.map_err(malformed)?;
                    if groups.key() > after || inclusive && groups.key() == after {
                        break 'parts Some(groups.key().to_vec());
                    }
                }
                part += 1;
            };
            if let Some(found) = found
                && least.as_ref().is_none_or(|least| found < *least)
            {
                least = Some(found);
            }
        }
        Ok(least)
    }
}

impl PageStore for AtBlock {
    type Snapshot<'a> = Self;

    fn snapshot(&self) -> Result<Self, StoreError> {
        Ok(self.clone())
    }

    fn commit(&self, _: &WriteSet) -> Result<(), StoreError> {
        let (place, source) = (self.shared.objects.place(), "an archive takes no commits");
        Err(StoreError::Backend { place, source: source.into() })
    }
}

impl Snapshot for AtBlock {
    type Row<'s> = Vec<u8>;

    fn read(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.row(&archive_key(table, key)).map_err(ArchiveError::into_store_error)
    }

    fn read_many(&self, table: Table, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let keys: Vec<_> = keys.iter().map(|key| archive_key(table, key)).collect();
        let read = || {
            self.shared.read_ahead(&self.contents.segments, &keys, self.block)?;
            keys.iter().map(|key| self.row(key)).collect::<Result<Vec<_>, ArchiveError>>()
        };
        read().map_err(ArchiveError::into_store_error)
    }

    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        if table == Table::Roots {
            let scanned = self.scan_roots((low, high), visit);
            return scanned.map_err(ArchiveError::into_store_error);
        }
        let slice = self.contents.slice.as_ref();
        if let Some(slice) = slice.filter(|slice| !slice.holds_all(table, low, high)) {
            // Rows between others may be outside.
            let refused = slice.outside(self.shared.objects.place(), format!("all of {table}"));
            return Err(refused.into_store_error());
        }
        let (mut key, mut inclusive) = (archive_key(table, low), true);
        let mut step = || -> Result<bool, ArchiveError> {
            let Some(next) = self.next_key(&key, inclusive)? else { return Ok(false) };
            (key, inclusive) = (next, false);
            let Some((&of, rest)) = key.split_first() else { return Ok(false) };
            if of != table as u8 || high.is_some_and(|high| rest >= high) {
                return Ok(false);
            }
            Ok(match self.row(&key)? {
                Some(row) => visit(rest, &row),
                None => true,
            })
        };
        while step().map_err(ArchiveError::into_store_error)? {}
        Ok(())
    }
}
