//! `snapshot`: states as the files of EIP-8347.

use std::path::{Path, PathBuf};

use alloy_primitives::B256;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use spinney_migrate::{
    FileError, MigrateError, Named, Work, export_preimages, export_snapshot, import_snapshot,
    match_preimages, snapshot::Reader,
};
use spinney_state::MPT;
use spinney_state::embed::PBT;
use spinney_store::{AnyStore, Frozen};
use spinney_tree::pbt::Pbt;
use spinney_tree::{BlockId, PageStore as _, SharedStore};

use crate::args::{AtArgs, FormArgs, FormatArgs, ModeArgs, digest};
use crate::commands::Command;
use crate::commands::convert::{MemoryArgs, Site, is_stopped, telling};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::out_file::OutFile;
use crate::place_name::PlaceName;
use crate::stores::{Mode, open_file};
use crate::trees::{self, Name, of_states};
use crate::ui::{Answer, Output};

/// Write, verify or read the files of EIP-8347: the snapshot of a PBT, and the preimages of its
/// state.
///
/// Both are canonical: whoever makes them of one state makes the same bytes, and compares digests.
#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    #[command(subcommand)]
    pub(crate) verb: SnapshotVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotVerb {
    /// Write the files of what a store holds.
    ///
    /// The snapshot is that of its PBT, whose leaves are found to have its root first. Preimages
    /// come from its mpt, or from its PBT where it has no mpt.
    #[command(
        after_help = "Example:\n  spinney snapshot export --db pbt.db --out state.pbt --preimages \
                      state.preimages"
    )]
    Export(ExportArgs),
    /// Check files: their form, the root of the leaves, and with preimages the whole state.
    ///
    /// With preimages each leaf has to belong to an account, a slot or code, code has to have its
    /// hash, and the root of mpt is computed. --root says what it has to be: without it, nothing
    /// binds the preimages to a chain.
    #[command(
        after_help = "Example:\n  spinney snapshot verify state.pbt --preimages state.preimages \
                      --root 0x.."
    )]
    Verify(SnapshotVerifyArgs),
    /// Make a store of files, after they were checked.
    ///
    /// The store is made at TARGET.part, and Ctrl-C and kill -9 cost little: the same command goes
    /// on. With preimages the store can be converted back to mpt.
    #[command(after_help = "Example:\n  spinney snapshot import state.pbt pbt.db --preimages \
                      state.preimages --root 0x..")]
    Import(SnapshotImportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    at: AtArgs,
    /// The snapshot file.
    #[arg(long, value_name = "FILE", required_unless_present = "preimages")]
    out: Option<PathBuf>,
    /// The preimage file.
    #[arg(long, value_name = "FILE")]
    preimages: Option<PathBuf>,
    /// Check each node that is read against the root, and each preimage against its hash: against
    /// rows that are old or forged, whose seals are right.
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    work: MemoryArgs,
    #[command(flatten)]
    format: FormArgs,
}

