//! `witness`: all that blocks need to be executed, made during a replay and checked.

use std::io::Write as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::Ordering;

use anyhow::Context as _;
use clap::Args;
use spinney_replay::{ChainReader, Genesis, WitnessMaker};
use spinney_state::State;
use spinney_tree::{CACHE_BYTES_DEFAULT, MemoryStore};

use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::out_file::OutFile;
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::stores;
use crate::trees::{self, Name};

/// Make the execution witnesses of blocks, and check each by executing its block on nothing else.
///
/// Replays the chain in memory up to the last block asked for. Prints one JSON line a block, in the shape of
/// debug_executionWitness: {"number", "hash", "root", "state", "codes", "keys", "headers"}.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    spinney witness --genesis genesis.json --blocks chain.rlp --block 77\n  \
    spinney witness --genesis genesis.json --blocks chain.rlp --range 100..120 --out witnesses.ndjson")]
pub(crate) struct WitnessArgs {
    /// The chain's genesis.json, as geth writes it.
    #[arg(long, value_name = "FILE")]
    genesis: PathBuf,
    /// Blocks as `geth export` writes them, plain or zstd; - is standard input.
    #[arg(long, value_name = "FILE")]
    blocks: PathBuf,
    #[command(flatten)]
    which: WhichArgs,
    /// The tree: witnesses are of mpt alone.
    #[arg(long, value_name = "TREE", default_value = "mpt", env = "SPINNEY_TREE")]
    tree: String,
    /// Where the witnesses go, all or none of them; without it, to standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = false)]
struct WhichArgs {
    /// The block.
    #[arg(long, value_name = "N")]
    block: Option<u64>,
    /// The blocks from A to B, both included.
    #[arg(long, value_name = "A..B")]
    range: Option<BlockRange>,
    /// All blocks.
    #[arg(long)]
    all: bool,
}

/// Blocks from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockRange(u64, u64);

impl FromStr for BlockRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ends =
            text.split_once("..").and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        match ends {
            Some((first, last)) if first <= last => Ok(Self(first, last)),
            _ => Err("expected two block numbers like 100..120".to_owned()),
        }
    }
}

impl WhichArgs {
    fn range(self) -> BlockRange {
        match (self.block, self.range) {
            (Some(block), _) => BlockRange(block, block),
            (None, Some(range)) => range,
            (None, None) => BlockRange(1, u64::MAX),
        }
    }
}

pub(crate) fn run(args: &WitnessArgs, output: &Output) -> anyhow::Result<Exit> {
    trees::check_name(Name::parse(&args.tree)?, |name| name == Name::Mpt)?;
    let BlockRange(first, last) = args.which.range();
    if first == 0 {
        return Err(Failure::new("the genesis is not executed, and has no witness")
            .hint("blocks are numbered from 1")
            .into());
    }
    let genesis = Genesis::parse(&stores::read_file(&args.genesis)?)
        .with_context(|| format!("in {}", args.genesis.display()))?;
    let blocks = ChainReader::new(stores::open_file(&args.blocks)?)
        .with_context(|| format!("reading {}", args.blocks.display()))?;
    let mut state = State::open(MemoryStore::new(), CACHE_BYTES_DEFAULT)?;
    // What is behind the keys comes from the execution.
    state.keep_preimages(false);
    let mut maker = WitnessMaker::start(&genesis, state)?;
    // A file that is half written goes with the run.
    let interrupt = args.out.is_some().then(Interrupt::listen).transpose()?;
    let mut out = OutFile::begin(args.out.as_deref())?;
    let mut progress = Progress::new(output.quiet(), "replaying", Unit::Blocks, None);
    let (mut count, mut head, mut bytes) = (0_u64, 0, 0);
    for block in blocks {
        let block = block?;
        let number = block.block.header.number;
        if interrupt.as_ref().is_some_and(|asked| asked.flag().load(Ordering::Relaxed)) {
            let what = format!("interrupted before block {number}");
            return Err(Failure::new(what).hint(kept(args)).exit(Exit::Interrupted).into());
        }
        if number > last {
            break;
        }
        let difficulty = maker.total_difficulty();
        if number < first {
            maker.pass(&block)?;
        } else if let Some(witness) = maker.witness(&block)? {
            witness
                .check(maker.config(), difficulty, &block)
                .with_context(|| format!("checking the witness of block {number}"))?;
            let line = serde_json::to_string(&witness)?;
            writeln!(out, "{line}").context("writing a witness")?;
            count += 1;
            bytes += line.len();
        }
        head = number;
        progress.update(number, || format!("block {number}"));
    }
    progress.finish();
    let wanted_last = if last == u64::MAX { first } else { last };
    if head < wanted_last {
        let what = format!("the chain ends at block {head}, before block {wanted_last}");
        out.flush().context("writing a witness")?;
        return Err(Failure::new(what).hint(kept(args)).into());
    }
    out.finish().context("writing the witnesses")?;
    output.note(&format!("{count} witnesses made and checked, {bytes} bytes"));
    Ok(Exit::Ok)
}

/// What a run leaves that does not get to its end.
fn kept(args: &WitnessArgs) -> &'static str {
    match args.out {
        Some(_) => "the file of --out is as it was: it is written whole or not at all",
        None => "the witnesses of the blocks before were printed, if any were asked for",
    }
}

#[cfg(test)]
mod tests {
    use super::BlockRange;

    #[test]
    fn ranges_have_two_ends() {
        assert_eq!("3..7".parse(), Ok(BlockRange(3, 7)));
        for text in ["", "3", "..", "3..", "7..3", "3..x", "-1..3"] {
            assert!(text.parse::<BlockRange>().is_err(), "{text}");
        }
    }
}
