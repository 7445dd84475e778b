//! What a replay reads: a chain, differences, traces, or a chain of our own.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use spinney_replay::{
    BlockDiff, ChainReader, DiffError, DiffReader, Genesis, SampleChain, SampleOptions,
    TraceReader, parse_alloc,
};
use spinney_state::{Changes, KeepHistory, SortedAllocation, State};
use spinney_tree::{CACHE_BYTES_DEFAULT, MemoryStore, SharedStore};

use clap::Args;

use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::stores;
use crate::ui::Output;
use crate::ui::progress::{Progress, Unit};

/// The blocks or the differences that are given.
#[derive(Clone, Debug, Args)]
pub(crate) struct InputArgs {
    /// The chain's genesis.json, as geth writes it.
    #[arg(long, value_name = "FILE")]
    pub(crate) genesis: Option<PathBuf>,
    /// Blocks as `geth export` writes them, plain or zstd; - is standard input.
    #[arg(long, value_name = "FILE", requires = "genesis", conflicts_with = "diffs")]
    pub(crate) blocks: Option<PathBuf>,
    /// State differences, one block a line; - is standard input.
    #[arg(long, value_name = "FILE", group = "lines")]
    pub(crate) diffs: Option<PathBuf>,
    /// What the differences start from, where there is no genesis: `{"alloc": {...}}`.
    #[arg(long, value_name = "FILE", requires = "lines")]
    #[arg(conflicts_with_all = ["genesis", "blocks"])]
    pub(crate) alloc: Option<PathBuf>,
}

/// What is replayed, and how far its reader is.
pub(crate) struct Input {
    pub(crate) source: Source,
    /// Bytes of the input read so far, where it comes from a file.
    pub(super) read: Arc<AtomicU64>,
    /// How many bytes there are, or blocks in a chain of our own.
    pub(super) total: Option<(Unit, u64)>,
}

/// A chain of our own: where its chance comes from, how many blocks it has, and the last one that
/// is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) seed: u64,
    pub(super) blocks: u64,
    pub(super) to: Option<u64>,
}

pub(crate) enum Source {
    Chain { genesis: Origin, blocks: ChainReader<'static>, traces: Option<Traces> },
    Diffs { start: Option<Start>, lines: DiffLines },
}

impl Source {
    /// What of the blocks no replay looks at.
    pub(super) const fn not_checked(&self) -> &'static [&'static str] {
        match self {
            Self::Chain { traces: None, .. } => &["seals"],
            Self::Chain { traces: Some(_), .. } => &["seals", "signatures", "receipts", "requests"],
            Self::Diffs { .. } => &[],
        }
    }
}

/// A genesis; with its accounts sorted, they are not in it.
pub(crate) struct Origin {
    pub(crate) genesis: Box<Genesis>,
    pub(crate) accounts: Option<Box<SortedAllocation>>,
}

/// Traces of blocks.
pub(crate) type Traces = TraceReader<Box<dyn BufRead + Send>>;

/// Differences of blocks, written as such or made of traces.
pub(crate) type DiffLines = Box<dyn Iterator<Item = Result<BlockDiff, DiffError>>>;

/// What differences start from.
pub(crate) enum Start {
    Genesis(Box<Genesis>),
    Alloc(Changes),
}

impl Input {
    /// What the arguments name, and a file of traces; `None` where nothing is named.
    /// A chain's accounts are sorted with `sort_in` bytes of memory, where that is given.
    pub(crate) fn open(
        args: &InputArgs,
        traces: Option<&Path>,
        sort_in: Option<usize>,
    ) -> anyhow::Result<Option<Self>> {
        match (&args.genesis, &args.blocks, args.diffs.as_deref().or(traces)) {
            (Some(genesis), Some(blocks), _) => {
                let genesis = Origin::read(genesis, sort_in)?;
                Self::chain(genesis, blocks, traces).map(Some)
            }
            (_, _, Some(lines)) => Self::lines(args, lines, traces.is_some()).map(Some),
            (None, None, None) => Ok(None),
            _ => Err(Failure::new("a genesis alone is no chain (--genesis)")
                .hint("give --blocks or --diffs along; state-root prints the root of a genesis")
                .into()),
        }
    }

    fn chain(genesis: Origin, blocks: &Path, traces: Option<&Path>) -> anyhow::Result<Self> {
        let (file, read, total) = counted(blocks)?;
        let plain = File::open(blocks).ok().filter(|_| total.is_some());
        let last = plain.and_then(ChainReader::last_number).map(|last| (Unit::Blocks, last));
        let total = last.or(total);
        let blocks =
            ChainReader::new(file).with_context(|| format!("reading {}", blocks.display()))?;
        let traces = traces.map(open_traces).transpose()?;
        Ok(Self { source: Source::Chain { genesis, blocks, traces }, read, total })
    }

