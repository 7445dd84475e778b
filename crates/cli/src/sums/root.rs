//! `root`: the roots of a trace of leaves.

use spinney_state::sum::SumTree;
use spinney_store::AnyStore;
use spinney_tree::sum::Profile;

use super::{SumLine, plain};
use crate::root::{Committed, Sink};

/// Leaves, into the tree of a namespace.
pub(crate) struct SumSink<'s> {
    tree: SumTree<'s, AnyStore>,
}

impl<'s> SumSink<'s> {
    pub(crate) fn new(
        store: &'s AnyStore,
        namespace: &str,
        profile: Profile,
        cache: usize,
    ) -> anyhow::Result<Self> {
        let tree = SumTree::create(store, namespace, profile, cache).map_err(plain)?;
        Ok(Self { tree })
    }
}

impl Sink for SumSink<'_> {
    fn line(&mut self, line: &[u8]) -> anyhow::Result<Committed> {
        self.tree.apply(&mut SumLine::parse(line)?.batch()).map_err(plain)?;
        let root = self.tree.root();
        let commits = self.tree.tree().commit_number();
        Ok(Committed { commits, root: root.hash.into(), sum: Some(root.sum) })
    }
}
