//! What a bisection may cost.

use std::cell::Cell;
use std::time::Instant;

/// What is left of what a bisection may cost.
#[derive(Debug)]
pub(crate) struct Budget {
    asks: Cell<u64>,
    asks_max: u64,
    hashes: Cell<u64>,
    until: Option<Instant>,
}

impl Budget {
    pub(crate) const fn new(asks_max: u64, hashes: u64, until: Option<Instant>) -> Self {
        Self { asks: Cell::new(0), asks_max, hashes: Cell::new(hashes), until }
    }

    /// Counts an ask, if there may be one.
    pub(crate) fn takes_ask(&self) -> bool {
        let may = self.asks.get() < self.asks_max && !self.is_late();
        self.asks.set(self.asks.get().saturating_add(u64::from(may)));
        may
    }

    pub(crate) const fn asks(&self) -> u64 {
        self.asks.get()
    }

    pub(crate) fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    pub(crate) const fn has_hashes(&self, count: u64) -> bool {
        self.hashes.get() >= count
    }

    /// Counts hashes, if there may be so many.
    pub(crate) fn takes_hashes(&self, count: u64) -> bool {
        let left = self.hashes.get().checked_sub(count).filter(|_| !self.is_late());
        self.hashes.set(left.unwrap_or_default());
        left.is_some()
    }
}
