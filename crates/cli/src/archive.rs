//! `archive`: every block of a store, in objects that servers without a store read.

use std::env;
use std::sync::Arc;

use alloy_primitives::hex;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use spinney_archive::{
    Archive, ArchiveError, Manifest, ObjectError, Options, Overlay, Source, Writer, place,
};
use spinney_state::{State, kept_blocks};
use spinney_store::{AnySnapshot, AnyStore};
use spinney_tree::{PageStore as _, Snapshot};

use crate::args::{AtArgs, FormatArgs, ModeArgs};
use crate::clock::Clock;
use crate::db;
use crate::failure::{Exit, Failure};
use crate::output::{Format, Grid, Output, human_bytes};
use crate::place_name::PlaceName;
use crate::progress::{Progress, Unit};
use crate::stores::{Mode, Place};
use crate::trees::{self, TreeSet};

/// Keep every block of a store in sealed objects: build them, look at them, check them.
///
/// An archive answers what the store held after any of its blocks. What a store's history knows is
/// added to it, so the same command, run again and again beside `follow` or `replay`, keeps it up
/// to date: at least once in as many blocks as --keep-undo says. docs/archive.md has the format.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    spinney archive build --db state.db --into archive\n  \
    spinney archive info archive\n  \
    spinney archive restore archive then.db --block 100\n  \
    spinney archive verify archive --block 100 --block 200")]
pub(crate) struct ArchiveArgs {
    #[command(subcommand)]
    verb: ArchiveVerb,
}

#[derive(Debug, Subcommand)]
enum ArchiveVerb {
    /// Add the blocks that a store's history keeps; the archive is made if there is none.
    Build(BuildArgs),
    /// Say what an archive holds.
    Info(InfoArgs),
    /// Make a store of a block, for every verb that reads one.
    Restore(RestoreArgs),
    /// Read all of an archive, and compute the roots of blocks from all of their entries.
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
struct BuildArgs {
    #[command(flatten)]
    at: AtArgs,
    /// The archive: a directory, or a URL of a bucket.
    #[arg(long, value_name = "ARCHIVE", env = "SPINNEY_ARCHIVE")]
    into: String,
    /// The first block of an archive that is made. Without it, the oldest one that the store keeps.
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// Leave out so many blocks before the store's last one: those that a reorganisation may take
    /// back. An archive whose blocks were taken back is refused from then on.
    #[arg(long, value_name = "N", default_value_t = 0)]
    behind: u64,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Debug, Args)]
struct InfoArgs {
    /// The archive: a directory, or a URL of a bucket.
    #[arg(value_name = "ARCHIVE", env = "SPINNEY_ARCHIVE")]
    archive: String,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Debug, Args)]
struct RestoreArgs {
    /// The archive: a directory, or a URL of a bucket.
    #[arg(value_name = "ARCHIVE", env = "SPINNEY_ARCHIVE")]
    archive: String,
    /// The store that is made; nothing is to be there yet.
    #[arg(value_name = "TARGET")]
    target: PlaceName,
    /// The kind of the target. Without it, what TARGET names: a server's address, a file .sqlite or
    /// .db, else a directory for redb.
    #[arg(long, value_name = "STORE")]
    target_store: Option<String>,
    /// The block. Without it, the last one.
    #[arg(long, value_name = "N")]
    block: Option<u64>,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    mode: ModeArgs,
}

#[derive(Debug, Args)]
struct VerifyArgs {
    /// The archive: a directory, or a URL of a bucket.
    #[arg(value_name = "ARCHIVE", env = "SPINNEY_ARCHIVE")]
    archive: String,
    /// A block whose roots are computed from all of its entries; may be given many times. Without
    /// it, the first and the last one.
    #[arg(long, value_name = "N")]
    block: Vec<u64>,
    #[command(flatten)]
    format: FormatArgs,
}

/// Memory for parts of segments.
const CACHE_BYTES: usize = 256 << 20;

pub(crate) fn run(args: &ArchiveArgs, output: &Output) -> anyhow::Result<Exit> {
    match &args.verb {
        ArchiveVerb::Build(args) => build(args, output),
        ArchiveVerb::Info(args) => info(args, output),
        ArchiveVerb::Restore(args) => restore(args, output),
        ArchiveVerb::Verify(args) => verify(args, output),
    }
}

/// Opens an archive to read it.
pub(crate) fn open(name: &str, cache_bytes: usize) -> anyhow::Result<Archive> {
    let opened = place(name).map_err(ArchiveError::from);
    opened.and_then(|objects| Archive::open(objects, cache_bytes)).map_err(failure)
}

/// Whether the environment names this archive.
pub(crate) fn is_of_environment(name: &str) -> bool {
    env::var_os("SPINNEY_ARCHIVE").is_some_and(|value| *name == value)
}

