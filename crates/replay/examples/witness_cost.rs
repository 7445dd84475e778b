//! What witnesses cost: making them beside a replay, and checking them.
//!
//!     cargo run --release -p spinney-replay -F measure --example witness_cost
//!     cargo run --release -p spinney-replay -F measure --example witness_cost -- GENESIS CHAIN
//!
//! Without arguments: a block that reads 22,000 slots of 1,000,000 and clears 500 of 20,000, whose
//! witness has some 11 MB. With a chain: all of its blocks. CPU time of the process, and time on
//! the clock of what threads share; the least of three rounds, which take turns.

#[path = "../tests/it/made.rs"]
#[expect(dead_code, reason = "a part of it is used")]
mod made;

use std::{
    error::Error,
    time::{Duration, Instant},
};

use alloy_primitives::{Address, U256, address, hex};
use cpu_time::ProcessTime;
use serde_json::{Map, json};
use spinney_replay::{
    ChainBlock, ChainReader, Fork, Genesis, WitnessForm, WitnessMaker, WitnessReader,
};
use spinney_state::State;
use spinney_tree::{CACHE_BYTES_DEFAULT, MemoryStore};

use crate::made::{Actor, Made};

const ROUNDS: usize = 3;
/// Reads, or clears, slots from one on: how many of each its input says.
const READER: Address = address!("00000000000000000000000000000000000000aa");
const CLEARER: Address = address!("00000000000000000000000000000000000000bb");

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let (genesis, blocks) = match &args[..] {
        [genesis, blocks] => {
            let rlp = std::fs::read(blocks)?;
            let blocks = ChainReader::new(&rlp[..])?.collect::<Result<Vec<_>, _>>()?;
            (Genesis::parse(&std::fs::read(genesis)?)?, blocks)
        }
        _ => large(),
    };
    let mut best: [Option<Duration>; 5] = [None; 5];
    let mut walls: [Option<Duration>; 2] = [None; 2];
    let mut keep = |which: usize, took: Duration| {
        best[which] = Some(best[which].map_or(took, |before| before.min(took)));
    };
    let (mut bytes, mut nodes, mut count) = (0, 0, 0);
    for _ in 0..ROUNDS {
        let mut maker = fresh(&genesis)?;
        let mut wall = |which: usize, began: Instant| {
            let took = began.elapsed();
            walls[which] = Some(walls[which].map_or(took, |before| before.min(took)));
        };
        let began = Instant::now();
        keep(0, run(&blocks, |block| maker.pass(block).map(drop))?);
        wall(0, began);
        let mut maker = fresh(&genesis)?;
        let mut made = Vec::new();
        let began = Instant::now();
        keep(1, run(&blocks, |block| maker.witness(block).map(|witness| made.extend(witness)))?);
        wall(1, began);
        let config = genesis.config.clone();
        let blocks: Vec<_> = blocks.iter().filter(|block| block.hash != genesis.hash).collect();
        let pairs = || made.iter().zip(&blocks);
        (bytes, nodes, count) = (0, 0, made.len());
        for made in &made {
            let witness = &made.witness;
            let lists = [&witness.state, &witness.codes, &witness.headers];
            bytes += lists.into_iter().flatten().map(|one| one.len()).sum::<usize>();
            nodes += witness.state.len();
        }
        let merged = |block: &ChainBlock| match block.block.header.difficulty.is_zero() {
            true => U256::MAX,
            false => U256::ZERO,
        };
        keep(
            2,
            run(pairs(), |(made, block)| {
                made.witness.check(&config, merged(block), block).map(drop)
            })?,
        );
        keep(
            3,
            run(pairs(), |(made, block)| {
                let diagnosis = made.witness.examine(&config, merged(block), block);
                if diagnosis.is_canonical() { Ok(()) } else { Err(diagnosis.findings.to_string()) }
            })?,
        );
        let texts: Vec<_> = made.iter().map(|made| made.to_json(WitnessForm::Canonical)).collect();
        keep(
            4,
            run(&texts, |text| {
                WitnessReader::new(text.as_bytes()).try_for_each(|given| given.map(drop))
            })?,
        );
    }
    let millis = |which: usize| best[which].unwrap_or_default().as_secs_f64() * 1e3;
    let (replay, with) = (millis(0), millis(1));
    println!("{count} witnesses, {nodes} nodes, {:.2} MB", bytes as f64 / 1e6);
    println!(
        "replay {replay:.1} ms, with witnesses {with:.1} ms: {:+.1}%",
        (with / replay - 1.0) * 1e2
    );
    let [replay_wall, with_wall] = walls.map(Option::unwrap_or_default);
    println!(
        "made in {:.1} ms of CPU once executed, {:.1} ms on the clock",
        with - replay,
        with_wall.saturating_sub(replay_wall).as_secs_f64() * 1e3
    );
    println!("executed on them alone in {:.1} ms", millis(2));
    println!("examined in {:.1} ms, and read as JSON in {:.1} ms", millis(3), millis(4));
    Ok(())
}

fn fresh(genesis: &Genesis) -> Result<WitnessMaker<MemoryStore>, Box<dyn Error>> {
    let mut state = State::open(MemoryStore::new(), CACHE_BYTES_DEFAULT)?;
    state.keep_preimages(false);
    let mut maker = WitnessMaker::start(genesis, state)?;
    maker.commit()?;
    Ok(maker)
}

fn run<T, E: Into<Box<dyn Error>>>(
    all: impl IntoIterator<Item = T>,
    mut each: impl FnMut(T) -> Result<(), E>,
) -> Result<Duration, Box<dyn Error>> {
    let started = ProcessTime::now();
    for one in all {
        each(one).map_err(Into::into)?;
    }
    Ok(started.elapsed())
}

/// A chain of one block, with a large state before it.
fn large() -> (Genesis, Vec<ChainBlock>) {
    let slots = |count: u64| -> Map<_, _> {
        let slot = |index: u64| (format!("{:#066x}", index), json!(format!("{:#x}", index + 1)));
        (0..count).map(slot).collect()
    };
    let reads = hex::encode_prefixed(hex!("5f35806020350190 5b 805450 600101 8181 10 600857 00"));
    let clears = hex::encode_prefixed(hex!("5f35806020350190 5b 5f8155 600101 8181 10 600857 00"));
    let alloc = json!({
        READER.to_string(): {"code": reads, "nonce": "0x1", "storage": slots(1_000_000)},
        CLEARER.to_string(): {"code": clears, "nonce": "0x1", "storage": slots(20_000)},
    });
    let mut chain = Made::with_gas_limit(Fork::Cancun, alloc, 80_000_000);
    let mut actor = Actor::new(1);
    let input = |start: u64, count: u64| {
        let words = [U256::from(start), U256::from(count)].map(|word| word.to_be_bytes::<32>());
        words.concat().into()
    };
    let transactions = vec![
        actor.legacy(Some(READER), 60_000_000, input(0, 22_000)),
        actor.legacy(Some(CLEARER), 10_000_000, input(0, 500)),
    ];
    let block = chain.block(transactions);
    (chain.genesis, vec![block])
}
