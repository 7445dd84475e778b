//! Witnesses that a store keeps of its last blocks: those that are made one by one.

use std::collections::BTreeMap;

use spinney_replay::{ChainBlock, Genesis, Replay, RunOptions, Witness, WitnessMaker};
use spinney_state::{KeptWitness, State, kept_witness};
use spinney_tree::{MemoryStore, PageStore as _};

use crate::shared::{self, ALL_FORKS};

/// The blocks of a chain with their witnesses, each made by itself.
fn made(genesis: &Genesis, blocks: &[ChainBlock]) -> BTreeMap<u64, Witness> {
    let state = State::open(MemoryStore::new(), 1 << 20).unwrap();
    let mut maker = WitnessMaker::start(genesis, state).unwrap();
    let mut all = BTreeMap::new();
    for block in blocks {
        let Some(made) = maker.witness(block).unwrap() else { continue };
        all.insert(block.block.header.number, made.witness);
    }
    all
}

/// The witnesses that a store has, with the hashes of their blocks.
fn kept(store: &MemoryStore, last: u64) -> BTreeMap<u64, ([u8; 32], KeptWitness)> {
    let snapshot = store.snapshot().unwrap();
    let rows = (0..=last + 1).filter_map(|number| {
        kept_witness(&snapshot, number).unwrap().map(|(hash, witness)| (number, (hash.0, witness)))
    });
    rows.collect()
}

fn assert_same(
    kept: &BTreeMap<u64, ([u8; 32], KeptWitness)>,
    made: &BTreeMap<u64, Witness>,
    blocks: &[ChainBlock],
    first: u64,
    last: u64,
) {
    let numbers: Vec<_> = kept.keys().copied().collect();
    assert_eq!(numbers, (first..=last).collect::<Vec<_>>());
    for (number, (hash, kept)) in kept {
        let Witness { state, codes, headers, .. } = made[number].clone();
        assert_eq!(*kept, KeptWitness { state, codes, headers }, "block {number}");
        let block = blocks.iter().find(|block| block.block.header.number == *number).unwrap();
        assert_eq!(*hash, block.hash.0);
    }
}

/// Stage beside stage and one by one, over several commits, with stops: the last so many, no
/// others.
#[test]
fn the_last_witnesses_are_those_made_one_by_one() {
    let Some(chain) = shared::chain(ALL_FORKS) else { return };
    let (genesis, blocks) = (chain.genesis.clone(), chain.blocks());
    let last = blocks.last().unwrap().block.header.number;
    let made = made(&genesis, &blocks);
    assert_eq!(made.len() as u64, last);
    for (threads, commit_every, stops, keep) in
        [(2, 7, vec![], 1_000), (2, 128, vec![40, 41, 150], 50), (1, 5, vec![99], 3)]
    {
        let store = MemoryStore::new();
        let mut begun = State::open(&store, 1 << 20).unwrap();
        begun.keep_witnesses(keep);
        let mut replay = Replay::start(&genesis, begun).unwrap();
        for end in stops.into_iter().chain([last]) {
            replay.keep_reads(true);
            let mut options = RunOptions::default();
            (options.commit_every, options.recover_threads) = (commit_every, threads);
            options.last = Some(end);
            let source = blocks.clone().into_iter().map(Ok);
            let reader = (threads > 1).then(|| replay.state_mut().reader()).flatten();
            match reader {
                Some(reader) => replay.run_staged(reader, source, &options, |_| {}).unwrap(),
                None => replay.run(source, &options, |_| {}).unwrap(),
            };
            let first = (end + 1).saturating_sub(keep).max(1);
            assert_same(&kept(&store, last), &made, &blocks, first, end);
            // As after a restart.
            let mut state = State::open(&store, 1 << 20).unwrap();
            state.keep_witnesses(keep);
            let head = state.block().unwrap();
            replay = Replay::resume(&genesis, state, head.number, head.hash.into()).unwrap();
        }
    }
}

/// What takes the state back takes the witnesses along; nothing is left where none are wanted.
#[test]
fn witnesses_go_with_their_blocks() {
    let Some(chain) = shared::chain(ALL_FORKS) else { return };
    let (genesis, blocks) = (chain.genesis.clone(), chain.blocks());
    let made = made(&genesis, &blocks);
    let store = MemoryStore::new();
    let mut begun = State::open(&store, 1 << 20).unwrap();
    begun.keep_witnesses(20);
    let mut replay = Replay::start(&genesis, begun).unwrap();
    replay.keep_reads(true);
    let run = |replay: &mut Replay<State<&MemoryStore>>, last| {
        let mut options = RunOptions::default();
        options.last = Some(last);
        replay.run(blocks.clone().into_iter().map(Ok), &options, |_| {}).unwrap();
    };
    run(&mut replay, 200);
    let mut state = replay.into_state();
    state.unwind_to(190).unwrap();
    assert_same(&kept(&store, 213), &made, &blocks, 181, 190);
    // Where nobody says, what is there stays.
    let state = State::open(&store, 1 << 20).unwrap();
    let head = state.block().unwrap();
    let mut replay = Replay::resume(&genesis, state, head.number, head.hash.into()).unwrap();
    replay.keep_reads(true);
    run(&mut replay, 195);
    assert_same(&kept(&store, 213), &made, &blocks, 181, 190);
    let mut state = replay.into_state();
    state.keep_witnesses(0);
    let head = state.block().unwrap();
    let mut replay = Replay::resume(&genesis, state, head.number, head.hash.into()).unwrap();
    replay.keep_reads(true);
    run(&mut replay, 196);
    assert!(kept(&store, 213).is_empty());
}