/// Why an archive could not be used, and what to do.
pub(crate) fn failure(error: ArchiveError) -> anyhow::Error {
    let (exit, hint) = match &error {
        ArchiveError::Missing { .. } => (Exit::Error, "spinney archive build makes one"),
        ArchiveError::Corrupt { .. } | ArchiveError::Tree(_) => {
            (Exit::No, "spinney archive verify reads all of it")
        }
        ArchiveError::Object(ObjectError::Missing { .. } | ObjectError::Short { .. }) => {
            (Exit::No, "spinney archive verify reads all of it")
        }
        ArchiveError::Format { .. } => (Exit::Error, "use a newer version of spinney"),
        ArchiveError::Fenced { .. } => (Exit::Error, "let one process add blocks to an archive"),
        ArchiveError::Outside { .. } => (Exit::Error, "spinney archive info says what it holds"),
        ArchiveError::Order { .. } => (
            Exit::Error,
            "a larger --keep-undo keeps more blocks of a store, and --behind leaves out those that \
             may be taken back; another --into begins a new archive",
        ),
        _ => return error.into(),
    };
    Failure::new(error.to_string()).hint(hint).exit(exit).into()
}

/// An error of an archive as the others.
#[derive(Debug)]
struct Told(anyhow::Error);

impl From<ArchiveError> for Told {
    fn from(error: ArchiveError) -> Self {
        Self(failure(error))
    }
}

impl From<spinney_state::StateError> for Told {
    fn from(error: spinney_state::StateError) -> Self {
        Self(error.into())
    }
}

type Opened<'s> = Result<State<Overlay<AnySnapshot<'s>>>, Told>;

/// What an archive takes from a store at one commit.
fn source<'s>(
    place: &Place,
    store: &'s AnyStore,
) -> anyhow::Result<Source<AnySnapshot<'s>, impl FnOnce(Overlay<AnySnapshot<'s>>) -> Opened<'s>>> {
    let cache_bytes = place.tree_cache();
    let open = move |store| TreeSet::open_all(store, cache_bytes).map_err(Told);
    Ok(Source { snapshot: store.snapshot()?, open })
}

fn build(args: &BuildArgs, output: &Output) -> anyhow::Result<Exit> {
    let clock = Clock::start();
    let db = args.at.place()?;
    let store = db.open(Mode::Look)?;
    let objects = place(&args.into)?;
    let told = |Told(error): Told| error;
    let mut writer = match Writer::open(Arc::clone(&objects), Options::default()) {
        Ok(writer) => writer,
        Err(ArchiveError::Missing { .. }) => {
            let source = source(&db, &store)?;
            let first = first_block(args, &source.snapshot, &db)?;
            Writer::begin(objects, Options::default(), source, first).map_err(told)?
        }
        Err(error) => return Err(failure(error)),
    };
    let before = bytes_of(writer.manifest());
    let mut progress = Progress::new(output.quiet(), "archive", Unit::Blocks, None);
    let extended = writer.extend(source(&db, &store)?, args.behind, |done, all| {
        progress.update(done, || format!("of {all}"));
    });
    progress.finish();
    let (extended, manifest) = (extended.map_err(told)?, writer.manifest());
    let data = json!({
        "added": extended.blocks, "rows": extended.rows, "seconds": clock.seconds(),
        "archive": described(manifest),
    });
    let grown = human_bytes(bytes_of(manifest).saturating_sub(before));
    let line = format!(
        "{} blocks, {} rows, {grown} were added: the archive holds blocks {} to {}",
        extended.blocks, extended.rows, manifest.first, manifest.last
    );
    told_as(&data, &line, output)?;
    store.close()?;
    Ok(Exit::Ok)
}

/// The block that a new archive begins with.
fn first_block(args: &BuildArgs, snapshot: &impl Snapshot, place: &Place) -> anyhow::Result<u64> {
    let records = trees::of_states(snapshot)?;
    let Some(newest) = records.first().and_then(|(_, record)| record.block) else {
        let what = format!("the store holds no state of a block ({})", place.name());
        return Err(Failure::new(what).hint("fill it first: spinney replay, or follow").into());
    };
    let oldest = kept_blocks(snapshot, newest)?.first().map_or(newest.number, |it| it.number);
    Ok(args.from.unwrap_or(oldest))
}

pub(crate) fn bytes_of(manifest: &Manifest) -> u64 {
    manifest.segments.iter().map(|segment| segment.bytes).sum()
}

/// What a manifest says, for other programs.
fn described(manifest: &Manifest) -> Value {
    let trees = manifest
        .trees
        .iter()
        .map(|tree| json!({ "id": tree.id, "tree": trees::name_of(tree.scheme()) }));
    let segments = manifest.segments.iter().map(|segment| {
        json!({
            "name": segment.name, "first": segment.first, "last": segment.last,
            "level": segment.level, "bytes": segment.bytes, "keys": segment.keys,
            "pieces": segment.pieces,
        })
    });
    json!({
        "first": manifest.first, "last": manifest.last,
        "last_hash": format!("0x{}", manifest.last_hash),
        "bytes": bytes_of(manifest), "manifest": manifest.number,
        "trees": trees.collect::<Vec<_>>(), "segments": segments.collect::<Vec<_>>(),
    })
}

