//! Where rows are kept: from arguments to an open store.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use spinney_store::{AnyStore, RedbStore};
use spinney_tree::StoreError;

use crate::args::StoreArgs;
use crate::failure::Failure;

/// The most that is read of a file that has to be in memory as a whole: many times mainnet's genesis.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The kinds of stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Redb,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redb => "redb",
        }
    }
}

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// To fill it; it is made if there is none.
    Fill,
    /// To look at it, also while another process fills it.
    Look,
    /// To look at it as its only user, if there is no other.
    Inspect,
}

/// A kind and a place that fit each other.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) path: Option<PathBuf>,
    cache: usize,
}

impl Place {
    pub(crate) fn of(args: &StoreArgs) -> Result<Self, Failure> {
        let given = args.store.as_deref();
        let kind = match given {
            None if args.db.is_some() => Kind::Redb,
            None | Some("memory") => Kind::Memory,
            Some("redb") => Kind::Redb,
            Some(name @ ("sqlite" | "postgres")) => {
                return Err(Failure::new(format!("store {name} is not in this version (--store)"))
                    .hint("this version has: memory, redb"));
            }
            Some(name) => {
                return Err(Failure::new(format!("there is no store {name} (--store)"))
                    .hint("this version has: memory, redb"));
            }
        };
        // What the environment says is for those who say nothing else.
        let from_environment =
            |db: &&PathBuf| env::var_os("SPINNEY_DB").is_some_and(|v| v == db.as_os_str());
        let db = args.db.as_ref().filter(|db| kind == Kind::Redb || !from_environment(db));
        match (kind, db) {
            (Kind::Memory, Some(_)) => Err(Failure::new("a store in memory has no place (--db)")
                .hint("leave out --db, or take --store redb")),
            (Kind::Redb, None) => Err(Failure::new("a redb store needs a directory (--db)")
                .hint("--db DIR; it is made if it is not there")),
            (_, path) => Ok(Self { kind, path: path.cloned(), cache: args.cache.0 }),
        }
    }

    /// A store that is there already.
    pub(crate) fn existing(path: &Path, cache: usize) -> Self {
        Self { kind: Kind::Redb, path: Some(path.to_owned()), cache }
    }

    /// Half of the memory is for pages of trees, half for the store's own.
    pub(crate) fn tree_cache(&self) -> usize {
        match self.kind {
            Kind::Memory => self.cache,
            Kind::Redb => self.cache / 2,
        }
    }

    /// Opens the store.
    pub(crate) fn open(&self, mode: Mode) -> Result<AnyStore, StoreError> {
        let Some(path) = &self.path else { return Ok(AnyStore::memory()) };
        let cache = self.cache / 2;
        let store = match mode {
            Mode::Fill => RedbStore::open_or_create(path, cache)?,
            Mode::Look => open_to_look(path, cache)?,
            Mode::Inspect => match RedbStore::open(path, cache) {
                Err(StoreError::Busy { .. }) => RedbStore::open_read_only(path, cache)?,
                opened => opened?,
            },
        };
        Ok(store.into())
    }

    /// Bytes of the rows of a store in memory.
    pub(crate) fn row_bytes(store: &AnyStore) -> Result<u64, StoreError> {
        Ok(store.stats()?.tables.iter().map(|table| table.stored_bytes).sum())
    }

    /// Bytes of a store's files.
    pub(crate) fn file_bytes(&self) -> Result<u64, StoreError> {
        let Some(path) = &self.path else { return Ok(0) };
        let backend = |source| StoreError::Backend {
            place: path.display().to_string(),
            source: Box::new(source),
        };
        let mut bytes = 0;
        for file in fs::read_dir(path).map_err(backend)? {
            bytes += file.and_then(|file| file.metadata()).map_err(backend)?.len();
        }
        Ok(bytes)
    }
}

/// A writer that was cut off leaves a store that only a writer can open: then that is what we are.
fn open_to_look(path: &Path, cache: usize) -> Result<RedbStore, StoreError> {
    match RedbStore::open_read_only(path, cache) {
        Err(error @ StoreError::Backend { .. }) => RedbStore::open(path, cache).map_err(|_| error),
        opened => opened,
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
    let mut bytes = Vec::new();
    let read = open_file(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    match read {
        Ok(_) if bytes.len() as u64 > FILE_BYTES_MAX => {
            Err(Failure::new(format!("{} is longer than {FILE_BYTES_MAX} bytes", path.display())))
        }
        Ok(_) => Ok(bytes),
        Err(error) => Err(Failure::new(format!("cannot read {}", path.display())).because(error)),
    }
}
