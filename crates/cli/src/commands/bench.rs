//! `bench`: the same blocks into every tree and store that is asked for, and what that cost.

use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use spinney_bench::{
    BenchError, Cell, Input, Listing, Report, Settings, Site, StateTree, Workload, WorkloadSize,
    differences, html, measure, record, replay_staged,
};
use spinney_replay::{ChainReader, DiffReader, Genesis, parse_alloc};
use spinney_state::Changes;
use spinney_store::{Location, OpenFor};
use spinney_tree::StoreError;

use crate::args::{CommitEvery, FormatArgs, Size};
use crate::commands::Command;
use crate::commands::replay::open_traces;
use crate::failure::{Exit, Failure};
use crate::hints::TRACE_HINT;
use crate::interrupt::{Interrupt, this_command};
use crate::out_file::OutFile;
use crate::place_name::PlaceName;
use crate::stores::{self, Kind};
use crate::trees::{self, Name};
use crate::ui::progress::{Progress, Unit};
use crate::ui::{Answer, Grid, Output};

/// Measure trees and stores on the same blocks.
///
/// Blocks come from a chain.rlp with its genesis.json, executed once or traced; as state
/// differences; or are made by a workload. Each tree goes alone into a new store of each kind,
/// which is deleted again, and is given the same reads and writes. Printed is a line a tree and
/// store; `--report` writes one page of HTML with all figures in it.
// Fields: one an option.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    spinney bench --tree mpt,pbt:blake3 --genesis genesis.json --blocks chain.rlp --report \
    out.html\n  \
    spinney bench --workload transfers --keys 1000000 --store log,sqlite --report out.html")]
pub(crate) struct BenchArgs {
    /// The chain's genesis.json, as geth writes it.
    #[arg(long, value_name = "FILE")]
    genesis: Option<PathBuf>,
    /// Blocks as `geth export` writes them, plain or zstd.
    #[arg(long, value_name = "FILE", requires = "genesis", conflicts_with = "diffs")]
    blocks: Option<PathBuf>,
    /// State differences, one block a line.
    #[arg(long, value_name = "FILE", group = "lines")]
    diffs: Option<PathBuf>,
    /// What transactions did, as geth's prestateTracer says it in diff mode, one block a line; see
    /// replay.
    #[arg(long, value_name = "FILE", group = "lines")]
    traces: Option<PathBuf>,
    /// What differences or traces start from, where there is no genesis: `{"alloc": {...}}`.
    #[arg(long, value_name = "FILE", requires = "lines")]
    #[arg(conflicts_with_all = ["genesis", "blocks"])]
    alloc: Option<PathBuf>,
    /// The last block.
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// A state and blocks that are made up; how is in docs/design.md.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["blocks", "diffs", "traces"])]
    workload: Option<WorkloadName>,
    /// Accounts and slots of a workload's first state.
    #[arg(long, value_name = "N", default_value_t = 100_000, requires = "workload")]
    keys: u64,
    /// Blocks of a workload.
    #[arg(long, value_name = "N", default_value_t = 100, requires = "workload")]
    blocks_count: u64,
    /// Operations of a workload's block.
    #[arg(long, value_name = "N", default_value_t = 200, requires = "workload")]
    operations: u64,
    /// Where the chance of a workload comes from.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "workload")]
    seed: u64,
    /// The trees, with commas between them.
    #[arg(long, value_name = "TREES", default_value = "mpt,ubt:sha256,pbt:blake3,verkle")]
    tree: String,
    /// The stores, with commas between them: memory, log, redb, sqlite, postgres.
    #[arg(long, value_name = "STORES", default_value = "memory,log")]
    store: String,
    /// Blocks a commit: a number, or `all` for one commit at the end.
    #[arg(long, value_name = "K", default_value = "1")]
    commit_every: CommitEvery,
    /// Prove what one block of so many touched, after it if it ends a commit, and before it if it
    /// begins one; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 1)]
    prove_every: u64,
    /// Count also what a store writes that keeps each node as a row of its own, beside each store
    /// of files in one of its kind.
    #[arg(long)]
    node_rows: bool,
    /// Memory for pages, the store's included.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    cache: Size,
    /// Where stores are made meanwhile. Without it, the system's folder for such files.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where a server keeps the stores of postgres meanwhile: a schema without a store.
    #[arg(long, value_name = "URL")]
    postgres: Option<PlaceName>,
    /// Write a page of HTML, whole or not at all, and its figures beside it: FILE with .json and
    /// .csv at its end.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Keep the figures within the page, however large it grows (--report).
    #[arg(long, requires = "report")]
    single_file: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// What is done to the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WorkloadName {
    /// Half of the keys are accounts, half their balances of one token. An operation moves some of
    /// it from one account to another, both drawn by a power law: two slots, and the sender's nonce
    /// and balance.
    Transfers,
    /// All keys are slots of one contract. Of five operations four change a slot drawn evenly, one
    /// adds one.
    Giant,
    /// All keys are accounts. An operation makes a new one.
    Accounts,
    /// Half of the keys are accounts, half slots of one contract, drawn evenly. Of four operations
    /// one deletes an account, one clears a slot, one makes an account, one sets a slot.
    Deletes,
}

