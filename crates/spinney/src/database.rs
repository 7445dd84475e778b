//! A store, and its trees by name.
//!
//! Invariants:
//! - a name is of one tree, whatever its kind; each tree has an id that no other tree had before
//!   it;
//! - commits take turns: between what a commit looks at and what it writes nobody else of this
//!   process writes;
//! - trees that the `spinney` command keeps have no such names, and are never written here.

use std::fmt;
use std::sync::{Arc, PoisonError, Weak};

use spinney_tree::names::{self, FIRST_ID};
use spinney_tree::{MemoryStore, PageStore, RootRecord, SchemeId, Table, Tree, WriteSet};

use crate::error::Error;
use crate::kind::TreeKind;
use crate::live::Core;
use crate::pending::Commit;
use crate::shared::{
    AnyStore, DatabaseOptions, Known, Shared, command_trees, find, is_of_command, record_of,
};
use crate::tree::DbTree;

impl DatabaseOptions {
    /// Opens the database in a directory: a log, or a store of redb's that is there. To be written
    /// it is made if there is none.
    ///
    /// # Errors
    /// If it is no store, another process writes it, or it is damaged.
    #[cfg(feature = "redb")]
    pub fn open(self, directory: impl Into<std::path::PathBuf>) -> Result<Database, Error> {
        self.at(&spinney_store::Location::directory(directory))
    }

    /// Opens the database in a SQLite file; to be written it is made if there is none.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[cfg(feature = "sqlite")]
    pub fn sqlite(self, file: impl Into<std::path::PathBuf>) -> Result<Database, Error> {
        self.at(&spinney_store::Location::Sqlite(file.into()))
    }

    /// Opens the database in a schema of a PostgreSQL database; to be written it is made if there
    /// is none.
    ///
    /// # Errors
    /// As [`open`](Self::open), or if the server cannot be reached.
    #[cfg(feature = "postgres")]
    pub fn postgres(self, address: impl Into<String>) -> Result<Database, Error> {
        let address = spinney_store::Address::new(address);
        self.at(&spinney_store::Location::Postgres(address))
    }

    #[cfg(any(feature = "redb", feature = "sqlite", feature = "postgres"))]
    fn at(self, location: &spinney_store::Location) -> Result<Database, Error> {
        use spinney_store::OpenFor::{Filling, Reading};
        let what_for = if self.read_only { Reading } else { Filling };
        let store = location.open(what_for, self.store_cache)?;
        Ok(self.over(store))
    }

    /// The database over a store.
    pub fn over<P: PageStore + 'static>(self, store: P) -> Database<P> {
        Database { shared: Arc::new(Shared::new(store, self)) }
    }
}

/// Trees by name in one store, any number of them and of any kind.
///
/// It is cheap to clone, and clones and the trees that it hands out may go to any threads. Any
/// number of them read and prepare at once; commits take turns.
///
/// ```
/// use spinney::{Database, Mpt, TreeKind};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("state");
/// # #[cfg(feature = "redb")] {
/// let db = Database::open(path)?;                            // or memory(), sqlite(..), ..
/// let accounts = db.tree::<Mpt>("accounts")?;
/// let pending = accounts.batch().put(b"doe", b"reindeer").delete(b"dog").prepare()?;
/// let root = pending.root();                                 // nothing is written yet
/// let proof = accounts.at(&pending).prove([b"doe"])?;        // a view: get, range, prefix, prove
/// pending.commit()?;                                         // durable
/// let verified = Mpt::verify(&root, &proof)?;                // needs `proof` alone
/// assert_eq!(verified.get(b"doe")?, Some(&b"reindeer"[..]));
/// # }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Database<P: PageStore + 'static = AnyStore> {
    shared: Arc<Shared<P>>,
}

impl<P: PageStore> Clone for Database<P> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<P: PageStore> fmt::Debug for Database<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

/// A tree that a database holds: see [`Database::trees`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeInfo {
    /// Its name.
    pub name: String,
    /// Its kind and hash.
    pub scheme: SchemeId,
    /// The root of the last commit, as its kind writes it; `None` before the first one.
    pub root: Option<Vec<u8>>,
    /// How many commits were made to it.
    pub commits: u64,
    /// Whether the `spinney` command keeps it, so that it can only be read here.
    pub is_of_command: bool,
}

