//! `convert`: a state from one tree into another, in a store of its own.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use alloy_primitives::B256;
use clap::Args;
use serde::Serialize;
use spinney_bench::peak_memory;
use spinney_migrate::{At, Converted, NameSource, Stage, Work, convert, has_way};
use spinney_pipeline::{Options, Scratch};
use spinney_state::MPT;
use spinney_state::embed::PBT;
use spinney_store::{AnyStore, Frozen, Location};
use spinney_tree::{MemoryStore, PageStore, SharedStore, Snapshot, Table, WriteSet};

use crate::args::{FormatArgs, ModeArgs, PairArgs, Size};
use crate::commands::Command;
use crate::failure::Failure;
use crate::hints::is_final;
use crate::interrupt::Interrupt;
use crate::place_name::PlaceName;
use crate::scratch::{ScratchArgs, with_suffix};
use crate::stores::{Kind, Mode, Place};
use crate::trees::{self, Name, of_states, record_of};
use crate::ui::progress::Phases;
use crate::ui::{Answer, Grid, Output, human_bytes};

/// Where a store notes what it is being made of.
const ORIGIN: &[u8] = b"converted";
/// A sample for an estimate has so many accounts and slots.
const SAMPLE: u64 = 200_000;

/// Move a state into another tree, in a new store, and check it before it is there.
///
/// The source is only read. The leaves of the new tree are sorted into files and built in ranges,
/// as by stage run; then the root of the source is computed from what the target holds, and
/// accounts, slots and code are counted and compared. Until then everything lies at TARGET.part (on
/// a server, in tables that nobody takes for a store): Ctrl-C and kill -9 cost little, the same
/// command goes on. TARGET is there once all of it is good.
///
/// What is behind hashed keys comes from the store, or from a preimage file of EIP-8347, which has
/// to match the state exactly, in both directions.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    spinney convert --tree pbt:blake3 state pbt\n  \
    spinney convert --tree verkle --memory 512MiB state verkle.sqlite\n  \
    spinney convert --tree mpt pbt again\n  \
    spinney convert --tree pbt:blake3 --dry-run state pbt")]
pub(crate) struct ConvertArgs {
    #[command(flatten)]
    stores: PairArgs,
    /// The tree that is made: pbt or ubt with a hash, or verkle; mpt for a source of pbt.
    #[arg(long, value_name = "TREE", alias = "to")]
    tree: String,
    /// The tree that is read: mpt, or pbt with a hash. Without it, mpt if the source holds it, else
    /// the pbt that it holds.
    #[arg(long, value_name = "TREE", alias = "from")]
    source_tree: Option<String>,
    /// A preimage file of EIP-8347; without it, the preimages that the source keeps.
    #[arg(long, value_name = "FILE")]
    preimages: Option<PathBuf>,
    #[command(flatten)]
    work: MemoryArgs,
    /// Say how long it would take and how much disk, by a sample; write nothing to TARGET.
    #[arg(long)]
    dry_run: bool,
    /// Check each node of the source that is read against its root, and each preimage against its
    /// hash: against rows that are old or forged, whose seals are right.
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// What a migration may use.
#[derive(Clone, Debug, Args)]
pub(crate) struct MemoryArgs {
    /// Memory in all: leaves, rows, and pages of both stores.
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    pub(crate) memory: Size,
    /// Threads that build ranges; as many as there are cores.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    pub(crate) scratch: ScratchArgs,
}

impl MemoryArgs {
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::default();
        // What is left is for pages, and for what allocations leave unused.
        options.memory = self.memory.0 / 3;
        if let Some(threads) = self.threads {
            options.threads = threads.max(1);
            options.in_flight = 2 * options.threads;
        }
        options
    }

    /// Memory for a store's pages and its tree's.
    pub(crate) fn cache(&self) -> usize {
        self.memory.0 / 8
    }
}