    /// Differences, or traces in their place.
    fn lines(args: &InputArgs, lines: &Path, are_traces: bool) -> anyhow::Result<Self> {
        let start = match (&args.genesis, &args.alloc) {
            (Some(genesis), _) => Some(Start::Genesis(Box::new(parse_genesis(genesis)?))),
            (None, Some(alloc)) => {
                let parsed = parse_alloc(&stores::read_file(alloc)?);
                Some(Start::Alloc(parsed.with_context(|| format!("in {}", alloc.display()))?))
            }
            (None, None) => None,
        };
        let (file, read, total) = counted(lines)?;
        let file = BufReader::with_capacity(1 << 18, file);
        let lines: DiffLines = if are_traces {
            Box::new(TraceReader::new(file).into_diffs())
        } else {
            Box::new(DiffReader::new(file))
        };
        Ok(Self { source: Source::Diffs { start, lines }, read, total })
    }

    /// Makes the whole chain first, so that making it is not measured.
    pub(super) fn sample(
        sample: Sample,
        interrupt: &Interrupt,
        output: &Output,
    ) -> anyhow::Result<Self> {
        let Sample { seed, blocks, to } = sample;
        let mut options = SampleOptions::default();
        (options.seed, options.block_count) = (seed, blocks);
        let mut state = State::open(SharedStore::new(MemoryStore::new()), CACHE_BYTES_DEFAULT)?;
        state.keep_preimages(false);
        state.keep_history(KeepHistory::Blocks(0));
        let count = to.map_or(blocks, |to| to.min(blocks));
        let unit = Unit::Blocks;
        let mut progress = Progress::new(output.quiet(), "making a chain", unit, Some(count));
        let mut chain = SampleChain::new(options, state)?;
        let genesis = Origin { genesis: Box::new(chain.genesis().clone()), accounts: None };
        let mut bytes = Vec::new();
        for (done, block) in chain.by_ref().take(count.try_into()?).enumerate() {
            if interrupt.is_asked() {
                progress.finish();
                return Err(Failure::new("interrupted while the sample chain was being made")
                    .hint("nothing was made of it; the same command begins again")
                    .exit(Exit::Interrupted)
                    .into());
            }
            bytes.extend(block?.to_rlp());
            progress.update(done as u64 + 1, String::new);
        }
        progress.finish();
        let blocks = ChainReader::new(Cursor::new(bytes))?;
        let (read, total) = (Arc::default(), Some((Unit::Blocks, count)));
        Ok(Self { source: Source::Chain { genesis, blocks, traces: None }, read, total })
    }
}

/// Opens a file of traces.
pub(crate) fn open_traces(path: &Path) -> Result<Traces, Failure> {
    let file = BufReader::with_capacity(1 << 18, stores::open_file(path)?);
    Ok(TraceReader::new(Box::new(file)))
}

impl Origin {
    fn read(path: &Path, sort_in: Option<usize>) -> anyhow::Result<Self> {
        let Some(memory) = sort_in else {
            return Ok(Self { genesis: Box::new(parse_genesis(path)?), accounts: None });
        };
        let file = BufReader::with_capacity(GENESIS_BUFFER, stores::open_file(path)?);
        let read = Genesis::read_sorted(file, memory);
        let (genesis, accounts) = read.with_context(|| format!("in {}", path.display()))?;
        Ok(Self { genesis: Box::new(genesis), accounts: Some(Box::new(accounts)) })
    }
}

/// Reads a genesis.json.
pub(crate) fn parse_genesis(path: &Path) -> anyhow::Result<Genesis> {
    let file = BufReader::with_capacity(GENESIS_BUFFER, stores::open_file(path)?);
    Genesis::read(file).with_context(|| format!("in {}", path.display()))
}

/// Bytes of a genesis that are read at once.
const GENESIS_BUFFER: usize = 256 << 10;

type Counted = (Counting, Arc<AtomicU64>, Option<(Unit, u64)>);

/// Opens a file that counts what is read of it.
fn counted(path: &Path) -> Result<Counted, Failure> {
    let file = stores::open_file(path)?;
    let total = path.metadata().ok().filter(|file| file.is_file()).map(|file| file.len());
    let read = Arc::new(AtomicU64::new(0));
    let counting = Counting { file, read: Arc::clone(&read) };
    Ok((counting, read, total.map(|len| (Unit::Bytes, len))))
}

struct Counting {
    file: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
