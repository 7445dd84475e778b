//! `root`: the roots of a trace.

use std::io::BufReader;
use std::path::PathBuf;

use alloy_primitives::B256;
use clap::Args;
use spinney_replay::{BlockDiff, check_changes};
use spinney_state::{MPT, State};
use spinney_store::AnyStore;
use spinney_tree::mpt::Mpt;
use spinney_tree::{BlockId, PageStore as _, Tree};

use crate::args::StoreArgs;
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::stores::{self, Mode, Place};
use crate::trace::{Lines, TraceLine};
use crate::trees;

/// Print the roots of a trace, one line a batch.
///
/// A batch is a line `{"put": {"0xkey": "0xvalue"}, "del": ["0xkey"]}`; with --state, a state difference.
/// Each is committed before its line is printed. A bad line ends the run; the lines before it stay.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    echo '{\"put\": {\"0x646f65\": \"0x7265696e64656572\"}}' | spinney root -\n  \
    spinney root --state --db state.db diffs.ndjson")]
pub(crate) struct RootArgs {
    /// The trace; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The lines are state differences.
    #[arg(long)]
    state: bool,
    /// Put values under the Keccak-256 digests of their keys.
    #[arg(long, conflicts_with = "state")]
    hash_keys: bool,
    #[command(flatten)]
    store: StoreArgs,
}

/// What the lines of a trace go into.
trait Sink {
    /// Commits a line: the number of commits then, and the root.
    fn line(&mut self, line: &[u8]) -> anyhow::Result<(u64, B256)>;
}

pub(crate) fn run(args: &RootArgs, output: &Output) -> anyhow::Result<Exit> {
    trees::check_name(&args.store.tree)?;
    let place = Place::of(&args.store)?;
    let input = BufReader::with_capacity(1 << 16, stores::open_file(&args.file)?);
    let store = place.open(Mode::Fill)?;
    let cache = place.tree_cache();
    if args.state {
        let state = State::open(&store, cache)?;
        feed(&mut StateSink { state }, Lines::new(input), args, output)?;
    } else {
        let tree = Tree::open(Mpt, MPT, &store.snapshot()?, cache)?;
        let mut sink = RawSink { store: &store, tree, hash_keys: args.hash_keys };
        feed(&mut sink, Lines::new(input), args, output)?;
    }
    store.close()?;
    Ok(Exit::Ok)
}

fn feed(
    sink: &mut impl Sink,
    mut lines: Lines<impl std::io::BufRead>,
    args: &RootArgs,
    output: &Output,
) -> anyhow::Result<()> {
    let mut batch = 0;
    loop {
        let answer = match lines.next_line() {
            Ok(None) => return Ok(()),
            Ok(Some(line)) => sink.line(line),
            Err(error) => Err(error.into()),
        };
        let (commit, root) = answer.map_err(|error| at_line(error, lines.number(), args))?;
        batch += 1;
        output.line(&format!(r#"{{"batch": {batch}, "commit": {commit}, "root": "{root}"}}"#))?;
    }
}

fn at_line(error: anyhow::Error, number: u64, args: &RootArgs) -> anyhow::Error {
    let kept = if args.store.db.is_some() { "committed and printed" } else { "printed" };
    let exit = if error.is::<Mismatch>() { Exit::No } else { Exit::Error };
    let what = format!("line {number}: {error} ({})", args.file.display());
    let hint = format!("the lines before it are {kept}");
    Failure::new(what).exit(exit).hint(hint).because(error).into()
}

/// Raw keys and values.
struct RawSink<'s> {
    store: &'s AnyStore,
    tree: Tree<Mpt>,
    hash_keys: bool,
}

impl Sink for RawSink<'_> {
    fn line(&mut self, line: &[u8]) -> anyhow::Result<(u64, B256)> {
        let batch = TraceLine::parse(line)?.batch(self.hash_keys);
        let pending = self.tree.prepare(&self.store.snapshot()?, None, batch)?;
        self.tree.commit(self.store, &pending, None)?;
        Ok((self.tree.commit_number(), self.tree.root().into()))
    }
}

/// State differences.
struct StateSink<'s> {
    state: State<&'s AnyStore>,
}

/// A root that a line gives, and that is not the state's.
#[derive(Debug, thiserror::Error)]
#[error("block {number}: state root: expected {expected}, got {got}")]
struct Mismatch {
    number: u64,
    expected: B256,
    got: B256,
}

impl Sink for StateSink<'_> {
    fn line(&mut self, line: &[u8]) -> anyhow::Result<(u64, B256)> {
        let diff = BlockDiff::parse(line)?;
        let number = diff.number;
        if let Some(head) = self.state.block()
            && number <= head.number
        {
            let after = head.number;
            return Err(
                Failure::new(format!("expected a block after {after}, got {number}")).into()
            );
        }
        check_changes(&self.state, &diff.changes)?;
        let got = self.state.apply(&diff.changes)?;
        let expected = diff.state_root.into_iter().chain(diff.roots.get("mpt").copied());
        if let Some(expected) = expected.into_iter().find(|expected| *expected != got) {
            self.state.undo_to(0);
            return Err(Mismatch { number, expected, got }.into());
        }
        self.state.seal(BlockId { number, hash: [0; 32] });
        self.state.commit()?;
        Ok((self.state.commit_number(), got))
    }
}
