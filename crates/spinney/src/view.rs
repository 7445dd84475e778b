//! Looking at a tree.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::fmt;

use spinney_tree::{PageStore, Pending, Tree, TreeError, Value};

use crate::error::Error;
use crate::kind::TreeKind;
use crate::live::Core;

/// Entries that are read at once: so long the tree is held, and commits wait.
const ENTRIES_AT_ONCE: usize = 256;

/// Memory for pages of an earlier commit than the last one.
const EARLIER_CACHE_BYTES: usize = 4 << 20;

/// A state of a tree, to be read and proven: see [`DbTree::view`](crate::DbTree::view) and
/// [`DbTree::at`](crate::DbTree::at).
///
/// It holds its snapshot: what is committed later does not change it, and it does not hold up who
/// commits. While it is there the store keeps the rows of its commit.
pub struct View<'a, S: TreeKind, P: PageStore + 'static = crate::AnyStore> {
    core: &'a Core<S, P>,
    pending: Option<Pending<S>>,
    opened: OnceCell<Opened<'a, S, P>>,
    /// The tree at the view's commit, once that is not the last one any more.
    earlier: OnceCell<Tree<S>>,
}

/// What a view looks through.
struct Opened<'a, S: TreeKind, P: PageStore + 'static> {
    snapshot: P::Snapshot<'a>,
    commit: u64,
    root: S::Root,
}

impl<S: TreeKind, P: PageStore> fmt::Debug for View<'_, S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("tree", &self.core.name)
            .field("commit", &self.opened.get().map(|opened| opened.commit))
            .finish_non_exhaustive()
    }
}

impl<'a, S: TreeKind, P: PageStore> View<'a, S, P> {
    pub(crate) fn of(core: &'a Core<S, P>, pending: Option<Pending<S>>) -> Self {
        let view = Self { core, pending, opened: OnceCell::new(), earlier: OnceCell::new() };
        // A store that fails now says so to the first who reads.
        let _ = view.opened();
        view
    }

    fn opened(&self) -> Result<&Opened<'a, S, P>, Error> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let (live, snapshot) = self.core.current()?;
        let (commit, root) = (live.commit_number(), live.root());
        Ok(self.opened.get_or_init(|| Opened { snapshot, commit, root }))
    }

    fn read<T>(
        &self,
        read: impl FnOnce(&Tree<S>, &P::Snapshot<'a>, Option<&Pending<S>>) -> Result<T, TreeError>,
    ) -> Result<T, Error> {
        let opened = self.opened()?;
        let failed = |error| self.core.error(error);
        let live = self.core.live();
        if live.commit_number() == opened.commit {
            return read(&live, &opened.snapshot, self.pending.as_ref()).map_err(failed);
        }
        drop(live);
        if let Some(pending) = &self.pending {
            // It may have been committed itself; else the tree says that it is stale.
            let (live, snapshot) = self.core.current()?;
            return read(&live, &snapshot, Some(pending)).map_err(failed);
        }
        let earlier = match self.earlier.get() {
            Some(earlier) => earlier,
            None => {
                let earlier = self.core.open_at(&opened.snapshot, EARLIER_CACHE_BYTES)?;
                self.earlier.get_or_init(|| earlier)
            }
        };
        read(earlier, &opened.snapshot, None).map_err(failed)
    }

    /// The root.
    ///
    /// # Errors
    /// If the store fails, or the tree was dropped before the view was made.
    pub fn root(&self) -> Result<S::Root, Error> {
        match &self.pending {
            Some(pending) => Ok(pending.root()),
            None => Ok(self.opened()?.root),
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// If the pending state is stale, a page is damaged, or the store fails.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        let key = S::stored_key(key.as_ref());
        self.read(|tree, snapshot, pending| tree.get(snapshot, pending, &key))
    }

    /// The entries with `start <= key < end`, in order of keys; no `end` is the end of the tree.
    /// The order of a sum tree is that of its paths: keys with the bits of each byte reversed.
    ///
    /// ```
    /// # use spinney::{Database, Mpt};
    /// # let tree = Database::memory().tree::<Mpt>("accounts")?;
    /// let entries = ["cat", "doe", "dog", "emu"].map(|key| (key, "x"));
    /// let pending = tree.batch().put_all(entries).prepare()?;
    /// let view = tree.at(&pending);
    /// let keys = view.range("d", Some("e")).map(|entry| Ok(entry?.0));
    /// assert_eq!(keys.collect::<Result<Vec<_>, spinney::Error>>()?, [b"doe", b"dog"]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, start: K, end: Option<K>) -> Entries<'_, 'a, S, P> {
        let stored = |key: K| S::stored_key(key.as_ref()).into_owned();
        Entries {
            view: self,
            from: Some(stored(start)),
            end: end.map(stored),
            read: VecDeque::new(),
        }
    }

    /// The entries whose keys begin so, in the order of [`range`](Self::range); all with an empty
    /// prefix.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Entries<'_, 'a, S, P> {
        let from = S::stored_key(prefix.as_ref()).into_owned();
        // The first key beyond the prefix: its last byte that can grow grows, the rest goes.
        let grows = from.iter().rposition(|byte| *byte != 0xff);
        let end = grows.map(|last| {
            let mut end = from[..=last].to_vec();
            end[last] += 1;
            end
        });
        Entries { view: self, from: Some(from), end, read: VecDeque::new() }
    }

    /// Proves keys, present or absent: [`TreeKind::verify`] needs the root and the proof alone.
    ///
    /// # Errors
    /// If there are no keys or the tree has no such key, the pending state is stale, a page is
    /// damaged, or the store fails.
    pub fn prove<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<S::Proof, Error> {
        let keys: Vec<Vec<u8>> = keys.into_iter().map(|key| key.as_ref().to_vec()).collect();
        self.read(|tree, snapshot, pending| S::prove_keys_in(tree, snapshot, pending, &keys))
    }
}

/// Entries in order: see [`View::range`]. After an error there are no more.
pub struct Entries<'v, 'a, S: TreeKind, P: PageStore + 'static = crate::AnyStore> {
    view: &'v View<'a, S, P>,
    /// Where to go on; `None` behind the last one.
    from: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    read: VecDeque<(Vec<u8>, Value)>,
}

impl<S: TreeKind, P: PageStore> fmt::Debug for Entries<'_, '_, S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").field("view", self.view).finish_non_exhaustive()
    }
}

impl<S: TreeKind, P: PageStore> Entries<'_, '_, S, P> {
    fn read_on(&mut self, from: &[u8]) -> Result<(), Error> {
        let end = self.end.as_deref();
        let some = self.view.read(|tree, snapshot, pending| {
            let entries = tree.range(snapshot, pending, from, end).take(ENTRIES_AT_ONCE);
            entries
                .map(|entry| entry.map(|entry| (entry.key, entry.value)))
                .collect::<Result<Vec<_>, _>>()
        })?;
        if some.len() == ENTRIES_AT_ONCE {
            // The first key that comes behind the last one.
            self.from = some.last().map(|(key, _)| [&key[..], &[0]].concat());
        }
        self.read.extend(some);
        Ok(())
    }
}

impl<S: TreeKind, P: PageStore> Iterator for Entries<'_, '_, S, P> {
    type Item = Result<(Vec<u8>, Value), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.read.is_empty()
            && let Some(from) = self.from.take()
            && let Err(error) = self.read_on(&from)
        {
            return Some(Err(error));
        }
        let (key, value) = self.read.pop_front()?;
        Some(Ok((S::stored_key(&key).into_owned(), value)))
    }
}
