//! Writing: one process adds blocks to an archive.
//!
//! Invariants:
//! - the newest manifest names whole segments alone, which follow each other from the first block
//!   to the last;
//! - who opens an archive for writing makes a manifest of its own: whoever wrote before is fenced
//!   from then on;
//! - an object that no manifest names was begun by a writer that failed, or was replaced: the next
//!   writer removes it, if an earlier one made it.

use std::ops::Range;
use std::sync::Arc;

use spinney_state::Named;
use spinney_tree::{BlockId, Snapshot, Table};

use crate::archive::{Archive, Contents};
use crate::cursor::Keys;
use crate::error::ArchiveError;
use crate::forms::Forms;
use crate::hex::hex;
use crate::manifest::{MANIFEST, Manifest, SEGMENT, random_id};
use crate::merge::Merge;
use crate::objects::Objects;
use crate::segment::{FORMAT, Kind, Piece, SegmentInfo, SegmentWriter};
use crate::shared::{Segment, Shared};
use crate::window::{HASHES, Window, archive_key, hash_key, is_archived, is_witness};

/// So many manifests stay for those who are reading them.
const MANIFESTS_KEPT: u64 = 8;
/// Memory for parts that merges look rows up in.
pub(crate) const CACHE_BYTES: usize = 64 << 20;

/// A row of a table, before and after a block: `None` where there is none.
pub type RowChange<'a> = (Table, &'a [u8], Option<&'a [u8]>, Option<&'a [u8]>);

/// How an archive is written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How many segments of one level become one of the next; behind the last number there is no
    /// next level.
    pub merges: Vec<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self { merges: vec![4, 4, 4, 4] }
    }
}

impl Options {
    pub(crate) fn last_level(&self) -> u32 {
        self.merges.len() as u32
    }
}

/// An archive, opened for writing.
#[derive(Debug)]
pub struct Writer {
    pub(crate) shared: Shared,
    pub(crate) options: Options,
    pub(crate) contents: Contents,
    /// The number of the manifest that was made when it was opened: part of the names of its
    /// segments.
    opened: u64,
    named: u64,
    /// Whether all code and preimages of a store were compared with those that are held.
    pub(crate) has_compared: bool,
}

impl Writer {
    /// Makes an archive whose first block is `block`, of which `snapshot` is the store.
    ///
    /// # Errors
    /// [`ArchiveError::Exists`] if there is one; if the store or the place fails.
    pub fn create(
        objects: Arc<dyn Objects>,
        options: Options,
        block: BlockId,
        snapshot: &impl Snapshot,
    ) -> Result<Self, ArchiveError> {
        if Manifest::newest(&*objects)?.is_some() {
            return Err(ArchiveError::Exists { place: objects.place() });
        }
        let archive = random_id();
        let mut forms = Forms::default();
        let name = format!("{SEGMENT}{:010}-{}-0", 1, &archive[..8]);
        let number = block.number;
        let id = crate::manifest::archive_bytes(&archive);
        let level = options.last_level();
        let mut segment = SegmentWriter::new(&*objects, id, name, (number, number), level)?;
        write_all_rows(snapshot, block, &mut forms, &mut segment)?;
        let manifest = Manifest {
            format: FORMAT,
            writer: archive.clone(),
            archive,
            number: 1,
            trees: forms.trees(),
            first: number,
            last: number,
            last_hash: hex(&block.hash),
            segments: vec![segment.finish()?],
            replaced: Vec::new(),
            slice: None,
        };
        if !manifest.publish(&*objects)? {
            return Err(ArchiveError::Exists { place: objects.place() });
        }
        Self::over(objects, options, manifest)
    }

    /// Opens an archive to go on with it. Whoever wrote to it before no longer can.
    ///
    /// # Errors
    /// [`ArchiveError::Missing`] if there is none; [`ArchiveError::Fenced`] if another one opens it
    /// right now; if the newest manifest is damaged, or the place fails.
    pub fn open(objects: Arc<dyn Objects>, options: Options) -> Result<Self, ArchiveError> {
        let manifest = Manifest::newest(&*objects)?;
        let mut manifest =
            manifest.ok_or_else(|| ArchiveError::Missing { place: objects.place() })?;
        manifest.number += 1;
        manifest.writer = random_id();
        if !manifest.publish(&*objects)? {
            let (place, number) = (objects.place(), manifest.number);
            return Err(ArchiveError::Fenced { place, number });
        }
        let writer = Self::over(objects, options, manifest)?;
        writer.remove_strays()?;
        Ok(writer)
    }

