//! `stage unwind`.

use std::path::Path;

use alloy_primitives::B256;
use serde_json::json;
use spinney_replay::{ChainBlock, ChainReader};
use spinney_state::State;
use spinney_store::AnyStore;
use spinney_tree::PageStore;

use super::UnwindArgs;
use super::status::{others, roots_of};
use crate::commits::Commits;
use crate::failure::{Exit, Failure};
use crate::stores::{self, Mode};
use crate::trees::{self, hash_of};
use crate::ui::Answer;

pub(super) fn run(args: &UnwindArgs) -> anyhow::Result<Answer> {
    let place = args.at.place()?;
    let store = place.open(Mode::Change)?;
    let mut state = trees::open_all(&store, place.tree_cache())?;
    let from = state.block().map(|block| block.number);
    let commits = Commits::of(&store, true)?;
    let kept = commits.beyond_history(args.to)?;
    if let Some(blocks) = &args.blocks {
        let block = find(blocks, args.to)?;
        match &kept {
            Some((_, commit)) => {
                let state = trees::open_all(commit.clone(), place.tree_cache())?;
                check_header(&state, args.to, &block)?;
            }
            None => check_header(&state, args.to, &block)?,
        }
    }
    let kept = kept.map(|(number, _)| number);
    drop(commits);
    if let (Some(number), AnyStore::Log(log)) = (kept, &store) {
        // From there its own history leads to the block, if it is not there yet.
        log.go_back(number)?;
        state = trees::open_all(&store, place.tree_cache())?;
    }
    let block = state.unwind_to(args.to)?;
    let (root, commit) = (state.root(), state.commit_number());
    let roots = roots_of(&state);
    drop(state);
    store.close()?;
    let undone = from.unwrap_or(block.number) - block.number;
    let number = block.number;
    let answer = Answer::of(&json!({
        "block": number, "block_hash": hash_of(block), "root": root,
        "commit": commit, "undone": undone, "roots": roots,
    }))?;
    let line = format!("block {number}, root {root} ({undone} blocks taken back)");
    Ok(answer.row(&["block", "root", "commit", "undone"]).line(line).lines(others(&roots)))
}

/// A block of a file, by its number.
fn find(path: &Path, number: u64) -> anyhow::Result<ChainBlock> {
    for block in ChainReader::new(stores::open_file(path)?)? {
        let block = block?;
        if block.block.header.number == number {
            return Ok(block);
        }
    }
    let what = format!("{} has no block {number} (--blocks)", path.display());
    Err(Failure::new(what).hint("leave out --blocks, or give a file that has it").into())
}

/// The state of a block is the one that the header means.
fn check_header(
    state: &State<impl PageStore>,
    number: u64,
    block: &ChainBlock,
) -> anyhow::Result<()> {
    let kept = state.at(number)?;
    let refuse = |what: &str, expected: B256, got: B256| {
        let what =
            format!("block {number}: {what}: the header has {expected}, the store has {got}");
        let hint = "these are blocks of another chain; nothing was taken back";
        Err(Failure::new(what).hint(hint).exit(Exit::No).into())
    };
    let root = block.block.header.state_root;
    match kept.block().and_then(hash_of) {
        Some(hash) if hash != block.hash => refuse("hash", block.hash, hash),
        _ if kept.root() != root => refuse("state root", root, kept.root()),
        _ => Ok(()),
    }
}
