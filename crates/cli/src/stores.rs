//! Where rows are kept: from arguments to an open store.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use anyhow::Context as _;
use spinney_store::{AnyStore, Location, LogStore, OpenFor};
use spinney_tree::StoreError;

use crate::failure::Failure;
use crate::place_name::{PlaceName, without_password};
use crate::ui::Output;

/// The most that is read of a file that has to be in memory as a whole: many times mainnet's
/// genesis.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The kinds of stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Redb,
    Log,
    Sqlite,
    Postgres,
}

const KINDS: [Kind; 5] = [Kind::Memory, Kind::Redb, Kind::Log, Kind::Sqlite, Kind::Postgres];

/// What a SQLite file begins with.
const SQLITE: &[u8] = b"SQLite format 3\0";

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redb => "redb",
            Self::Log => "log",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }

    /// The names of all.
    pub(crate) fn all() -> Vec<String> {
        KINDS.iter().map(|kind| kind.name().to_owned()).collect()
    }

    pub(crate) fn named(name: &str) -> Result<Self, Failure> {
        let known = KINDS.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| {
            let names = KINDS.map(Self::name).join(", ");
            Failure::new(format!("there is no store {} (--store)", without_password(name)))
                .hint(format!("this version has: {names}"))
        })
    }

    /// The kind of what --db names, where nobody says which: a URL; a SQLite file, or what is named
    /// like one and is not there yet; the directory of a redb store; else the directory of a log.
    pub(crate) fn of(name: &PlaceName) -> Self {
        let PlaceName::Path(path) = name else { return Self::Postgres };
        if LogStore::is_at(path) {
            return Self::Log;
        }
        let mut start = Vec::new();
        let read = File::open(path).and_then(|file| file.take(16).read_to_end(&mut start));
        let named = path.extension().is_some_and(|end| {
            ["sqlite", "sqlite3", "db"].iter().any(|known| end.eq_ignore_ascii_case(known))
        });
        let is_sqlite = read.is_ok() && start == SQLITE || named && !path.exists();
        match Location::directory(path) {
            _ if is_sqlite => Self::Sqlite,
            Location::Redb(_) => Self::Redb,
            _ => Self::Log,
        }
    }

    /// What --db is to be.
    pub(crate) fn needs(self) -> &'static str {
        match self {
            Self::Memory => "nothing",
            Self::Redb | Self::Log => "a directory",
            Self::Sqlite => "a file",
            Self::Postgres => "a URL",
        }
    }

    pub(crate) fn at(self, name: &PlaceName) -> Result<Option<Location>, Failure> {
        Ok(Some(match (self, name.clone()) {
            (Self::Memory, _) => return Ok(None),
            (Self::Redb, PlaceName::Path(path)) => Location::Redb(path),
            (Self::Log, PlaceName::Path(path)) => Location::Log(path),
            (Self::Sqlite, PlaceName::Path(path)) => Location::Sqlite(path),
            (Self::Postgres, PlaceName::Server(address)) => Location::Postgres(address),
            (Self::Postgres, PlaceName::Path(path)) => {
                // What is wrong with it is said when it is used.
                Location::Postgres(path.to_string_lossy().into_owned().into())
            }
            (kind, PlaceName::Server(_)) => {
                let (name, needs) = (kind.name(), kind.needs());
                let what = format!("a {name} store needs {needs}, and this is a server's address");
                return Err(Failure::new(what)
                    .hint("say --store postgres; a file of such a name is written ./NAME"));
            }
        }))
    }
}

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// To fill it; it is made if there is none.
    Fill,
    /// To change what is there.
    Change,
    /// To look at it, also while another process fills it.
    Look,
    /// To look at it as its only user, if there is no other and it can be written.
    Inspect,
}

/// A kind and a place that fit each other.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    /// None in memory.
    pub(crate) location: Option<Location>,
    cache: usize,
}

impl Place {
    /// A place for a store of a kind; in memory there is no location.
    pub(crate) const fn new(kind: Kind, location: Option<Location>, cache: usize) -> Self {
        Self { kind, location, cache }
    }

