//! What is read against the root: all of a tree's entries at once, or each node as it is met.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use crate::batch::OpKind;
use crate::bulk::RootBuilder;
use crate::error::TreeError;
use crate::node::Arena;
use crate::node_check::PathCheck;
use crate::read::Value;
use crate::rows::ReadRows;
use crate::scheme::Scheme;
use crate::store::Snapshot;
use crate::tree::{Pending, Tree};

impl<S: Scheme> Tree<S> {
    /// Whether reads check what they meet against the root: [`Tree::get`], [`Tree::entries`],
    /// [`Tree::prefix`] and [`Tree::range`] compute each node again that they pass, and compare it
    /// with what its parent commits to; [`Tree::prepare`] does so with all nodes on the paths of
    /// its batch's keys, and with those that deletions pull up beside them, before it applies them;
    /// a [`Tree::view`] that is made from then on does it, too. So a row that is old or forged,
    /// whatever its seal says, is [`TreeError::Corrupt`] in place of an answer. Off at first: a
    /// read then takes some hashes a level, of Verkle a commitment of 256 values.
    ///
    /// A proof needs none of this: it is checked by whoever has the root. [`Tree::verify_entries`]
    /// checks all at once.
    ///
    /// ```
    /// # use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeId, mpt::Mpt};
    /// # let store = MemoryStore::new();
    /// # let mut tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 1 << 20)?;
    /// # let mut batch = Batch::new();
    /// # batch.put(b"dog", b"puppy");
    /// # let pending = tree.prepare(&store.snapshot()?, None, batch)?;
    /// # tree.commit(&store, &pending, None)?;
    /// tree.verify_reads(true);
    /// assert_eq!(&*tree.get(&store.snapshot()?, None, b"dog")?.unwrap(), b"puppy");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub const fn verify_reads(&mut self, verifies: bool) {
        self.verifies = verifies;
    }

    /// The value of a key, all on its path checked against the root.
    pub(crate) fn get_verified(
        &self,
        snapshot: &dyn ReadRows,
        state: Option<&Pending<S>>,
        key: &[u8],
    ) -> Result<Option<Value>, TreeError> {
        let mut found = None;
        let keep = &mut |value: &[u8]| found = Some(value.to_vec());
        self.verify_paths(snapshot, state, (&[key], &[]), keep)?;
        Ok(found.map(Value::owned))
    }

    /// Checks all nodes on the paths of a batch's operations, and those that its deletions may pull
    /// up beside them, if that is asked for.
    pub(crate) fn verify_ops(
        &self,
        snapshot: &dyn ReadRows,
        state: &Pending<S>,
        input: &Arena<S::Commit>,
    ) -> Result<(), TreeError> {
        if !self.verifies {
            return Ok(());
        }
        let (mut keys, mut shrink): (Vec<&[u8]>, Vec<bool>) = (Vec::new(), Vec::new());
        for op in &input.ops {
            let Some(key) = input.bytes.get(op.key.range()) else { continue };
            let deletes = match op.kind {
                OpKind::Put(value) => value.range().is_empty(),
                OpKind::Delete | OpKind::Clear => true,
            };
            match shrink.last_mut().filter(|_| keys.last() == Some(&key)) {
                Some(shrinks) => *shrinks |= deletes,
                None => {
                    keys.push(key);
                    shrink.push(deletes);
                }
            }
        }
        let mut survivors =
            self.verify_paths(snapshot, Some(state), (&keys, &shrink), &mut |_| ())?;
        survivors.sort_unstable();
        survivors.dedup();
        let ways: Vec<&[u8]> = survivors.iter().map(Vec::as_slice).collect();
        self.verify_paths(snapshot, Some(state), (&ways, &[]), &mut |_| ()).map(drop)
    }

    /// Checks all nodes on the paths of `keys`, which strictly rise, against the root; `found` is
    /// shown the values. Answers the ways to the nodes that are left alone where those keys go that
    /// `shrink` says are deleted.
    fn verify_paths(
        &self,
        snapshot: &dyn ReadRows,
        state: Option<&Pending<S>>,
        (keys, shrink): (&[&[u8]], &[bool]),
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<Vec<Vec<u8>>, TreeError> {
        let mut paths = PathCheck::new((&self.scheme, self.space), keys, self.top(state));
        paths.shrink = shrink;
        self.visit_paths(snapshot, state, keys, &mut |visited| paths.visit_node(visited, found))?;
        paths.finish()
    }
}

impl<S: Scheme + Clone> Tree<S> {
    /// Reads every entry of the last commit, computes the root from them alone, and compares it
    /// with the tree's. Whoever then reads the entries of the same snapshot reads those of the
    /// root: a row that is old or forged, whatever its seal says, has changed none of them. Takes
    /// one pass and a few MiB; nothing that pages say of commitments is used. `progress` is told
    /// the entries read.
    ///
    /// ```
    /// # use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeId, mpt::Mpt};
    /// # let store = MemoryStore::new();
    /// # let mut tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 1 << 20)?;
    /// # let mut batch = Batch::new();
    /// # batch.put(b"dog", b"puppy");
    /// # let pending = tree.prepare(&store.snapshot()?, None, batch)?;
    /// # tree.commit(&store, &pending, None)?;
    /// let snapshot = store.snapshot()?;
    /// tree.verify_entries(&snapshot, |_| ())?;
    /// let entries: Vec<_> = tree.entries(&snapshot, None, b"").collect::<Result<_, _>>()?;
    /// assert_eq!(entries.len(), 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TreeError::OtherRoot`] if the entries have another root; if a page is damaged, or the
    /// store fails.
    pub fn verify_entries<N: Snapshot>(
        &self,
        snapshot: &N,
        mut progress: impl FnMut(u64),
    ) -> Result<(), TreeError> {
        self.verified_entries(snapshot, &mut progress)
    }

    fn verified_entries(
        &self,
        snapshot: &dyn ReadRows,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), TreeError> {
        let mut builder = RootBuilder::new(self.scheme.clone());
        for (entry, read) in self.entries_of(snapshot, None, (b"", None)).zip(1..) {
            let entry = entry?;
            builder.push(&entry.key, &entry.value)?;
            progress(read);
        }
        let computed = builder.finish()?;
        if computed == self.root() {
            return Ok(());
        }
        let (stored, computed) = (self.root().as_ref().to_vec(), computed.as_ref().to_vec());
        Err(TreeError::OtherRoot { tree: self.id(), stored, computed })
    }
}