    fn over(
        objects: Arc<dyn Objects>,
        options: Options,
        manifest: Manifest,
    ) -> Result<Self, ArchiveError> {
        let opened = manifest.number;
        let contents = Contents::of(manifest, &[])?;
        let shared = Shared::new(objects, CACHE_BYTES);
        Ok(Self { shared, options, contents, opened, named: 0, has_compared: false })
    }

    /// Segments of earlier writers that no manifest names, and manifests that nobody reads any
    /// more.
    fn remove_strays(&self) -> Result<(), ArchiveError> {
        let manifest = &self.contents.manifest;
        let objects = &*self.shared.objects;
        let listed = objects.list(SEGMENT)?.into_iter().map(|object| object.name);
        for name in listed.chain(objects.unfinished()?) {
            let number = |prefix: &str| {
                let rest = name.strip_prefix(prefix)?;
                rest.get(..10)?.parse::<u64>().ok()
            };
            let begun = number(SEGMENT).or_else(|| number(MANIFEST));
            let is_earlier = begun.is_some_and(|number| number < self.opened);
            let is_named = manifest.segments.iter().any(|segment| segment.name == name);
            if is_earlier && !is_named {
                objects.remove(&name)?;
            }
        }
        let oldest = Manifest::name(manifest.number.saturating_sub(MANIFESTS_KEPT));
        for object in objects.list(MANIFEST)? {
            if object.name < oldest {
                objects.remove(&object.name)?;
            }
        }
        Ok(())
    }

    /// What the archive holds.
    pub const fn manifest(&self) -> &Manifest {
        &self.contents.manifest
    }

    /// A reader of what is published.
    ///
    /// # Errors
    /// As [`Archive::open`].
    pub fn archive(&self, cache_bytes: usize) -> Result<Archive, ArchiveError> {
        Archive::open(Arc::clone(&self.shared.objects), cache_bytes)
    }

    /// Room for blocks `first` to `last`.
    ///
    /// # Errors
    /// [`ArchiveError::Order`] if these are no blocks behind those that are held.
    pub fn window(&self, first: u64, last: u64) -> Result<Window, ArchiveError> {
        self.check_whole(first)?;
        let held = self.contents.manifest.last;
        if first <= held || last < first {
            let what = format!("the last one that is held is {held}");
            return Err(self.order(first, what));
        }
        Ok(Window::new(first, last))
    }

    /// Refuses to add to a slice.
    pub(crate) fn check_whole(&self, block: u64) -> Result<(), ArchiveError> {
        match self.contents.slice {
            None => Ok(()),
            Some(_) => {
                let what = "it is a slice of some accounts: a new one of the whole archive has it";
                Err(self.order(block, what.into()))
            }
        }
    }

    pub(crate) fn order(&self, block: u64, what: String) -> ArchiveError {
        ArchiveError::Order { place: self.shared.objects.place(), block, what }
    }

