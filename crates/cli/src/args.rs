//! Options that several verbs take.

use std::env;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use alloy_primitives::{Address, B256};
use clap::Args;
use spinney_replay::RunOptions;
use spinney_state::KeepHistory;
use spinney_store::{AnyStore, Keep};
use spinney_tree::StoreError;

use crate::failure::Failure;
use crate::place_name::PlaceName;
use crate::stores::{Kind, Place};
use crate::ui::Format;

/// How a verb reports. What was asked is looked up by [`Request`], for any verb.
#[derive(Clone, Debug, Args)]
pub(crate) struct FormatArgs {
    #[command(flatten)]
    form: FormArgs,
    /// Write the report to a file, whole or not at all. Without --format it is JSON.
    #[arg(long = "out", id = "report_out", value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The same, of a verb whose --out is something else.
#[derive(Clone, Debug, Args)]
pub(crate) struct FormArgs {
    /// How to print the report. Unless told: a table on a terminal, else JSON; of a verb that
    /// prints lines, the lines.
    #[arg(long, value_name = "FORMAT", env = "SPINNEY_FORMAT")]
    format: Option<Format>,
    /// Short for `--format json`.
    #[arg(long)]
    json: bool,
    /// Hashes in full; a table that is too wide has a line a field.
    #[arg(long)]
    full: bool,
}

/// Two stores: one that is read, and one that is made.
#[derive(Clone, Debug, Args)]
pub(crate) struct PairArgs {
    /// The store that is read: a directory for log and redb, a file for sqlite, the address of a
    /// schema for postgres.
    #[arg(value_name = "SOURCE", required_unless_present = "old_source")]
    source: Option<PlaceName>,
    /// The store that is made; nothing is to be there yet.
    #[arg(value_name = "TARGET", required_unless_present = "old_source")]
    target: Option<PlaceName>,
    /// The kind of the source: log, redb, sqlite or postgres. Without it, what SOURCE names.
    #[arg(long, value_name = "STORE", alias = "from-store")]
    source_store: Option<String>,
    /// The kind of the target. Without it, what TARGET names: a server's address, a file .sqlite or
    /// .db, else a directory for a log.
    #[arg(long, value_name = "STORE", aliases = ["to-store", "into-store"])]
    target_store: Option<String>,
    // As it was until 0.1: `--db SOURCE TARGET`, and options for the target.
    #[arg(
        long = "db",
        id = "old_source",
        value_name = "DIR",
        hide = true,
        conflicts_with = "target"
    )]
    old_source: Option<PlaceName>,
    #[arg(
        long = "into",
        id = "old_target",
        value_name = "DIR",
        hide = true,
        requires = "old_source"
    )]
    old_target: Option<PlaceName>,
    #[arg(long = "store", id = "old_store", value_name = "STORE", hide = true)]
    old_store: Option<String>,
}

impl PairArgs {
    /// The two places, by either spelling.
    pub(crate) fn names(&self) -> Result<(&PlaceName, &PlaceName), Failure> {
        let target = self.target.as_ref().or(self.old_target.as_ref());
        match (&self.old_source, &self.source, target) {
            (None, Some(source), Some(target)) => Ok((source, target)),
            (Some(source), Some(target), None) | (Some(source), None, Some(target)) => {
                Ok((source, target))
            }
            _ => Err(Failure::new("two stores are needed: SOURCE TARGET")
                .hint("the first is read, the second is made")),
        }
    }

    /// The store that is read.
    pub(crate) fn source(&self, cache: usize) -> Result<Place, Failure> {
        let kind = self.source_store.as_deref().or(self.old_store.as_deref());
        Place::existing(self.names()?.0, kind, cache)
    }

    pub(crate) fn target_store(&self) -> Option<&str> {
        self.target_store.as_deref()
    }

    /// The store that is made.
    pub(crate) fn target(&self, cache: usize) -> Result<Place, Failure> {
        Place::existing(self.names()?.1, self.target_store(), cache)
    }
}