impl Database {
    /// Opens the database in a directory, which is made if there is none: see
    /// [`DatabaseOptions::open`].
    ///
    /// # Errors
    /// If it is no store, another process writes it, or it is damaged.
    #[cfg(feature = "redb")]
    pub fn open(directory: impl Into<std::path::PathBuf>) -> Result<Self, Error> {
        DatabaseOptions::new().open(directory)
    }

    /// Opens the database in a SQLite file, which is made if there is none: see
    /// [`DatabaseOptions::sqlite`].
    ///
    /// ```
    /// # use spinney::{Database, Mpt};
    /// # let folder = tempfile::tempdir()?;
    /// let db = Database::sqlite(folder.path().join("state.sqlite"))?;
    /// db.tree::<Mpt>("accounts")?.batch().put(b"doe", b"reindeer").prepare()?.commit()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`open`](DatabaseOptions::open).
    #[cfg(feature = "sqlite")]
    pub fn sqlite(file: impl Into<std::path::PathBuf>) -> Result<Self, Error> {
        DatabaseOptions::new().sqlite(file)
    }

    /// Opens the database in PostgreSQL, which is made if there is none: see
    /// [`DatabaseOptions::postgres`].
    ///
    /// # Errors
    /// As [`open`](DatabaseOptions::open), or if the server cannot be reached.
    #[cfg(feature = "postgres")]
    pub fn postgres(address: impl Into<String>) -> Result<Self, Error> {
        DatabaseOptions::new().postgres(address)
    }

    /// An empty database in memory, which goes with its last handle.
    #[cfg_attr(
        not(any(feature = "redb", feature = "sqlite", feature = "postgres")),
        expect(clippy::useless_conversion, reason = "with more stores there are more kinds")
    )]
    pub fn memory() -> Self {
        DatabaseOptions::new().over(MemoryStore::new().into())
    }
}

impl<P: PageStore> Database<P> {
    /// The database over a store of any kind, with the default options.
    pub fn over(store: P) -> Self {
        DatabaseOptions::new().over(store)
    }

    /// The store. What is written there without the database is seen by trees that are opened
    /// later.
    pub fn store(&self) -> &P {
        &self.shared.store
    }

    /// Opens the tree of a name; to be written it is made if there is none. It is the
    /// [standard](TreeKind::standard) one of its kind.
    ///
    /// # Errors
    /// [`Error::OtherScheme`] if the name is that of another tree, [`Error::NoTree`] if there is
    /// none and the database is read-only; if the store fails or is damaged.
    pub fn tree<S: TreeKind>(&self, name: &str) -> Result<DbTree<S, P>, Error> {
        self.tree_with(name, S::standard())
    }

    /// The same of a tree with another hash than the standard one, or another profile.
    ///
    /// # Errors
    /// As [`tree`](Self::tree).
    pub fn tree_with<S: TreeKind>(&self, name: &str, scheme: S) -> Result<DbTree<S, P>, Error> {
        let shared = &self.shared;
        let _turn = shared.turn();
        let known = match find(&shared.store.snapshot()?, name)? {
            Some(known) if known.scheme == scheme.id() => known,
            Some(Known { name, scheme: found, .. }) => {
                return Err(Error::OtherScheme { name, found, asked: scheme.id() });
            }
            None if shared.options.read_only => {
                let held = self.trees()?.into_iter().map(|tree| tree.name).collect();
                return Err(Error::NoTree { name: name.to_owned(), held });
            }
            None if is_of_command(name) => {
                return Err(Error::Reserved { name: name.to_owned() });
            }
            None => shared.create(name, scheme.id())?,
        };
        let mut open = shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        let there = open.get(&known.id).and_then(Weak::upgrade);
        if let Some(core) = there.and_then(|core| core.downcast::<Core<S, P>>().ok()) {
            return Ok(DbTree::of(core));
        }
        let cache = shared.options.tree_cache;
        let tree = Tree::open(scheme.clone(), known.id, &shared.store.snapshot()?, cache);
        let tree = tree.map_err(|error| Error::of(name, error))?;
        let core = Arc::new(Core::new(Arc::clone(shared), known, scheme, tree));
        let weak: Weak<Core<S, P>> = Arc::downgrade(&core);
        open.retain(|_, tree| tree.strong_count() > 0);
        open.insert(core.id, weak);
        Ok(DbTree::of(core))
    }

