//! How many ranges are under way, bounded and counted; and how many of them are being built.

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

/// Keeps a core for the commit. Commits are one after the other, and what a rebuild takes is what
/// they take: so a thread that builds ranges stands aside while one is made, unless it is the only
/// one.
#[derive(Debug)]
pub(crate) struct Cores {
    beside_commit: usize,
    state: Mutex<Busy>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Busy {
    building: usize,
    committing: bool,
}

impl Cores {
    pub(crate) fn new(threads: usize) -> Self {
        let beside_commit = threads.saturating_sub(1).max(1);
        Self { beside_commit, state: Mutex::default(), moved: Condvar::new() }
    }

    fn busy(&self) -> MutexGuard<'_, Busy> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Builds when there is a core for it. The work does not panic.
    pub(crate) fn build<T>(&self, work: impl FnOnce() -> T) -> T {
        let full = |busy: &mut Busy| busy.committing && busy.building >= self.beside_commit;
        let waited = self.moved.wait_while(self.busy(), full);
        waited.unwrap_or_else(PoisonError::into_inner).building += 1;
        let done = work();
        self.busy().building -= 1;
        self.moved.notify_all();
        done
    }

    /// Commits. Who waits for it is let go even if the work panics.
    pub(crate) fn commit<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Over<'a>(&'a Cores);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.busy().committing = false;
                self.0.moved.notify_all();
            }
        }
        self.busy().committing = true;
        let _over = Over(self);
        work()
    }
}
