//! Archives as verbs open them, and what they say of them.

use serde_json::{Value, json};
use spinney_archive::{Archive, ArchiveError, GrowError, Manifest, ObjectError, place};

use crate::failure::{Exit, Failure};
use crate::trees;

/// Memory for parts of segments.
pub(super) const CACHE_BYTES: usize = 256 << 20;

/// Opens an archive to read it.
pub(crate) fn open(name: &str, cache_bytes: usize) -> anyhow::Result<Archive> {
    let opened = place(name).map_err(ArchiveError::from);
    opened.and_then(|objects| Archive::open(objects, cache_bytes)).map_err(failure)
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
        ArchiveError::Block { .. } => (
            Exit::No,
            "archive prune drops first blocks and archive backfill puts others there; else build a \
             new archive",
        ),
        ArchiveError::Format { .. } => {
            (Exit::Error, "another version of spinney made it and reads it; or build it again")
        }
        ArchiveError::Fenced { .. } => (Exit::Error, "let one process add blocks to an archive"),
        ArchiveError::Outside { .. } => (Exit::Error, "spinney archive info says what it holds"),
        ArchiveError::Order { .. } => (
            Exit::Error,
            "a larger --keep-undo keeps more blocks of a store, and --behind leaves out those that \
             may be taken back; another --into begins a new archive",
        ),
        ArchiveError::Sliced { .. } | ArchiveError::Slice { .. } => {
            (Exit::Error, "spinney archive info says what it holds; the whole archive has the rest")
        }
        ArchiveError::Exists { .. } => (Exit::Error, "name a place where there is none yet"),
        ArchiveError::Join { .. } => {
            (Exit::Error, "spinney archive info says what each of them holds")
        }
        _ => return error.into(),
    };
    Failure::new(error.to_string()).hint(hint).exit(exit).into()
}

/// Why blocks of a store could not be added.
pub(super) fn unadded(error: GrowError) -> anyhow::Error {
    match error {
        GrowError::Archive(error) => failure(error),
        GrowError::Held(error) => trees::plain(error),
        other => other.into(),
    }
}

pub(crate) fn bytes_of(manifest: &Manifest) -> u64 {
    manifest.segments.iter().map(|segment| segment.bytes).sum()
}

/// What a manifest says, for other programs.
pub(super) fn described(manifest: &Manifest) -> Value {
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
    let mut described = json!({
        "first": manifest.first, "last": manifest.last,
        "last_hash": format!("0x{}", manifest.last_hash),
        "bytes": bytes_of(manifest), "manifest": manifest.number,
        "trees": trees.collect::<Vec<_>>(), "segments": segments.collect::<Vec<_>>(),
    });
    if let Some(slice) = &manifest.slice {
        let without = slice.without.iter().map(|tree| trees::name_of(tree.scheme()));
        let addresses = slice.addresses.iter().map(|address| format!("0x{address}"));
        described["slice"] = json!({
            "addresses": addresses.collect::<Vec<_>>(), "without": without.collect::<Vec<_>>(),
        });
    }
    described
}

/// Refuses a slice, where all of an archive is needed.
pub(super) fn check_whole(manifest: &Manifest, name: &str, what: &str) -> Result<(), Failure> {
    let Some(slice) = &manifest.slice else { return Ok(()) };
    let accounts = slice.addresses.len();
    Err(Failure::new(format!("{name} is a slice of {accounts} accounts: {what}"))
        .hint("the whole archive has the rest; spinney archive slice makes a new slice of it"))
}
