//! The last commit of a tree, read beside it.
//!
//! Invariants:
//! - a view answers as the commit that it is of, or not at all: once the tree has gone on it says
//!   so;
//! - what it reads goes into the tree's memory for pages, unless the tree has gone on.

use std::sync::Arc;

use crate::cache::Cache;
use crate::costs::Meter;
use crate::error::TreeError;
use crate::head::{Head, LastChecked};
use crate::ids::{BlockId, TreeId};
use crate::image::{Codec, unseal};
use crate::node::{Arena, Top};
use crate::node_check::PathCheck;
use crate::page::{HandleCell, Lists, Page, corrupt};
use crate::page_key::{PageKey, Space};
use crate::read::{Halt, Reader, Value};
use crate::rows::ReadRows;
use crate::scheme::Scheme;
use crate::store::{Snapshot, Table};
use crate::visit::visit_read;

/// A commit of a tree, for readers: see [`Tree::view`](crate::Tree::view).
#[derive(Clone, Debug)]
pub struct TreeView<S: Scheme> {
    scheme: S,
    id: TreeId,
    space: Space,
    head: u64,
    commit: u64,
    block: Option<BlockId>,
    arena: Arc<Arena<S::Commit>>,
    top: Option<Top<S::Commit>>,
    cache: Arc<Cache<S::Commit>>,
    meter: Arc<Meter>,
    checked: Arc<LastChecked>,
    verifies: bool,
}

impl<S: Scheme> TreeView<S> {
    pub(crate) fn new(
        (scheme, id, space): (S, TreeId, Space),
        head: &Head<S>,
        (cache, meter): (Arc<Cache<S::Commit>>, Arc<Meter>),
        verifies: bool,
    ) -> Self {
        let Head { batch, commit, block, top, .. } = *head;
        let (arena, checked) = (Arc::clone(&head.arena), Arc::clone(&head.checked));
        let head = batch;
        Self { scheme, id, space, head, commit, block, arena, top, cache, meter, checked, verifies }
    }

    /// The block of the commit, if the tree was told.
    pub const fn block(&self) -> Option<BlockId> {
        self.block
    }

    /// The value of a key. `snapshot` is a view of this commit.
    ///
    /// # Errors
    /// [`TreeError::Stale`] if the tree has gone on, [`TreeError::OtherSnapshot`] if the store has;
    /// both only where a page is needed that the view does not have. If a page is damaged or cannot
    /// be read.
    pub fn get<N: Snapshot>(&self, snapshot: &N, key: &[u8]) -> Result<Option<Value>, TreeError> {
        S::engine().parts().view_get(self, snapshot, key)
    }

    pub(crate) fn get_here(
        &self,
        snapshot: &dyn ReadRows,
        key: &[u8],
    ) -> Result<Option<Value>, TreeError> {
        let fetch = |cell: Option<&HandleCell>, key: &dyn Fn() -> PageKey, bits: usize| {
            self.fetch(snapshot, cell, key, bits)
        };
        let (codec, arenas) = (Codec { scheme: &self.scheme }, std::slice::from_ref(&self.arena));
        let reader = Reader { codec, space: self.space, arenas, fetch: &fetch };
        let top = self.top.map(|top| top.link);
        if !self.verifies {
            return Ok(reader.get(top, key)?);
        }
        let (keys, mut found) = ([key], None);
        let mut paths = PathCheck::new((&self.scheme, self.space), &keys, self.top);
        let keep = &mut |value: &[u8]| found = Some(Value::owned(value.to_vec()));
        visit_read(&reader, top, &keys, &mut |visited| paths.visit_node(visited, keep))?;
        paths.finish()?;
        Ok(found)
    }

    fn fetch(
        &self,
        snapshot: &dyn ReadRows,
        cell: Option<&HandleCell>,
        key: &dyn Fn() -> PageKey,
        bits: usize,
    ) -> Result<Arc<Page<S::Commit>>, Halt> {
        let pages = self.cache.pages();
        if !pages.are_of(self.head) {
            let stale = TreeError::Stale { base: self.commit, head: self.commit + 1 };
            return Err(stale.into());
        }
        if let Some(page) = cell.and_then(|cell| pages.page(cell.get())) {
            return Ok(Arc::clone(page));
        }
        let key = key();
        if let Some(handle) = pages.find(&key)
            && let Some(page) = pages.page(handle)
        {
            cell.into_iter().for_each(|cell| cell.set(handle));
            return Ok(Arc::clone(page));
        }
        drop(pages);
        Ok(self.read(snapshot, key, bits)?)
    }

    /// Reads a page that has to be there.
    fn read(
        &self,
        snapshot: &dyn ReadRows,
        key: PageKey,
        bits: usize,
    ) -> Result<Arc<Page<S::Commit>>, TreeError> {
        self.checked.check(self.id, self.commit, snapshot)?;
        self.meter.read(1);
        let row = snapshot.row(Table::Pages, key.as_bytes())?;
        let row = row.ok_or_else(|| corrupt(&key, "the page above names it, and it is missing"))?;
        unseal(key.as_bytes(), &row).map_err(|what| corrupt(&key, what))?;
        let codec = Codec { scheme: &self.scheme };
        let page = Page::parse(codec, key, row, bits, &[], &mut Lists::default())?;
        let page = Arc::new(page);
        self.cache.put_of(self.head, [Arc::clone(&page)]);
        Ok(page)
    }
}