    /// A store that is there already, or is to be made from a file.
    pub(crate) fn existing(
        db: &PlaceName,
        store: Option<&str>,
        cache: usize,
    ) -> Result<Self, Failure> {
        let kind = match store.map(Kind::named).transpose()? {
            // What the environment says of other commands is nothing that could be looked into.
            None | Some(Kind::Memory) => Kind::of(db),
            Some(kind) => kind,
        };
        Ok(Self { kind, location: kind.at(db)?, cache })
    }

    /// Memory for pages, and for what is sorted before there are any.
    pub(crate) const fn memory(&self) -> usize {
        self.cache
    }

    /// Half of the memory is for pages of trees, half for the store's own, if it keeps any.
    pub(crate) fn tree_cache(&self) -> usize {
        match self.kind {
            Kind::Memory | Kind::Log | Kind::Postgres => self.cache,
            Kind::Redb | Kind::Sqlite => self.cache / 2,
        }
    }

    /// Opens the store.
    pub(crate) fn open(&self, mode: Mode) -> Result<AnyStore, StoreError> {
        let Some(location) = &self.location else { return Ok(AnyStore::memory()) };
        let cache = self.cache / 2;
        match mode {
            Mode::Fill => location.open(OpenFor::Filling, cache),
            Mode::Change => location.open(OpenFor::Writing, cache),
            Mode::Look => open_to_look(location, cache),
            Mode::Inspect => match location.open(OpenFor::Writing, cache) {
                Err(error) if is_closed_to_us(&error) => location.open(OpenFor::Reading, cache),
                opened => opened,
            },
        }
    }

    /// Opens a store, which is made if there is none, and lets `work` fill it. If that is refused
    /// before anything was committed, what was made for it goes again.
    pub(crate) fn fill<T>(
        &self,
        output: &Output,
        work: impl FnOnce(&AnyStore) -> anyhow::Result<T>,
    ) -> anyhow::Result<(AnyStore, T)> {
        let before = self.location.as_ref().map(Location::before);
        let is_new = self.is_new();
        let store = self.open(Mode::Fill)?;
        self.announce(is_new, output);
        match (work(&store), before) {
            (Ok(done), _) => Ok((store, done)),
            (Err(error), None) => Err(error),
            (Err(error), Some(before)) => {
                // The first error says more.
                let _ = before.restore(store);
                Err(error)
            }
        }
    }

    /// Opens a store to fill it that is not to be seen before it is finished, or goes on with one.
    pub(crate) fn go_on(&self) -> Result<AnyStore, StoreError> {
        match &self.location {
            None => Ok(AnyStore::memory()),
            Some(location) => location.go_on(self.cache / 2),
        }
    }

    /// Whether there is a store, sound or not.
    pub(crate) fn exists(&self) -> Result<bool, StoreError> {
        if let Some(Location::Log(path)) = &self.location
            && LogStore::is_at(path)
        {
            // To open it is to read its index.
            return Ok(true);
        }
        match self.location.as_ref().map(|location| location.open(OpenFor::Reading, 0)) {
            None | Some(Err(StoreError::Missing { .. })) => Ok(false),
            // A server that does not answer says nothing of what it has.
            Some(Err(error @ StoreError::Backend { .. })) if self.kind == Kind::Postgres => {
                Err(error)
            }
            Some(Err(error @ StoreError::Foreign { .. })) => Err(error),
            Some(_) => Ok(true),
        }
    }

    /// Refuses a store that is there already.
    pub(crate) fn must_be_new(&self, hint: &str) -> anyhow::Result<()> {
        if self.exists()? {
            let what = format!("there is a store already at {}", self.name());
            return Err(Failure::new(what).hint(hint).into());
        }
        Ok(())
    }

    /// Whether there is to be a store, and is none yet.
    pub(crate) fn is_new(&self) -> bool {
        self.location.is_some() && matches!(self.exists(), Ok(false))
    }

    /// Says of what kind a store is that was just made: its name alone may have decided.
    pub(crate) fn announce(&self, is_new: bool, output: &Output) {
        if is_new {
            output.note(&format!("new store: {} ({})", self.kind.name(), self.name()));
        }
    }

    /// The place, for messages.
    pub(crate) fn name(&self) -> String {
        self.location.as_ref().map_or_else(|| "memory".into(), ToString::to_string)
    }

