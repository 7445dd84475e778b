//! Pages that stay in memory.
//!
//! Invariants:
//! - a page has a slot as long as it is here; a slot that is taken again, or whose page gets a row that differs in more
//!   than values and commitments, has another stamp: so a [`Link`] leads to the page that it was made for, or nowhere;
//! - a page is only ever evicted whole. Who reads a row for longer than a look shares it.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use spinney_hash::prefetch;

use crate::outline::Outline;
use crate::page_key::PageKey;
use crate::row::Row;

/// The pages of the last commit, up to a budget in bytes. Outlines may exceed it by an eighth until rows are taken up.
///
/// Beside the rows of pages that walks of edits came to are their outlines (`outline.rs`).
#[derive(Debug)]
pub(crate) struct Cache<C>(RwLock<Pages<C>>);

/// The pages themselves, and where they are by the hashes of their keys.
#[derive(Debug)]
pub(crate) struct Pages<C> {
    table: HashTable<u32>,
    slots: Vec<Slot>,
    /// The outlines of the slots' pages, those that a walk came to: whoever is after rows alone passes over less of
    /// memory.
    outlines: Vec<Outlined<C>>,
    /// The keys of the slots' pages, out of the way of those who follow links.
    keys: Vec<PageKey>,
    free: Vec<u32>,
    hasher: RandomState,
    /// Bytes of pages: their rows, and what [`Pages::takes`] counts beside.
    bytes: usize,
    /// Bytes of outlines.
    outlined: AtomicUsize,
    budget: usize,
    /// Where the root page is.
    pub(crate) top: LinkCell,
    /// How many pages went, or became others but for what they commit to.
    gone: u64,
}

/// A page's row, shared by all who read it, or nothing.
#[derive(Debug)]
struct Slot {
    row: Option<Arc<[u8]>>,
    stamp: u32,
}

/// Nothing, until somebody looks for an outline; that there is none, or the outline.
#[derive(Debug)]
#[repr(align(64))]
struct Outlined<C>(OnceLock<Option<Outline<C>>>);

impl<C: Copy> Outlined<C> {
    const fn new() -> Self {
        Self(OnceLock::new())
    }

    #[inline]
    fn get(&self) -> Option<&Outline<C>> {
        self.0.get()?.as_ref()
    }

    fn bytes(&self) -> usize {
        self.get().map_or(0, Outline::bytes)
    }
}

/// The slot of a page, and its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) slot: u32,
    stamp: u32,
}

/// Where a link is kept, once somebody went that way.
#[derive(Debug, Default)]
pub(crate) struct LinkCell(AtomicU64);

impl LinkCell {
    /// What was kept, wherever it leads by now.
    pub(crate) fn get(&self) -> Link {
        let packed = self.0.load(Ordering::Relaxed);
        Link { slot: packed as u32, stamp: (packed >> 32) as u32 }
    }

    pub(crate) fn set(&self, Link { slot, stamp }: Link) {
        self.0.store(u64::from(stamp) << 32 | u64::from(slot), Ordering::Relaxed);
    }
}

/// Of a row, by its place among those of a commit: which of its entries commits to what now.
pub(crate) type Mark<C> = (u32, u16, C);

impl<C: Copy> Cache<C> {
    pub(crate) fn new(budget: usize) -> Self {
        Self(RwLock::new(Pages::new(budget)))
    }

    /// The pages as they are, until the answer is dropped: to be held for a short while. Whoever holds them asks the
    /// cache itself for nothing: between the two a writer may wait, and then both wait for each other.
    pub(crate) fn pages(&self) -> RwLockReadGuard<'_, Pages<C>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &PageKey) -> Option<Arc<[u8]>> {
        let pages = self.pages();
        let row = pages.row(pages.find(key)?.slot);
        // Before it is counted: that waits for its first line.
        prefetch(row);
        Some(Arc::clone(row))
    }

    /// Asks for pages that are soon to be read, as many of them as are here: to find one after another takes a
    /// wait for its place, one for its key and one for its row each.
    pub(crate) fn fetch(&self, keys: &[PageKey]) {
        let pages = self.pages();
        keys.iter().filter_map(|key| pages.find(key)).for_each(|link| {
            prefetch(pages.row(link.slot));
        });
    }

    /// Takes up pages as the last commit left them: `None` for one that is gone.
    pub(crate) fn put(&self, rows: impl IntoIterator<Item = (PageKey, Option<Arc<[u8]>>)>) {
        self.take_up(rows.into_iter().map(|(key, row)| (key, row.map(Row::Own))), &[]);
    }

    /// As [`Cache::put`], with marks in order of their rows, which differ from those before them in nothing but
    /// values and what their entries commit to. Their outlines stay.
    pub(crate) fn take_up(
        &self,
        rows: impl IntoIterator<Item = (PageKey, Option<Row>)>,
        mut marks: &[Mark<C>],
    ) {
        let mut pages = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for (number, (key, row)) in (0..).zip(rows) {
            let count = marks.iter().take_while(|(row, ..)| *row == number).count();
            let (own, others) = marks.split_at(count);
            marks = others;
            match row {
                Some(row) => pages.insert(key, row, own),
                None => pages.remove(&key),
            }
        }
        // Evicts an eighth of what may be here once there is more.
        if pages.all_bytes() > pages.budget {
            let target = pages.budget / 8 * 7;
            pages.evict(target);
        }
    }

    /// Forgets everything for what another cache holds.
    pub(crate) fn replace(&mut self, other: Self) {
        let budget = self.pages().budget;
        self.0 = other.0;
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).budget = budget;
    }

    /// Forgets the pages within some ranges: bounds exclusive.
    pub(crate) fn drop_ranges(&self, ranges: &[(Vec<u8>, Vec<u8>)]) {
        if ranges.is_empty() {
            return;
        }
        let mut pages = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let within =
            |key: &[u8]| ranges.iter().any(|(low, high)| &low[..] < key && key < &high[..]);
        pages.retain(|key, _| !within(key.as_bytes()));
    }

    /// How many bytes may be in memory.
    pub(crate) fn budget(&self) -> usize {
        self.pages().budget
    }

    /// Bytes of keys, pages and outlines in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.pages().all_bytes()
    }
}

