//! The engine's state under a replay: roots of every block, and pages whatever the commits.

use std::collections::BTreeMap;

use spinney_replay::{DiffReader, Genesis, Replay, RunOptions, replay_diffs};
use spinney_state::State;
use spinney_tree::{MemoryStore, PageStore, Snapshot, Table};

use crate::shared::chain;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn pages(state: &State<MemoryStore>) -> Rows {
    let mut rows = Rows::new();
    let mut add = |key: &[u8], row: &[u8]| rows.insert(key.to_vec(), row.to_vec()).is_none();
    state.store().snapshot().unwrap().scan(Table::Pages, &[], None, &mut add).unwrap();
    rows
}

/// Replays a chain with a commit every so many blocks; a tiny cache makes pages be read again.
fn replay(
    name: &str,
    commit_every: u64,
    cache_bytes: usize,
) -> Option<(Genesis, State<MemoryStore>)> {
    let chain = chain(name)?;
    let state = State::open(MemoryStore::new(), cache_bytes).unwrap();
    let mut replay = Replay::start(&chain.genesis, state).unwrap();
    let mut options = RunOptions::default();
    options.commit_every = commit_every;
    let summary = replay.run(chain.reader(), &options, |_| {}).unwrap();
    assert_eq!(summary.root_count, summary.block_count);
    let head = replay.head().hash;
    let state = replay.into_state();
    assert_eq!(state.block().unwrap().hash, head.0);
    Some((chain.genesis, state))
}

fn any_commit_rhythm_gives_the_same_pages(name: &str) {
    let Some((_, each)) = replay(name, 1, 1 << 28) else { return };
    assert_eq!(each.check(|_| {}).unwrap(), []);
    let expected = pages(&each);
    for (commit_every, cache_bytes) in [(1, 1), (7, 1 << 28), (u64::MAX, 1 << 28)] {
        let (_, state) = replay(name, commit_every, cache_bytes).expect("it was there before");
        assert_eq!(state.root(), each.root());
        assert!(pages(&state) == expected, "pages differ at {commit_every} blocks a commit");
    }
}

#[test]
fn all_forks_gives_the_same_pages_whatever_the_commits() {
    any_commit_rhythm_gives_the_same_pages("chains/all-forks");
}

#[test]
fn chain_600_gives_the_same_pages_whatever_the_commits() {
    any_commit_rhythm_gives_the_same_pages("chain-600");
}

#[test]
fn differences_give_the_same_pages_as_blocks() {
    let Some((genesis, blocks)) = replay("chains/all-forks", 7, 1 << 28) else { return };
    let diffs = crate::shared::read("chains/all-forks/diffs.ndjson").expect("beside the blocks");
    let mut state = State::open(MemoryStore::new(), 1 << 28).unwrap();
    state.apply(&genesis.alloc).unwrap();
    let options = RunOptions::default();
    replay_diffs(&mut state, None, DiffReader::new(&diffs[..]), &options, |_| {}).unwrap();
    assert_eq!(state.root(), blocks.root());
    assert!(pages(&state) == pages(&blocks), "pages differ");
}
