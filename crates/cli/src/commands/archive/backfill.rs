//! `archive backfill`: the beginning moves back.

use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use serde_json::json;
use spinney_archive::{Archive, ArchiveError, Folder, Options, Writer, all_trees, place};
use spinney_replay::RunOptions;
use spinney_state::KeepHistory;
use spinney_store::{AnyStore, Location};
use spinney_tree::{PageStore as _, SharedStore};

use super::build::oldest_block;
use super::opened::{CACHE_BYTES, described, failure, open, unadded};
use crate::args::FormatArgs;
use crate::commands::replay::chain::{self, AfterCommit};
use crate::commands::replay::input::{Input, InputArgs, Source};
use crate::commands::replay::watch::Watch;
use crate::commands::replay::{check_head, check_trees};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::scratch::with_suffix;
use crate::stores::{Kind, Place};
use crate::trees::{self, TreeSet};
use crate::ui::{Answer, Output};
use spinney_bench::Clock;

/// Move an archive's beginning back: to that of an older archive, or by replaying a chain.
///
/// An older archive is copied up to the block with which this one begins; it has to hold that block
/// too, with the same roots. A chain is replayed from its genesis up to that block, in a store and
/// an archive of its own beside this one, which are put in front in the end and then removed.
/// Killed at any moment, it leaves the archive as it was, or with all of the new blocks; of a chain
/// the same command goes on.
#[derive(Debug, Args)]
pub(super) struct BackfillArgs {
    /// The archive: a directory, or a URL of a bucket.
    #[arg(value_name = "ARCHIVE", env = "SPINNEY_ARCHIVE")]
    archive: String,
    /// The older archive: a directory, or a URL of a bucket.
    #[arg(long, value_name = "OLDER", required_unless_present = "blocks")]
    #[arg(conflicts_with_all = ["genesis", "blocks"])]
    from: Option<String>,
    /// The chain's genesis.json, as geth writes it.
    #[arg(long, value_name = "FILE", requires = "blocks")]
    genesis: Option<PathBuf>,
    /// Blocks as `geth export` writes them, plain or zstd; - is standard input.
    #[arg(long, value_name = "FILE", requires = "genesis")]
    blocks: Option<PathBuf>,
    /// Where the chain is replayed: a folder that is made and removed again. Without it, one beside
    /// the archive, if that is a directory.
    #[arg(long, value_name = "DIR", requires = "blocks")]
    scratch: Option<PathBuf>,
    /// So many blocks are replayed before they are archived; memory grows with what they change.
    #[arg(long, value_name = "N", default_value = "256", requires = "blocks")]
    step: NonZeroU64,
    #[command(flatten)]
    format: FormatArgs,
}

pub(super) fn backfill(args: &BackfillArgs, output: &Output) -> anyhow::Result<Answer> {
    let clock = Clock::start();
    let archive = open(&args.archive, CACHE_BYTES)?;
    let first = archive.manifest().first;
    let older = match &args.from {
        Some(older) => Some(open(older, CACHE_BYTES)?),
        None if first == 0 => None,
        None => {
            let chain = ReplayedChain { args, first, scratch: scratch(args)? };
            if chain.replay(&archive, output)? {
                return Ok(Answer::interrupted().goes_on());
            }
            Some(Archive::open(Arc::new(chain.folder()), CACHE_BYTES).map_err(failure)?)
        }
    };
    let objects = place(&args.archive).map_err(ArchiveError::from).map_err(failure)?;
    let (added, manifest) = match older {
        None => (0, archive.manifest()),
        Some(older) => {
            let mut writer = Writer::open(objects, Options::default()).map_err(failure)?;
            (writer.join(&older).map_err(failure)?, writer.manifest().clone())
        }
    };
    if args.from.is_none() {
        // Also what a run left that was killed once all was in front.
        ReplayedChain { args, first, scratch: scratch(args)? }.remove()?;
    }
    let data = json!({
        "added": added, "seconds": clock.seconds(), "archive": described(&manifest),
    });
    let line = match added {
        0 => "nothing was added: the archive begins with block 0".to_owned(),
        _ => format!(
            "{added} blocks were put in front: the archive holds blocks {} to {}",
            manifest.first, manifest.last
        ),
    };
    Ok(Answer::of(&data)?.line(line))
}

/// The folder in which a chain is replayed.
fn scratch(args: &BackfillArgs) -> anyhow::Result<PathBuf> {
    if let Some(scratch) = &args.scratch {
        return Ok(scratch.clone());
    }
    if args.archive.contains("://") {
        let what = format!("{} is no directory, so nothing can lie beside it", args.archive);
        return Err(Failure::new(what)
            .hint("say where the chain is replayed: --scratch DIR")
            .into());
    }
    let archive = args.archive.trim_end_matches('/');
    Ok(with_suffix(Path::new(archive), ".backfill"))
}

