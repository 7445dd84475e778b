//! `stage run`: a tree built anew from its leaves.

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::ops::ControlFlow;
use std::path::Path;

use alloy_primitives::{B256, hex};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use spinney_pipeline::{Gather, Options, Phase, PipelineError, Progress as At, Report, RunName};
use spinney_replay::{GatherError, GatheredState, StateFileError, gather_state, whose_key};
use spinney_state::{MPT, Preimages};
use spinney_store::{AnyStore, Location};
use spinney_tree::mpt::MptState;
use spinney_tree::{
    BlockId, PageStore as _, RootRecord, Scheme as _, Snapshot, Table, Tree, TreeError, TreeId,
};

use super::{RunArgs, WorkArgs};
use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::stores::Mode;
use crate::trees;
use crate::ui::progress::{Phases, Progress, Unit};
use crate::ui::{Answer, Output};

pub(super) fn run(args: &RunArgs, output: &Output) -> anyhow::Result<Answer> {
    let place = args.at.place()?;
    let source = match &args.state {
        Some(file) => source_of(file, args)?,
        None => Vec::new(),
    };
    let interrupt = Interrupt::listen()?;
    let before = place.location.as_ref().map(Location::before);
    let store = place.open(if args.own { Mode::Change } else { Mode::Fill })?;
    check_held(&store.snapshot()?, args.own)?;
    let mut tree = Tree::open(MptState, MPT, &store.snapshot()?, place.tree_cache())?;
    let options = args.work.options();
    let work = Work { store: &store, interrupt: &interrupt, output };
    let scratch = args.work.scratch.at(place.location.as_ref())?;
    let mut build = || {
        let mut gather = work.gather(scratch.path(), &tree, &source, options)?;
        let (block, root) = match &args.state {
            None => {
                work.own_leaves(&mut gather, &tree)?;
                (tree.block(), Some(tree.root()))
            }
            Some(file) => {
                let folder = scratch.beside("preimages");
                let preimages = Preimages::open(&folder, gather.run(), options.memory / 4)?;
                let (block, root) = work.state_leaves(&mut gather, preimages, file, args)?;
                (Some(block), root)
            }
        };
        work.rebuild(gather, &mut tree, block, root)
    };
    let report = match build() {
        Err(error) if is_stopped(&error) => {
            drop(tree);
            store.close()?;
            return Ok(Answer::interrupted().goes_on());
        }
        Err(error) if is_refused(&error) => {
            drop(tree);
            scratch.forget()?;
            match before.filter(|before| !before.had_store()) {
                Some(before) => before.remove(store)?,
                None => store.close()?,
            }
            return Err(match &args.state {
                Some(file) => named(error, file),
                None => error,
            });
        }
        done => done?,
    };
    let (root, block) = (tree.root(), tree.block());
    drop(tree);
    store.close()?;
    Built::of(&report, root.into(), block).answer()
}

pub(super) fn is_stopped(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(PipelineError::Stopped))
}

/// Whether the input was refused, as it would be again: there is nothing to go on with.
fn is_refused(error: &anyhow::Error) -> bool {
    error.is::<Failure>() || matches!(error.downcast_ref(), Some(PipelineError::Twice { .. }))
}

/// Says whose key comes twice, which the document tells: the run knows hashed keys alone.
fn named(error: anyhow::Error, file: &Path) -> anyhow::Error {
    let Some(PipelineError::Twice { key }) = error.downcast_ref() else { return error };
    let Ok(input) = crate::stores::open_file(file) else { return error };
    // It was read before, to its end or as far as that key.
    let input = BufReader::with_capacity(1 << 18, input);
    let Some(whose) = whose_key(input, key) else { return error };
    let what = format!("{whose} is given twice ({})", file.display());
    Failure::new(what).hint("nothing was made of it; a state names each account once").into()
}

/// Only a state is built anew from its own leaves; and one from elsewhere takes the place of a
/// state or of nothing: trees beside it would stay behind.
fn check_held(snapshot: &impl Snapshot, own: bool) -> anyhow::Result<()> {
    let records = trees::records(snapshot)?;
    let is_state = |(id, record): &(TreeId, Result<RootRecord, _>)| {
        *id == MPT && record.as_ref().is_ok_and(|record| record.scheme == MptState.id())
    };
    if own && !records.iter().any(is_state) {
        return Err(Failure::new("the store holds no state to build anew (--own)")
            .hint("spinney db info shows what it holds")
            .into());
    }
    if !own && !records.iter().all(is_state) {
        let what = "the store holds other trees, which would stay behind (--state)";
        return Err(Failure::new(what).hint("give a new --db").into());
    }
    Ok(())
}

