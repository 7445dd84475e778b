//! `stage status`.

use std::collections::BTreeMap;

use alloy_primitives::B256;
use serde::Serialize;
use spinney_pipeline::Checkpoint;
use spinney_state::{MPT, State, TreeReport};
use spinney_store::Frozen;
use spinney_tree::{BlockId, PageStore, Snapshot as _, Table};

use crate::failure::Exit;
use crate::stores::{Mode, Place};
use crate::trees::{self, TreeSet};
use crate::ui::{Format, Grid, Output, human_bytes};

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

/// State differences name no hash; zeros stand for it.
pub(super) fn hash_of(block: BlockId) -> Option<B256> {
    Some(B256::from(block.hash)).filter(|hash| !hash.is_zero())
}

/// The roots of a state's trees, by name.
pub(super) fn roots_of<P: PageStore>(state: &State<P>) -> BTreeMap<String, B256> {
    let root = |tree: TreeReport| (trees::name_of(tree.scheme), tree.root);
    state.trees().into_iter().map(root).collect()
}

pub(super) fn run(place: &Place, output: &Output) -> anyhow::Result<Exit> {
    let store = place.open(Mode::Look)?;
    let store = Frozen::of(&store)?;
    let state = TreeSet::open_all(&store, place.tree_cache())?;
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
    print(&status, output)?;
    Ok(Exit::Ok)
}

fn print(status: &Status, output: &Output) -> std::io::Result<()> {
    let format = output.format();
    if format == Format::Json {
        return output.envelope(status, &[]);
    }
    let number = |number: Option<u64>| number.map(|n| n.to_string()).unwrap_or_default();
    let hash = |hash: Option<B256>| hash.map(|hash| hash.to_string()).unwrap_or_default();
    let bytes = match format {
        Format::Csv => status.history_bytes.to_string(),
        _ => human_bytes(status.history_bytes),
    };
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
    let rebuild = status.rebuild.as_ref().map(|at| match at.finished {
        true => format!("{} leaves", at.leaves),
        false => format!("{} of {} leaves", at.leaves_built, at.leaves),
    });
    grid.row(vec![
        status.commit.to_string(),
        number(status.block),
        hash(status.block_hash),
        status.root.to_string(),
        hash(status.genesis),
        number(status.oldest),
        status.history_rows.to_string(),
        bytes,
        rebuild.unwrap_or_default(),
    ]);
    output.grid(&grid)?;
    if format == Format::Table {
        for (tree, root) in status.roots.iter().filter(|(tree, _)| *tree != "mpt") {
            output.line(&format!("{tree}: {root}"))?;
        }
    }
    Ok(())
}
