//! Pages that stay in memory.

use std::sync::{Arc, PoisonError, RwLock};

use foldhash::HashMap;

use crate::page_key::PageKey;

/// The pages of the last commit, up to a budget in bytes.
///
/// A page is only ever evicted whole, and never while it is in use: whoever reads it shares it.
#[derive(Debug)]
pub(crate) struct Cache {
    pages: RwLock<Pages>,
    budget: usize,
}

#[derive(Debug, Default)]
struct Pages {
    rows: HashMap<PageKey, Arc<[u8]>>,
    bytes: usize,
}

impl Cache {
    pub(crate) fn new(budget: usize) -> Self {
        Self { pages: RwLock::default(), budget }
    }

    pub(crate) fn get(&self, key: &PageKey) -> Option<Arc<[u8]>> {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        pages.rows.get(key).cloned()
    }

    /// Takes up pages as the last commit left them: `None` for one that is gone.
    pub(crate) fn put(&self, rows: impl IntoIterator<Item = (PageKey, Option<Arc<[u8]>>)>) {
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        for (key, row) in rows {
            let size = |key: &PageKey, row: &Arc<[u8]>| key.as_bytes().len() + row.len();
            let added = row.as_ref().map_or(0, |row| size(&key, row));
            let old = match row {
                Some(row) => pages.rows.insert(key.clone(), row),
                None => pages.rows.remove(&key),
            };
            pages.bytes += added;
            pages.bytes -= old.map_or(0, |old| size(&key, &old));
        }
        if pages.bytes > self.budget {
            pages.evict(self.budget / 8 * 7);
        }
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
        pages.rows.retain(|key, row| {
            let gone = within(key.as_bytes());
            freed += if gone { key.as_bytes().len() + row.len() } else { 0 };
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
    /// Drops pages in the map's own order, which is a random one, until `target` bytes are left.
    fn evict(&mut self, target: usize) {
        let mut bytes = self.bytes;
        self.rows.retain(|key, row| {
            let keep = bytes <= target;
            if !keep {
                bytes -= key.as_bytes().len() + row.len();
            }
            keep
        });
        self.bytes = bytes;
    }
}