impl<C: Copy> Pages<C> {
    fn new(budget: usize) -> Self {
        Self {
            table: HashTable::new(),
            slots: Vec::new(),
            outlines: Vec::new(),
            keys: Vec::new(),
            free: Vec::new(),
            hasher: RandomState::default(),
            bytes: 0,
            outlined: AtomicUsize::new(0),
            budget,
            top: LinkCell::default(),
            gone: 0,
        }
    }

    /// Bytes that a page takes beside its row: its slot, its key, and its place in the table.
    fn takes(key: &PageKey) -> usize {
        /// A number, a byte of its hash, and the room that tables leave.
        const PLACE_BYTES: usize = 8;
        size_of::<Slot>()
            + size_of::<Outlined<C>>()
            + size_of::<PageKey>()
            + PLACE_BYTES
            + key.heap_bytes()
    }

    fn all_bytes(&self) -> usize {
        self.bytes + self.outlined.load(Ordering::Relaxed)
    }

    /// While it stays, links and outlines that were found before are where they were.
    pub(crate) const fn gone(&self) -> u64 {
        self.gone
    }

    fn link(&self, slot: u32) -> Link {
        Link { slot, stamp: self.slots[slot as usize].stamp }
    }

    /// Where a page is.
    pub(crate) fn find(&self, key: &PageKey) -> Option<Link> {
        let is = |&slot: &u32| self.keys[slot as usize] == *key;
        let found = self.table.find(self.hasher.hash_one(key), is);
        found.map(|&slot| self.link(slot))
    }

    /// The row of the page in a slot that a link leads to.
    ///
    /// # Panics
    /// If it does not any more.
    #[inline]
    fn row(&self, slot: u32) -> &Arc<[u8]> {
        self.slots[slot as usize].row.as_ref().expect("a link leads to a page")
    }

    /// How long the row in a slot is that a link leads to.
    ///
    /// # Panics
    /// If it does not any more.
    pub(crate) fn row_len(&self, slot: u32) -> usize {
        self.row(slot).len()
    }

    /// The row and the outline of a page that a link leads to, and that somebody made an outline of.
    ///
    /// # Panics
    /// If it does not any more, or nobody did.
    #[inline]
    pub(crate) fn outlined(&self, slot: u32) -> (&[u8], &Outline<C>) {
        let outline = self.outlines[slot as usize].get();
        (self.row(slot), outline.expect("a walk came to it"))
    }

    /// The row of the page that a link was made for, if it is still here.
    #[inline]
    pub(crate) fn linked(&self, link: Link) -> Option<&[u8]> {
        let slot = &self.slots[link.slot as usize];
        slot.row.as_deref().filter(|_| slot.stamp == link.stamp)
    }

    /// Whether a link still leads to the page that it was made for.
    pub(crate) fn leads(&self, link: Link) -> bool {
        let slot = self.slots.get(link.slot as usize);
        slot.is_some_and(|slot| slot.stamp == link.stamp && slot.row.is_some())
    }

    /// Asks for where a page's row is.
    pub(crate) fn fetch_slot(&self, slot: u32) {
        self.slots.get(slot as usize).into_iter().for_each(|slot| {
            prefetch(std::slice::from_ref(slot));
        });
    }

    /// Asks for where a page's outline is.
    pub(crate) fn fetch_outline(&self, slot: u32) {
        self.outlines.get(slot as usize).into_iter().for_each(|outlined| {
            prefetch(std::slice::from_ref(outlined));
        });
    }

    /// The row of what is in a slot by now.
    pub(crate) fn guess_row(&self, slot: u32) -> Option<&[u8]> {
        self.slots.get(slot as usize)?.row.as_deref()
    }

