//! Execution witnesses: every block on nothing but its own, and nothing in one that is not needed.

use alloy_primitives::U256;
use spinney_replay::{
    ChainBlock, SampleChain, SampleOptions, TextbookState, Witness, WitnessError, WitnessMaker,
};
use spinney_state::State;
use spinney_tree::MemoryStore;

use crate::shared::{self, ALL_FORKS, CHAIN_600};

type Maker = WitnessMaker<MemoryStore>;

/// Makes and checks the witness of every block; `each` sees it too.
fn all_witnesses(name: &str, mut each: impl FnMut(&Maker, U256, &ChainBlock, &Witness)) {
    let Some(chain) = shared::chain(name) else { return };
    let state = State::open(MemoryStore::new(), 1 << 16).unwrap();
    let mut maker = Maker::start(&chain.genesis, state).unwrap();
    let (mut blocks, mut nodes, mut bytes) = (0, 0, 0);
    for block in chain.blocks() {
        let difficulty = maker.total_difficulty();
        let Some(made) = maker.witness(&block).unwrap() else { continue };
        let witness = made.witness;
        let report = witness.check(maker.config(), difficulty, &block);
        let report = report.unwrap_or_else(|error| panic!("block {}: {error}", made.report.number));
        assert_eq!(report.state_root, block.block.header.state_root);
        blocks += 1;
        nodes += witness.state.len();
        bytes += witness.state.iter().map(|rlp| rlp.len()).sum::<usize>();
        each(&maker, difficulty, &block, &witness);
    }
    println!("{name}: {blocks} witnesses, {nodes} nodes, {bytes} bytes of nodes");
    assert!(blocks > 200);
}

/// The parts of every so many blocks' witnesses are tried, and with this variable set of all.
fn step(short: u64) -> u64 {
    if std::env::var_os("SPINNEY_LONG").is_some() { 1 } else { short }
}

/// Without any one of its parts a witness does not hold.
fn needs_every_part(maker: &Maker, difficulty: U256, block: &ChainBlock, witness: &Witness) {
    let number = block.block.header.number;
    let refused = |witness: Witness, what: &str, index: usize| {
        let refused = witness.check(maker.config(), difficulty, block);
        let refused = refused.expect_err(&format!("block {number} without {what} {index}"));
        assert!(
            matches!(refused, WitnessError::Check(_) | WitnessError::Header { .. }),
            "{refused}"
        );
    };
    for index in 0..witness.state.len() {
        let mut less = witness.clone();
        less.state.remove(index);
        refused(less, "node", index);
    }
    for index in 0..witness.codes.len() {
        let mut less = witness.clone();
        less.codes.remove(index);
        refused(less, "code", index);
    }
    for index in 0..witness.headers.len() {
        let mut less = witness.clone();
        less.headers.remove(index);
        refused(less, "header", index);
    }
}

#[test]
fn every_block_of_all_forks_is_executed_on_its_witness() {
    let mut with_old_headers = 0;
    all_witnesses(ALL_FORKS, |maker, difficulty, block, witness| {
        with_old_headers += usize::from(witness.headers.len() > 1);
        if block.block.header.number % step(10) == 0 {
            needs_every_part(maker, difficulty, block, witness);
        }
    });
    println!("{with_old_headers} blocks ask for the hash of a block older than their parent");
}

#[test]
fn every_block_of_chain_600_is_executed_on_its_witness() {
    all_witnesses(CHAIN_600, |maker, difficulty, block, witness| {
        if block.block.header.number % step(40) == 0 {
            needs_every_part(maker, difficulty, block, witness);
        }
    });
}

#[test]
fn a_sample_chain_is_executed_on_its_witnesses() {
    let mut options = SampleOptions::default();
    options.block_count = 12;
    let sample = SampleChain::new(options, TextbookState::new()).unwrap();
    let state = State::open(MemoryStore::new(), 1 << 16).unwrap();
    let mut maker = Maker::start(sample.genesis(), state).unwrap();
    for block in sample {
        let (block, difficulty) = (block.unwrap(), maker.total_difficulty());
        let witness = maker.witness(&block).unwrap().unwrap().witness;
        witness.check(maker.config(), difficulty, &block).unwrap();
        if block.block.header.number == 12 {
            needs_every_part(&maker, difficulty, &block, &witness);
        }
    }
}

#[test]
fn foreign_witnesses_are_refused() {
    let Some(chain) = shared::chain(ALL_FORKS) else { return };
    let state = State::open(MemoryStore::new(), 1 << 20).unwrap();
    let mut maker = Maker::start(&chain.genesis, state).unwrap();
    let blocks = chain.blocks();
    for block in &blocks[..blocks.len() - 1] {
        maker.pass(block).unwrap();
    }
    let (block, difficulty) = (&blocks[blocks.len() - 1], maker.total_difficulty());
    let good = maker.witness(block).unwrap().unwrap().witness;
    let refused = |change: &dyn Fn(&mut Witness), text: &str| {
        let mut other = good.clone();
        change(&mut other);
        let refused = other.check(maker.config(), difficulty, block).unwrap_err().to_string();
        assert!(refused.contains(text), "{refused}");
    };
    refused(&|w| w.headers.clear(), "there is none");
    refused(&|w| w.headers[0] = vec![0xc0].into(), "header 0");
    refused(&|w| w.headers.push(w.headers[0].clone()), "does not follow");
    refused(&|w| w.headers[0] = [&w.headers[0][..], &[0]].concat().into(), "header 0");
    refused(&|w| w.state.clear(), "is missing");
    refused(&|w| w.state.iter_mut().for_each(|node| *node = vec![0xc0].into()), "is missing");
    good.check(maker.config(), difficulty, block).unwrap();
}