impl From<WorkloadName> for Workload {
    fn from(name: WorkloadName) -> Self {
        match name {
            WorkloadName::Transfers => Self::Transfers,
            WorkloadName::Giant => Self::Giant,
            WorkloadName::Accounts => Self::Accounts,
            WorkloadName::Deletes => Self::Deletes,
        }
    }
}

impl Command for BenchArgs {
    const NAME: &'static str = "bench";

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        let cells = cells(self)?;
        let on_server = cells.iter().any(|(_, kind)| *kind == Kind::Postgres);
        let server = on_server.then(|| server(self.postgres.as_ref())).transpose()?;
        let page = self.report.as_deref().map(|path| Page::begin(path, self.single_file));
        let page = page.transpose()?;
        let input = input(self)?;
        let interrupt = Interrupt::listen()?;
        let settings = Settings {
            commit_every: self.commit_every.0,
            prove_every: self.prove_every,
            node_rows: self.node_rows,
            cache_bytes: self.cache.0,
        };
        let mut done: Vec<Cell> = Vec::with_capacity(cells.len());
        for (name, kind) in cells {
            let folder = folder(self)?;
            let what = format!("{name} in {}", kind.name());
            let total = Some(input.block_count());
            let mut progress = Progress::new(output.quiet(), "measuring", Unit::Blocks, total);
            let site = site((name, kind), folder.path(), server.as_ref())?;
            let cell = measure(&site, &input, settings, interrupt.flag(), |block| {
                progress.update(block, || format!("{what}, block {block}"));
            });
            progress.finish();
            done.push(cell.map_err(failure).context(what)?);
        }
        let mut report = Report::new(&input, settings, done, this_command());
        if let (Some(genesis), Some(blocks), None) = (&self.genesis, &self.blocks, &self.traces)
            && page.is_some()
        {
            let folder = folder(self)?;
            let place = (folder.path(), self.cache.0);
            let chain = (stores::open_file(genesis)?, stores::open_file(blocks)?);
            report.stages = Some(replay_staged(chain, self.to, place, interrupt.flag())?);
        }
        page.map(|page| page.write(&report)).transpose()?;
        let grid = |Listing { header, rows }| Grid::of(header, rows);
        Ok(Answer::of(&report)?.csv(grid(report.lines())).table(grid(report.table())))
    }
}

/// The page of a report, and its figures beside it, if they are not in it.
struct Page {
    page: OutFile,
    beside: Option<[FigureFile; 2]>,
}

/// A file beside a page.
struct FigureFile {
    file: OutFile,
    name: String,
}

impl Page {
    fn begin(path: &Path, alone: bool) -> anyhow::Result<Self> {
        let beside = |end: &str| -> anyhow::Result<FigureFile> {
            let path = path.with_extension(end);
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok(FigureFile { file: OutFile::begin(Some(&path))?, name })
        };
        let ends = ["json", "csv"];
        if !alone && ends.iter().any(|end| path.extension().is_some_and(|own| own == *end)) {
            return Err(Failure::new("a page is no file of figures (--report)")
                .hint("name it FILE.html; its figures are then beside it")
                .into());
        }
        let page = OutFile::begin(Some(path))?;
        let beside = if alone { None } else { Some([beside(ends[0])?, beside(ends[1])?]) };
        Ok(Self { page, beside })
    }

    fn write(mut self, report: &Report) -> anyhow::Result<()> {
        let names = self.beside.as_ref().map(|[json, csv]| [&json.name[..], &csv.name[..]]);
        self.page.write_all(html(report, names)?.as_bytes())?;
        if let Some([mut json, mut csv]) = self.beside {
            serde_json::to_writer(&mut json.file, report)?;
            csv.file.write_all(report.csv().as_bytes())?;
            json.file.finish()?;
            csv.file.finish()?;
        }
        Ok(self.page.finish()?)
    }
}

/// Where a store is made, and removed again.
fn folder(args: &BenchArgs) -> Result<tempfile::TempDir, Failure> {
    let folder = match &args.dir {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    };
    folder.map_err(|error| {
        Failure::new("cannot make a folder for a store").because(error).hint("--dir names one")
    })
}

/// A server that can be reached, and has no store where ours are to be.
fn server(name: Option<&PlaceName>) -> Result<Location, Failure> {
    let hint = "--postgres postgres://user@host/database: no store may be there yet, since ours \
                are removed";
    let location = name.map(|name| Kind::Postgres.at(name)).transpose()?.flatten();
    let Some(location) = location else {
        return Err(Failure::new("nobody says where PostgreSQL is (--postgres)").hint(hint));
    };
    match location.open(OpenFor::Reading, 0) {
        Err(StoreError::Missing { .. }) => Ok(location),
        Err(error) => {
            Err(Failure::new("the server cannot be measured (--postgres)").because(error))
        }
        Ok(_) => Err(Failure::new("there is a store already (--postgres)").hint(hint)),
    }
}