    /// The trees that the store holds, in order of their names.
    ///
    /// ```
    /// # use spinney::{Database, Mpt, Verkle};
    /// let db = Database::memory();
    /// db.tree::<Mpt>("accounts")?;
    /// let [accounts] = &db.trees()?[..] else { unreachable!("one tree") };
    /// assert_eq!((&accounts.name[..], accounts.commits), ("accounts", 0));
    /// let other = db.tree::<Verkle>("accounts").unwrap_err();
    /// assert!(other.to_string().starts_with("\"accounts\" is a tree mpt"));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the store fails or is damaged.
    pub fn trees(&self) -> Result<Vec<TreeInfo>, Error> {
        let snapshot = self.shared.store.snapshot()?;
        let mut trees = Vec::new();
        let mut known = command_trees(&snapshot)?;
        let named = names::list(&snapshot)?.into_iter();
        known.extend(named.map(|tree| Known { name: tree.name, id: tree.id, scheme: tree.scheme }));
        for Known { name, id, scheme } in known {
            let record = record_of(&snapshot, id).map_err(|error| Error::of(&name, error))?;
            trees.push(TreeInfo {
                name,
                scheme,
                commits: record.as_ref().map_or(0, |record| record.commit),
                root: record.map(|record| record.root),
                is_of_command: id.0 < FIRST_ID,
            });
        }
        trees.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(trees)
    }

    /// Removes a tree with all that it holds. There is no way back. Handles on it that are still
    /// there say [`Error::Dropped`]; their views go on showing what they showed.
    ///
    /// # Errors
    /// [`Error::NoTree`] if there is no tree of the name; if the `spinney` command keeps it, the
    /// database is read-only, or the store fails.
    pub fn drop_tree(&self, name: &str) -> Result<(), Error> {
        self.shared.writable()?;
        let _turn = self.shared.turn();
        let snapshot = self.shared.store.snapshot()?;
        let Some(known) = find(&snapshot, name)? else {
            let held = self.trees()?.into_iter().map(|tree| tree.name).collect();
            return Err(Error::NoTree { name: name.to_owned(), held });
        };
        let named = names::find(&snapshot, name)?.filter(|named| named.id == known.id);
        let named = named.ok_or_else(|| Error::CommandTree { name: name.to_owned() })?;
        let mut set = WriteSet::new();
        // All pages of the tree begin with its id, and have more.
        let (low, high) = (named.id.0.to_be_bytes(), named.id.0.wrapping_add(1).to_be_bytes());
        set.drop_range(Table::Pages, low.to_vec(), high.to_vec());
        set.delete(Table::Roots, &RootRecord::key(named.id));
        names::remove(&named, &snapshot, &mut set)?;
        drop(snapshot);
        set.sort();
        Ok(self.shared.store.commit(&set)?)
    }

    /// Commits states of several trees: all of them or none, durably.
    ///
    /// ```
    /// # use spinney::{Database, Mpt, Pbt};
    /// let db = Database::memory();
    /// let (one, other) = (db.tree::<Mpt>("one")?, db.tree::<Pbt>("other")?);
    /// let put = one.batch().put(b"doe", b"reindeer").prepare()?;
    /// let also = other.batch().put(&[7; 34], &[1; 32]).prepare()?;
    /// db.commit(&[&put, &also])?;
    /// assert_eq!((one.root()?, other.root()?), (put.root(), also.root()));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Stale`] if another state of one of the trees was committed since,
    /// [`Error::TwoStates`] if two are of one tree; if the database is read-only, or the store
    /// fails.
    pub fn commit(&self, states: &[&dyn Commit<P>]) -> Result<(), Error> {
        crate::pending::commit(&self.shared, states)
    }
}
