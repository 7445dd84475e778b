//! The engine as it is compiled for one scheme: a table of what it does.
//!
//! Whoever calls the engine goes through the scheme's table. So the engine is compiled once for
//! each scheme, in the crate that the scheme is of, however many crates and stores use it.

use std::fmt;

use crate::batch::Batch;
use crate::entries::Entries;
use crate::error::TreeError;
use crate::prove::Met;
use crate::read::{Entry, Value};
use crate::root_record::RootRecord;
use crate::rows::ReadRows;
use crate::scheme::Scheme;
use crate::store::WriteSet;
use crate::tree::{BlockId, Pending, Staged, Tree, TreeId};
use crate::view::TreeView;

/// The engine, compiled for a scheme: see [`Scheme::engine`].
pub struct Engine<S: Scheme>(&'static dyn Parts<S>);

impl<S: Scheme> Engine<S> {
    /// The engine, compiled in the crate of the function that says this: one with no type
    /// parameter, which is not inlined.
    pub const fn here() -> Self {
        Self(&Compiled)
    }

    pub(crate) const fn parts(&self) -> &'static dyn Parts<S> {
        self.0
    }
}

impl<S: Scheme> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// What the engine does. Each part is what the function of its name says that calls it.
pub(crate) trait Parts<S: Scheme>: Sync {
    fn open(
        &self,
        scheme: S,
        id: TreeId,
        rows: &dyn ReadRows,
        cache_bytes: usize,
    ) -> Result<Tree<S>, TreeError>;

    fn load(
        &self,
        tree: &mut Tree<S>,
        rows: &dyn ReadRows,
        record: &RootRecord,
    ) -> Result<(), TreeError>;

    fn prepare(
        &self,
        tree: &Tree<S>,
        rows: &dyn ReadRows,
        parent: Option<&Pending<S>>,
        batch: &mut Batch,
    ) -> Result<Pending<S>, TreeError>;

    fn stage(
        &self,
        tree: &Tree<S>,
        rows: &dyn ReadRows,
        pending: (&Pending<S>, Option<BlockId>),
        set: &mut WriteSet,
    ) -> Result<Staged<S>, TreeError>;

    fn adopt(&self, tree: &mut Tree<S>, staged: Staged<S>);

    fn get(
        &self,
        tree: &Tree<S>,
        rows: &dyn ReadRows,
        state: Option<&Pending<S>>,
        key: &[u8],
    ) -> Result<Option<Value>, TreeError>;

    fn view_get(
        &self,
        view: &TreeView<S>,
        rows: &dyn ReadRows,
        key: &[u8],
    ) -> Result<Option<Value>, TreeError>;

    fn next(&self, entries: &mut Entries<'_, S>) -> Option<Result<Entry<S::Commit>, TreeError>>;

    fn visit_paths(
        &self,
        tree: &Tree<S>,
        rows: &dyn ReadRows,
        paths: (Option<&Pending<S>>, &[&[u8]]),
        visit: &mut dyn FnMut(Met<'_, S>),
    ) -> Result<(), TreeError>;
}

struct Compiled;

impl<S: Scheme> Parts<S> for Compiled {
    fn open(
        &self,
        scheme: S,
        id: TreeId,
        rows: &dyn ReadRows,
        cache_bytes: usize,
    ) -> Result<Tree<S>, TreeError> {
        Tree::open_here(scheme, id, rows, cache_bytes)
    }

    fn load(
        &self,
        tree: &mut Tree<S>,
        rows: &dyn ReadRows,
        record: &RootRecord,
    ) -> Result<(), TreeError> {
        tree.load_here(rows, record)
    }

    fn prepare(
        &self,
        tree: &Tree<S>,
        rows: &dyn ReadRows,
        parent: Option<&Pending<S>>,
        batch: &mut Batch,
    ) -> Result<Pending<S>, TreeError> {
        tree.prepare_here(rows, parent, batch)
    }

    fn stage(
        &self,
        tree: &Tree<S>,
        rows: &dyn ReadRows,
        (pending, block): (&Pending<S>, Option<BlockId>),
        set: &mut WriteSet,
    ) -> Result<Staged<S>, TreeError> {
        tree.stage_here(rows, pending, block, set)
    }

    fn adopt(&self, tree: &mut Tree<S>, staged: Staged<S>) {
        tree.adopt_here(staged);
    }

    fn get(
        &self,
        tree: &Tree<S>,
        rows: &dyn ReadRows,
        state: Option<&Pending<S>>,
        key: &[u8],
    ) -> Result<Option<Value>, TreeError> {
        tree.get_here(rows, state, key)
    }

    fn view_get(
        &self,
        view: &TreeView<S>,
        rows: &dyn ReadRows,
        key: &[u8],
    ) -> Result<Option<Value>, TreeError> {
        view.get_here(rows, key)
    }

    fn next(&self, entries: &mut Entries<'_, S>) -> Option<Result<Entry<S::Commit>, TreeError>> {
        entries.next_here()
    }

    fn visit_paths(
        &self,
        tree: &Tree<S>,
        rows: &dyn ReadRows,
        paths: (Option<&Pending<S>>, &[&[u8]]),
        visit: &mut dyn FnMut(Met<'_, S>),
    ) -> Result<(), TreeError> {
        tree.visit_paths_here(rows, paths, visit)
    }
}
