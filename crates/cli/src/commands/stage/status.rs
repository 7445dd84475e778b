//! `stage status`.

use std::collections::BTreeMap;

use alloy_primitives::B256;
use serde::Serialize;
use spinney_pipeline::Checkpoint;
use spinney_state::{MPT, State, TreeReport};
use spinney_store::Frozen;
use spinney_tree::{PageStore, Snapshot as _, Table};

use crate::stores::{Mode, Place};
use crate::trees::{self, hash_of};
use crate::ui::{Answer, Grid, human_bytes};

#[derive(Debug, Serialize)]
struct Status {
    commit: u64,
    root: B256,
    /// Of each tree, by name.
    roots: BTreeMap<String, B256>,
    block: Option<u64>,
    block_hash: Option<B256>,
    genesis: Option<B256>,
    /// The oldest block that the state can be taken back to.
    oldest: Option<u64>,
    history_rows: u64,
    history_bytes: u64,
    /// The last rebuild, or the one under way.
    rebuild: Option<Rebuild>,
}

#[derive(Debug, Serialize)]
struct Rebuild {
    finished: bool,
    leaves: u64,
    leaves_built: u64,
    /// Those that a crash undid counted again.
    leaves_hashed: u64,
    ranges: u32,
}

/// The roots of a state's trees, by name.
pub(super) fn roots_of<P: PageStore>(state: &State<P>) -> BTreeMap<String, B256> {
    let root = |tree: TreeReport| (trees::name_of(tree.scheme), tree.root);
    state.trees().into_iter().map(root).collect()
}

pub(super) fn run(place: &Place) -> anyhow::Result<Answer> {
    let store = place.open(Mode::Look)?;
    let store = Frozen::of(&store)?;
    let state = trees::open_all(&store, place.tree_cache())?;
    let (mut rows, mut bytes) = (0, 0);
    store.snapshot()?.scan(Table::History, &[], None, &mut |key, row| {
        rows += 1;
        bytes += (key.len() + row.len()) as u64;
        true
    })?;
    let status = Status {
        commit: state.commit_number(),
        root: state.root(),
        roots: roots_of(&state),
        block: state.block().map(|block| block.number),
        block_hash: state.block().and_then(hash_of),
        genesis: state.genesis()?,
        oldest: state.kept()?.map(|kept| kept.oldest.number),
        history_rows: rows,
        history_bytes: bytes,
        rebuild: Checkpoint::read(&store.snapshot()?, MPT)?.map(|at| Rebuild {
            finished: at.state == spinney_pipeline::State::Finished,
            leaves: at.leaves,
            leaves_built: at.built,
            leaves_hashed: at.hashed,
            ranges: at.ranges,
        }),
    };
    status.answer()
}

/// The roots of trees beside mpt, a line each.
pub(super) fn others(roots: &BTreeMap<String, B256>) -> impl Iterator<Item = String> {
    let others = roots.iter().filter(|(tree, _)| *tree != "mpt");
    others.map(|(tree, root)| format!("{tree}: {root}"))
}

impl Status {
    fn answer(&self) -> anyhow::Result<Answer> {
        Ok(Answer::of(self)?
            .csv(self.grid(|bytes| bytes.to_string()))
            .table(self.grid(human_bytes))
            .lines(others(&self.roots)))
    }

    fn grid(&self, bytes: fn(u64) -> String) -> Grid {
        let number = |number: Option<u64>| number.map(|n| n.to_string()).unwrap_or_default();
        let hash = |hash: Option<B256>| hash.map(|hash| hash.to_string()).unwrap_or_default();
        let rebuild = self.rebuild.as_ref().map(|at| match at.finished {
            true => format!("{} leaves", at.leaves),
            false => format!("{} of {} leaves", at.leaves_built, at.leaves),
        });
        let mut grid = Grid::new(&[
            "commit",
            "block",
            "block hash",
            "root",
            "genesis",
            "oldest",
            "history rows",
            "history bytes",
            "rebuild",
        ]);
        grid.row(vec![
            self.commit.to_string(),
            number(self.block),
            hash(self.block_hash),
            self.root.to_string(),
            hash(self.genesis),
            number(self.oldest),
            self.history_rows.to_string(),
            bytes(self.history_bytes),
            rebuild.unwrap_or_default(),
        ]);
        grid
    }
}