impl Command for ConvertArgs {
    const NAME: &'static str = "convert";

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        let to = named(&self.tree, "--tree")?;
        let said =
            self.source_tree.as_deref().map(|name| named(name, "--source-tree")).transpose()?;
        if let Some(from) = said {
            check_trees(from, to)?;
        }
        self.mode.heed();
        let cache = self.work.cache();
        let source = self.stores.source(cache)?;
        let interrupt = Interrupt::listen()?;
        let store = source.open(Mode::Look)?;
        let frozen = SharedStore::new(Frozen::of(&store)?);
        let from = match said {
            Some(from) => from,
            None => held(&frozen.snapshot()?)?,
        };
        check_trees(from, to)?;
        let names = self.preimages.as_deref().map_or(NameSource::Store, NameSource::File);
        let started = Instant::now();
        let (place, interrupt, verify) = (self.stores.names()?.0, &interrupt, self.verify);
        let mut run =
            Conversion { from, to, names, verify, source: &frozen, place, interrupt, output };
        if self.dry_run {
            let scratch = Scratch::new()?;
            let target = AnyStore::from(MemoryStore::new());
            let work = (self.work.options(), scratch.path(), cache / 2);
            let made = match run.convert(&target, work, Some(SAMPLE)) {
                Err(error) if is_stopped(&error) => {
                    output
                        .tell("interrupted: a dry run keeps nothing, the same command begins anew");
                    return Ok(Answer::interrupted());
                }
                made => made?,
            };
            let seconds = started.elapsed().as_secs_f64();
            return estimate(&run, &made, seconds).answer();
        }
        let site = Site::of(self.stores.names()?.1, self.stores.target_store(), cache)?;
        let origin = format!("{} of {} from {}", to, run.root()?, from);
        let filled = site.fill(&origin, (&self.work.scratch, output), |target, spill| {
            run.convert(target, (self.work.options(), spill, cache / 2), None)
        });
        let (target, made) = match filled {
            Ok(filled) => filled,
            Err(error) if is_stopped(&error) => return Ok(Answer::interrupted().goes_on()),
            Err(error) => return Err(error),
        };
        let bytes = site.finish(target, output)?;
        let report = ConvertReport::of(&run, &made, started.elapsed().as_secs_f64(), bytes)?;
        for note in &made.report.notes {
            output.warn(note.clone());
        }
        report.answer()
    }
}

fn named(name: &str, option: &str) -> Result<Name, Failure> {
    let tree = trees::parse_of(name, option)?;
    if let Name::Sum(_) = tree {
        let what = format!("a tree {tree} holds leaves, and no accounts ({option})");
        return Err(Failure::new(what).hint("mpt, ubt, pbt and verkle hold a state"));
    }
    Ok(tree)
}

/// The tree of a source, where nobody says which: mpt, which knows most, else a pbt.
fn held(snapshot: &impl Snapshot) -> anyhow::Result<Name> {
    let records = of_states(snapshot)?;
    let of = |wanted| records.iter().find(|(id, _)| *id == wanted);
    let found = of(MPT)
        .or_else(|| of(PBT))
        .or_else(|| records.first())
        .and_then(|(_, record)| Name::of(record.scheme));
    // What else it holds is said where that is looked for.
    Ok(found.unwrap_or(Name::Mpt))
}

fn check_trees(from: Name, to: Name) -> Result<(), Failure> {
    if has_way(from, to) {
        return Ok(());
    }
    let what = format!("there is no way from {from} to {to} (--source-tree, --tree)");
    Err(Failure::new(what).hint("from mpt to any other tree, and from pbt back to mpt"))
}

/// Whether an interrupt ended the work.
pub(crate) fn is_stopped(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(spinney_migrate::MigrateError::Stopped))
}

/// A conversion between two trees.
struct Conversion<'a, P> {
    from: Name,
    to: Name,
    names: NameSource<'a>,
    /// Whether what is read of the source is checked against its root.
    verify: bool,
    source: &'a P,
    /// Where that lies, for messages.
    place: &'a PlaceName,
    interrupt: &'a Interrupt,
    output: &'a Output,
}

impl<P: PageStore> Conversion<'_, P> {
    /// The root of the source.
    fn root(&self) -> anyhow::Result<B256> {
        let record = record_of(&self.source.snapshot()?, self.from, self.place)?;
        Ok(B256::try_from(&record.root[..])?)
    }

    fn convert(
        &mut self,
        target: &AnyStore,
        (options, spill, cache): (Options, &Path, usize),
        limit: Option<u64>,
    ) -> anyhow::Result<Converted> {
        self.root()?;
        let mut watch = telling(self.output, self.interrupt);
        let verify = self.verify;
        let mut work = Work { options, spill, cache, limit, verify, watch: &mut watch };
        Ok(convert((self.from, self.to), self.source, target, self.names, &mut work)?)
    }
}

/// Tells how far a migration is, and ends it where somebody asked for it.
pub(crate) fn telling(
    output: &Output,
    interrupt: &Interrupt,
) -> impl FnMut(&At) -> ControlFlow<()> {
    let mut phases = Phases::new(output.quiet());
    move |at| {
        let what = name_of(at.stage);
        phases.update((at.stage, what, at.total), at.done, || what.into());
        interrupt.goes_on()
    }
}

fn name_of(stage: Stage) -> &'static str {
    match stage {
        Stage::Gather => "gather",
        Stage::Build => "build",
        Stage::Join => "join",
        Stage::CheckRoot => "check the root",
        Stage::CheckBack => "check against the source",
        _ => "work",
    }
}