fn told_as(data: &Value, line: &str, output: &Output) -> std::io::Result<()> {
    match output.format() {
        Format::Json => output.envelope(data, &[]),
        _ => output.line(line),
    }
}

fn info(args: &InfoArgs, output: &Output) -> anyhow::Result<Exit> {
    let archive = open(&args.archive, CACHE_BYTES)?;
    let manifest = archive.manifest();
    if output.format() == Format::Json {
        output.envelope(&described(&manifest), &[])?;
        return Ok(Exit::Ok);
    }
    let mut grid = Grid::new(&["segment", "first", "last", "level", "keys", "pieces", "bytes"]);
    for segment in &manifest.segments {
        let bytes = match output.format() {
            Format::Csv => segment.bytes.to_string(),
            _ => human_bytes(segment.bytes),
        };
        let numbers = [segment.first, segment.last, segment.level.into()];
        let counts = [segment.keys, segment.pieces];
        let cells = numbers.into_iter().chain(counts).map(|number| number.to_string());
        grid.row([segment.name.clone()].into_iter().chain(cells).chain([bytes]).collect());
    }
    output.grid(&grid)?;
    if output.format() == Format::Table {
        let names = manifest.trees.iter().map(|tree| trees::name_of(tree.scheme()));
        output.line(&format!(
            "blocks {} to {}, trees {}, {} in {} segments",
            manifest.first,
            manifest.last,
            names.collect::<Vec<_>>().join(", "),
            human_bytes(bytes_of(&manifest)),
            manifest.segments.len(),
        ))?;
    }
    Ok(Exit::Ok)
}

fn restore(args: &RestoreArgs, output: &Output) -> anyhow::Result<Exit> {
    args.mode.heed();
    let clock = Clock::start();
    let archive = open(&args.archive, CACHE_BYTES)?;
    let block = args.block.unwrap_or_else(|| archive.manifest().last);
    let view = archive.at(block).map_err(failure)?;
    let target = Place::existing(&args.target, args.target_store.as_deref(), CACHE_BYTES)?;
    let mut rows = 0;
    let made = target.create(|store| {
        rows = db::copy_rows(&view, store)?;
        // Entry by entry: what the archive holds is what its roots stand for.
        let snapshot = store.snapshot()?;
        for (id, record) in trees::records(&snapshot)? {
            trees::verify_entries(&snapshot, id, &record?)?;
        }
        Ok(())
    })?;
    let file_bytes = target.close(made)?;
    let seconds = clock.seconds();
    let data =
        json!({ "block": block, "rows": rows, "file_bytes": file_bytes, "seconds": seconds });
    let bytes = human_bytes(file_bytes);
    told_as(&data, &format!("block {block}: {rows} rows, {bytes}, all roots checked"), output)?;
    Ok(Exit::Ok)
}

fn verify(args: &VerifyArgs, output: &Output) -> anyhow::Result<Exit> {
    let clock = Clock::start();
    let archive = open(&args.archive, CACHE_BYTES)?;
    let manifest = archive.manifest();
    let mut progress =
        Progress::new(output.quiet(), "verify", Unit::Bytes, Some(bytes_of(&manifest)));
    let mut read = 0;
    let checked = archive.check(|bytes| {
        read += bytes;
        progress.update(read, || "segments".into());
    });
    progress.finish();
    let checked = checked.map_err(failure)?;
    let mut blocks = args.block.clone();
    if blocks.is_empty() {
        blocks = vec![manifest.first, manifest.last];
    }
    blocks.sort_unstable();
    blocks.dedup();
    let (mut roots, mut entries) = (Vec::new(), 0);
    for &block in &blocks {
        let view = archive.at(block).map_err(failure)?;
        for (id, record) in trees::records(&view)? {
            let record = record?;
            entries += trees::verify_entries(&view, id, &record)?;
            roots.push(json!({
                "block": block, "tree": trees::name_of(record.scheme),
                "root": hex::encode_prefixed(&record.root),
            }));
        }
    }
    let data = json!({
        "segments": checked.segments, "pieces": checked.pieces, "bytes": checked.bytes,
        "roots": roots, "entries": entries, "seconds": clock.seconds(),
    });
    let line = format!(
        "{} segments with {} pieces are sound; {} roots of {} blocks are those of their {entries} \
         entries",
        checked.segments,
        checked.pieces,
        roots.len(),
        blocks.len(),
    );
    told_as(&data, &line, output)?;
    Ok(Exit::Ok)
}
