//! What vectors are run against: the engine over a store in memory, or over redb closed and opened again
//! after every step. After every step the pages are compared with those of a rebuild.

use sha2::{Digest as _, Sha256};
use spinney_state::{Changes, MPT, State};
use spinney_store::{AnyStore, RedbStore};
use spinney_tree::mpt::Mpt;
use spinney_tree::{Batch, Finding, PageStore as _, Tree};
use tempfile::TempDir;

use super::{Options, VectorError};

const CACHE_BYTES: usize = 64 << 20;

/// Where a subject lives.
struct Place(Option<TempDir>);

impl Place {
    fn new(options: &Options) -> Result<Self, VectorError> {
        Ok(Self(if options.redb { Some(tempfile::tempdir()?) } else { None }))
    }

    fn open(&self) -> Result<AnyStore, VectorError> {
        Ok(match &self.0 {
            None => AnyStore::memory(),
            Some(folder) => RedbStore::open_or_create(folder.path(), CACHE_BYTES)?.into(),
        })
    }

    /// The same store as it is when it is opened again.
    fn reopen(&self, store: AnyStore) -> Result<AnyStore, VectorError> {
        if self.0.is_none() {
            return Ok(store);
        }
        store.close()?;
        self.open()
    }
}

fn sound(findings: &[Finding]) -> Result<(), VectorError> {
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
        if self.place.0.is_some() {
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
        if self.place.0.is_some() {
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

fn open_state(store: AnyStore) -> Result<State<AnyStore>, VectorError> {
    let mut state = State::open(store, CACHE_BYTES)?;
    state.keep_preimages(false);
    Ok(state)
}

/// The digest that generated vectors take their bytes from: SHA-256 of a tag and a number.
pub(super) fn drawn(tag: &str, number: u64) -> [u8; 32] {
    Sha256::new().chain_update(tag).chain_update(number.to_be_bytes()).finalize().into()
}
