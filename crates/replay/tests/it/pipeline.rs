//! Blocks executed ahead of their roots: the same roots, rows and events as one after another.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use alloy_primitives::B256;
use spinney_replay::{
    BadBlock, ChainBlock, Check, Event, Genesis, Replay, ReplayError, RunOptions, SampleChain,
    SampleOptions, Summary, TextbookState,
};
use spinney_state::{State, StateError};
use spinney_tree::{MemoryStore, PageStore, Snapshot, Table, ubt::Ubt};

use crate::shared::{self, ALL_FORKS, AMSTERDAM, CHAIN_600};

type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// All rows of a store, those of history and preimages too.
fn rows(store: &MemoryStore) -> Rows {
    let (snapshot, mut rows) = (store.snapshot().unwrap(), Rows::new());
    for table in Table::ALL {
        let mut add =
            |key: &[u8], row: &[u8]| rows.insert((table, key.to_vec()), row.to_vec()).is_none();
        snapshot.scan(table, &[], None, &mut add).unwrap();
    }
    rows
}

fn sample(block_count: u64) -> (Genesis, Vec<ChainBlock>) {
    let mut options = SampleOptions::default();
    options.block_count = block_count;
    let mut sample = SampleChain::new(options, TextbookState::new()).unwrap();
    let blocks = sample.by_ref().collect::<Result<_, _>>().unwrap();
    (sample.genesis().clone(), blocks)
}

fn of_file(name: &str) -> Option<(Genesis, Vec<ChainBlock>)> {
    let chain = shared::chain(name)?;
    let blocks = chain.reader().collect::<Result<_, _>>().unwrap();
    Some((chain.genesis, blocks))
}

/// What a run told: blocks by number, and numbers of commits.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    blocks: Vec<(u64, B256)>,
    commits: Vec<u64>,
}

type Outcome = Result<Summary, ReplayError<StateError>>;

/// Replays into a store, one after another with one thread; where it stands it goes on.
fn run(
    store: &MemoryStore,
    genesis: &Genesis,
    blocks: &[ChainBlock],
    (threads, commit_every): (usize, u64),
    stop_after: Option<u64>,
) -> (Outcome, Told) {
    let mut state = State::open(store, 1 << 16).unwrap();
    state.add_tree(Ubt { hash: spinney_tree::HashFunction::Blake3 }, 1 << 16).unwrap();
    let reader = state.reader().expect("mpt is there");
    let mut replay = match state.block() {
        None => Replay::start(genesis, state).unwrap(),
        Some(head) => Replay::resume(genesis, state, head.number, head.hash.into()).unwrap(),
    };
    let (stop, mut told) = (AtomicBool::new(false), Told::default());
    let mut options = RunOptions::default();
    (options.recover_threads, options.commit_every) = (threads, commit_every);
    options.stop = Some(&stop);
    let blocks = blocks.iter().cloned().map(Ok);
    let on_event = |event: Event<'_>| match event {
        Event::Block(block) => {
            told.blocks.push((block.number, block.state_root));
            if stop_after == Some(block.number) {
                stop.store(true, Ordering::Relaxed);
            }
        }
        Event::Committed { number, .. } => told.commits.push(number),
        _ => {}
    };
    let outcome = match threads {
        1 => replay.run(blocks, &options, on_event),
        _ => replay.run_staged(reader, blocks, &options, on_event),
    };
    let last = told.blocks.last().map(|(number, _)| *number);
    if let Some(last) = last {
        // Nothing good is left behind, and the replay stands where its state does.
        assert_eq!(told.commits.last(), Some(&last));
        assert_eq!(replay.head().header.number, last);
        assert_eq!(replay.state().block().unwrap().number, last);
    }
    assert_eq!(replay.state().layer_count(), 0);
    (outcome, told)
}

/// Every rhythm of commits, and one to eight threads.
fn the_same_in_every_way((genesis, blocks): &(Genesis, Vec<ChainBlock>)) {
    let expected = MemoryStore::new();
    let (summary, told) = run(&expected, genesis, blocks, (1, 7), None);
    let (summary, expected) = (summary.unwrap(), rows(&expected));
    assert_eq!(summary.root_count, summary.block_count);
    for commit_every in [1, 7, u64::MAX] {
        for threads in [1, 2, 8] {
            let store = MemoryStore::new();
            let (outcome, same) = run(&store, genesis, blocks, (threads, commit_every), None);
            let outcome = outcome.unwrap();
            assert_eq!(outcome.root_count, summary.root_count);
            assert_eq!(outcome.receipt_root_count, summary.receipt_root_count);
            assert_eq!(same.blocks, told.blocks);
            // The root record counts commits.
            let without_count = |rows: &Rows| -> Rows {
                rows.iter()
                    .filter(|((table, _), _)| *table != Table::Roots)
                    .map(|(key, row)| (key.clone(), row.clone()))
                    .collect()
            };
            let same = without_count(&rows(&store)) == without_count(&expected);
            assert!(same, "rows differ with {threads} threads, {commit_every} blocks a commit");
        }
    }
}

#[test]
fn a_sample_is_the_same_in_every_way() {
    the_same_in_every_way(&sample(40));
}

