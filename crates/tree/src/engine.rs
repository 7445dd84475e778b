//! The engine as it is compiled for one scheme: a table of what it does.
//!
//! Whoever calls the engine goes through the scheme's table. So the engine is compiled once for
//! each scheme, in the crate that the scheme is of, however many crates and stores use it.

use std::marker::PhantomData;

use crate::batch::Batch;
use crate::entries::Entries;
use crate::error::TreeError;
use crate::ids::{BlockId, TreeId};
use crate::read::{Entry, Value};
use crate::root_record::RootRecord;
use crate::rows::ReadRows;
use crate::scheme::{Engine, Scheme};
use crate::store::WriteSet;
use crate::tree::{Pending, PreparedCommit, Tree};
use crate::view::TreeView;
use crate::visit::NodeVisit;

/// What an [`Engine`] leads to.
struct PartsOf<S: Scheme>(&'static dyn Parts<S>);

impl<S: Scheme> Engine<S> {
    /// The engine, compiled in the crate of the function that says this: one with no type
    /// parameter, which is not inlined.
    pub const fn here() -> Self {
        Self { table: const { &PartsOf::<S>(&Compiled) }, scheme: PhantomData }
    }

    pub(crate) fn parts(&self) -> &'static dyn Parts<S> {
        let table: Option<&PartsOf<S>> = self.table.downcast_ref();
        table.expect("an engine is made for its scheme").0
    }
}

/// What the engine answers.
type Answer<T> = Result<T, TreeError>;
type State<'a, S> = Option<&'a Pending<S>>;

/// What the engine does. Each part is what the function of its name says that calls it.
pub(crate) trait Parts<S: Scheme>: Sync {
    fn open(&self, scheme: S, id: TreeId, rows: &dyn ReadRows, cache: usize) -> Answer<Tree<S>>;

    fn load(&self, tree: &mut Tree<S>, rows: &dyn ReadRows, record: &RootRecord) -> Answer<()>;

    fn prepare(
        &self,
        tree: &Tree<S>,
        rows: &dyn ReadRows,
        parent: State<'_, S>,
        batch: &mut Batch,
    ) -> Answer<Pending<S>>;

    fn prepare_commit(
        &self,
        tree: &Tree<S>,
        rows: &dyn ReadRows,
        pending: (&Pending<S>, Option<BlockId>),
        set: &mut WriteSet,
    ) -> Answer<PreparedCommit<S>>;

    fn make_pages(&self, tree: &Tree<S>, prepared: &mut PreparedCommit<S>);

    fn finalize(&self, tree: &mut Tree<S>, prepared: PreparedCommit<S>);

    fn get(
        &self,
        tree: &Tree<S>,
        rows: &dyn ReadRows,
        state: State<'_, S>,
        key: &[u8],
    ) -> Answer<Option<Value>>;

    fn view_get(
        &self,
        view: &TreeView<S>,
        rows: &dyn ReadRows,
        key: &[u8],
    ) -> Answer<Option<Value>>;

    fn next(&self, entries: &mut Entries<'_, S>) -> Option<Answer<Entry<S::Commit>>>;

    fn visit_paths(
        &self,
        tree: &Tree<S>,
        rows: &dyn ReadRows,
        paths: (State<'_, S>, &[&[u8]]),
        visit: &mut dyn FnMut(NodeVisit<'_, S>),
    ) -> Answer<()>;
}

struct Compiled;

impl<S: Scheme> Parts<S> for Compiled {
    fn open(&self, scheme: S, id: TreeId, rows: &dyn ReadRows, cache: usize) -> Answer<Tree<S>> {
        Tree::open_here(scheme, id, rows, cache)
    }

    fn load(&self, tree: &mut Tree<S>, rows: &dyn ReadRows, record: &RootRecord) -> Answer<()> {
        tree.load_here(rows, record)
    }

    fn prepare(
        &self,
        tree: &Tree<S>,
        rows: &dyn ReadRows,
        parent: State<'_, S>,
        batch: &mut Batch,
    ) -> Answer<Pending<S>> {
        tree.prepare_here(rows, parent, batch)
    }

    fn prepare_commit(
        &self,
        tree: &Tree<S>,
        rows: &dyn ReadRows,
        (pending, block): (&Pending<S>, Option<BlockId>),
        set: &mut WriteSet,
    ) -> Answer<PreparedCommit<S>> {
        tree.prepare_commit_here(rows, pending, block, set)
    }

    fn make_pages(&self, tree: &Tree<S>, prepared: &mut PreparedCommit<S>) {
        tree.make_pages_here(prepared);
    }

    fn finalize(&self, tree: &mut Tree<S>, prepared: PreparedCommit<S>) {
        tree.finalize_here(prepared);
    }

    fn get(
        &self,
        tree: &Tree<S>,
        rows: &dyn ReadRows,
        state: State<'_, S>,
        key: &[u8],
    ) -> Answer<Option<Value>> {
        tree.get_here(rows, state, key)
    }

    fn view_get(
        &self,
        view: &TreeView<S>,
        rows: &dyn ReadRows,
        key: &[u8],
    ) -> Answer<Option<Value>> {
        view.get_here(rows, key)
    }

    fn next(&self, entries: &mut Entries<'_, S>) -> Option<Answer<Entry<S::Commit>>> {
        entries.next_here()
    }

    fn visit_paths(
        &self,
        tree: &Tree<S>,
        rows: &dyn ReadRows,
        paths: (State<'_, S>, &[&[u8]]),
        visit: &mut dyn FnMut(NodeVisit<'_, S>),
    ) -> Answer<()> {
        tree.visit_paths_here(rows, paths, visit)
    }
}
