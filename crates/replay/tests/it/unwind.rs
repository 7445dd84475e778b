//! Chains taken back and run again: the same roots, and the same pages as on the way up.

use alloy_primitives::{B256, keccak256};
use spinney_replay::{ChainBlock, Genesis, Replay, ReplayError, RunOptions};
use spinney_state::{KeepHistory, State, StateRead as _};
use spinney_tree::{MemoryStore, PageStore, Snapshot, Table};

use crate::shared::{ALL_FORKS, CHAIN_600, chain};

/// The digest of all rows of a table.
fn digest(state: &State<MemoryStore>, table: Table) -> B256 {
    let mut all = Vec::new();
    let mut add = |key: &[u8], row: &[u8]| {
        for part in [key, row] {
            all.extend_from_slice(&(part.len() as u64).to_be_bytes());
            all.extend_from_slice(part);
        }
        true
    };
    state.store().snapshot().unwrap().scan(table, &[], None, &mut add).unwrap();
    keccak256(all)
}

/// A chain, its state at the head, and the digest of the pages after each block.
struct Climbed {
    genesis: Genesis,
    blocks: Vec<ChainBlock>,
    state: State<MemoryStore>,
    pages: Vec<B256>,
}

impl Climbed {
    fn new(name: &str) -> Option<Self> {
        let chain = chain(name)?;
        let mut state = State::open(MemoryStore::new(), 1 << 28).unwrap();
        state.keep_history(KeepHistory::All);
        let mut replay = Replay::start(&chain.genesis, state).unwrap();
        replay.state_mut().commit().unwrap();
        let mut pages = vec![digest(replay.state(), Table::Pages)];
        let blocks = chain.blocks();
        for block in &blocks {
            replay.block(block).unwrap();
            replay.state_mut().commit().unwrap();
            pages.push(digest(replay.state(), Table::Pages));
        }
        Some(Self { genesis: chain.genesis, blocks, state: replay.into_state(), pages })
    }

    /// The state stands at a block, and is what it was.
    fn is_at(&self, number: usize) {
        let header = match number.checked_sub(1) {
            None => &self.genesis.header,
            Some(at) => &self.blocks[at].block.header,
        };
        assert_eq!(self.state.root(), header.state_root, "block {number}");
        assert_eq!(self.state.block().unwrap().hash, header.hash_slow().0, "block {number}");
        assert_eq!(digest(&self.state, Table::Pages), self.pages[number], "block {number}");
    }

    /// Runs the rest of the chain, so many blocks a commit.
    fn run_again(self, from: u64, commit_every: u64) -> Self {
        let Self { genesis, blocks, state, pages } = self;
        let hash = state.block().unwrap().hash.into();
        let mut replay = Replay::resume(&genesis, state, from, hash).unwrap();
        let mut options = RunOptions::default();
        options.commit_every = commit_every;
        let source = blocks.clone().into_iter().map(Ok);
        let summary = replay.run(source, &options, |_| {}).unwrap();
        assert_eq!(summary.block_count, blocks.len() as u64 - from);
        Self { genesis, blocks, state: replay.into_state(), pages }
    }
}

fn to_the_middle_and_again(name: &str) {
    let Some(mut climbed) = Climbed::new(name) else { return };
    let head = climbed.blocks.len();
    let history = digest(&climbed.state, Table::History);
    for commit_every in [1, 64] {
        let middle = head / 2;
        climbed.state.unwind_to(middle as u64).unwrap();
        climbed.is_at(middle);
        assert_eq!(climbed.state.check(|_| {}).unwrap(), []);
        climbed = climbed.run_again(middle as u64, commit_every);
        climbed.is_at(head);
        assert_eq!(digest(&climbed.state, Table::History), history);
    }
    climbed.state.unwind_to(0).unwrap();
    climbed.is_at(0);
    climbed.run_again(0, 7).is_at(head);
}

fn block_by_block_to_genesis(name: &str) {
    let Some(mut climbed) = Climbed::new(name) else { return };
    for number in (0..climbed.blocks.len()).rev() {
        climbed.state.unwind_to(number as u64).unwrap();
        climbed.is_at(number);
    }
    assert_eq!(climbed.state.check(|_| {}).unwrap(), []);
}

#[test]
fn all_forks_to_the_middle_and_again() {
    to_the_middle_and_again(ALL_FORKS);
}

#[test]
fn all_forks_block_by_block_to_genesis() {
    block_by_block_to_genesis(ALL_FORKS);
}

#[test]
fn chain_600_to_the_middle_and_again() {
    to_the_middle_and_again(CHAIN_600);
}

#[test]
fn chain_600_block_by_block_to_genesis() {
    block_by_block_to_genesis(CHAIN_600);
}

/// Every state on the way can be looked at from the head.
#[test]
fn all_states_of_all_forks_are_kept() {
    let Some(climbed) = Climbed::new(ALL_FORKS) else { return };
    for block in climbed.blocks.iter().step_by(5) {
        let header = &block.block.header;
        let state = climbed.state.at(header.number).unwrap();
        assert_eq!(state.root(), header.state_root);
        let account = state.account(header.beneficiary).unwrap();
        let climbed = climbed.state.account(header.beneficiary).unwrap();
        assert!(account.map(|account| account.balance) <= climbed.map(|account| account.balance));
    }
    climbed.is_at(climbed.blocks.len());
}

/// A state that came from elsewhere goes on with the blocks from its own on: the hash says that
/// they fit.
#[test]
fn a_chain_may_begin_at_the_block_the_state_stands_at() {
    for (name, anchor) in [(ALL_FORKS, 180), (CHAIN_600, 300)] {
        let Some(mut climbed) = Climbed::new(name) else { return };
        let head = climbed.blocks.len();
        let hash = climbed.state.unwind_to(anchor).unwrap().hash.into();
        let Climbed { genesis, blocks, state, pages } = climbed;
        let from = |number: u64| blocks[number as usize - 1..].iter().cloned().map(Ok);
        let options = RunOptions::default();

        let mut replay = Replay::resume(&genesis, state, anchor, hash).unwrap();
        let error = replay.run(from(anchor + 1), &options, |_| {}).unwrap_err();
        assert!(matches!(error, ReplayError::Resume { got: None, .. }), "{error}");

        let other = B256::repeat_byte(1);
        let mut replay = Replay::resume(&genesis, replay.into_state(), anchor, other).unwrap();
        let error = replay.run(from(anchor - 3), &options, |_| {}).unwrap_err();
        assert!(matches!(error, ReplayError::Resume { got: Some(_), .. }), "{error}");

        let mut replay = Replay::resume(&genesis, replay.into_state(), anchor, hash).unwrap();
        let summary = replay.run(from(anchor), &options, |_| {}).unwrap();
        assert_eq!(summary.block_count, head as u64 - anchor);
        Climbed { genesis, state: replay.into_state(), pages, blocks: blocks.clone() }.is_at(head);
    }
}