    /// The outline of what is in a slot by now, if there is one.
    pub(crate) fn guess_outline(&self, slot: u32) -> Option<&Outline<C>> {
        self.outlines.get(slot as usize)?.get()
    }

    /// The outline of a page, which `build` makes of the row if nobody has yet; nothing if it has none, or if there is
    /// no room for it.
    #[inline]
    pub(crate) fn outline(
        &self,
        slot: u32,
        build: impl FnOnce(&[u8]) -> Option<Outline<C>>,
    ) -> Option<&Outline<C>> {
        let outlined = &self.outlines[slot as usize];
        if let Some(outline) = outlined.0.get() {
            return outline.as_ref();
        }
        let row = self.row(slot);
        prefetch(row);
        let built = build(row);
        let bytes = built.as_ref().map_or(0, Outline::bytes);
        // Those of a cache full of rows find room above the budget, until there are rows to take up again.
        if self.all_bytes() + bytes > self.budget / 8 * 9 {
            return None;
        }
        if outlined.0.set(built).is_ok() {
            self.outlined.fetch_add(bytes, Ordering::Relaxed);
        }
        outlined.get()
    }

    /// Puts a page in the place of what it was. Its outline stays if there are marks.
    fn insert(&mut self, key: PageKey, row: Row, marks: &[Mark<C>]) {
        let Self { table, slots, outlines, keys, free, hasher, .. } = self;
        let hash = |&slot: &u32| hasher.hash_one(&keys[slot as usize]);
        match table.entry(hasher.hash_one(&key), |&slot| keys[slot as usize] == key, hash) {
            Entry::Occupied(there) => {
                let place = *there.get() as usize;
                let slot = &mut slots[place];
                let there = slot.row.as_mut().expect("it was just found");
                if marks.is_empty() && **there == *row {
                    return;
                }
                self.bytes = self.bytes - there.len() + row.len();
                row.replace(there);
                let outlined = &mut outlines[place];
                match outlined.0.get_mut() {
                    Some(Some(outline)) if !marks.is_empty() => {
                        outline.replace(marks.iter().map(|&(_, entry, commit)| (entry, commit)));
                    }
                    _ => {
                        *self.outlined.get_mut() -= outlined.bytes();
                        *outlined = Outlined::new();
                        slot.stamp = slot.stamp.saturating_add(1);
                        self.gone += 1;
                    }
                }
            }
            Entry::Vacant(place) => {
                self.bytes += Self::takes(&key) + row.len();
                let row = Some(Arc::clone(row.own()));
                let slot = free.pop().unwrap_or(slots.len() as u32);
                place.insert(slot);
                match slots.get_mut(slot as usize) {
                    Some(there) => (there.row, keys[slot as usize]) = (row, key),
                    None => {
                        push_tight(slots, Slot { row, stamp: 1 });
                        push_tight(outlines, Outlined::new());
                        push_tight(keys, key);
                    }
                }
            }
        }
    }

    /// Forgets a page.
    fn remove(&mut self, key: &PageKey) {
        let Self { table, keys, hasher, .. } = self;
        let is = |&slot: &u32| keys[slot as usize] == *key;
        if let Ok(entry) = table.find_entry(hasher.hash_one(key), is) {
            let slot = entry.remove().0;
            self.vacate(slot);
        }
    }

    /// Empties a slot that the table does not have any more.
    fn vacate(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        let Some(row) = slot.row.take() else { return };
        self.bytes -= Self::takes(&self.keys[number as usize]) + row.len();
        let outlined = std::mem::replace(&mut self.outlines[number as usize], Outlined::new());
        *self.outlined.get_mut() -= outlined.bytes();
        self.gone += 1;
        // One whose stamps are used up stays empty.
        if let Some(stamp) = slot.stamp.checked_add(1) {
            slot.stamp = stamp;
            self.free.push(number);
        }
    }

    /// Forgets all pages but those that are to be kept, who are told how many bytes there are still.
    fn retain(&mut self, mut keep: impl FnMut(&PageKey, usize) -> bool) {
        let mut table = std::mem::take(&mut self.table);
        table.retain(|&mut slot| {
            let kept = keep(&self.keys[slot as usize], self.all_bytes());
            if !kept {
                self.vacate(slot);
            }
            kept
        });
        self.table = table;
    }

    /// Drops pages in the table's own order, which is a random one, until `target` bytes are left, those of outlines
    /// counted.
    fn evict(&mut self, target: usize) {
        self.retain(|_, bytes| bytes <= target);
    }
}

/// Adds an item to a long list, which has room for an eighth more at most.
fn push_tight<T>(list: &mut Vec<T>, item: T) {
    const ROOM_MIN: usize = 64;
    if list.len() == list.capacity() {
        list.reserve_exact((list.len() / 8).max(ROOM_MIN));
    }
    list.push(item);
}
