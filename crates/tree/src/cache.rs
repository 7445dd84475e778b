//! Pages that stay in memory.

use std::hash::BuildHasher;
use std::sync::{Arc, PoisonError, RwLock};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use spinney_hash::prefetch;

use crate::page_key::PageKey;

/// The pages of the last commit, up to a budget in bytes.
///
/// A page is only ever evicted whole, and never while it is in use: whoever reads its row shares it.
#[derive(Debug)]
pub(crate) struct Cache {
    pages: RwLock<Pages>,
    budget: usize,
}

/// A page: its key, and its row, shared by the cache and by all who read it.
#[derive(Debug)]
struct Page {
    key: PageKey,
    row: Arc<[u8]>,
}

impl Page {
    /// Bytes of memory, as the cache counts them.
    fn bytes(&self) -> usize {
        self.key.as_bytes().len() + self.row.len()
    }
}

/// Pages by the hashes of their keys. They lie in the table itself, a cache line each: on the way to a row
/// there is one place to wait for, in a few megabytes that are looked at all the time.
#[derive(Debug)]
struct Pages {
    table: HashTable<Page>,
    hasher: RandomState,
    bytes: usize,
}

impl Cache {
    pub(crate) fn new(budget: usize) -> Self {
        let (table, hasher) = (HashTable::new(), RandomState::default());
        Self { pages: RwLock::new(Pages { table, hasher, bytes: 0 }), budget }
    }

    pub(crate) fn get(&self, key: &PageKey) -> Option<Arc<[u8]>> {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        let page = pages.find(key)?;
        // Before it is counted: that waits for its first line.
        prefetch(&page.row);
        Some(Arc::clone(&page.row))
    }

    /// Asks for pages that are soon to be read, as many of them as are here: to find one after another takes a
    /// wait for its place, one for its key and one for its row each.
    pub(crate) fn fetch(&self, keys: &[PageKey]) {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().filter_map(|key| pages.find(key)).for_each(|page| prefetch(&page.row));
    }

    /// Takes up pages as the last commit left them: `None` for one that is gone.
    pub(crate) fn put(&self, rows: impl IntoIterator<Item = (PageKey, Option<Arc<[u8]>>)>) {
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        for (key, row) in rows {
            match row {
                Some(row) => pages.insert(Page { key, row }),
                None => pages.remove(&key),
            }
        }
        pages.bound(self.budget);
    }

    /// Forgets everything for what another cache holds.
    pub(crate) fn replace(&mut self, other: Self) {
        self.pages = other.pages;
    }

    /// Forgets the pages within some ranges: bounds exclusive.
    pub(crate) fn drop_ranges(&self, ranges: &[(Vec<u8>, Vec<u8>)]) {
        if ranges.is_empty() {
            return;
        }
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        let within =
            |key: &[u8]| ranges.iter().any(|(low, high)| &low[..] < key && key < &high[..]);
        let mut freed = 0;
        pages.table.retain(|page| {
            let gone = within(page.key.as_bytes());
            freed += if gone { page.bytes() } else { 0 };
            !gone
        });
        pages.bytes -= freed;
    }

    /// Bytes of keys and pages in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.read().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

impl Pages {
    fn find(&self, key: &PageKey) -> Option<&Page> {
        self.table.find(self.hasher.hash_one(key), |page| page.key == *key)
    }

    fn insert(&mut self, page: Page) {
        self.bytes += page.bytes();
        let hash = |page: &Page| self.hasher.hash_one(&page.key);
        match self.table.entry(hash(&page), |other| other.key == page.key, hash) {
            Entry::Occupied(mut there) => {
                self.bytes -= std::mem::replace(there.get_mut(), page).bytes();
            }
            Entry::Vacant(place) => drop(place.insert(page)),
        }
    }

    fn remove(&mut self, key: &PageKey) {
        let hash = self.hasher.hash_one(key);
        if let Ok(entry) = self.table.find_entry(hash, |page| page.key == *key) {
            self.bytes -= entry.remove().0.bytes();
        }
    }

    /// Evicts an eighth of what may be here once there is more.
    fn bound(&mut self, budget: usize) {
        if self.bytes > budget {
            self.evict(budget / 8 * 7);
        }
    }

    /// Drops pages in the table's own order, which is a random one, until `target` bytes are left.
    fn evict(&mut self, target: usize) {
        let mut bytes = self.bytes;
        self.table.retain(|page| {
            let keep = bytes <= target;
            if !keep {
                bytes -= page.bytes();
            }
            keep
        });
        self.bytes = bytes;
    }
}
