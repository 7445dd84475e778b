//! A tree's entries against its root: what makes a read of all of them a verified one.

use crate::bulk::RootBuilder;
use crate::error::TreeError;
use crate::scheme::Scheme;
use crate::store::Snapshot;
use crate::tree::Tree;

impl<S: Scheme + Clone> Tree<S> {
    /// Reads every entry of the last commit, computes the root from them alone, and compares it with the
    /// tree's. Whoever then reads the entries of the same snapshot reads those of the root: a row that is
    /// old or forged, whatever its seal says, has changed none of them. Takes one pass and a few MiB;
    /// nothing that pages say of commitments is used. `progress` is told the entries read.
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
    /// [`TreeError::OtherRoot`] if the entries have another root; if a page is damaged, or the store fails.
    pub fn verify_entries<N: Snapshot>(
        &self,
        snapshot: &N,
        mut progress: impl FnMut(u64),
    ) -> Result<(), TreeError> {
        let mut builder = RootBuilder::new(self.scheme.clone());
        for (entry, read) in self.entries(snapshot, None, b"").zip(1..) {
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
