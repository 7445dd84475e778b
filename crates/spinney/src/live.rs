//! What all handles on a tree share.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use spinney_tree::names::{self, FIRST_ID};
use spinney_tree::{
    Batch, PageStore, Pending, PreparedCommit, Snapshot, Tree, TreeError, TreeId, WriteSet,
};

use crate::error::Error;
use crate::kind::TreeKind;
use crate::shared::{Known, Shared, record_of};

/// What all handles on a tree share.
pub(crate) struct Core<S: TreeKind, P> {
    shared: Arc<Shared<P>>,
    pub(crate) name: String,
    pub(crate) id: TreeId,
    pub(crate) scheme: S,
    /// The tree at the last commit that this process knows. Whoever waits for the turn to write
    /// holds no lock on it.
    live: RwLock<Tree<S>>,
}

/// The tree at the last commit, and a snapshot that shows that commit.
pub(crate) type Current<'a, S, P> = (RwLockReadGuard<'a, Tree<S>>, <P as PageStore>::Snapshot<'a>);

impl<S: TreeKind, P: PageStore> Core<S, P> {
    pub(crate) fn new(shared: Arc<Shared<P>>, known: Known, scheme: S, tree: Tree<S>) -> Self {
        let Known { name, id, .. } = known;
        Self { shared, name, id, scheme, live: RwLock::new(tree) }
    }

    pub(crate) fn store(&self) -> &P {
        &self.shared.store
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<P>> {
        &self.shared
    }

    pub(crate) fn error(&self, error: TreeError) -> Error {
        // Keys as users write them.
        let written = |key: Vec<u8>| S::stored_key(&key).into_owned();
        let error = match error {
            TreeError::Duplicate { key } => TreeError::Duplicate { key: written(key) },
            TreeError::Refused { key, source } => TreeError::Refused { key: written(key), source },
            other => other,
        };
        Error::of(&self.name, error)
    }

    pub(crate) fn live(&self) -> RwLockReadGuard<'_, Tree<S>> {
        self.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn commit_in(&self, snapshot: &impl Snapshot) -> Result<u64, Error> {
        let record = record_of(snapshot, self.id).map_err(|error| self.error(error))?;
        Ok(record.map_or(0, |record| record.commit))
    }

    /// The tree at the last commit. Where another process has written since, this is where it is
    /// noticed.
    pub(crate) fn current(&self) -> Result<Current<'_, S, P>, Error> {
        loop {
            let live = self.live();
            let snapshot = self.store().snapshot()?;
            if self.commit_in(&snapshot)? == live.commit_number() {
                return Ok((live, snapshot));
            }
            // A commit is under way, or somebody else's was made. Who waits holds no lock on the
            // tree.
            drop((live, snapshot));
            let _turn = self.shared.turn();
            self.follow()?;
        }
    }

    /// Takes up what another process has committed. It is our turn to write.
    fn follow(&self) -> Result<(), Error> {
        let snapshot = self.store().snapshot()?;
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        if self.commit_in(&snapshot)? == live.commit_number() {
            return Ok(());
        }
        self.check_named(&snapshot)?;
        *live = self.open_at(&snapshot, self.shared.options.tree_cache)?;
        Ok(())
    }

    /// The tree as a snapshot shows it, for one who looks at an earlier commit than the last one.
    pub(crate) fn open_at(
        &self,
        snapshot: &impl Snapshot,
        cache_bytes: usize,
    ) -> Result<Tree<S>, Error> {
        let tree = Tree::open(self.scheme.clone(), self.id, snapshot, cache_bytes);
        tree.map_err(|error| self.error(error))
    }

    fn check_named(&self, snapshot: &impl Snapshot) -> Result<(), Error> {
        if self.id.0 < FIRST_ID
            || names::find(snapshot, &self.name)?.is_some_and(|named| named.id == self.id)
        {
            return Ok(());
        }
        Err(Error::Dropped { name: self.name.clone() })
    }

    pub(crate) fn prepare(
        &self,
        parent: Option<&Pending<S>>,
        batch: Batch,
    ) -> Result<Pending<S>, Error> {
        let (live, snapshot) = self.current()?;
        live.prepare(&snapshot, parent, batch).map_err(|error| self.error(error))
    }

    /// Puts what a state would write into a write set. It is our turn to write.
    pub(crate) fn prepare_commit(
        &self,
        state: &Pending<S>,
        set: &mut WriteSet,
    ) -> Result<PreparedCommit<S>, Error> {
        if self.id.0 < FIRST_ID {
            return Err(Error::CommandTree { name: self.name.clone() });
        }
        let snapshot = self.store().snapshot()?;
        self.check_named(&snapshot)?;
        self.live().prepare_commit(&snapshot, state, None, set).map_err(|error| match error {
            TreeError::OtherSnapshot { found, head, .. } => {
                Error::Stale { tree: self.name.clone(), base: head, head: found }
            }
            error => self.error(error),
        })
    }

    /// Takes up what was prepared, once the store has it.
    pub(crate) fn finalize(&self, prepared: PreparedCommit<S>) {
        self.live.write().unwrap_or_else(PoisonError::into_inner).finalize(prepared);
    }
}
