//! `root`: the roots of a trace.
#![deny(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::io::{self, BufReader};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use alloy_primitives::B256;
use clap::Args;
use spinney_replay::{BatchLine, BatchLines, BlockDiff, check_changes};
use spinney_state::embed::{BinaryState, Embedding};
use spinney_state::{MPT, State};
use spinney_store::AnyStore;
use spinney_tree::mpt::Mpt;
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{BlockId, PageStore as _, Scheme, SharedStore, Tree, TreeId};

use crate::args::StoreArgs;
use crate::commands::Command;
use crate::commands::sums::{self, NamespaceArgs, SumSink};
use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::sink::{Committed, Sink};
use crate::stores;
use crate::trees::{self, Name};
use crate::ui::{Answer, Output, Speech};

/// Print the roots of a trace, one line a batch.
///
/// A batch is a line `{"put": {"0xkey": "0xvalue"}, "del": ["0xkey"]}`; with --state, a state
/// difference. A value of a sum tree is `{"value": "0x", "sum": "5"}`. Each is committed before its
/// line is printed. A bad line ends the run; the lines before it stay. So does Ctrl-C where there
/// is a --db: then the run ends after the batch it is at.
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
    #[command(flatten)]
    namespace: NamespaceArgs,
}

impl Command for RootArgs {
    const NAME: &'static str = "root";

    fn speech(&self) -> Speech {
        Speech::Documents
    }

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        self.store.mode.heed();
        let place = self.store.place()?;
        let tree = sums::asked(self.store.tree.as_deref(), &self.namespace, &place)?;
        let input = BufReader::with_capacity(1 << 16, stores::open_file(&self.file)?);
        // Without a store there is nothing to end well.
        let interrupt = if place.location.is_some() { Some(Interrupt::listen()?) } else { None };
        let feed = TraceFeed {
            lines: read_ahead(BatchLines::new(input)),
            interrupt,
            args: self,
            output,
            tree,
        };
        let (store, exit) =
            place.fill(output, |store| feed.fill_store(store, place.tree_cache()))?;
        store.close()?;
        Ok(Answer::documents(exit))
    }
}

/// A line with its number; `None` is the end.
type NumberedLine = (u64, io::Result<Option<Vec<u8>>>);

/// Reads on another thread, one line ahead: while one waits for input, Ctrl-C is to be noticed.
fn read_ahead(mut lines: BatchLines<impl io::BufRead + Send + 'static>) -> Receiver<NumberedLine> {
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || {
        loop {
            let line = lines.next_line().map(|line| line.map(<[u8]>::to_vec));
            let more = matches!(line, Ok(Some(_)));
            if sender.send((lines.number(), line)).is_err() || !more {
                return;
            }
        }
    });
    receiver
}

/// The lines of a trace, and how they are told.
struct TraceFeed<'a> {
    lines: Receiver<NumberedLine>,
    interrupt: Option<Interrupt>,
    args: &'a RootArgs,
    output: &'a Output,
    tree: Name,
}

