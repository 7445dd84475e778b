//! Pages that stay in memory.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use spinney_hash::prefetch;

use crate::digits::Width;
use crate::outline::{Outline, Outlined};
use crate::page_key::PageKey;

/// The pages of the last commit, up to a budget in bytes.
///
/// A page is only ever evicted whole, and never while it is in use: whoever reads its row shares it. Beside the
/// rows of pages that walks came to more than once are their outlines (`outline.rs`).
#[derive(Debug)]
pub(crate) struct Cache<C> {
    pages: RwLock<Pages<C>>,
    /// Bytes of outlines.
    outlined: AtomicUsize,
    budget: usize,
}

/// A page: its key, and its row, shared by the cache and by all who read it.
#[derive(Debug)]
struct Page<C> {
    key: PageKey,
    row: Arc<[u8]>,
    outline: OnceLock<Outline<C>>,
}

impl<C: Copy> Page<C> {
    fn new(key: PageKey, row: Arc<[u8]>) -> Self {
        Self { key, row, outline: OnceLock::new() }
    }

    /// Bytes of memory, as the cache counts them, but for the outline.
    fn bytes(&self) -> usize {
        self.key.as_bytes().len() + self.row.len()
    }

    fn outline_bytes(&self) -> usize {
        self.outline.get().map_or(0, Outline::bytes)
    }
}

/// A page is malformed, or nothing for a walk over outlines.
#[derive(Debug)]
pub(crate) struct NoOutline;

/// Of a row, by its place among those of a commit: which of its entries commits to what now.
pub(crate) type Mark<C> = (u32, u16, C);

/// Pages by the hashes of their keys. They lie in the table itself: on the way to a row or an outline there is
/// one place to wait for, in a few megabytes that are looked at all the time.
#[derive(Debug)]
struct Pages<C> {
    table: HashTable<Page<C>>,
    hasher: RandomState,
    bytes: usize,
}

impl<C: Copy> Cache<C> {
    pub(crate) fn new(budget: usize) -> Self {
        let (table, hasher) = (HashTable::new(), RandomState::default());
        let pages = RwLock::new(Pages { table, hasher, bytes: 0 });
        Self { pages, outlined: AtomicUsize::new(0), budget }
    }

    pub(crate) fn get(&self, key: &PageKey) -> Option<Arc<[u8]>> {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        let page = pages.find(key)?;
        // Before it is counted: that waits for its first line.
        prefetch(&page.row);
        Some(Arc::clone(&page.row))
    }

    /// A page and its outline, which `build` makes of the row if nobody has yet. It stays if there is room. Nothing if
    /// the page is not here; `Err` if it is, and has no outline.
    pub(crate) fn open(
        &self,
        key: &PageKey,
        build: impl FnOnce(&[u8]) -> Option<Outline<C>>,
    ) -> Option<Result<Outlined<C>, NoOutline>> {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        let page = pages.find(key)?;
        let outline = match page.outline.get() {
            Some(outline) => {
                // Before they are counted: that waits for the first line of each.
                outline.fetch();
                prefetch(&page.row[..1]);
                Some(outline.clone())
            }
            None => {
                prefetch(&page.row);
                let outline = build(&page.row);
                if let Some(outline) = &outline {
                    self.keep(&pages, page, outline);
                }
                outline
            }
        };
        Some(outline.map(|outline| (Arc::clone(&page.row), outline)).ok_or(NoOutline))
    }

