//! A generation that is built range by range, and found again after a crash.

use super::{Join, RangeBuilder};
use crate::error::TreeError;
use crate::ids::BlockId;
use crate::page_key::Space;
use crate::rebuild::rebuild_key;
use crate::root_record::RootRecord;
use crate::rows::KeepRows;
use crate::scheme::Scheme;
use crate::store::{PageStore, Table, WriteSet};
use crate::tree::Tree;

/// Pages of the new generation kept in memory while it is opened.
const CACHE_BYTES: usize = 1 << 20;

/// A rebuild by ranges under way: the pages of a new generation, which nobody sees before
/// [`Ranges::finish`]. Dropping it leaves its rows in the store, for the same run to go on with, or
/// for [`Tree::sweep`].
#[derive(Debug)]
pub struct Ranges<'a, S: Scheme, P> {
    tree: &'a mut Tree<S>,
    store: &'a P,
    space: Space,
    run: [u8; 32],
}

impl<'a, S: Scheme + Clone, P: PageStore> Ranges<'a, S, P> {
    /// Begins a rebuild of the tree, or goes on with the one that has the same name: whatever
    /// decides its pages (leaves, options) has to be in `run`. Answers whether it goes on: rows
    /// that were committed for it are then still there. What any other rebuild has left is removed.
    ///
    /// # Errors
    /// If another writer has committed to the tree, or the store fails.
    pub fn begin(
        tree: &'a mut Tree<S>,
        store: &'a P,
        run: [u8; 32],
    ) -> Result<(Self, bool), TreeError> {
        let same = begin(tree, store, run)?;
        let generation = tree.space.generation.wrapping_add(1);
        let space = Space { generation, ..tree.space };
        Ok((Self { tree, store, space, run }, same))
    }

    /// A builder of the leaves behind the leaf `before`.
    pub fn builder(&self, before: Option<&[u8]>) -> RangeBuilder<S> {
        RangeBuilder::new(self.tree.scheme.clone(), self.space, before)
    }

    /// Joins the summaries of all ranges.
    pub fn join(&self) -> Join<S> {
        Join::new(self.tree.scheme.clone(), self.space)
    }

    /// The tree's scheme.
    pub const fn scheme(&self) -> &S {
        &self.tree.scheme
    }

    /// The tree, as it was.
    pub const fn tree(&self) -> &Tree<S> {
        self.tree
    }

    /// Makes the new generation the tree's, in one commit together with what is in `set`, and
    /// removes the old one.
    ///
    /// # Errors
    /// If another writer has committed to the tree, the rebuild was swept away, the root page is
    /// not that of `root`, or the store fails. Then the tree stays as it was, unless all that
    /// failed is removing the old rows.
    pub fn finish(
        self,
        root: S::Root,
        block: Option<BlockId>,
        set: WriteSet,
    ) -> Result<(), TreeError> {
        let Self { tree, store, space, run } = self;
        finish(tree, store, (space, run), (root, block, set))
    }
}

/// Begins a rebuild, unless it is the one under way: which is answered.
fn begin<S: Scheme>(
    tree: &Tree<S>,
    store: &dyn KeepRows,
    run: [u8; 32],
) -> Result<bool, TreeError> {
    let same = tree.is_rebuilt_by(&*store.view()?, &run)?;
    if !same {
        tree.sweep_in(store)?;
        let mut set = WriteSet::new();
        set.put(Table::Meta, &rebuild_key(tree.id()), run);
        store.put(set)?;
    }
    Ok(same)
}

fn finish<S: Scheme + Clone>(
    tree: &mut Tree<S>,
    store: &dyn KeepRows,
    (space, run): (Space, [u8; 32]),
    (root, block, mut set): (S::Root, Option<BlockId>, WriteSet),
) -> Result<(), TreeError> {
    if !tree.is_rebuilt_by(&*store.view()?, &run)? {
        return Err(TreeError::Swept { tree: tree.id() });
    }
    let mut fresh = tree.generation(space, CACHE_BYTES);
    let record = fresh.record(tree.commit_number() + 1, block, root);
    set.put(Table::Roots, &RootRecord::key(tree.id()), record.encode(tree.id()));
    set.delete(Table::Meta, &rebuild_key(tree.id()));
    set.sort();
    store.put(set)?;
    S::engine().parts().load(&mut fresh, &*store.view()?, &record)?;
    tree.take_over(fresh, block);
    tree.sweep_in(store)?;
    Ok(())
}
