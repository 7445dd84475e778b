//! What a commit changes.

use crate::key::Key;

/// A row to write, or to remove where there is none.
#[derive(Clone, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) key: Key,
    pub(crate) row: Option<&'a [u8]>,
    pub(crate) before: Option<&'a [u8]>,
}

/// Rows to write and to remove, applied as one. Ranges are removed first; of the changes of one key
/// the last one counts.
///
/// ```
/// let mut batch = spinney_log::Batch::new();
/// batch.put(b"key", b"row", None);
/// batch.remove(b"other");
/// batch.remove_between(b"low", b"lower");
/// assert!(!batch.is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch<'a> {
    pub(crate) changes: Vec<Change<'a>>,
    pub(crate) ranges: Vec<(Key, Key)>,
    pub(crate) mark: Option<u64>,
}

impl<'a> Batch<'a> {
    /// Nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for so many changes.
    pub fn reserve(&mut self, changes: usize) {
        self.changes.reserve(changes);
    }

    /// Writes a row. Where `before` is what the row is before this batch, what differs is written
    /// instead of all of it; where it is not, that is found out, and does no harm.
    pub fn put(&mut self, key: impl AsRef<[u8]>, row: &'a [u8], before: Option<&'a [u8]>) {
        self.changes.push(Change { key: Key::from_slice(key.as_ref()), row: Some(row), before });
    }

    /// Removes a row, if there is one.
    pub fn remove(&mut self, key: impl AsRef<[u8]>) {
        self.changes.push(Change { key: Key::from_slice(key.as_ref()), row: None, before: None });
    }

    /// Removes all rows with `low < key < high` that were there before this batch.
    pub fn remove_between(&mut self, low: impl AsRef<[u8]>, high: impl AsRef<[u8]>) {
        self.ranges.push((Key::from_slice(low.as_ref()), Key::from_slice(high.as_ref())));
    }

    /// Gives the commit a mark, which may rise and fall and come again: see
    /// [`Log::at_mark`](crate::Log::at_mark). Without one, a commit has the mark of the one before.
    pub const fn mark(&mut self, mark: u64) {
        self.mark = Some(mark);
    }

    /// Whether there is nothing to do.
    pub const fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.ranges.is_empty()
    }

    /// Sorts the changes by key; the last one of a key stays.
    pub(crate) fn sort(&mut self) {
        if self.changes.is_sorted_by(|a, b| a.key < b.key) {
            return;
        }
        self.changes.sort_by(|a, b| a.key.cmp(&b.key));
        self.changes.dedup_by(|later, first| {
            let same = later.key == first.key;
            if same {
                std::mem::swap(later, first);
            }
            same
        });
    }

    pub(crate) fn drops(&self, key: &[u8]) -> bool {
        self.ranges.iter().any(|(low, high)| &low[..] < key && key < &high[..])
    }

    pub(crate) fn place_of(&self, key: &[u8]) -> Option<usize> {
        self.changes.binary_search_by(|change| change.key[..].cmp(key)).ok()
    }
}
