//! What each block of a chain writes to a UBT over SHA-256, for others to do the same and compare
//! roots: `bench-compare/geth writes` feeds it to geth's binary trie.
//!
//! `cargo run --release -p spinney-replay -F measure --example ubt_writes -- GENESIS BLOCKS >
//! FILE`; without files, a sample chain. A line a block, block 0 first: `{"block": 0, "put":
//! {"0xkey": "0xvalue"}, "root": "0x"}`.

use std::io::{BufWriter, Write};

use alloy_primitives::{B256, hex};
use serde_json::{Map, json};
use spinney_replay::{ChainReader, Genesis, Replay, SampleChain, SampleOptions, TextbookState};
use spinney_state::embed::{self, BinaryState};
use spinney_state::{Changes, State};
use spinney_tree::{HashFunction, MemoryStore, ubt::Ubt};

type Error = Box<dyn std::error::Error>;

const UBT: Ubt = Ubt { hash: HashFunction::Sha256 };
const CACHE_BYTES: usize = 1 << 30;

fn main() -> Result<(), Error> {
    let files: Vec<_> = std::env::args_os().skip(1).collect();
    let mut out = BufWriter::new(std::io::stdout().lock());
    match &files[..] {
        [] => {
            let mut options = SampleOptions::default();
            options.block_count = 30;
            let sample = SampleChain::new(options, TextbookState::new())?;
            let genesis = sample.genesis().clone();
            run(&genesis, sample.map(|block| Ok(block?)), &mut out)?;
        }
        [genesis, blocks] => {
            let genesis = Genesis::parse(&std::fs::read(genesis)?)?;
            let blocks = ChainReader::new(std::fs::File::open(blocks)?)?;
            run(&genesis, blocks.map(|block| Ok(block?)), &mut out)?;
        }
        _ => return Err("expected no file, or a genesis and a chain".into()),
    }
    Ok(out.flush()?)
}

fn run(
    genesis: &Genesis,
    blocks: impl Iterator<Item = Result<spinney_replay::ChainBlock, Error>>,
    out: &mut impl Write,
) -> Result<(), Error> {
    let mut alone = BinaryState::open(UBT, MemoryStore::new(), CACHE_BYTES)?;
    let mut state = State::open(MemoryStore::new(), CACHE_BYTES)?;
    state.add_tree(UBT, CACHE_BYTES)?;
    let mut replay = Replay::start(genesis, state)?;
    write_block(&mut alone, 0, &genesis.alloc, out)?;
    for block in blocks {
        let Some(report) = replay.block(&block?)? else { continue };
        let root = write_block(&mut alone, report.number, &report.changes, out)?;
        let beside = replay.state().trees()[1].root;
        assert_eq!(root, beside, "block {}: alone and beside", report.number);
        if report.number % 64 == 0 {
            replay.state_mut().commit()?;
            alone.commit(None)?;
        }
    }
    Ok(())
}

fn write_block(
    ubt: &mut BinaryState<Ubt, MemoryStore>,
    number: u64,
    changes: &Changes,
    out: &mut impl Write,
) -> Result<B256, Error> {
    let mut puts = Map::new();
    for write in ubt.writes(changes)? {
        let embed::Write::Put(key, value) = write else {
            return Err("a UBT forgets nothing".into());
        };
        puts.insert(hex::encode_prefixed(key), hex::encode_prefixed(value).into());
    }
    let root = ubt.apply(changes)?;
    writeln!(out, "{}", json!({ "block": number, "put": puts, "root": root }))?;
    Ok(root)
}