/// What is checked.
#[derive(Debug, Args)]
struct CheckArgs {
    /// The snapshot file.
    #[arg(value_name = "SNAPSHOT")]
    file: PathBuf,
    /// Its preimage file.
    #[arg(long, value_name = "FILE")]
    preimages: Option<PathBuf>,
    /// The root of mpt that the state has to have, as a header gives it.
    #[arg(long, value_name = "0x", value_parser = digest, alias = "state-root")]
    #[arg(requires = "preimages")]
    root: Option<B256>,
    /// The tree: pbt with a hash.
    #[arg(long, value_name = "TREE", default_value = "pbt:blake3")]
    tree: String,
    #[command(flatten)]
    work: MemoryArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotVerifyArgs {
    #[command(flatten)]
    check: CheckArgs,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotImportArgs {
    #[command(flatten)]
    check: CheckArgs,
    /// The store that is made: a directory for log and redb, a file for sqlite, the address of a
    /// schema for postgres.
    #[arg(value_name = "TARGET")]
    target: PlaceName,
    /// The kind of the target. Without it, what TARGET names: a server's address, a file .sqlite or
    /// .db, else a directory for a log.
    #[arg(long, value_name = "STORE", alias = "to-store")]
    target_store: Option<String>,
    /// The block whose state it is.
    #[arg(long, value_name = "N")]
    number: Option<u64>,
    /// The block's hash.
    #[arg(long, value_name = "0x", value_parser = digest, requires = "number")]
    hash: Option<B256>,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    format: FormatArgs,
}

impl Command for SnapshotArgs {
    const NAME: &'static str = "snapshot";

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        let interrupt = Interrupt::listen()?;
        let outcome = match &self.verb {
            SnapshotVerb::Export(args) => export(args, &interrupt, output),
            SnapshotVerb::Verify(args) => verify(args, &interrupt, output),
            SnapshotVerb::Import(args) => import(args, &interrupt, output),
        };
        match outcome {
            Err(error) if is_stopped(&error) => Ok(Answer::interrupted().goes_on()),
            outcome => Ok(Answer::of(&outcome?)?.fields()),
        }
    }
}

/// Does work that tells on its way.
fn watched<T>(
    (work, verify): (&MemoryArgs, bool),
    spill: &Path,
    (interrupt, output): (&Interrupt, &Output),
    run: impl FnOnce(&mut Work<'_>) -> Result<T, MigrateError>,
) -> Result<T, MigrateError> {
    let mut watch = telling(output, interrupt);
    let (options, cache) = (work.options(), work.cache() / 2);
    run(&mut Work { options, spill, cache, limit: None, verify, watch: &mut watch })
}

fn pbt_named(name: &str) -> Result<Pbt, Failure> {
    match trees::parse(name)? {
        Name::Pbt(hash) => Ok(Pbt { hash }),
        tree => Err(Failure::new(format!("a snapshot is of a pbt, not of {tree} (--tree)"))
            .hint("--tree pbt:blake3, or with another hash")),
    }
}

fn export(args: &ExportArgs, interrupt: &Interrupt, output: &Output) -> anyhow::Result<Value> {
    let place = args.at.place()?;
    let store = place.open(Mode::Look)?;
    let store = SharedStore::new(Frozen::of(&store)?);
    let records = of_states(&store.snapshot()?)?;
    let pbt = records.iter().find(|(id, _)| *id == PBT).map(|(_, record)| record.scheme);
    let scheme = match pbt.and_then(Name::of) {
        Some(Name::Pbt(hash)) => Some(Pbt { hash }),
        _ => None,
    };
    if args.out.is_some() && same_place(args.out.as_deref(), args.preimages.as_deref()) {
        return Err(Failure::new("--out and --preimages name one file")
            .hint("each is a file of its own: give them different names")
            .into());
    }
    let has_trie = records.iter().any(|(id, _)| *id == MPT);
    let scratch = args.work.scratch.at(place.location.as_ref())?;
    let spill = scratch.path();
    let with = (interrupt, output);
    let mut written = serde_json::Map::new();
    if let Some(path) = &args.out {
        let scheme = scheme.ok_or_else(|| {
            Failure::new("the store holds no pbt (--out)")
                .hint("spinney convert --tree pbt:blake3 makes one; --preimages alone needs none")
        })?;
        let out = OutFile::begin(Some(path))?;
        let (file, out) = watched((&args.work, args.verify), spill, with, |work| {
            export_snapshot(&store, scheme, out, work)
        })?;
        out.finish()?;
        written.insert("snapshot".into(), json!(file));
    }
    if let Some(path) = &args.preimages {
        let scheme = scheme.or(has_trie.then_some(DEFAULT)).ok_or_else(|| {
            Failure::new("the store holds neither mpt nor pbt (--preimages)")
                .hint("spinney db info shows what it holds")
        })?;
        let out = OutFile::begin(Some(path))?;
        let (file, out) = watched((&args.work, args.verify), spill, with, |work| {
            export_preimages(&store, scheme, out, work)
        })?;
        out.finish()?;
        written.insert("preimages".into(), json!(file));
    }
    Ok(Value::Object(written))
}

/// Whether two paths name one place, also by links.
fn same_place(one: Option<&Path>, other: Option<&Path>) -> bool {
    let place = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    one.and_then(place) == other.and_then(place)
}

/// Where there is no pbt whose hash would matter.
const DEFAULT: Pbt = Pbt { hash: spinney_tree::HashFunction::Blake3 };

fn verify(
    args: &SnapshotVerifyArgs,
    interrupt: &Interrupt,
    output: &Output,
) -> anyhow::Result<Value> {
    let check = &args.check;
    let scheme = pbt_named(&check.tree)?;
    let Some(preimages) = &check.preimages else {
        let file = open_file(&check.file)?;
        let found = Reader::new(file).and_then(|reader| reader.check(scheme));
        let found = found.map_err(|error| in_file(error.into(), &check.file))?;
        output.note("without --preimages: accounts, code and the state root were not checked");
        return Ok(json!({ "snapshot": found.file, "root": found.root, "leaves": found.leaves }));
    };
    let folder = match check.work.scratch.asked() {
        Some(scratch) => tempfile::tempdir_in(scratch),
        None => tempfile::tempdir(),
    };
    let folder = folder.context("making a folder for the check (--scratch)")?;
    let site = Site::of(&PlaceName::Path(folder.path().join("store")), None, check.work.cache())?;
    let store = site.place.go_on()?;
    let spill = folder.path().join("leaves");
    let data = read(check, &store, (scheme, None, preimages), &spill, (interrupt, output))?;
    store.close()?;
    Ok(data)
}

fn import(
    args: &SnapshotImportArgs,
    interrupt: &Interrupt,
    output: &Output,
) -> anyhow::Result<Value> {
    args.mode.heed();
    let check = &args.check;
    let scheme = pbt_named(&check.tree)?;
    let site = Site::of(&args.target, args.target_store.as_deref(), check.work.cache())?;
    // Before a store is made.
    drop(open_file(&check.file)?);
    let origin = format!("the snapshot {}", check.file.display());
    let hash = args.hash.unwrap_or_default().0;
    let block = args.number.map(|number| BlockId { number, hash });
    let with = (interrupt, output);
    let (store, data) = site.fill(&origin, (&check.work.scratch, output), |store, spill| {
        let Some(preimages) = &check.preimages else {
            output.note("without --preimages: the store cannot be converted back, nor caught up");
            let made = watched((&check.work, false), spill, with, |work| {
                import_snapshot(&check.file, store, scheme, block, work)
            });
            let made = made.map_err(|error| in_file(error, &check.file))?;
            return Ok(json!({
                "snapshot": made.file, "root": made.root, "leaves": made.leaves, "codes": made.codes
            }));
        };
        read(check, store, (scheme, block, preimages), spill, with)
    })?;
    site.finish(store, output)?;
    Ok(data)
}

/// Reads a snapshot and its preimages into a store, and checks both.
fn read(
    check: &CheckArgs,
    store: &AnyStore,
    (scheme, block, preimages): (Pbt, Option<BlockId>, &Path),
    spill: &Path,
    with: (&Interrupt, &Output),
) -> anyhow::Result<Value> {
    let made = watched((&check.work, false), spill, with, |work| {
        import_snapshot(&check.file, store, scheme, block, work)
    });
    let made = made.map_err(|error| in_file(error, &check.file))?;
    let named: Result<Named, _> = watched((&check.work, false), spill, with, |work| {
        match_preimages(preimages, store, scheme, check.root, true, work)
    });
    let named = named.map_err(|error| in_file(error, preimages))?;
    Ok(json!({
        "snapshot": made.file,
        "preimages": named.file,
        "root": made.root,
        "state_root": named.state_root,
        "state_root_checked": check.root.is_some(),
        "accounts": named.counts.accounts,
        "slots": named.counts.slots,
        "codes": named.counts.codes,
        "leaves": made.leaves,
    }))
}

/// Names the file that is refused.
fn in_file(error: MigrateError, path: &Path) -> anyhow::Error {
    match error {
        MigrateError::Stopped => error.into(),
        MigrateError::File(FileError::Io { .. }) => {
            Failure::new(format!("cannot read {}", path.display()))
                .because(error)
                .hint("check the path")
                .into()
        }
        error => anyhow::Error::from(error).context(format!("{} is refused", path.display())),
    }
}
