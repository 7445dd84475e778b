//! How a run is done and how far it is, and what is counted of a state.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use spinney_pipeline::{Gather, Options, Phase, Progress, Report, Scratch};
use spinney_tree::{BlockId, PageStore, Scheme, Tree};

use crate::error::MigrateError;

/// How often a run tells where it is.
const TICK: u64 = 8_192;

/// What a state has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Accounts.
    pub accounts: u64,
    /// Slots that are not zero.
    pub slots: u64,
    /// Distinct code; delegations of EIP-7702 each by itself.
    pub codes: u64,
    /// Leaves of the tree that is not the Merkle Patricia trie.
    pub leaves: u64,
}

/// What a run is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Reading the source, and sorting the leaves of the target.
    Gather,
    /// Building ranges of the target.
    Build,
    /// Joining them.
    Join,
    /// Reading the target's leaves again, for their root.
    CheckRoot,
    /// Reading accounts back from the target, for the root of the source.
    CheckBack,
    /// Writing a file.
    Write,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct At {
    /// What it is at.
    pub stage: Stage,
    /// Accounts and slots, or leaves, that passed.
    pub done: u64,
    /// How many there are, if that is known.
    pub total: Option<u64>,
}

/// How a run is done.
pub struct Work<'a> {
    /// Memory, threads and ranges: half of the memory is for leaves.
    pub options: Options,
    /// A folder for sorted leaves. Removed in the end.
    pub spill: &'a Path,
    /// Memory for pages of each tree, in bytes.
    pub cache: usize,
    /// Take no more than the accounts that hold so many slots and accounts: for an estimate.
    pub limit: Option<u64>,
    /// Check each node of the source that is read against the root ([`Tree::verify_reads`]), and
    /// each preimage against its hash.
    pub verify: bool,
    /// Told of the way; with [`ControlFlow::Break`] the run stops, and can go on.
    pub watch: &'a mut dyn FnMut(&At) -> ControlFlow<()>,
}

impl std::fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("options", &self.options).field("spill", &self.spill).finish()
    }
}

impl Work<'_> {
    /// Tells of the way, and stops where that is wanted.
    pub(crate) fn tell(
        &mut self,
        stage: Stage,
        done: u64,
        total: Option<u64>,
    ) -> Result<(), MigrateError> {
        match (self.watch)(&At { stage, done, total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(MigrateError::Stopped),
        }
    }

    /// Tells of every so many.
    pub(crate) fn tick(
        &mut self,
        stage: Stage,
        done: u64,
        total: Option<u64>,
    ) -> Result<(), MigrateError> {
        if done.is_multiple_of(TICK) { self.tell(stage, done, total) } else { Ok(()) }
    }

    /// Builds the tree of what was gathered.
    pub(crate) fn build<S: Scheme + Clone, Q: PageStore>(
        &mut self,
        gather: Gather,
        tree: &mut Tree<S>,
        target: &Q,
        block: Option<BlockId>,
    ) -> Result<Report, MigrateError> {
        let mut watch = |progress: &Progress<'_>| {
            let stage = match progress.phase {
                Phase::Build => Stage::Build,
                Phase::Join => Stage::Join,
            };
            let (done, total) = (progress.leaves, Some(progress.leaves_total));
            (self.watch)(&At { stage, done, total })
        };
        Ok(gather.rebuild(tree, target, block, None, &mut watch)?)
    }

    /// A folder for what is sorted beside the leaves.
    pub(crate) fn beside(&self, what: &str) -> PathBuf {
        Scratch::at(self.spill).beside(what)
    }
}