/// Where a store is made that is seen by nobody before it is good.
pub(crate) struct Site {
    /// Where it lies until then; on a server it is the target, and not finished.
    pub(crate) place: Place,
    target: Place,
}

impl Site {
    pub(crate) fn of(
        target: &PlaceName,
        kind: Option<&str>,
        cache: usize,
    ) -> Result<Self, Failure> {
        let kind = match kind {
            Some(kind) => Kind::named(kind)?,
            None => Kind::of(target),
        };
        let name = kind.name();
        let whole = Place::existing(target, Some(name), cache)?;
        match (kind, target) {
            (Kind::Memory, _) => {
                let what =
                    "the target is a directory, a file or a server's address (--target-store)";
                Err(Failure::new(what).hint("--target-store log, redb, sqlite or postgres"))
            }
            (Kind::Redb | Kind::Log | Kind::Sqlite, PlaceName::Path(path)) => {
                let part = PlaceName::Path(with_suffix(path, ".part"));
                let place = Place::existing(&part, Some(name), cache)?;
                if path.exists() {
                    let what = format!("there is something already at {}", path.display());
                    return Err(Failure::new(what).hint("a state is converted into a new TARGET"));
                }
                Ok(Self { place, target: whole })
            }
            _ => Self::on_server(whole),
        }
    }

    fn on_server(place: Place) -> Result<Self, Failure> {
        match place.exists() {
            Ok(false) => Ok(Self { target: place.clone(), place }),
            Ok(true) => {
                let what = format!("there is a store already at {}", place.name());
                let hint = "a state is converted into a new TARGET: another schema, as in \
                            postgres://user@host/database?options=-csearch_path%3Dmy_schema";
                Err(Failure::new(what).hint(hint))
            }
            Err(error) => Err(Failure::new("the target cannot be reached").because(error)),
        }
    }

    /// Notes what the store is made of. It may be an earlier process's, of the same.
    fn note(&self, store: &AnyStore, origin: &str) -> anyhow::Result<()> {
        let found = {
            let snapshot = store.snapshot()?;
            let row = snapshot.read(Table::Meta, ORIGIN)?;
            row.map(|row| String::from_utf8_lossy(&row).into_owned())
        };
        match found {
            Some(found) if found != origin => {
                let what = format!("{} is being made of {found}", self.place.name());
                Err(Failure::new(what)
                    .hint("remove it to begin anew, or give another TARGET")
                    .into())
            }
            Some(_) => Ok(()),
            None => {
                let mut set = WriteSet::new();
                set.put(Table::Meta, ORIGIN, origin.as_bytes());
                Ok(store.commit(&set)?)
            }
        }
    }

    /// Lets `work` fill the store, which may be an earlier process's, with leaves that it sorts in
    /// a folder; `origin` says what it is made of. What is refused would be so again: then nothing
    /// of it stays. What fails for another reason stays, and the same command goes on with it.
    pub(crate) fn fill<T>(
        &self,
        origin: &str,
        (scratch, output): (&ScratchArgs, &Output),
        work: impl FnOnce(&AnyStore, &Path) -> anyhow::Result<T>,
    ) -> anyhow::Result<(AnyStore, T)> {
        let location = self.place.location.as_ref();
        let before = location.map(Location::before);
        let scratch = scratch.at(location)?;
        let store = self.place.go_on()?;
        if let Err(error) = self.note(&store, origin) {
            // The first error says more.
            let _ = before.map(|before| before.restore(store));
            return Err(error);
        }
        self.target.announce(self.target.is_new(), output);
        match (work(&store, scratch.path()), before) {
            (Ok(done), _) => Ok((store, done)),
            (Err(error), Some(before)) if is_final(&error) => {
                // The first error says more.
                let _ = scratch.forget();
                let _ = before.remove(store);
                Err(error)
            }
            (Err(error), _) => {
                // The first error says more.
                let _ = store.close();
                if !is_stopped(&error) {
                    self.tell_what_stays(output);
                }
                Err(error)
            }
        }
    }

    fn tell_what_stays(&self, output: &Output) {
        let place = self.place.name();
        output.tell(&format!("what was made stays at {place}: the same command goes on with it"));
    }

    /// Gives the store its name, and answers how large it is.
    pub(crate) fn finish(&self, store: AnyStore, output: &Output) -> anyhow::Result<u64> {
        self.publish(store).inspect_err(|_| self.tell_what_stays(output))
    }

    fn publish(&self, store: AnyStore) -> anyhow::Result<u64> {
        let (Some(part), Some(target)) = (&self.place.location, &self.target.location) else {
            return Ok(self.place.close(store)?);
        };
        if self.place.kind == Kind::Postgres {
            store.finish()?;
            return Ok(self.place.close(store)?);
        }
        let bytes = self.place.close(store)?;
        part.publish(target)?;
        Ok(bytes)
    }
}

