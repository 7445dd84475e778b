//! Pages that stay in memory.
//!
//! Invariants:
//! - a page has a slot as long as it is here; a slot that is given away again has another
//!   generation: so a [`Handle`] leads to the page with the key that it was made for, as the last
//!   commit left it, or nowhere;
//! - a page that is here says where; one that is to take its place may have been told, and is put
//!   there without a look at the table;
//! - all pages are those of one head; whoever reads an older one looks whether they still are,
//!   under the lock under which it takes a page;
//! - a page is only ever evicted whole. Who reads one for longer than a look shares it.
//!
//! A hand goes round over the slots (the clock algorithm): it evicts the pages that nobody has
//! looked at since it was there last, or since they came.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use spinney_hash::prefetch;

use crate::page::{Handle, Page};
use crate::page_key::PageKey;

/// The pages of the last commit with their indexes, up to a budget in bytes.
#[derive(Debug)]
pub(crate) struct Cache<C>(RwLock<CachedPages<C>>);

/// The pages themselves, and where they are by the hashes of their keys.
#[derive(Debug)]
pub(crate) struct CachedPages<C> {
    table: HashTable<u32>,
    slots: Vec<Slot<C>>,
    free: Vec<u32>,
    hasher: RandomState,
    /// Bytes of pages, and of what [`SLOT_BYTES`] counts beside.
    bytes: usize,
    budget: usize,
    /// The slot where evicting goes on.
    hand: usize,
    /// The head whose pages these are.
    head: u64,
}

/// A page, shared by all who read it, or nothing.
#[derive(Debug)]
struct Slot<C> {
    page: Option<Arc<Page<C>>>,
    generation: u32,
    /// Whether somebody looked at the page since the hand was here.
    used: AtomicBool,
}

impl<C> Slot<C> {
    /// Written only where it says something else: all who read share its line of memory.
    fn mark(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
}

/// So many pages ahead the slot is asked for that a new page is to have, and the page in it.
const SLOTS_AHEAD: usize = 12;
const PAGES_AHEAD: usize = 4;

/// Bytes that a page takes beside its own: its slot, its count of readers, and its place in the
/// table with the room that tables leave.
const SLOT_BYTES: usize = 16 + 16 + 8;

impl<C: Copy> Cache<C> {
    pub(crate) fn new(budget: usize, head: u64) -> Self {
        Self(RwLock::new(CachedPages::new(budget, head)))
    }

    /// Gives another budget to a cache that nobody else has yet.
    pub(crate) fn set_budget(&self, budget: usize) {
        self.write().budget = budget;
    }

    /// The pages as they are, until the answer is dropped: to be held for a short while. Whoever
    /// holds them asks the cache itself for nothing: between the two a writer may wait, and then
    /// both wait for each other.
    pub(crate) fn pages(&self) -> RwLockReadGuard<'_, CachedPages<C>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up pages as the last commit left them.
    pub(crate) fn put(&self, pages: impl IntoIterator<Item = Arc<Page<C>>>) {
        self.write().take_up(pages, &[], &[]);
    }

    /// As [`Cache::put`], if the pages are still those of `head`.
    pub(crate) fn put_of(&self, head: u64, new: impl IntoIterator<Item = Arc<Page<C>>>) {
        let mut pages = self.write();
        if pages.head == head {
            pages.take_up(new, &[], &[]);
        }
    }

    /// Goes on to another head: with pages that are new, and those that went, by key and within
    /// ranges with exclusive bounds.
    pub(crate) fn move_to(
        &self,
        head: u64,
        new: impl IntoIterator<Item = Arc<Page<C>>>,
        gone: &[PageKey],
        ranges: &[(Vec<u8>, Vec<u8>)],
    ) {
        let mut pages = self.write();
        pages.head = head;
        pages.take_up(new, gone, ranges);
    }

    fn write(&self) -> RwLockWriteGuard<'_, CachedPages<C>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of pages in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.pages().bytes
    }
}

impl<C: Copy> CachedPages<C> {
    fn new(budget: usize, head: u64) -> Self {
        let (table, hasher) = (HashTable::new(), RandomState::default());
        Self { table, slots: Vec::new(), free: Vec::new(), hasher, bytes: 0, budget, hand: 0, head }
    }

    /// Whether these are the pages of a head.
    pub(crate) const fn are_of(&self, head: u64) -> bool {
        self.head == head
    }

    /// How many bytes of pages may be here.
    pub(crate) const fn budget(&self) -> usize {
        self.budget
    }

    fn take_up(
        &mut self,
        new: impl IntoIterator<Item = Arc<Page<C>>>,
        gone: &[PageKey],
        ranges: &[(Vec<u8>, Vec<u8>)],
    ) {
        let pages = self;
        if !ranges.is_empty() {
            let within =
                |key: &[u8]| ranges.iter().any(|(low, high)| &low[..] < key && key < &high[..]);
            pages.retain(|key| !within(key.as_bytes()));
        }
        gone.iter().for_each(|key| pages.remove(key));
        let mut new = Vec::from_iter(new).into_iter();
        while let Some(page) = new.next() {
            let ahead = |ahead: usize| new.as_slice().get(ahead).map(|page| page.place.get());
            ahead(SLOTS_AHEAD).into_iter().for_each(|place| pages.fetch_slot(place));
            ahead(PAGES_AHEAD).into_iter().for_each(|place| pages.fetch_page(place));
            pages.insert(page);
        }
        pages.evict();
    }