/// A chain that is replayed up to the block with which an archive begins.
struct ReplayedChain<'a> {
    args: &'a BackfillArgs,
    first: u64,
    scratch: PathBuf,
}

impl ReplayedChain<'_> {
    fn store(&self) -> PathBuf {
        self.scratch.join("backfill.db")
    }

    fn archive(&self) -> PathBuf {
        self.scratch.join("backfill.archive")
    }

    /// Where the archive of the replayed blocks lies.
    fn folder(&self) -> Folder {
        Folder::new(self.archive())
    }

    /// Replays the chain, or goes on with that, and archives its blocks. Answers whether it was
    /// interrupted.
    fn replay(&self, archive: &Archive, output: &Output) -> anyhow::Result<bool> {
        let location = Some(Location::Log(self.store()));
        let place = Place::new(Kind::Log, location, CACHE_BYTES);
        let trees = trees::held(&archive.at(self.first).map_err(failure)?)?;
        let (genesis, blocks) = (self.args.genesis.clone(), self.args.blocks.clone());
        let named = InputArgs { genesis, blocks, diffs: None, alloc: None };
        let sort_in = trees.is_mpt_alone().then(|| place.memory());
        let input = Input::open(&named, None, sort_in)?.context("neither --from nor --blocks")?;
        let interrupt = Interrupt::listen()?;
        let to = Some(self.first);
        let mut watch = Watch::new(("backfill", to, false), &input, &interrupt, output);
        output.note(&format!("the chain is replayed in {}", self.scratch.display()));
        let filled =
            place.fill(output, |store| self.fill((&place, store), &trees, input, &mut watch));
        watch.finish();
        let Ok((store, head)) = filled else {
            // What is left has nothing in it, or blocks that the same command goes on with.
            let _ = fs::remove_dir(&self.scratch);
            return filled.map(|_| false);
        };
        store.close()?;
        if head == Some(self.first) {
            return Ok(false);
        }
        if interrupt.is_asked() {
            output.warn(format!("interrupted after block {}", head.unwrap_or_default()));
            return Ok(true);
        }
        let what = format!(
            "the blocks end with block {}, and the archive begins with block {} (--blocks)",
            head.unwrap_or_default(),
            self.first
        );
        let hint = "nothing was added; give the blocks up to there, and the same command goes on";
        Err(Failure::new(what).hint(hint).into())
    }

    /// Fills the store, and the archive after each commit. Answers the last block.
    fn fill(
        &self,
        (place, store): (&Place, &AnyStore),
        trees: &TreeSet,
        input: Input,
        watch: &mut Watch<'_>,
    ) -> anyhow::Result<Option<u64>> {
        check_trees(store, trees)?;
        let mut state = trees.open(SharedStore::new(store), place.tree_cache())?;
        let step = self.args.step.get();
        // One commit may be ahead of the archive when a run is killed.
        state.keep_history(KeepHistory::Blocks(step.saturating_mul(2)));
        check_head(&state, Some(self.first))?;
        if state.block().is_some() {
            self.extend(place, store)?;
        }
        let Source::Chain { genesis, blocks, .. } = input.source else {
            return Err(Failure::new("state differences are no chain (--blocks)").into());
        };
        let mut options = RunOptions::default();
        (options.commit_every, options.last) = (step, Some(self.first));
        options.stop = Some(watch.flag());
        let mut extend = || self.extend(place, store);
        let extend: AfterCommit<'_> = &mut extend;
        let told = (watch, None, Some(extend));
        let (_, state) = chain::run(state, genesis, (blocks, None), &options, told)?;
        Ok(state.block().map(|block| block.number))
    }

    /// Archives the blocks that the store has more.
    fn extend(&self, place: &Place, store: &AnyStore) -> anyhow::Result<()> {
        let objects = Arc::new(self.folder());
        let mut writer = match Writer::open(objects.clone(), Options::default()) {
            Err(ArchiveError::Missing { .. }) => {
                let source = all_trees(store.snapshot()?, place.tree_cache());
                let oldest = oldest_block(&source.snapshot, place)?;
                Writer::begin(objects, Options::default(), source, oldest).map_err(unadded)?
            }
            opened => opened.map_err(failure)?,
        };
        writer
            .extend(all_trees(store.snapshot()?, place.tree_cache()), 0, |_, _| ())
            .map_err(unadded)?;
        Ok(())
    }

    fn remove(&self) -> anyhow::Result<()> {
        let removed = gone(fs::remove_dir_all(self.store()))
            .and_then(|()| gone(fs::remove_dir_all(self.archive())))
            .and_then(|()| gone(fs::remove_dir(&self.scratch)));
        removed.with_context(|| format!("removing {}", self.scratch.display()))
    }
}

/// What is not there need not be removed.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
