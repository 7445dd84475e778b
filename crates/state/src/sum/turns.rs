//! Who commits is alone: handles of one process on one tree take turns.
//!
//! A commit looks at what the store holds, and then writes. A store has one process that writes,
//! but that may have any number of handles on a tree, in any threads; between the look and the
//! write of one of them no other may write. Locks are found by name, a few for all names: trees of
//! different names, or of different stores, that share one only wait for one another.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many commits of trees of different names may go on at once, at best.
const LOCKS: usize = 64;

static COMMITS: [Mutex<()>; LOCKS] = [const { Mutex::new(()) }; LOCKS];
static NAMES: Mutex<()> = Mutex::new(());

/// The turn to commit to trees.
#[derive(Debug)]
pub(super) struct Turn {
    _held: Vec<MutexGuard<'static, ()>>,
}

impl Turn {
    /// Waits for the turn to commit to the trees of these names.
    pub(super) fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut locks: Vec<_> = names.into_iter().map(lock_of).collect();
        // In one order everywhere, or two could wait for each other.
        locks.sort_unstable();
        locks.dedup();
        Self { _held: locks.into_iter().map(|lock| take(&COMMITS[lock])).collect() }
    }
}

/// Waits for the turn to give or take a name.
pub(super) fn names() -> MutexGuard<'static, ()> {
    take(&NAMES)
}

fn take(lock: &'static Mutex<()>) -> MutexGuard<'static, ()> {
    // There is nothing behind a lock that a panic could have left halfway.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// FNV-1a (Fowler, Noll, Vo): nobody gains from names that share a lock.
fn lock_of(name: &str) -> usize {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    (name.bytes().fold(0xcbf2_9ce4_8422_2325, mix) >> 32) as usize % LOCKS
}
