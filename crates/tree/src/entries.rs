//! The entries of a tree, in order of keys.

use std::fmt;
use std::sync::Arc;

use crate::error::TreeError;
use crate::node::Arena;
use crate::node_check::Check;
use crate::page::HandleCell;
use crate::page_key::PageKey;
use crate::read::{Entry, Halt, Reader};
use crate::rows::ReadRows;
use crate::scheme::Scheme;
use crate::store::Snapshot;
use crate::tree::{Pending, Tree};
use crate::walk::EntryWalk;

impl<S: Scheme> Tree<S> {
    /// The entries of `state`, or of the last commit, from the key `start` on, in order of keys.
    pub fn entries<'a, N: Snapshot>(
        &'a self,
        snapshot: &'a N,
        state: Option<&'a Pending<S>>,
        start: &[u8],
    ) -> Entries<'a, S> {
        self.entries_of(snapshot, state, (start, None))
    }

    /// The entries whose keys begin with `prefix`, in order of keys.
    ///
    /// ```
    /// # use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeId, mpt::Mpt};
    /// # let store = MemoryStore::new();
    /// # let tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 1 << 20)?;
    /// # let mut batch = Batch::new();
    /// # for key in ["cat", "doe", "dog", "emu"] { batch.put(key.as_bytes(), b"x"); }
    /// # let pending = tree.prepare(&store.snapshot()?, None, batch)?;
    /// let snapshot = store.snapshot()?;
    /// let keys = tree.prefix(&snapshot, Some(&pending), b"do").map(|entry| Ok(entry?.key));
    /// assert_eq!(keys.collect::<Result<Vec<_>, spinney_tree::TreeError>>()?, [b"doe", b"dog"]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefix<'a, N: Snapshot>(
        &'a self,
        snapshot: &'a N,
        state: Option<&'a Pending<S>>,
        prefix: &[u8],
    ) -> Entries<'a, S> {
        self.entries_with(snapshot, state, prefix)
    }

    /// As [`Tree::prefix`].
    pub(crate) fn entries_with<'a>(
        &'a self,
        snapshot: &'a dyn ReadRows,
        state: Option<&'a Pending<S>>,
        prefix: &[u8],
    ) -> Entries<'a, S> {
        // The first key beyond the prefix: its last byte that can grow grows, the rest goes.
        let kept = prefix.iter().rposition(|&byte| byte != 0xff).map(|last| &prefix[..=last]);
        let end = kept.map(|kept| {
            let mut end = kept.to_vec();
            let last = end.len() - 1;
            end[last] += 1;
            end
        });
        self.entries_of(snapshot, state, (prefix, end.as_deref()))
    }

    /// The entries with `start <= key < end`, in order of keys; no `end` is the end of the tree.
    pub fn range<'a, N: Snapshot>(
        &'a self,
        snapshot: &'a N,
        state: Option<&'a Pending<S>>,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Entries<'a, S> {
        self.entries_of(snapshot, state, (start, end))
    }

    /// As [`Tree::range`].
    pub(crate) fn entries_of<'a>(
        &'a self,
        snapshot: &'a dyn ReadRows,
        state: Option<&'a Pending<S>>,
        (start, end): (&[u8], Option<&[u8]>),
    ) -> Entries<'a, S> {
        let refused = state.and_then(|state| self.standing(state).err());
        let (arenas, top) = self.nodes(state.filter(|_| refused.is_none()));
        let fetch = |_: Option<&HandleCell>, _: &dyn Fn() -> PageKey, _: usize| Err(Halt::Missing);
        let reader = Reader { codec: self.codec(), space: self.space, arenas, fetch: &fetch };
        let check = self.verifies.then(Check::default);
        let says = if refused.is_none() { self.top(state) } else { None };
        let walk = EntryWalk::new(&reader, top.zip(says.map(|top| top.commit)), start, check);
        let end = end.map(<[u8]>::to_vec);
        Entries { tree: self, snapshot, arenas, walk, end, refused, done: false }
    }
}

/// Entries in order of keys: see [`Tree::entries`]. After an error there are no more.
pub struct Entries<'a, S: Scheme> {
    tree: &'a Tree<S>,
    snapshot: &'a dyn ReadRows,
    arenas: &'a [Arc<Arena<S::Commit>>],
    walk: EntryWalk<S>,
    end: Option<Vec<u8>>,
    /// The state does not stand on the last commit: this is told first.
    refused: Option<TreeError>,
    done: bool,
}

impl<S: Scheme> fmt::Debug for Entries<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").field("tree", &self.tree).finish_non_exhaustive()
    }
}

impl<S: Scheme> Iterator for Entries<'_, S> {
    type Item = Result<Entry<S::Commit>, TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        S::engine().parts().next(self)
    }
}

impl<S: Scheme> Entries<'_, S> {
    pub(crate) fn next_here(&mut self) -> Option<Result<Entry<S::Commit>, TreeError>> {
        if let Some(refused) = self.refused.take() {
            self.done = true;
            return Some(Err(refused));
        }
        if self.done {
            return None;
        }
        let fetch = |cell: Option<&HandleCell>, key: &dyn Fn() -> PageKey, bits: usize| {
            self.tree.fetch(self.snapshot, cell, key, bits)
        };
        let (codec, space) = (self.tree.codec(), self.tree.space);
        let reader = Reader { codec, space, arenas: self.arenas, fetch: &fetch };
        let next = self.walk.next(&reader).transpose();
        let beyond = |key: &[u8]| self.end.as_deref().is_some_and(|end| key >= end);
        match &next {
            Some(Ok(entry)) if !beyond(&entry.key) => next,
            Some(Ok(_)) | None => {
                self.done = true;
                None
            }
            Some(Err(_)) => {
                self.done = true;
                next
            }
        }
    }
}