/// Which tree, in which store.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArgs {
    /// The tree: mpt, ubt:sha256, ubt:blake3, ubt:keccak, pbt with one of these hashes, or verkle;
    /// for root also sum and sum:bound. For replay one or several, with commas between them.
    /// Without it, what the store holds; mpt in a new one.
    #[arg(long, value_name = "TREE", env = "SPINNEY_TREE")]
    pub(crate) tree: Option<String>,
    /// The store: memory, log, redb, sqlite or postgres. Without it, what --db names: a server's
    /// address, a SQLite file, the directory of a redb store, else one for a log; memory without
    /// --db.
    #[arg(long, value_name = "STORE", env = "SPINNEY_STORE")]
    pub(crate) store: Option<String>,
    /// Where the store is: a directory for log and redb, a file for sqlite, a URL or `host=..
    /// dbname=..` for postgres. Passwords may come from PGPASSWORD or a passfile instead.
    #[arg(long, value_name = "DIR", env = "SPINNEY_DB", hide_env_values = true)]
    pub(crate) db: Option<PlaceName>,
    /// Memory for pages, the store's included.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", env = "SPINNEY_CACHE")]
    pub(crate) cache: Size,
    #[command(flatten)]
    pub(crate) mode: ModeArgs,
}

impl StoreArgs {
    /// Where the store is, or is to be.
    pub(crate) fn place(&self) -> Result<Place, Failure> {
        let kind = match (self.store.as_deref(), &self.db) {
            (Some(name), _) => Kind::named(name)?,
            (None, Some(db)) => Kind::of(db),
            (None, None) => Kind::Memory,
        };
        // What the environment says is for those who say nothing else.
        let from_environment =
            |db: &&PlaceName| env::var_os("SPINNEY_DB").is_some_and(|v| **db == v.into());
        let db = self.db.as_ref().filter(|db| kind != Kind::Memory || !from_environment(db));
        let location = match (kind, db) {
            (Kind::Memory, Some(_)) => {
                return Err(Failure::new("a store in memory has no place (--db)")
                    .hint("leave out --db, or take --store log"));
            }
            (Kind::Memory, None) => None,
            (kind, None) => {
                let (name, needs) = (kind.name(), kind.needs());
                let hint = match kind {
                    Kind::Postgres => "--db postgres://user@host/database",
                    Kind::Sqlite => "--db FILE; it is made if it is not there",
                    _ => "--db DIR; it is made if it is not there",
                };
                return Err(Failure::new(format!("a {name} store needs {needs} (--db)")).hint(hint));
            }
            (kind, Some(db)) => kind.at(db)?,
        };
        Ok(Place::new(kind, location, self.cache.0))
    }
}

/// Who may use a store that is made.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ModeArgs {
    /// Who may use the files of a store that is made: an octal number, as chmod takes it. Folders
    /// that are made get the same, and may be entered by whoever may read them. It has no meaning
    /// on a server.
    #[arg(long, value_name = "OCTAL", default_value = "600", env = "SPINNEY_MODE")]
    mode: FileMode,
}

impl ModeArgs {
    /// From now on stores are made so.
    pub(crate) fn heed(self) {
        spinney_store::set_file_mode(self.mode.0);
    }
}

/// The mode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileMode(u32);

impl FromStr for FileMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode = u32::from_str_radix(text.strip_prefix("0o").unwrap_or(text), 8);
        match mode {
            Ok(mode) if mode & !0o666 == 0 && mode & 0o600 == 0o600 => Ok(Self(mode)),
            _ => {
                Err("expected 600, or 640, 644, 660 and the like: the user reads and writes, and \
                      nobody executes"
                    .to_owned())
            }
        }
    }
}

/// A store that is there already.
#[derive(Clone, Debug, Args)]
pub(crate) struct AtArgs {
    /// Where the store is: a directory for log and redb, a file for sqlite, a URL or `host=..
    /// dbname=..` for postgres. Passwords may come from PGPASSWORD or a passfile instead.
    #[arg(long, value_name = "DIR", env = "SPINNEY_DB", hide_env_values = true)]
    pub(crate) db: PlaceName,
    /// The store: log, redb, sqlite or postgres. Without it, what --db names.
    #[arg(long, value_name = "STORE", env = "SPINNEY_STORE")]
    store: Option<String>,
    /// Memory for pages, the store's included.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", env = "SPINNEY_CACHE")]
    cache: Size,
}

