//! The last commit of a tree.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::TreeError;
use crate::ids::{BlockId, TreeId};
use crate::node::{Arena, Top};
use crate::root_record::RootRecord;
use crate::rows::ReadRows;
use crate::scheme::Scheme;
use crate::store::CommitOf;

/// The last commit.
#[derive(Debug)]
pub(crate) struct Head<S: Scheme> {
    /// Names the state: the last batch committed, or this opening of the tree. No other tree of the
    /// process has it, so a pending state can be told from another tree's, and from an older one.
    pub(crate) batch: u64,
    pub(crate) commit: u64,
    pub(crate) block: Option<BlockId>,
    /// Its root page, if there is one.
    pub(crate) arena: Arc<Arena<S::Commit>>,
    pub(crate) top: Option<Top<S::Commit>>,
    pub(crate) root: S::Root,
    /// The last snapshot that was found to show it.
    pub(crate) checked: Arc<LastChecked>,
}

impl<S: Scheme> Head<S> {
    /// A state that is no commit yet.
    pub(crate) fn new(
        batch: u64,
        arena: Arc<Arena<S::Commit>>,
        top: Option<Top<S::Commit>>,
        root: S::Root,
    ) -> Self {
        Self { batch, commit: 0, block: None, arena, top, root, checked: Arc::default() }
    }
}

/// The last snapshot that was found to show a commit, where snapshots can be told apart.
#[derive(Debug, Default)]
pub(crate) struct LastChecked(Mutex<Option<CommitOf>>);

impl LastChecked {
    /// Refuses a snapshot that does not show this commit of a tree: pages of another commit must
    /// not be taken for pages of this one.
    pub(crate) fn check(
        &self,
        tree: TreeId,
        commit: u64,
        snapshot: &dyn ReadRows,
    ) -> Result<(), TreeError> {
        let shows = snapshot.shows();
        let last = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shows.is_some() && *last() == shows {
            return Ok(());
        }
        let found = RootRecord::read(tree, snapshot)?.map_or(0, |record| record.commit);
        if found != commit {
            return Err(TreeError::OtherSnapshot { tree, found, head: commit });
        }
        *last() = shows;
        Ok(())
    }
}