    /// Adds to a window what a block changed: each row once. Blocks may be added in rising or in
    /// falling order.
    ///
    /// # Errors
    /// [`ArchiveError::Order`] if the block is none of the window's; if a row is none of its tree.
    pub fn add<'a>(
        &mut self,
        window: &mut Window,
        block: BlockId,
        rows: impl IntoIterator<Item = RowChange<'a>>,
    ) -> Result<(), ArchiveError> {
        if !(window.first..=window.last).contains(&block.number) {
            let what = format!("the window is of blocks {} to {}", window.first, window.last);
            return Err(self.order(block.number, what));
        }
        window.add_hash(block.number, &block.hash);
        let forms = &mut self.contents.forms;
        for (table, key, before, after) in rows {
            let forgotten = is_witness(table, key) && after.is_none();
            if !is_archived(table, key) || forgotten {
                continue;
            }
            if table == Table::Roots {
                for row in [before, after].into_iter().flatten() {
                    forms.learn_root(key, row)?;
                }
            }
            window.add(forms, block.number, (table, key), (before, after))?;
        }
        Ok(())
    }

    /// Adds to a window what a store has by its digest, and the archive has not, as of the window's
    /// first block: all of it, or what is `named`. Such rows never change, and stay where their
    /// block is taken back.
    pub(crate) fn add_by_digest(
        &self,
        window: &mut Window,
        snapshot: &impl Snapshot,
        named: Option<&Named>,
    ) -> Result<(), ArchiveError> {
        let tables = [
            (Table::Codes, named.map(|named| &named.codes)),
            (Table::Preimages, named.map(|named| &named.preimages)),
        ];
        for (table, named) in tables {
            let from = archive_key(table, &[]);
            let (objects, segments) = (&*self.shared.objects, &self.contents.segments);
            let mut held = Keys::new(objects, segments, &from)?;
            let mut add = |key: &[u8], row: &[u8]| {
                let block = window.first;
                match held.have(&archive_key(table, key))? {
                    true => Ok(()),
                    false => {
                        window.add(&self.contents.forms, block, (table, key), (None, Some(row)))
                    }
                }
            };
            let mut outcome = Ok(());
            match named {
                Some(named) => {
                    for key in named {
                        if let Some(row) = snapshot.read(table, key.as_slice())? {
                            add(key.as_slice(), &row)?;
                        }
                    }
                }
                None => snapshot.scan(table, &[], None, &mut |key, row| {
                    outcome = add(key, row);
                    outcome.is_ok()
                })?,
            }
            outcome?;
        }
        Ok(())
    }

    /// Seals windows, which follow each other and what is held, and merges segments where enough
    /// have come together. All blocks can be read once it returns, or none of them.
    ///
    /// # Errors
    /// [`ArchiveError::Fenced`] if another writer has taken over; [`ArchiveError::Order`] if the
    /// windows do not follow each other; if the place fails. After an error the writer has to be
    /// opened again.
    pub fn publish(&mut self, windows: Vec<Window>, last: BlockId) -> Result<(), ArchiveError> {
        let mut next = self.contents.manifest.last;
        for window in &windows {
            if window.first != next + 1 {
                let what = format!("block {} comes next", next + 1);
                return Err(self.order(window.first, what));
            }
            next = window.last;
        }
        if next != last.number {
            return Err(self.order(last.number, format!("the last window ends with block {next}")));
        }
        let mut segments = Vec::with_capacity(windows.len());
        let mut held = self.contents.segments.clone();
        for window in windows {
            let blocks = (window.first, window.last);
            let mut segment = self.segment(blocks, 0)?;
            window.write(|key, block| self.shared.bare_at(&held, key, block), &mut segment)?;
            let info = segment.finish()?;
            held.push(Arc::new(Segment::new(info.clone())));
            segments.push(info);
        }
        let trees = self.contents.forms.trees();
        let end = self.contents.segments.len();
        self.replace(end..end, segments, |manifest| {
            manifest.trees = trees;
            (manifest.last, manifest.last_hash) = (last.number, hex(&last.hash));
        })?;
        self.merge()
    }

    pub(crate) fn name(&mut self) -> String {
        self.named += 1;
        let writer = &self.contents.manifest.writer[..8];
        format!("{SEGMENT}{:010}-{writer}-{}", self.opened, self.named)
    }

    pub(crate) fn archive_id(&self) -> [u8; 16] {
        crate::manifest::archive_bytes(&self.contents.manifest.archive)
    }

    pub(crate) fn segment(
        &mut self,
        blocks: (u64, u64),
        level: u32,
    ) -> Result<SegmentWriter, ArchiveError> {
        let (name, archive) = (self.name(), self.archive_id());
        SegmentWriter::new(&*self.shared.objects, archive, name, blocks, level)
    }

    /// Publishes a manifest in which the segments of some places are others.
    pub(crate) fn replace(
        &mut self,
        places: Range<usize>,
        segments: Vec<SegmentInfo>,
        edit: impl FnOnce(&mut Manifest),
    ) -> Result<(), ArchiveError> {
        let mut manifest = self.contents.manifest.clone();
        // Those that the manifest before replaced: whoever reads it has had time to go on.
        let gone = std::mem::take(&mut manifest.replaced);
        let replaced = manifest.segments.splice(places, segments).map(|segment| segment.name);
        manifest.replaced = replaced.collect();
        manifest.number += 1;
        edit(&mut manifest);
        let objects = Arc::clone(&self.shared.objects);
        if !manifest.publish(&*objects)? {
            let (place, number) = (objects.place(), manifest.number);
            return Err(ArchiveError::Fenced { place, number });
        }
        let oldest = manifest.number.checked_sub(MANIFESTS_KEPT);
        self.contents = Contents::of(manifest, &self.contents.segments)?;
        for name in gone {
            objects.remove(&name)?;
        }
        if let Some(oldest) = oldest {
            objects.remove(&Manifest::name(oldest))?;
        }
        Ok(())
    }

    /// Merges the last segments as long as enough of one level follow each other.
    fn merge(&mut self) -> Result<(), ArchiveError> {
        loop {
            let segments = &self.contents.segments;
            let Some(level) = segments.last().map(|segment| segment.info.level) else {
                return Ok(());
            };
            let of_level = |segment: &&Arc<Segment>| segment.info.level == level;
            let count = segments.iter().rev().take_while(of_level).count();
            let enough = self.options.merges.get(level as usize);
            if enough.is_none_or(|&enough| count < enough.max(2)) {
                return Ok(());
            }
            let (mut from, end) = (segments.len() - count, segments.len());
            let is_last = level + 1 == self.options.last_level();
            if is_last && from == 1 && segments[0].info.first == segments[0].info.last {
                // It has all rows as of the archive's first block: what the merged one begins with.
                from = 0;
            }
            let blocks = (segments[from].info.first, segments[end - 1].info.last);
            let merged = self.merged(from..end, blocks, level + 1)?;
            self.replace(from..end, vec![merged], |_| ())?;
        }
    }

    /// Makes one segment of some, of the blocks that stay.
    fn merged(
        &mut self,
        places: Range<usize>,
        blocks: (u64, u64),
        level: u32,
    ) -> Result<SegmentInfo, ArchiveError> {
        let out = self.segment(blocks, level)?;
        let segments = &self.contents.segments[..places.end];
        let stands_alone = level == self.options.last_level();
        let (shared, from) = (&self.shared, places.start);
        Merge { shared, segments, from, stands_alone, blocks, slice: None }.run(out)
    }

    /// Drops the blocks before `first`. Answers how many these were: none, if it is the first one
    /// already. What they alone need is gone once the next manifest is published; until then
    /// readers of an earlier manifest go on.
    ///
    /// # Errors
    /// [`ArchiveError::Outside`] if that block is not held; [`ArchiveError::Fenced`] if another
    /// writer has taken over; if an object is damaged, or the place fails. After an error the
    /// writer has to be opened again.
    pub fn prune(&mut self, first: u64) -> Result<u64, ArchiveError> {
        let Manifest { first: oldest, last, .. } = self.contents.manifest;
        if !(oldest..=last).contains(&first) {
            let place = self.shared.objects.place();
            return Err(ArchiveError::Outside { place, block: first, first: oldest, last });
        }
        if first == oldest {
            return Ok(0);
        }
        let segments = &self.contents.segments;
        let holds = segments.partition_point(|segment| segment.info.last < first);
        let blocks = (first, segments[holds].info.last);
        let merged = self.merged(0..holds + 1, blocks, self.options.last_level())?;
        self.replace(0..holds + 1, vec![merged], |manifest| manifest.first = first)?;
        Ok(first - oldest)
    }
}