/// What a conversion did.
// Fields: what the envelope holds is flat.
#[derive(Debug, Serialize)]
struct ConvertReport {
    from: String,
    to: String,
    block: Option<u64>,
    block_hash: Option<B256>,
    source_root: B256,
    root: B256,
    accounts: u64,
    slots: u64,
    codes: u64,
    leaves: u64,
    /// Of the target as a snapshot file of EIP-8347, where it is a PBT.
    snapshot_digest: Option<B256>,
    snapshot_bytes: Option<u64>,
    sorted_bytes: u64,
    page_bytes: u64,
    target_bytes: u64,
    seconds: f64,
    /// The most memory that the process held, where the system tells.
    peak_memory: Option<u64>,
}

impl ConvertReport {
    fn of(
        run: &Conversion<'_, impl PageStore>,
        made: &Converted,
        seconds: f64,
        target_bytes: u64,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            from: run.from.to_string(),
            to: run.to.to_string(),
            block: made.block.map(|block| block.number),
            block_hash: made.block.and_then(trees::hash_of),
            source_root: made.source_root,
            root: made.root,
            accounts: made.counts.accounts,
            slots: made.counts.slots,
            codes: made.counts.codes,
            leaves: made.counts.leaves,
            snapshot_digest: made.snapshot.map(|file| file.digest),
            snapshot_bytes: made.snapshot.map(|file| file.bytes),
            sorted_bytes: made.report.spilled,
            page_bytes: made.report.row_bytes,
            target_bytes,
            seconds,
            peak_memory: peak_memory(),
        })
    }

    fn answer(&self) -> anyhow::Result<Answer> {
        let Self { from, to, root, source_root, .. } = self;
        let holds = format!(
            "{} accounts, {} slots, {} codes (each delegation by itself)",
            self.accounts, self.slots, self.codes,
        );
        let sizes = format!(
            "{} leaves, {} on disk, {:.1} s",
            self.leaves,
            human_bytes(self.target_bytes),
            self.seconds,
        );
        let peak =
            self.peak_memory.map(|peak| format!("{} of memory at the most", human_bytes(peak)));
        let digest = self.snapshot_digest.map(|digest| format!("snapshot digest {digest}"));
        let columns = ["from", "to", "root", "accounts", "slots", "codes", "leaves"];
        let answer = Answer::of(self)?.row(&columns);
        Ok(answer
            .lines([format!("{from} {source_root}"), format!("{to} {root}"), holds, sizes])
            .lines(peak.into_iter().chain(digest))
            .line("checked: the target's leaves, and the source's root from them"))
    }
}

/// What a conversion would take.
#[derive(Debug, Serialize)]
struct Estimate {
    from: String,
    to: String,
    /// Accounts and slots that were converted for it.
    sampled: u64,
    /// The share of the source that they are.
    share: f64,
    accounts: u64,
    slots: u64,
    leaves: u64,
    sorted_bytes: u64,
    page_bytes: u64,
    /// Without the writing of the target to its disk.
    seconds: f64,
}

fn estimate(run: &Conversion<'_, impl PageStore>, made: &Converted, seconds: f64) -> Estimate {
    let share = made.share.max(1e-9);
    let all = |count: u64| (count as f64 / share) as u64;
    let counts = made.counts;
    Estimate {
        from: run.from.to_string(),
        to: run.to.to_string(),
        sampled: counts.accounts + counts.slots,
        share,
        accounts: all(counts.accounts),
        slots: all(counts.slots),
        leaves: all(counts.leaves),
        sorted_bytes: all(made.report.spilled),
        page_bytes: all(made.report.row_bytes),
        seconds: seconds / share,
    }
}

impl Estimate {
    fn answer(&self) -> anyhow::Result<Answer> {
        let mut grid = Grid::new(&["accounts", "slots", "leaves", "page bytes", "seconds"]);
        let counts = [self.accounts, self.slots, self.leaves, self.page_bytes];
        let counts = counts.map(|count| count.to_string());
        let seconds = format!("{:.1}", self.seconds);
        grid.row(counts.into_iter().chain([seconds]).collect());
        Ok(Answer::of(self)?.csv(grid).lines([
            format!(
                "about {} accounts and {} slots, {} leaves of {}",
                self.accounts, self.slots, self.leaves, self.to
            ),
            format!(
                "about {} of pages and {} to sort, {:.0} s without the target's disk",
                human_bytes(self.page_bytes),
                human_bytes(self.sorted_bytes),
                self.seconds
            ),
            format!(
                "by {} accounts and slots, {:.1}% of the source",
                self.sampled,
                100.0 * self.share
            ),
        ]))
    }
}