    fn keep(&self, pages: &Pages<C>, page: &Page<C>, outline: &Outline<C>) {
        let bytes = outline.bytes();
        let there = pages.bytes + self.outlined.load(Ordering::Relaxed);
        if there + bytes <= self.budget && page.outline.set(outline.clone()).is_ok() {
            self.outlined.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Asks for pages that are soon to be read, as many of them as are here: to find one after another takes a
    /// wait for its place, one for its key and one for its row each.
    pub(crate) fn fetch(&self, keys: &[PageKey]) {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().filter_map(|key| pages.find(key)).for_each(|page| prefetch(&page.row));
    }

    /// Asks for what is soon to be opened: outlines, and rows where there are none.
    pub(crate) fn fetch_outlines(&self, keys: &[PageKey]) {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        for Page { outline, row, .. } in keys.iter().filter_map(|key| pages.find(key)) {
            match outline.get() {
                Some(outline) => {
                    outline.fetch();
                    prefetch(&row[..1]);
                }
                None => prefetch(row),
            }
        }
    }

    /// Asks for what a walk along a path will read of a page whose items hang at `digit`, if its outline is here.
    pub(crate) fn fetch_way(&self, key: &PageKey, path: &[u8], digit: usize, width: Width) {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(page) = pages.find(key)
            && let Some(outline) = page.outline.get()
        {
            outline.fetch_way(&page.row, path, digit, width);
        }
    }

    /// Takes up pages as the last commit left them: `None` for one that is gone.
    pub(crate) fn put(&self, rows: impl IntoIterator<Item = (PageKey, Option<Arc<[u8]>>)>) {
        self.take_up(rows, &[]);
    }

    /// As [`Cache::put`], with marks in order of their rows, which differ from those before them in nothing but
    /// values and what their entries commit to. Their outlines stay.
    pub(crate) fn take_up(
        &self,
        rows: impl IntoIterator<Item = (PageKey, Option<Arc<[u8]>>)>,
        mut marks: &[Mark<C>],
    ) {
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        let mut dropped = 0;
        for (number, (key, row)) in (0..).zip(rows) {
            let count = marks.iter().take_while(|(row, ..)| *row == number).count();
            let (own, others) = marks.split_at(count);
            marks = others;
            dropped += match row {
                Some(row) => pages.insert(key, row, own),
                None => pages.remove(&key),
            };
        }
        self.outlined.fetch_sub(dropped, Ordering::Relaxed);
        self.bound(&mut pages);
    }

    /// Evicts an eighth of what may be here once there is more.
    fn bound(&self, pages: &mut Pages<C>) {
        let outlined = self.outlined.load(Ordering::Relaxed);
        if pages.bytes + outlined > self.budget {
            let freed = pages.evict(outlined, self.budget / 8 * 7);
            self.outlined.fetch_sub(freed, Ordering::Relaxed);
        }
    }

    /// Forgets everything for what another cache holds.
    pub(crate) fn replace(&mut self, other: Self) {
        (self.pages, self.outlined) = (other.pages, other.outlined);
    }

    /// Forgets the pages within some ranges: bounds exclusive.
    pub(crate) fn drop_ranges(&self, ranges: &[(Vec<u8>, Vec<u8>)]) {
        if ranges.is_empty() {
            return;
        }
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        let within =
            |key: &[u8]| ranges.iter().any(|(low, high)| &low[..] < key && key < &high[..]);
        let (mut freed, mut outlined) = (0, 0);
        pages.table.retain(|page| {
            let gone = within(page.key.as_bytes());
            if gone {
                freed += page.bytes();
                outlined += page.outline_bytes();
            }
            !gone
        });
        pages.bytes -= freed;
        self.outlined.fetch_sub(outlined, Ordering::Relaxed);
    }

    /// Bytes of keys, pages and outlines in memory.
    pub(crate) fn bytes(&self) -> usize {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner).bytes;
        pages + self.outlined.load(Ordering::Relaxed)
    }
}

impl<C: Copy> Pages<C> {
    fn find(&self, key: &PageKey) -> Option<&Page<C>> {
        self.table.find(self.hasher.hash_one(key), |page| page.key == *key)
    }

    /// Puts a page in the place of what it was. Answers the bytes of the outline that went: none if there are marks,
    /// and nobody else has it.
    fn insert(&mut self, key: PageKey, row: Arc<[u8]>, marks: &[Mark<C>]) -> usize {
        let hash = |page: &Page<C>| self.hasher.hash_one(&page.key);
        let page = Page::new(key, row);
        self.bytes += page.bytes();
        match self.table.entry(hash(&page), |other| other.key == page.key, hash) {
            Entry::Occupied(mut there) => {
                let there = there.get_mut();
                self.bytes -= there.bytes();
                there.row = page.row;
                if let (Some(outline), false) = (there.outline.get_mut(), marks.is_empty())
                    && outline.replace(marks.iter().map(|&(_, entry, commit)| (entry, commit)))
                {
                    return 0;
                }
                let bytes = there.outline_bytes();
                there.outline = OnceLock::new();
                bytes
            }
            Entry::Vacant(place) => {
                place.insert(page);
                0
            }
        }
    }

    /// Forgets a page; answers the bytes of its outline.
    fn remove(&mut self, key: &PageKey) -> usize {
        let hash = self.hasher.hash_one(key);
        let Ok(entry) = self.table.find_entry(hash, |page| page.key == *key) else { return 0 };
        let page = entry.remove().0;
        self.bytes -= page.bytes();
        page.outline_bytes()
    }

    /// Drops pages in the table's own order, which is a random one, until `target` bytes are left, those of outlines
    /// counted. Answers how many of these went.
    fn evict(&mut self, outlined: usize, target: usize) -> usize {
        let (mut bytes, mut outlines) = (self.bytes, outlined);
        self.table.retain(|page| {
            let keep = bytes + outlines <= target;
            if !keep {
                bytes -= page.bytes();
                outlines -= page.outline_bytes();
            }
            keep
        });
        self.bytes = bytes;
        outlined - outlines
    }
}
