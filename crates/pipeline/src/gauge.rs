//! How many ranges are under way: bounded, and counted.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(crate) struct Gauge {
    bound: usize,
    state: Mutex<Level>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Level {
    now: usize,
    peak: usize,
    closed: bool,
}

impl Gauge {
    pub(crate) fn new(bound: usize) -> Self {
        Self { bound: bound.max(1), state: Mutex::default(), moved: Condvar::new() }
    }

    fn level(&self) -> MutexGuard<'_, Level> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place; `false` if there is none any more.
    pub(crate) fn enter(&self) -> bool {
        let full = |level: &mut Level| level.now >= self.bound && !level.closed;
        let mut level =
            self.moved.wait_while(self.level(), full).unwrap_or_else(PoisonError::into_inner);
        if level.closed {
            return false;
        }
        level.now += 1;
        level.peak = level.peak.max(level.now);
        true
    }

    /// Gives places back.
    pub(crate) fn leave(&self, places: usize) {
        let mut level = self.level();
        level.now = level.now.checked_sub(places).expect("who leaves has entered");
        drop(level);
        self.moved.notify_all();
    }

    /// Nobody enters any more.
    pub(crate) fn close(&self) {
        self.level().closed = true;
        self.moved.notify_all();
    }

    pub(crate) fn now(&self) -> usize {
        self.level().now
    }

    pub(crate) fn peak(&self) -> usize {
        self.level().peak
    }
}
