//! Memory kept from one batch to the next, so that a steady state allocates nothing.

use std::sync::{Arc, Mutex, PoisonError};

use crate::node::Arena;
use crate::scheme::Scheme;
use crate::update::Workspace;

/// So many arenas wait to be used again, however large; more, as the ranges of a large batch need
/// them, as long as all of them are not too large.
const ARENAS_MIN: usize = 8;
const ARENAS_MAX: usize = 64;
const ARENAS_BYTES_MAX: usize = 64 << 20;
/// A arena that grew beyond this is given back to the system.
const ARENA_BYTES_MAX: usize = 32 << 20;
/// So many workspaces wait to be used again.
const WORKSPACES_MAX: usize = 16;

/// Arenas and workspaces that nobody uses.
#[derive(Debug)]
pub(crate) struct Pool<S: Scheme> {
    arenas: Mutex<KeptArenas<S::Commit>>,
    workspaces: Mutex<Vec<Box<Workspace<S>>>>,
}

/// Arenas, each with the bytes that it holds, and all of these.
#[derive(Debug)]
struct KeptArenas<C> {
    arenas: Vec<(Arc<Arena<C>>, usize)>,
    bytes: usize,
}

impl<C> Default for KeptArenas<C> {
    fn default() -> Self {
        Self { arenas: Vec::new(), bytes: 0 }
    }
}

impl<S: Scheme> Default for Pool<S> {
    fn default() -> Self {
        Self { arenas: Mutex::default(), workspaces: Mutex::default() }
    }
}

impl<S: Scheme> Pool<S> {
    /// An empty arena that nobody else holds.
    pub(crate) fn arena(&self) -> Arc<Arena<S::Commit>> {
        let mut kept = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((arena, bytes)) = kept.arenas.pop() else {
            return Arc::new(Arena::new());
        };
        kept.bytes -= bytes;
        arena
    }

    /// Takes back arenas that nobody else holds.
    pub(crate) fn recycle(&self, arenas: impl Iterator<Item = Arc<Arena<S::Commit>>>) {
        for mut arena in arenas {
            let Some(alone) = Arc::get_mut(&mut arena) else { continue };
            alone.clear();
            let bytes = alone.capacity();
            if bytes > ARENA_BYTES_MAX {
                continue;
            }
            let mut kept = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
            let count = kept.arenas.len();
            if count < ARENAS_MIN || count < ARENAS_MAX && kept.bytes < ARENAS_BYTES_MAX {
                kept.arenas.push((arena, bytes));
                kept.bytes += bytes;
            }
        }
    }

    /// What a descent needs.
    pub(crate) fn workspace(&self) -> Box<Workspace<S>> {
        let kept = self.workspaces.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut work = kept.unwrap_or_default();
        work.clear();
        work
    }

    /// Takes it back.
    pub(crate) fn put_back(&self, work: Box<Workspace<S>>) {
        let mut kept = self.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < WORKSPACES_MAX {
            kept.push(work);
        }
    }
}