/// What tells this state from others: the document's digest, and what the user says of it.
fn source_of(file: &Path, args: &RunArgs) -> anyhow::Result<Vec<u8>> {
    let unread = |error: io::Error| {
        Failure::new(format!("cannot read {}: {error}", file.display()))
            .hint("--state takes a file: a run that goes on reads it again")
    };
    let mut input = File::open(file).map_err(unread)?;
    let (mut digest, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match input.read(&mut buffer).map_err(unread)? {
            0 => break,
            read => digest.update(&buffer[..read]),
        }
    }
    let mut source = b"state by slots".to_vec();
    source.extend_from_slice(&digest.finalize());
    source
        .extend_from_slice(format!("{:?} {:?} {:?}", args.number, args.hash, args.root).as_bytes());
    Ok(source)
}

impl WorkArgs {
    pub(super) fn options(&self) -> Options {
        let mut options = Options::default();
        options.memory = self.memory.0;
        if let Some(threads) = self.threads {
            options.threads = threads.max(1);
            options.in_flight = 4 * options.threads;
        }
        options.in_flight = self.in_flight.unwrap_or(options.in_flight).max(1);
        options.range_leaves = self.range_leaves;
        options
    }
}

/// A run over a store.
pub(super) struct Work<'a> {
    pub(super) store: &'a AnyStore,
    pub(super) interrupt: &'a Interrupt,
    pub(super) output: &'a Output,
}

impl Work<'_> {
    /// Begins to gather, and says what could not be used.
    pub(super) fn gather(
        &self,
        spill: &Path,
        tree: &Tree<MptState>,
        source: &[u8],
        options: Options,
    ) -> anyhow::Result<Gather> {
        // What the store itself holds is told by its root.
        let own = [b"own", tree.root().as_ref()].concat();
        let source = if source.is_empty() { &own[..] } else { source };
        Ok(Gather::open(spill, RunName::of(tree, source, &options), options)?)
    }

    /// Ends where somebody asked for it.
    pub(super) fn goes_on(&self) -> Result<(), PipelineError> {
        if self.interrupt.is_asked() { Err(PipelineError::Stopped) } else { Ok(()) }
    }

    fn own_leaves(&self, gather: &mut Gather, tree: &Tree<MptState>) -> anyhow::Result<()> {
        if gather.is_sorted() {
            return Ok(());
        }
        let mut progress = Progress::new(self.output.quiet(), "gather", Unit::Keys, None);
        let snapshot = self.store.snapshot()?;
        for (count, entry) in (1..).zip(tree.entries(&snapshot, None, b"")) {
            let entry = entry?;
            gather.push(&entry.key, &entry.value)?;
            self.goes_on()?;
            progress.update(count, || at_key(&entry.key));
        }
        progress.finish();
        Ok(())
    }

    /// The leaves of a document; its code and preimages go to the store. Answers the block and the
    /// root that it has to have.
    fn state_leaves(
        &self,
        gather: &mut Gather,
        preimages: Preimages,
        file: &Path,
        args: &RunArgs,
    ) -> anyhow::Result<(BlockId, Option<[u8; 32]>)> {
        let input = BufReader::with_capacity(1 << 18, crate::stores::open_file(file)?);
        let mut progress = Progress::new(self.output.quiet(), "gather", Unit::Keys, None);
        let found = gather_state(input, gather, preimages, self.store, |count, address| {
            progress.update(count, || format!("account {address}"));
            self.goes_on()
        });
        progress.finish();
        let found = found.map_err(|error| match error {
            StateFileError::Taker(GatherError::Pipeline(error)) => error.into(),
            StateFileError::Taker(GatherError::Store(error)) => TreeError::from(error).into(),
            // The document may be good, and the run go on.
            StateFileError::Json(error) if error.is_io() => io::Error::from(error).into(),
            error => {
                anyhow::Error::from(Failure::new(format!("{error} ({})", file.display())).hint(
                    "the file is {\"accounts\": {..}}, as spinney db dump and geth write it, or \
                     {\"alloc\": {..}}",
                ))
            }
        })?;
        let GatheredState { file: found, preimages, codes: mut noted, .. } = found;
        let (number, hash) = match found.block {
            Some((number, hash)) => (args.number.or(Some(number)), args.hash.or(hash)),
            None => (args.number, args.hash),
        };
        let number = number.ok_or_else(|| {
            Failure::new("the document does not say which block's state it is")
                .hint("--number N does")
        })?;
        let block = BlockId { number, hash: hash.unwrap_or_default().0 };
        let mut sorted = preimages.sort()?;
        while let Some(set) = sorted.next_set()? {
            self.goes_on()?;
            self.store.commit_owned(set)?;
        }
        sorted.remove()?;
        // The history is one of the blocks that led to what was there before.
        noted.drop_range(Table::History, Vec::new(), vec![0xff; 9]);
        // So is the genesis that its chain began with.
        if number == 0 && !hash.unwrap_or_default().is_zero() {
            noted.put(Table::Meta, b"genesis", block.hash);
        } else {
            noted.delete(Table::Meta, b"genesis");
        }
        gather.take_along(noted);
        Ok((block, args.root.or(found.root).map(|root| root.0)))
    }

    /// Builds the tree, and tells how far it is.
    pub(super) fn rebuild(
        &self,
        gather: Gather,
        tree: &mut Tree<MptState>,
        block: Option<BlockId>,
        root: Option<[u8; 32]>,
    ) -> anyhow::Result<Report> {
        let mut seen = rebuilding(self.output.quiet(), self.interrupt.clone());
        let done = gather.rebuild(tree, self.store, block, root, &mut seen);
        let report = done.map_err(|error| match error {
            PipelineError::Root { .. } => anyhow::Error::from(
                Failure::new(error.to_string())
                    .exit(Exit::No)
                    .hint("is it the state of that block, and whole?"),
            ),
            error => error.into(),
        })?;
        for note in &report.notes {
            self.output.warn(note.clone());
        }
        Ok(report)
    }
}