/// Where a tree goes.
fn site(
    (name, kind): (Name, Kind),
    folder: &Path,
    server: Option<&Location>,
) -> Result<Site, Failure> {
    let tree = match name {
        Name::Mpt => StateTree::Mpt,
        Name::Ubt(hash) => StateTree::Ubt(hash),
        Name::Pbt(hash) => StateTree::Pbt(hash),
        Name::Verkle => StateTree::Verkle,
        Name::Sum(_) => unreachable!("it holds no accounts, and is refused"),
    };
    let file = |name: &str| match kind {
        // There is room for one on a server.
        Kind::Postgres => Ok(None),
        _ => kind.at(&PlaceName::Path(folder.join(name))),
    };
    let location = match kind {
        Kind::Postgres => server.cloned(),
        _ => file("store")?,
    };
    let (tree_name, store_name) = (name.to_string(), kind.name());
    Ok(Site { tree, tree_name, store_name, location, rows: file("rows")? })
}

/// What is to be done about an error.
fn failure(error: anyhow::Error) -> anyhow::Error {
    let error = match error.downcast::<BenchError>() {
        Ok(error) => error,
        Err(error) => return error,
    };
    let told = error.to_string();
    let failure = match error {
        BenchError::Interrupted => Failure::new(told)
            .hint("a measurement is made anew: nothing is kept")
            .exit(Exit::Interrupted),
        BenchError::Wrote { .. } => Failure::new(told).hint("this is a bug: reads write nothing"),
        BenchError::Root { .. } => Failure::new(told).exit(Exit::No),
        BenchError::TracesEnd { .. } => Failure::new(format!("{told} (--traces)"))
            .hint("give the traces of all blocks, or end before it with --to"),
        BenchError::Nothing => {
            Failure::new(format!("{told} (--keys, --operations)")).hint("give 1 at least")
        }
        other => return other.into(),
    };
    failure.into()
}

/// All trees in all stores.
fn cells(args: &BenchArgs) -> Result<Vec<(Name, Kind)>, Failure> {
    let mut cells = Vec::new();
    for store in args.store.split(',') {
        let kind = Kind::named(store)?;
        for tree in args.tree.split(',') {
            let name = trees::parse(tree)?;
            trees::check_holds_accounts(name)?;
            if cells.contains(&(name, kind)) {
                return Err(Failure::new(format!("{name} in {store} is given twice")));
            }
            cells.push((name, kind));
        }
    }
    Ok(cells)
}

fn input(args: &BenchArgs) -> anyhow::Result<Input> {
    if let Some(workload) = args.workload {
        let size = WorkloadSize {
            workload: workload.into(),
            keys: args.keys,
            blocks: args.blocks_count,
            operations: args.operations,
            seed: args.seed,
        };
        return size.input().map_err(|error| failure(error.into()));
    }
    let genesis = |path: &PathBuf| {
        let file = BufReader::new(stores::open_file(path)?);
        Genesis::read(file).with_context(|| format!("in {}", path.display()))
    };
    match (&args.genesis, &args.blocks, args.diffs.as_ref().or(args.traces.as_ref())) {
        (Some(at), Some(blocks), _) => {
            let file = stores::open_file(blocks)?;
            let chain =
                ChainReader::new(file).with_context(|| format!("reading {}", blocks.display()))?;
            let traces = args.traces.as_deref().map(open_traces).transpose()?;
            let mut name = blocks.display().to_string();
            if let Some(traces) = &args.traces {
                name += &format!(", traced in {}", traces.display());
            }
            let blocks = args.traces.as_ref().map_or_else(
                || format!("in {}", blocks.display()),
                |traces| format!("in {} with {}", blocks.display(), traces.display()),
            );
            let input = record(name, genesis(at)?, (chain, traces), args.to);
            input.map_err(failure).context(blocks)
        }
        (start, _, Some(diffs)) => {
            let alloc = match (start, &args.alloc) {
                (Some(at), _) => genesis(at)?.alloc,
                (None, Some(alloc)) => parse_alloc(&stores::read_file(alloc)?)
                    .with_context(|| format!("in {}", alloc.display()))?,
                (None, None) => Changes::default(),
            };
            let name = diffs.display().to_string();
            if args.traces.is_some() {
                let lines = open_traces(diffs)?.into_diffs();
                return differences(name, alloc, lines, args.to).map_err(|error| {
                    Failure::new("the traces cannot be read (--traces)")
                        .because(error)
                        .hint(TRACE_HINT)
                        .into()
                });
            }
            let lines = BufReader::new(stores::open_file(diffs)?);
            differences(name, alloc, DiffReader::new(lines), args.to)
                .with_context(|| format!("in {}", diffs.display()))
        }
        _ => Err(Failure::new("there is nothing to measure")
            .hint("give --genesis and --blocks, --diffs, --traces, or --workload transfers")
            .into()),
    }
}