#[test]
fn whole_chains_are_the_same_in_every_way() {
    for name in [ALL_FORKS, CHAIN_600, AMSTERDAM] {
        if let Some(chain) = of_file(name) {
            the_same_in_every_way(&chain);
        }
    }
}

/// The block has another root than it says, and those behind it stand on it all the same: they are
/// executed before anybody knows.
#[test]
fn nothing_of_a_block_with_a_wrong_root_is_committed() {
    let (genesis, blocks) = sample(30);
    for bad in [2, 3, 17, 30] {
        let mut spoilt = blocks.clone();
        spoilt[bad - 1].block.header.state_root = B256::repeat_byte(7);
        for at in bad - 1..spoilt.len() {
            let parent = spoilt[at - 1].hash;
            spoilt[at].block.header.parent_hash = parent;
            spoilt[at] = ChainBlock::new(spoilt[at].block.clone());
        }
        for commit_every in [1, 5, u64::MAX] {
            let (store, good) = (MemoryStore::new(), MemoryStore::new());
            let (outcome, told) = run(&store, &genesis, &spoilt, (3, commit_every), None);
            let Err(ReplayError::BadBlock(found)) = outcome else { panic!("{outcome:?}") };
            let BadBlock { number, what, got, .. } = &*found;
            assert_eq!((*number, *what), (bad as u64, Check::StateRoot));
            assert_eq!(*got, B256::repeat_byte(7).to_string());
            assert_eq!(told.blocks.len(), bad - 1);
            run(&good, &genesis, &blocks[..bad - 1], (1, commit_every), None).0.unwrap();
            let pages = |store| {
                let mut rows = rows(store);
                rows.retain(|(table, _), _| *table != Table::Roots);
                rows
            };
            assert!(pages(&store) == pages(&good), "rows differ: block {bad}, {commit_every}");
            // With the right block it goes on.
            run(&store, &genesis, &blocks, (2, commit_every), None).0.unwrap();
            run(&good, &genesis, &blocks, (1, commit_every), None).0.unwrap();
            assert!(pages(&store) == pages(&good), "rows differ at the end");
        }
    }
}

/// A block that breaks a rule is found before the roots of those before it are known; these come
/// first.
#[test]
fn the_first_bad_block_is_named() {
    let (genesis, blocks) = sample(12);
    let mut spoilt = blocks;
    spoilt[8].block.header.gas_used += 1;
    let relink = |spoilt: &mut Vec<ChainBlock>, from: usize| {
        for at in from..spoilt.len() {
            let parent = spoilt[at - 1].hash;
            spoilt[at].block.header.parent_hash = parent;
            spoilt[at] = ChainBlock::new(spoilt[at].block.clone());
        }
    };
    relink(&mut spoilt, 8);
    let named = |spoilt: &[ChainBlock]| {
        let (outcome, told) = run(&MemoryStore::new(), &genesis, spoilt, (2, 64), None);
        let Err(ReplayError::BadBlock(found)) = outcome else { panic!("{outcome:?}") };
        (found.number, found.what, told.blocks.len())
    };
    assert_eq!(named(&spoilt), (9, Check::GasUsed, 8));
    spoilt[7].block.header.state_root = B256::ZERO;
    relink(&mut spoilt, 7);
    assert_eq!(named(&spoilt), (8, Check::StateRoot, 7));
}

/// What is above the last block that is wanted is not looked at.
#[test]
fn a_run_ends_at_the_block_that_is_wanted() {
    let (genesis, blocks) = sample(6);
    for last in [0, 1, 2, 5, 6, 9] {
        let store = MemoryStore::new();
        let mut state = State::open(&store, 1 << 20).unwrap();
        let reader = state.reader().expect("mpt is there");
        let mut replay = Replay::start(&genesis, state).unwrap();
        let mut options = RunOptions::default();
        (options.recover_threads, options.last) = (2, Some(last));
        let blocks = blocks.iter().cloned().map(Ok);
        let summary = replay.run_staged(reader, blocks, &options, |_| {}).unwrap();
        assert_eq!(summary.block_count, last.min(6));
        assert_eq!(replay.state().block().unwrap().number, last.min(6));
        assert_eq!(replay.state().layer_count(), 0);
    }
}

#[test]
fn a_run_that_is_stopped_goes_on() {
    let (genesis, blocks) = sample(40);
    let (store, expected) = (MemoryStore::new(), MemoryStore::new());
    run(&expected, &genesis, &blocks, (1, 7), None).0.unwrap();
    let mut lives = 0;
    for stop_after in [1, 2, 9, 10, 11, 39, 50] {
        let (outcome, told) = run(&store, &genesis, &blocks, (2, 7), Some(stop_after));
        let summary = outcome.unwrap();
        lives += u64::from(!told.blocks.is_empty());
        assert_eq!(summary.block_count, told.blocks.len() as u64);
    }
    assert!(lives > 2, "{lives} runs had something to do");
    let pages = |store| {
        let mut rows = rows(store);
        rows.retain(|(table, _), _| *table != Table::Roots);
        rows
    };
    assert!(pages(&store) == pages(&expected), "rows differ");
}