/// Tells how far a rebuild is, and ends it where somebody asked for it.
pub(super) fn rebuilding(
    quiet: bool,
    interrupt: Interrupt,
) -> impl FnMut(&At<'_>) -> ControlFlow<()> {
    let mut phases = Phases::new(quiet);
    move |at| {
        let what = if at.phase == Phase::Build { "build" } else { "join" };
        phases.update((at.phase, what, Some(at.leaves_total)), at.leaves, || {
            format!("{}, {}", at_key(at.at), crate::ui::human_bytes(at.bytes))
        });
        interrupt.goes_on()
    }
}

/// Where a run is: within an account, too.
fn at_key(key: &[u8]) -> String {
    let short = |bytes: &[u8]| hex::encode(&bytes[..bytes.len().min(4)]);
    match key.split_at_checked(32) {
        Some((account, slot)) if !slot.is_empty() => {
            format!("account {}.., slot {}..", short(account), short(slot))
        }
        _ => format!("account {}..", short(key)),
    }
}

/// What was built.
#[derive(Debug, Serialize)]
pub(super) struct Built {
    block: Option<u64>,
    block_hash: Option<B256>,
    root: B256,
    leaves: u64,
    leaves_hashed: u64,
    ranges: u32,
    ranges_found: u32,
    peak_in_flight: usize,
    commits: u64,
    sorted_bytes: u64,
    page_bytes: u64,
    was_finished: bool,
}

impl Built {
    pub(super) fn of(report: &Report, root: B256, block: Option<BlockId>) -> Self {
        Self {
            block: block.map(|block| block.number),
            block_hash: block.and_then(trees::hash_of),
            root,
            leaves: report.leaves,
            leaves_hashed: report.hashed,
            ranges: report.ranges,
            ranges_found: report.ranges_found,
            peak_in_flight: report.peak_in_flight,
            commits: report.commits,
            sorted_bytes: report.spilled,
            page_bytes: report.row_bytes,
            was_finished: report.was_finished,
        }
    }

    pub(super) fn answer(&self) -> anyhow::Result<Answer> {
        let number = self.block.map(|number| number.to_string()).unwrap_or_default();
        let Self { root, leaves, ranges, .. } = self;
        let line = format!("block {number}, root {root} ({leaves} leaves in {ranges} ranges)");
        let columns = ["block", "root", "leaves", "leaves_hashed", "ranges"];
        Ok(Answer::of(self)?.row(&columns).line(line))
    }
}