    /// Where a page is.
    pub(crate) fn find(&self, key: &PageKey) -> Option<Handle> {
        let is = |&slot: &u32| self.key(slot).is_some_and(|other| other == key);
        let slot = *self.table.find(self.hasher.hash_one(key), is)?;
        let found = &self.slots[slot as usize];
        found.mark();
        Some(Handle { slot, generation: found.generation })
    }

    fn key(&self, slot: u32) -> Option<&PageKey> {
        self.slots[slot as usize].page.as_ref().map(|page| &page.key)
    }

    /// The page that a handle was made for, if it is still here.
    #[inline]
    pub(crate) fn page(&self, handle: Handle) -> Option<&Arc<Page<C>>> {
        let slot = self.slots.get(handle.slot as usize)?;
        let page = slot.page.as_ref().filter(|_| slot.generation == handle.generation)?;
        slot.mark();
        Some(page)
    }

    /// Asks for where a page is.
    pub(crate) fn fetch_slot(&self, handle: Handle) {
        if let Some(slot) = self.slots.get(handle.slot as usize) {
            prefetch(std::slice::from_ref(slot));
        }
    }

    /// Asks for what says where a page's row and index are.
    pub(crate) fn fetch_page(&self, handle: Handle) {
        if let Some(Slot { page: Some(page), .. }) = self.slots.get(handle.slot as usize) {
            prefetch(std::slice::from_ref(&**page));
        }
    }

    /// Asks for a page's index.
    pub(crate) fn fetch_entries(&self, handle: Handle) {
        if let Some(page) = self.page(handle) {
            page.fetch_entries();
        }
    }

    /// Puts a page in the place of what it was: where it says that this is, if it is still there.
    fn insert(&mut self, page: Arc<Page<C>>) {
        let place = page.place.get();
        if self.page(place).is_some_and(|there| there.key == page.key) {
            self.replace(place.slot, page);
            return;
        }
        let Self { table, slots, free, hasher, .. } = self;
        let key = |slot: &u32| slots[*slot as usize].page.as_ref().map(|page| &page.key);
        let hash = |slot: &u32| key(slot).map_or(0, |key| hasher.hash_one(key));
        let is = |slot: &u32| key(slot).is_some_and(|other| *other == page.key);
        match table.entry(hasher.hash_one(&page.key), is, hash) {
            Entry::Occupied(there) => {
                let slot = *there.get();
                self.replace(slot, page);
            }
            Entry::Vacant(entry) => {
                self.bytes += SLOT_BYTES + page.bytes();
                let number = free.pop().unwrap_or(slots.len() as u32);
                entry.insert(number);
                if slots.len() == number as usize {
                    let used = AtomicBool::new(false);
                    push_tight(slots, Slot { page: None, generation: 1, used });
                }
                let slot = &mut slots[number as usize];
                page.place.set(Handle { slot: number, generation: slot.generation });
                slot.page = Some(page);
            }
        }
    }

    /// Puts a page into a slot that has an older one of its key.
    fn replace(&mut self, number: u32, page: Arc<Page<C>>) {
        let slot = &mut self.slots[number as usize];
        page.place.set(Handle { slot: number, generation: slot.generation });
        self.bytes += page.bytes();
        if let Some(old) = slot.page.replace(Arc::clone(&page)) {
            debug_assert_eq!(old.key, page.key, "another page's slot");
            page.take_over(&old);
            self.bytes -= old.bytes();
        }
    }

    /// Forgets a page.
    fn remove(&mut self, key: &PageKey) {
        let Self { table, slots, hasher, .. } = self;
        let is =
            |slot: &u32| slots[*slot as usize].page.as_ref().is_some_and(|page| page.key == *key);
        if let Ok(entry) = table.find_entry(hasher.hash_one(key), is) {
            let slot = entry.remove().0;
            self.vacate(slot);
        }
    }

    /// Empties a slot that the table does not have any more.
    fn vacate(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        let Some(page) = slot.page.take() else { return };
        self.bytes -= SLOT_BYTES + page.bytes();
        *slot.used.get_mut() = false;
        // One whose generations are used up stays empty.
        if let Some(generation) = slot.generation.checked_add(1) {
            slot.generation = generation;
            self.free.push(number);
        }
    }

    /// Forgets all pages but those that are to be kept.
    fn retain(&mut self, keep: impl Fn(&PageKey) -> bool) {
        let mut table = std::mem::take(&mut self.table);
        table.retain(|&mut slot| {
            let kept = self.key(slot).is_some_and(&keep);
            if !kept {
                self.vacate(slot);
            }
            kept
        });
        self.table = table;
    }

    /// Moves the hand on until the pages are within the budget.
    fn evict(&mut self) {
        // In the second round no page was looked at.
        for _ in 0..2 * self.slots.len() {
            if self.bytes <= self.budget {
                return;
            }
            let number = self.hand;
            self.hand = (number + 1) % self.slots.len();
            let slot = &mut self.slots[number];
            if std::mem::take(slot.used.get_mut()) {
                continue;
            }
            let Some(page) = &slot.page else { continue };
            let hash = self.hasher.hash_one(&page.key);
            if let Ok(entry) = self.table.find_entry(hash, |&slot| slot as usize == number) {
                let slot = entry.remove().0;
                self.vacate(slot);
            }
        }
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
