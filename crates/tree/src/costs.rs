//! What a tree has done, for those who measure it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a tree did since it was opened: see [`Tree::costs`](crate::Tree::costs).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeCosts {
    /// Rows of pages that the store was asked for: those that the cache did not have.
    pub pages_read: u64,
    /// Time in committing to nodes level by level, which is hashing, or arithmetic in a Verkle
    /// tree; summed over the threads. Not that of batches of one operation: to read the clock takes
    /// longer than a node.
    pub hashing: Duration,
}

/// Counts while others read the tree, too.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pages_read: AtomicU64,
    hashing_ns: AtomicU64,
}

impl Meter {
    pub(crate) fn costs(&self) -> TreeCosts {
        TreeCosts {
            pages_read: self.pages_read.load(Ordering::Relaxed),
            hashing: Duration::from_nanos(self.hashing_ns.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn read(&self, pages: usize) {
        self.pages_read.fetch_add(pages as u64, Ordering::Relaxed);
    }

    pub(crate) fn hashed_since(&self, start: Instant) {
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.hashing_ns.fetch_add(nanos, Ordering::Relaxed);
    }
}
