//! `root`: the roots of a trace of leaves.

use spinney_replay::SumLine;
use spinney_state::sum::{SumBatch, SumTree};
use spinney_store::AnyStore;
use spinney_tree::MemoryStore;
use spinney_tree::sum::Profile;

use super::plain;
use crate::sink::{Committed, Sink};

/// Leaves, into the tree of a namespace.
pub(crate) struct SumSink<'s> {
    store: &'s AnyStore,
    namespace: &'s str,
    profile: Profile,
    cache: usize,
    /// None before the first line, where the store does not have it.
    tree: Option<SumTree<'s, AnyStore>>,
}

impl<'s> SumSink<'s> {
    pub(crate) fn new(
        store: &'s AnyStore,
        namespace: &'s str,
        profile: Profile,
        cache: usize,
    ) -> anyhow::Result<Self> {
        let mut sink = Self { store, namespace, profile, cache, tree: None };
        if SumTree::open(store, namespace, cache).map_err(plain)?.is_some() {
            sink.tree = Some(sink.create(store)?);
        }
        Ok(sink)
    }

    /// The tree of the namespace in a store, which is made if there is none.
    fn create<'p, P: spinney_tree::PageStore>(
        &self,
        store: &'p P,
    ) -> anyhow::Result<SumTree<'p, P>> {
        SumTree::create(store, self.namespace, self.profile, self.cache).map_err(plain)
    }

    /// Makes the tree, if it is not there: after a trace without lines, too.
    pub(crate) fn finish(&mut self) -> anyhow::Result<()> {
        if self.tree.is_none() {
            self.tree = Some(self.create(self.store)?);
        }
        Ok(())
    }

    /// Refuses a first line that no tree takes: a tree that was made for it would stay.
    fn check_first(&self, mut batch: SumBatch) -> anyhow::Result<()> {
        self.create(&MemoryStore::new())?.prepare(&mut batch).map_err(plain)?;
        Ok(())
    }
}

impl Sink for SumSink<'_> {
    fn line(&mut self, line: &[u8]) -> anyhow::Result<Committed> {
        let mut batch = SumLine::parse(line)?.batch();
        if self.tree.is_none() {
            self.check_first(batch.clone())?;
            self.finish()?;
        }
        let tree = self.tree.as_mut().expect("it is there now");
        tree.apply(&mut batch).map_err(plain)?;
        let root = tree.root();
        let commits = tree.tree().commit_number();
        Ok(Committed { commits, root: root.hash.into(), sum: Some(root.sum) })
    }
}
