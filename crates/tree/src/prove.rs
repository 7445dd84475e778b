//! Showing the nodes on the paths of many keys, for those who prove them: pages are read level by
//! level, as by a batch. A node whose page is not at hand waits, the walk goes on elsewhere, and
//! then all that waited is read in one call.

use std::cell::RefCell;
use std::sync::Arc;

use crate::error::TreeError;
use crate::node::Link;
use crate::page::{HandleCell, Lists};
use crate::page_key::PageKey;
use crate::read::{Halt, Reader};
use crate::rows::ReadRows;
use crate::scheme::Scheme;
use crate::store::Table;
use crate::tree::{Pending, Tree};
use crate::update::{Loaded, Missing};
use crate::visit::{KeyWalk, NodeVisit, PathNode};

/// The same keys in order, each once.
pub(crate) fn in_order<K: AsRef<[u8]>>(keys: &[K]) -> Vec<&[u8]> {
    let mut keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl<S: Scheme> Tree<S> {
    /// Shows `visit` all nodes on the paths of `keys`, which strictly rise, in `state` or in the
    /// last commit; a node comes before those below it.
    pub(crate) fn visit_paths(
        &self,
        snapshot: &dyn ReadRows,
        state: Option<&Pending<S>>,
        keys: &[&[u8]],
        visit: &mut dyn FnMut(NodeVisit<'_, S>),
    ) -> Result<(), TreeError> {
        S::engine().parts().visit_paths(self, snapshot, (state, keys), visit)
    }

    pub(crate) fn visit_paths_here(
        &self,
        snapshot: &dyn ReadRows,
        (state, keys): (Option<&Pending<S>>, &[&[u8]]),
        visit: &mut dyn FnMut(NodeVisit<'_, S>),
    ) -> Result<(), TreeError> {
        let mut walk = KeyWalk::to(keys);
        let mut waiting: Option<Vec<PathNode<S::Commit>>> = None;
        self.lend(snapshot, state, keys, |reader, top| {
            let mut ahead = waiting.take().unwrap_or_else(|| walk.start(reader, top));
            let mut halted = Vec::new();
            while !ahead.is_empty() {
                walk.step(reader, &mut ahead, &mut halted, visit)?;
            }
            waiting = Some(halted);
            Ok(())
        })
    }

    /// Lends the nodes of `state`, or of the last commit: `step` resolves them as far as it can,
    /// and is called again, with the pages it missed at hand, until it misses none.
    ///
    /// From afar, all pages that may be on the way to a few `keys` are read in the first call.
    pub(crate) fn lend(
        &self,
        snapshot: &dyn ReadRows,
        state: Option<&Pending<S>>,
        keys: &[&[u8]],
        mut step: impl FnMut(&Reader<'_, S>, Option<Link>) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        if let Some(state) = state {
            self.standing(state)?;
        }
        let (arenas, top) = self.nodes(state);
        let mut loaded = Loaded::default();
        loop {
            let missing = RefCell::new(Vec::<Missing>::new());
            let fetch = |cell: Option<&HandleCell>, key: &dyn Fn() -> PageKey, bits: usize| {
                if let Some(page) = self.resident(cell, key, &loaded) {
                    return Ok(page);
                }
                missing.borrow_mut().push((key(), bits as u32));
                Err(Halt::Missing)
            };
            let (codec, space) = (self.codec(), self.space);
            step(&Reader { codec, space, arenas, fetch: &fetch }, top)?;
            let mut missing = missing.into_inner();
            if missing.is_empty() {
                return Ok(());
            }
            let few = (1..=AHEAD_KEYS_MAX).contains(&keys.len());
            if loaded.is_empty() && few && snapshot.is_far() {
                self.current(snapshot)?;
                self.read_ahead(snapshot, keys, &mut loaded)?;
                missing.retain(|(key, _)| !loaded.contains_key(key));
            }
            self.load_missing(snapshot, &mut missing, &mut loaded)?;
        }
    }

    /// The pages on the way to keys, down to a depth that few of them lie below.
    fn read_ahead(
        &self,
        snapshot: &dyn ReadRows,
        keys: &[&[u8]],
        loaded: &mut Loaded<S::Commit>,
    ) -> Result<(), TreeError> {
        let places = |key: &&[u8]| {
            let most = AHEAD_BITS.min(8 * key.len());
            let place = |bits| (PageKey::page(self.space, key, bits), bits as u32);
            (1..=most).map(place).collect::<Vec<_>>()
        };
        let mut wanted: Vec<Missing> = keys.iter().flat_map(places).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let bytes: Vec<&[u8]> = wanted.iter().map(|(key, _)| key.as_bytes()).collect();
        let rows = snapshot.rows(Table::Pages, &bytes)?;
        let (mut found, mut lists) = (Vec::new(), Lists::default());
        for ((key, bits), row) in wanted.iter().zip(rows) {
            if let Some(row) = row {
                found.push(self.parsed(key, row, *bits, &mut lists)?);
            }
        }
        loaded.extend(found.iter().map(|page| (page.key.clone(), Arc::clone(page))));
        self.cache.put(found);
        Ok(())
    }
}

/// How many keys are worth asking ahead for.
const AHEAD_KEYS_MAX: usize = 16;
/// How deep: below it lie few pages even of a billion keys.
const AHEAD_BITS: usize = 40;