/// Writes all rows of a store, in order.
fn write_all_rows(
    snapshot: &impl Snapshot,
    block: BlockId,
    forms: &mut Forms,
    segment: &mut SegmentWriter,
) -> Result<(), ArchiveError> {
    let mut failed = None;
    let mut learn = |key: &[u8], row: &[u8]| match forms.learn_root(key, row) {
        Ok(()) => true,
        Err(error) => {
            failed = Some(error);
            false
        }
    };
    snapshot.scan(Table::Roots, &[], None, &mut learn)?;
    if let Some(failed) = failed {
        return Err(failed);
    }
    let mut put = |key: &[u8], bare: &[u8]| -> Result<(), ArchiveError> {
        let (kind, bytes) = crate::forms::whole(bare);
        segment.begin(key);
        segment.piece(&Piece { block: block.number, kind, bytes: &bytes })?;
        segment.end();
        Ok(())
    };
    let mut bare = Vec::new();
    for table in Table::ALL {
        let mut failed = None;
        snapshot.scan(table, &[], None, &mut |key, row| {
            // Witnesses come with the blocks that are added; an archive begins without any.
            if !is_archived(table, key) || is_witness(table, key) {
                return true;
            }
            let key = archive_key(table, key);
            let done = forms.bare(&key, row, &mut bare).and_then(|()| put(&key, &bare));
            failed = done.err();
            failed.is_none()
        })?;
        if let Some(failed) = failed {
            return Err(failed);
        }
    }
    debug_assert!(Table::ALL.iter().all(|&table| (table as u8) < HASHES));
    segment.begin(&hash_key(&block.hash));
    let number = block.number.to_be_bytes();
    segment.piece(&Piece { block: block.number, kind: Kind::Whole, bytes: &number })?;
    segment.end();
    Ok(())
}