    /// Makes a store that `fill` puts rows into. Nobody sees it before it is whole.
    pub(crate) fn create(
        &self,
        output: &Output,
        fill: impl FnOnce(&AnyStore) -> anyhow::Result<()>,
    ) -> anyhow::Result<AnyStore> {
        let location = self.location.as_ref();
        let location = location.context("a store in memory is not made from a file")?;
        let is_new = self.is_new();
        location.create_filled(self.cache / 2, |store| {
            self.announce(is_new, output);
            fill(store)
        })
    }

    /// Closes a store, and answers what it takes: bytes of its rows in memory, of its files, or of
    /// its tables on a server.
    pub(crate) fn close(&self, store: AnyStore) -> Result<u64, StoreError> {
        let Some(location) = &self.location else {
            let bytes = store.stats()?.tables.iter().map(|table| table.stored_bytes).sum();
            store.close()?;
            return Ok(bytes);
        };
        if let Location::Postgres(_) = location {
            let bytes = store.stats()?.file_bytes;
            store.close()?;
            return Ok(bytes);
        }
        store.close()?;
        Ok(self.file_bytes()?.unwrap_or_default())
    }

    /// What the files of a store take; none where it has no files.
    pub(crate) fn file_bytes(&self) -> Result<Option<u64>, StoreError> {
        match &self.location {
            Some(Location::Redb(folder) | Location::Log(folder)) => files_of(folder).map(Some),
            Some(Location::Sqlite(file)) => {
                let length = fs::metadata(file).map(|found| Some(found.len()));
                length.map_err(|error| unreadable(file, error))
            }
            _ => Ok(None),
        }
    }
}

fn files_of(folder: &Path) -> Result<u64, StoreError> {
    let mut bytes = 0;
    for file in fs::read_dir(folder).map_err(|error| unreadable(folder, error))? {
        let file = file.map_err(|error| unreadable(folder, error))?;
        let found = file.metadata().map_err(|error| unreadable(folder, error))?;
        bytes += if found.is_dir() { files_of(&file.path())? } else { found.len() };
    }
    Ok(bytes)
}

fn unreadable(path: &Path, error: io::Error) -> StoreError {
    StoreError::Backend { place: path.display().to_string(), source: Box::new(error) }
}

/// Whether a store cannot be opened for writing, and perhaps can be for reading.
fn is_closed_to_us(error: &StoreError) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    match error {
        StoreError::Busy { .. } => true,
        StoreError::Backend { source, .. } => source
            .downcast_ref::<io::Error>()
            .is_some_and(|error| matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)),
        _ => false,
    }
}

/// A redb writer that was cut off leaves a store that only a writer can open: then that is what we
/// are.
fn open_to_look(location: &Location, cache: usize) -> Result<AnyStore, StoreError> {
    match (location, location.open(OpenFor::Reading, cache)) {
        (Location::Redb(_), Err(error @ StoreError::Backend { .. })) => {
            location.open(OpenFor::Writing, cache).map_err(|_| error)
        }
        (_, opened) => opened,
    }
}

/// Opens a file to read; `-` is standard input.
pub(crate) fn open_file(path: &Path) -> Result<Box<dyn io::Read + Send>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let file = File::open(path).and_then(|file| match file.metadata()?.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => Ok(file),
    });
    match file {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => {
            let what = format!("cannot open {}: {error}", path.display());
            Err(Failure::new(what).hint("check the path; - reads standard input"))
        }
    }
}

/// Reads a whole file, up to a bound; `-` is standard input.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    read_file_of(path, FILE_BYTES_MAX, "give a shorter one")
}

/// Reads a whole file of so many bytes at most; `-` is standard input. The hint is for a longer
/// one.
pub(crate) fn read_file_of(path: &Path, bytes_max: u64, hint: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = open_file(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes);
    match read {
        Ok(_) if bytes.len() as u64 > bytes_max => {
            let what = format!("{} is longer than {bytes_max} bytes", path.display());
            Err(Failure::new(what).hint(hint))
        }
        Ok(_) => Ok(bytes),
        Err(error) => Err(Failure::new(format!("cannot read {}", path.display())).because(error)),
    }
}