impl AtArgs {
    pub(crate) fn place(&self) -> Result<Place, Failure> {
        Place::existing(&self.db, self.store.as_deref(), self.cache.0)
    }
}

/// A store that is read, unless a node or an archive takes its place.
#[derive(Clone, Debug, Args)]
pub(crate) struct AtOrNoneArgs {
    /// Where the store is: a directory for log and redb, a file for sqlite, a URL or
    /// `host=.. dbname=..` for postgres. Passwords may come from PGPASSWORD or a passfile instead.
    #[arg(long, value_name = "DIR", env = "SPINNEY_DB", hide_env_values = true)]
    db: Option<PlaceName>,
    /// The store: log, redb, sqlite or postgres. Without it, what --db names.
    #[arg(long, value_name = "STORE", env = "SPINNEY_STORE")]
    store: Option<String>,
    /// Memory for pages, the store's included.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", env = "SPINNEY_CACHE")]
    cache: Size,
}

impl AtOrNoneArgs {
    /// The store that is named. With something else in its place one that only the environment
    /// names is not meant.
    pub(crate) fn place(&self, has_other: bool) -> Result<Option<Place>, Failure> {
        let db = self.db.as_ref().filter(|db| !has_other || !is_of_environment(db));
        db.map(|db| Place::existing(db, self.store.as_deref(), self.cache.0)).transpose()
    }

    /// Memory for pages.
    pub(crate) const fn cache(&self) -> usize {
        self.cache.0
    }
}

/// A store or an archive that is read, unless a node takes its place.
#[derive(Clone, Debug, Args)]
pub(crate) struct FromArgs {
    #[command(flatten)]
    at: AtOrNoneArgs,
    /// Read from an archive in place of a store: a directory, or a URL of a bucket.
    #[arg(long, value_name = "ARCHIVE", env = "SPINNEY_ARCHIVE")]
    archive: Option<String>,
}

/// What is read.
pub(crate) enum ReadFrom {
    Store(Place),
    /// An archive, by its name.
    Archive(String),
}

impl FromArgs {
    /// What is named, if anything is. Of what only the environment names nothing is meant beside
    /// something else, and a store before an archive.
    pub(crate) fn place(&self, has_other: bool) -> Result<Option<ReadFrom>, Failure> {
        let archive = self.archive.as_deref().filter(|archive| !archive.is_empty());
        let of_environment = env::var_os("SPINNEY_ARCHIVE");
        let is_said = archive.is_some_and(|name| of_environment.is_none_or(|it| it != name));
        let archive = archive.filter(|_| is_said || !has_other);
        match (self.at.place(has_other || is_said)?, archive) {
            (Some(_), Some(_)) if is_said => {
                Err(Failure::new("both a store and an archive (--db, --archive)")
                    .hint("name the one to read from"))
            }
            (Some(place), _) => Ok(Some(ReadFrom::Store(place))),
            (None, archive) => Ok(archive.map(|name| ReadFrom::Archive(name.to_owned()))),
        }
    }

    /// Memory for pages.
    pub(crate) const fn cache(&self) -> usize {
        self.at.cache()
    }
}

/// Whether the environment names this store.
pub(crate) fn is_of_environment(db: &PlaceName) -> bool {
    env::var_os("SPINNEY_DB").is_some_and(|value| *db == value.into())
}

/// A number of bytes, as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) usize);

const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim().to_ascii_lowercase();
        let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
        let bytes = number.parse::<u64>().ok().zip(factor).and_then(|(n, f)| n.checked_mul(f));
        bytes
            .and_then(|bytes| usize::try_from(bytes).ok())
            .map(Self)
            .ok_or_else(|| "expected a size like 256MiB, 1GiB or 65536".to_owned())
    }
}

/// How many blocks a commit takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommitEvery(pub(crate) u64);

