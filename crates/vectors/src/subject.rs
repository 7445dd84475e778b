//! What vectors are run against: the engine over a store in memory, or over redb closed and opened
//! again after every step. After every step the pages are compared with those of a rebuild.

use std::path::PathBuf;

use alloy_primitives::{Address, B256};
use sha2::{Digest as _, Sha256};
use spinney_state::{Changes, MPT, State};
use spinney_store::{AnyStore, Location, OpenFor};
use spinney_tree::mpt::Mpt;
use spinney_tree::mpt::proof::AccountProof;
use spinney_tree::{Batch, Finding, PageStore as _, Snapshot as _, Table, Tree, WriteSet};
use tempfile::TempDir;

use super::{Options, Over, VectorError};

pub(super) const CACHE_BYTES: usize = 64 << 20;

/// Where a subject lives.
pub(super) struct Place {
    /// None in memory.
    location: Option<Location>,
    _folder: Option<TempDir>,
}

impl Place {
    pub(super) fn new(options: &Options) -> Result<Self, VectorError> {
        let in_folder = |location: fn(PathBuf) -> Location| -> Result<Self, VectorError> {
            let folder = tempfile::tempdir()?;
            let location = Some(location(folder.path().join("store")));
            Ok(Self { location, _folder: Some(folder) })
        };
        match &options.over {
            Over::Memory => Ok(Self { location: None, _folder: None }),
            Over::Log => in_folder(Location::Log),
            Over::Redb => in_folder(Location::Redb),
            Over::Sqlite => in_folder(Location::Sqlite),
            Over::Postgres(address) => Self::at(Location::Postgres(address.clone())),
        }
    }

    /// A place that is used again and again, and emptied each time.
    fn at(location: Location) -> Result<Self, VectorError> {
        let store = location.open(OpenFor::Filling, CACHE_BYTES)?;
        let mut empty = true;
        for table in Table::ALL {
            store.snapshot()?.scan(table, &[], None, &mut |_, _| {
                empty = false;
                false
            })?;
        }
        store.close()?;
        match empty {
            true => Ok(Self { location: Some(location), _folder: None }),
            false => Err(VectorError::Occupied(location.to_string())),
        }
    }

    pub(super) fn open(&self) -> Result<AnyStore, VectorError> {
        Ok(match &self.location {
            None => AnyStore::memory(),
            Some(location) => location.open(OpenFor::Filling, CACHE_BYTES)?,
        })
    }

    /// Whether a store here can be closed and opened again.
    const fn is_kept(&self) -> bool {
        self.location.is_some()
    }

    /// The same store as it is when it is opened again.
    pub(super) fn reopen(&self, store: AnyStore) -> Result<AnyStore, VectorError> {
        if !self.is_kept() {
            return Ok(store);
        }
        store.close()?;
        self.open()
    }
}

/// A place that is no folder of ours is left as it was: by then its store is closed.
impl Drop for Place {
    fn drop(&mut self) {
        let Some(location @ Location::Postgres(_)) = &self.location else { return };
        let mut set = WriteSet::new();
        for table in Table::ALL {
            set.drop_range(table, Vec::new(), vec![0xff; 64]);
        }
        // If it fails, the next one says that the place is not empty.
        if let Ok(store) = location.open(OpenFor::Writing, CACHE_BYTES) {
            let _ = store.commit(&set);
        }
    }
}

pub(super) fn sound(findings: &[Finding]) -> Result<(), VectorError> {
    match findings.first() {
        None => Ok(()),
        Some(finding) => Err(VectorError::Unsound(finding.to_string())),
    }
}

/// A tree over raw keys.
pub(super) struct Raw {
    store: Option<AnyStore>,
    pub(super) tree: Tree<Mpt>,
    place: Place,
}

impl Raw {
    pub(super) fn new(options: &Options) -> Result<Self, VectorError> {
        let place = Place::new(options)?;
        let store = place.open()?;
        let tree = Tree::open(Mpt, MPT, &store.snapshot()?, CACHE_BYTES)?;
        Ok(Self { store: Some(store), tree, place })
    }

    pub(super) fn store(&self) -> &AnyStore {
        self.store.as_ref().expect("a subject has its store but while it is opened again")
    }

    /// Commits a batch, and answers with the root of what is stored then.
    pub(super) fn commit(&mut self, batch: Batch) -> Result<[u8; 32], VectorError> {
        let store = self.store.take().expect("a subject has its store");
        let pending = self.tree.prepare(&store.snapshot()?, None, batch)?;
        self.tree.commit(&store, &pending, None)?;
        let store = self.place.reopen(store)?;
        if self.place.is_kept() {
            self.tree = Tree::open(Mpt, MPT, &store.snapshot()?, CACHE_BYTES)?;
        }
        let findings = self.tree.check(&store.snapshot()?, |_| {})?;
        self.store = Some(store);
        sound(&findings)?;
        Ok(self.tree.root())
    }

    /// Commits one operation; `None` deletes.
    pub(super) fn one(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<[u8; 32], VectorError> {
        let mut batch = Batch::new();
        match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        }
        self.commit(batch)
    }
}

impl Raw {
    /// The nodes on a key's path.
    pub(super) fn prove(&self, key: &[u8]) -> Result<Vec<Vec<u8>>, VectorError> {
        let snapshot = self.store().snapshot()?;
        Ok(self.tree.prove(&snapshot, None, &[key])?.into_nodes())
    }
}

/// A state.
pub(super) struct Accounts {
    state: Option<State<AnyStore>>,
    place: Place,
    /// Whether the pages are compared after every step.
    checked: bool,
}

impl Accounts {
    pub(super) fn new(options: &Options, checked: bool) -> Result<Self, VectorError> {
        let place = Place::new(options)?;
        let state = Some(open_state(place.open()?)?);
        Ok(Self { state, place, checked })
    }

    /// Commits changes, and answers with the root of what is stored then.
    pub(super) fn commit(&mut self, changes: &Changes) -> Result<[u8; 32], VectorError> {
        let mut state = self.state.take().expect("a subject has its state");
        state.apply(changes)?;
        state.commit()?;
        if self.place.is_kept() {
            state = open_state(self.place.reopen(state.into_store())?)?;
        }
        if self.checked {
            sound(&state.check(|_| {})?)?;
        }
        let root = state.root();
        self.state = Some(state);
        Ok(root.0)
    }
}

impl Accounts {
    /// Proves an account and some of its slots.
    pub(super) fn prove(
        &self,
        address: Address,
        slots: &[B256],
    ) -> Result<AccountProof, VectorError> {
        Ok(self.state.as_ref().expect("a subject has its state").prove(address, slots)?)
    }
}

fn open_state(store: AnyStore) -> Result<State<AnyStore>, VectorError> {
    let mut state = State::open(store, CACHE_BYTES)?;
    state.keep_preimages(false);
    Ok(state)
}

/// The digest that generated vectors take their bytes from: SHA-256 of a tag and a number.
pub(super) fn drawn(tag: &str, number: u64) -> [u8; 32] {
    Sha256::new().chain_update(tag).chain_update(number.to_be_bytes()).finalize().into()
}
