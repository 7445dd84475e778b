//! `witness`: made during a replay and checked.

use std::io::Write as _;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use spinney_replay::{
    BinaryWitnessError, BinaryWitnessMaker, ChainBlock, ChainReader, Genesis, MadeWitness,
    WitnessForm, WitnessMaker,
};
use spinney_state::State;
use spinney_tree::{BlockId, CACHE_BYTES_DEFAULT, MemoryStore, SharedStore};

use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::out_file::OutFile;
use crate::stores;
use crate::trees::{self, Name};
use crate::ui::progress::{Progress, Unit};
use crate::ui::{Output, counted};

#[derive(Debug, Args)]
pub(super) struct MakeArgs {
    /// The chain's genesis.json, as geth writes it.
    #[arg(long, value_name = "FILE", required = true)]
    genesis: Option<PathBuf>,
    /// Blocks as `geth export` writes them, plain or zstd; - is standard input.
    #[arg(long, value_name = "FILE", required = true)]
    blocks: Option<PathBuf>,
    #[command(flatten)]
    which: WhichArgs,
    /// The tree: mpt; or pbt or ubt, for which no standard is, so that a line has the proof of all
    /// that the block looks up in the tree before it, as `prove` makes it, and the codes.
    #[arg(long, value_name = "TREE", default_value = "mpt", env = "SPINNEY_TREE")]
    tree: String,
    /// Whose form: canonical is that of the execution specifications.
    #[arg(long, value_name = "FORM", default_value = "canonical")]
    form: Form,
    /// Text, or what guests take: two bytes of schema, then the block, its witness and the senders'
    /// keys, from Amsterdam on and of one block.
    #[arg(long, value_name = "ENCODING", default_value = "json")]
    encoding: Encoding,
    /// Name the addresses and slots that are looked up, too (canonical JSON; reth's form always
    /// does).
    #[arg(long)]
    keys: bool,
    /// Do not execute each block again on its witness.
    #[arg(long)]
    no_check: bool,
    /// Where the witnesses go, all or none of them; without it, to standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Canonical,
    Geth,
    Reth,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Encoding {
    Json,
    Ssz,
}

#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = true)]
struct WhichArgs {
    /// The block, and its witness bare.
    #[arg(long, value_name = "N", conflicts_with = "range")]
    block: Option<u64>,
    /// The first block of a range; --to says the last one. Without it, the first of the chain.
    #[arg(long, value_name = "N", conflicts_with_all = ["block", "range", "all"])]
    from: Option<u64>,
    /// The last block of a range. Without it, the last of the chain.
    #[arg(long, value_name = "N", conflicts_with_all = ["block", "range", "all"])]
    to: Option<u64>,
    // As it was until 0.1.
    #[arg(long, value_name = "A..B", hide = true)]
    range: Option<BlockRange>,
    /// All blocks.
    #[arg(long, conflicts_with_all = ["block", "range"])]
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
    /// The blocks that are meant, at least one.
    fn range(self) -> Result<BlockRange, Failure> {
        let BlockRange(first, last) = match (self.block, self.range) {
            (Some(block), _) => BlockRange(block, block),
            (None, Some(range)) => range,
            (None, None) => BlockRange(self.from.unwrap_or(1), self.to.unwrap_or(u64::MAX)),
        };
        if first > last {
            let what = format!("the range ends at block {last}, before it begins (--from {first})");
            return Err(Failure::new(what).hint("--to N is the last block of the range"));
        }
        if first == 0 {
            return Err(Failure::new("the genesis is not executed, and has no witness")
                .hint("blocks are numbered from 1"));
        }
        Ok(BlockRange(first, last))
    }
}

pub(super) fn run(args: &MakeArgs, output: &Output) -> anyhow::Result<Exit> {
    let tree = trees::parse(&args.tree)?;
    trees::check_name(tree, |name| matches!(name, Name::Mpt | Name::Ubt(_) | Name::Pbt(_)))?;
    let BlockRange(first, last) = args.which.range()?;
    let written = WitnessWriter::of(args, tree)?;
    let (Some(genesis), Some(chain)) = (&args.genesis, &args.blocks) else {
        return Err(Failure::new("a chain is needed").hint("give --genesis and --blocks").into());
    };
    let genesis = Genesis::parse(&stores::read_file(genesis)?)
        .with_context(|| format!("in {}", genesis.display()))?;
    let blocks = ChainReader::new(stores::open_file(chain)?)
        .with_context(|| format!("reading {}", chain.display()))?;
    let mut state = State::open(SharedStore::new(MemoryStore::new()), CACHE_BYTES_DEFAULT)?;
    // What is behind the keys comes from the execution.
    state.keep_preimages(false);
    let mut maker = WitnessMaker::start(&genesis, state)?;
    let mut beside = BinaryWitnessMaker::start(tree, &genesis)?;
    // A file that is half written goes with the run.
    let interrupt = args.out.is_some().then(Interrupt::listen).transpose()?;
    let mut out = OutFile::begin(args.out.as_deref())?;
    let mut progress = Progress::new(output.quiet(), "replaying", Unit::Blocks, None);
    let (mut count, mut head, mut bytes) = (0_u64, 0, 0);
    for block in blocks {
        let block = block?;
        let number = block.block.header.number;
        if interrupt.as_ref().is_some_and(Interrupt::is_asked) {
            let what = format!("interrupted before block {number}");
            return Err(Failure::new(what).hint(kept(args)).exit(Exit::Interrupted).into());
        }
        if number > last {
            break;
        }
        let difficulty = maker.total_difficulty();
        if number < first {
            let report = maker.pass(&block)?;
            if let (Some(beside), Some(report)) = (&mut beside, report) {
                let id = BlockId { number, hash: block.hash.0 };
                beside.pass(id, &report.changes)?;
            }
        } else if let Some(mut made) = maker.witness(&block)? {
            if !args.no_check {
                let checked = made.witness.check(maker.config(), difficulty, &block);
                checked.with_context(|| format!("checking the witness of block {number}"))?;
            }
            let text = match &mut beside {
                Some(beside) => binary_line(beside, &made)?,
                None => written.bytes(&mut made, maker.config().chain_id, &block)?,
            };
            out.write_all(&text).context("writing a witness")?;
            count += 1;
            bytes += text.len();
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
    let checked = if args.no_check { "" } else { " and checked" };
    output
        .note(&format!("{} made{checked}, {bytes} bytes", counted(count, "witness", "witnesses")));
    Ok(Exit::Ok)
}

fn binary_line(beside: &mut BinaryWitnessMaker, made: &MadeWitness) -> anyhow::Result<Vec<u8>> {
    let witness = beside.witness(made).map_err(|error| match error {
        BinaryWitnessError::Tree(error) => anyhow::Error::from(error),
        BinaryWitnessError::State(error) => error.into(),
        BinaryWitnessError::Proof(error) => error.into(),
        other => other.into(),
    })?;
    Ok((serde_json::to_string(&witness)? + "\n").into_bytes())
}

/// How witnesses are written.
struct WitnessWriter {
    form: WitnessForm,
    encoding: Encoding,
    keys: bool,
    /// One witness by itself; others have their blocks' numbers and hashes around them.
    is_bare: bool,
}

impl WitnessWriter {
    fn of(args: &MakeArgs, tree: Name) -> Result<Self, Failure> {
        if tree != Name::Mpt
            && (args.form != Form::Canonical || args.encoding != Encoding::Json || args.keys)
        {
            let what = format!("witnesses of {tree} have one form (--form, --encoding, --keys)");
            return Err(Failure::new(what).hint("leave these out: no standard says more of them"));
        }
        let is_bare = args.which.block.is_some();
        let form = match args.form {
            Form::Canonical => WitnessForm::Canonical,
            Form::Geth => WitnessForm::Geth,
            Form::Reth => WitnessForm::Reth,
        };
        if args.encoding == Encoding::Ssz {
            if !is_bare {
                return Err(Failure::new("an input of a guest is of one block (--encoding ssz)")
                    .hint("name it with --block"));
            }
            if args.form != Form::Canonical || args.keys {
                let what = "guests take the canonical form, without keys (--encoding ssz)";
                return Err(Failure::new(what).hint("leave out --form and --keys"));
            }
        }
        if args.keys && args.form == Form::Geth {
            return Err(Failure::new("geth's witnesses have no keys (--keys)")
                .hint("leave out --keys, or take another --form"));
        }
        Ok(Self { form, encoding: args.encoding, keys: args.keys, is_bare })
    }

    fn bytes(
        &self,
        made: &mut MadeWitness,
        chain_id: u64,
        block: &ChainBlock,
    ) -> anyhow::Result<Vec<u8>> {
        if self.encoding == Encoding::Ssz {
            return Ok(made.to_ssz(chain_id, block)?);
        }
        if self.keys {
            made.witness.keys = made.keys();
        }
        let witness = made.to_json(self.form);
        let (number, hash) = (made.report.number, made.report.hash);
        Ok(match self.is_bare {
            true => format!("{witness}\n"),
            false => format!("{{\"number\":{number},\"hash\":\"{hash}\",\"witness\":{witness}}}\n"),
        }
        .into_bytes())
    }
}

/// What a run leaves that does not get to its end.
fn kept(args: &MakeArgs) -> &'static str {
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