impl FromStr for CommitEvery {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(0) => Err("a commit takes at least one block".to_owned()),
            Ok(blocks) => Ok(Self(blocks)),
            Err(_) if text == "all" => Ok(Self(u64::MAX)),
            Err(_) => Err("expected a number of blocks, or all".to_owned()),
        }
    }
}

impl CommitEvery {
    /// What was told, or what suits a store. To wait for more blocks takes memory, and saves a log
    /// little: it writes what changed of a page, where others write the page.
    pub(crate) fn of(told: Option<Self>, place: &Place) -> u64 {
        const OF_LOG: u64 = 16;
        match (told, place.kind) {
            (Some(told), _) => told.0,
            (None, Kind::Log) => OF_LOG,
            (None, _) => RunOptions::default().commit_every,
        }
    }
}

impl fmt::Display for CommitEvery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == u64::MAX { f.write_str("all") } else { self.0.fmt(f) }
    }
}

/// How many blocks can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeepUndo(pub(crate) KeepHistory);

impl FromStr for KeepUndo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(blocks) => Ok(Self(KeepHistory::Blocks(blocks))),
            Err(_) if text == "all" => Ok(Self(KeepHistory::All)),
            Err(_) => Err("expected a number of blocks, or all".to_owned()),
        }
    }
}

impl fmt::Display for KeepUndo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads an account's address.
pub(crate) fn address(text: &str) -> Result<Address, String> {
    let parsed = text.parse();
    parsed.map_err(|_| "an address is 20 bytes: 0x and 40 hex digits".to_owned())
}

/// Reads a hash or a root.
pub(crate) fn digest(text: &str) -> Result<B256, String> {
    let parsed = text.parse();
    parsed.map_err(|_| "a hash is 32 bytes: 0x and 64 hex digits".to_owned())
}

/// Which commits of a log stay readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeepCommits(Keep);

impl FromStr for KeepCommits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(0) => Err("the last commit is always kept: 1 is the least".to_owned()),
            Ok(commits) => Ok(Self(Keep::Commits(commits))),
            Err(_) if text == "all" => Ok(Self(Keep::All)),
            Err(_) => Err("expected a number of commits, or all".to_owned()),
        }
    }
}

impl KeepCommits {
    /// Refuses a store that keeps its last commit alone.
    pub(crate) fn check(self, place: &Place) -> Result<(), Failure> {
        if place.kind == Kind::Log || self.0 == Keep::Commits(1) {
            return Ok(());
        }
        let kind = place.kind.name();
        let what = format!("a {kind} store keeps its last commit alone (--keep-commits)");
        let hint = "a log keeps earlier ones: --store log with a new --db; --keep-undo keeps what \
                    takes any store back";
        Err(Failure::new(what).hint(hint))
    }

    /// Has a store keep them from now on.
    pub(crate) fn apply(self, store: &AnyStore) -> Result<(), StoreError> {
        match store {
            AnyStore::Log(log) => log.set_keep(self.0),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CommitEvery, FileMode, Size};

    #[test]
    fn sizes_take_units() {
        for (text, bytes) in [
            ("0", 0),
            ("65536", 65_536),
            ("64k", 65_536),
            ("256MiB", 256 << 20),
            ("2 GB", 2_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "MiB", "1.5G", "-1", "12XB", "99999999999G"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn modes_are_octal_and_leave_the_user_in() {
        for (text, mode) in [("600", 0o600), ("0640", 0o640), ("0o664", 0o664)] {
            assert_eq!(text.parse(), Ok(FileMode(mode)), "{text}");
        }
        for text in ["", "rw-r-----", "400", "040", "755", "1644", "-1", "888", "99999999999"] {
            assert!(text.parse::<FileMode>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_commit_takes_a_block_or_all() {
        assert_eq!("all".parse(), Ok(CommitEvery(u64::MAX)));
        assert_eq!("7".parse(), Ok(CommitEvery(7)));
        assert!("0".parse::<CommitEvery>().is_err());
        assert!("every".parse::<CommitEvery>().is_err());
    }
}