/// How often somebody who waits for input looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl TraceFeed<'_> {
    fn fill_store(&self, store: &AnyStore, cache: usize) -> anyhow::Result<Exit> {
        NamespaceArgs::check(self.tree)?;
        if let Some(id) = self.tree.id() {
            trees::check_alone(&store.snapshot()?, id)?;
        }
        match self.tree {
            Name::Mpt if self.args.state => {
                let state = State::open(SharedStore::new(store), cache)?;
                self.run(&mut StateSink { state })
            }
            Name::Mpt => self.raw(Mpt, MPT, store, cache),
            Name::Ubt(hash) => self.binary(Ubt { hash }, store, cache),
            Name::Pbt(hash) => self.binary(Pbt { hash }, store, cache),
            Name::Verkle => self.binary(Verkle::shared(), store, cache),
            Name::Sum(profile) => {
                self.leaves_only()?;
                let namespace = &self.args.namespace.namespace;
                let mut sink = SumSink::new(store, namespace, profile, cache)?;
                let exit = self.run(&mut sink)?;
                sink.finish()?;
                Ok(exit)
            }
        }
    }

    /// Into a tree of raw keys.
    fn raw<S: Scheme<Root = [u8; 32]>>(
        &self,
        scheme: S,
        id: TreeId,
        store: &AnyStore,
        cache: usize,
    ) -> anyhow::Result<Exit> {
        let tree = Tree::open(scheme, id, &store.snapshot()?, cache)?;
        self.run(&mut RawSink { store, tree, hash_keys: self.args.hash_keys })
    }

    /// Refuses what is not for leaves.
    fn leaves_only(&self) -> Result<(), Failure> {
        let (args, tree) = (self.args, self.tree);
        for (given, option) in [(args.state, "--state"), (args.hash_keys, "--hash-keys")] {
            if given {
                return Err(Failure::new(format!("{option} is not for {tree}"))
                    .hint("a sum tree holds leaves under keys of 32 bytes"));
            }
        }
        Ok(())
    }

    /// Into a binary tree, of raw keys or of a state.
    fn binary<S: Embedding>(
        &self,
        scheme: S,
        store: &AnyStore,
        cache: usize,
    ) -> anyhow::Result<Exit> {
        if self.args.hash_keys {
            let what = format!("--hash-keys is for mpt, not for {}", self.tree);
            return Err(Failure::new(what).hint("keys of this tree are put as they are").into());
        }
        if !self.args.state {
            return self.raw(scheme, S::TREE, store, cache);
        }
        let state = BinaryState::open(scheme, SharedStore::new(store), cache)?;
        self.run(&mut BinarySink { state, name: &self.tree.to_string() })
    }

    fn run(&self, sink: &mut impl Sink) -> anyhow::Result<Exit> {
        let (mut batch, mut commit) = (0, None);
        while let Some((number, line)) = self.next() {
            let answer = match line {
                Ok(None) => return Ok(Exit::Ok),
                Ok(Some(line)) => sink.line(&line),
                Err(error) => Err(error.into()),
            };
            let Committed { commits, root, sum } =
                answer.map_err(|error| at_line(error, number, self.args))?;
            (batch, commit) = (batch + 1, Some(commits));
            // The Verkle tree's root has two names.
            let other = self.tree.other_root(&root);
            let other = other.map(|root| format!(r#", "root_hash": "{root}""#)).unwrap_or_default();
            let sum = sum.map(|sum| format!(r#", "sum": "{sum}""#)).unwrap_or_default();
            let line = format!(
                r#"{{"batch": {batch}, "commit": {commits}, "root": "{root}"{other}{sum}}}"#
            );
            self.output.line(&line)?;
        }
        let commit = commit.map(|commit| format!(", commit {commit}")).unwrap_or_default();
        self.output.tell(&format!("interrupted after batch {batch}{commit}"));
        self.output.tell("continue with: the same command over the batches after it");
        Ok(Exit::Interrupted)
    }

    /// The next line; `None` where the run is to end.
    fn next(&self) -> Option<NumberedLine> {
        loop {
            if self.interrupt.as_ref().is_some_and(Interrupt::is_asked) {
                return None;
            }
            match self.lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => return Some(line),
                Err(RecvTimeoutError::Timeout) => {}
                // The thread ends after it has sent the end.
                Err(RecvTimeoutError::Disconnected) => return Some((0, Ok(None))),
            }
        }
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
struct RawSink<'s, S: Scheme> {
    store: &'s AnyStore,
    tree: Tree<S>,
    hash_keys: bool,
}

impl<S: Scheme<Root = [u8; 32]>> Sink for RawSink<'_, S> {
    fn line(&mut self, line: &[u8]) -> anyhow::Result<Committed> {
        let batch = BatchLine::parse(line)?.batch(self.hash_keys);
        let pending = self.tree.prepare(&self.store.snapshot()?, None, batch)?;
        self.tree.commit(self.store, &pending, None)?;
        Ok(Committed {
            commits: self.tree.commit_number(),
            root: self.tree.root().into(),
            sum: None,
        })
    }
}

/// State differences.
struct StateSink<'s> {
    state: State<SharedStore<'s>>,
}

/// State differences, into a binary tree.
struct BinarySink<'s, S: Embedding> {
    state: BinaryState<S, SharedStore<'s>>,
    name: &'s str,
}

impl<S: Embedding> Sink for BinarySink<'_, S> {
    fn line(&mut self, line: &[u8]) -> anyhow::Result<Committed> {
        let diff = BlockDiff::parse(line)?;
        let number = diff.number;
        follows(self.state.tree().block(), number)?;
        check_changes(&self.state, &diff.changes)?;
        let got = self.state.apply(&diff.changes)?;
        if let Some(expected) = diff.roots.get(self.name).copied().filter(|root| *root != got) {
            self.state.undo_to(0);
            return Err(Mismatch { number, expected, got }.into());
        }
        self.state.commit(Some(BlockId { number, hash: [0; 32] }))?;
        Ok(Committed { commits: self.state.tree().commit_number(), root: got, sum: None })
    }
}

/// Refuses a block that does not come after the state's.
fn follows(head: Option<BlockId>, number: u64) -> Result<(), Failure> {
    match head {
        Some(head) if number <= head.number => {
            let after = head.number;
            Err(Failure::new(format!("expected a block after {after}, got {number}")))
        }
        _ => Ok(()),
    }
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
    fn line(&mut self, line: &[u8]) -> anyhow::Result<Committed> {
        let diff = BlockDiff::parse(line)?;
        let number = diff.number;
        follows(self.state.block(), number)?;
        check_changes(&self.state, &diff.changes)?;
        let got = self.state.apply(&diff.changes)?;
        let expected = diff.state_root.into_iter().chain(diff.roots.get("mpt").copied());
        if let Some(expected) = expected.into_iter().find(|expected| *expected != got) {
            self.state.undo_to(0);
            return Err(Mismatch { number, expected, got }.into());
        }
        self.state.seal(BlockId { number, hash: [0; 32] })?;
        self.state.commit()?;
        Ok(Committed { commits: self.state.commit_number(), root: got, sum: None })
    }
}
