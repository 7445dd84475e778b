//! Where the stores of a run lie, and what goes wrong there.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};

use fastrand::Rng;
use spinney_store::fault::{Fault, FaultDisk, Stop, Survivors};
use spinney_store::{AnySnapshot, AnyStore, Location, OpenFor};
use spinney_tree::{PageStore, StoreError, WriteSet};

/// A kind of store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// In memory: it stays from process to process, and its commits fail on demand.
    Memory,
    /// redb, on a disk that fails on demand.
    Redb,
    /// The log, likewise.
    Log,
    /// SQLite, likewise.
    Sqlite,
    /// PostgreSQL: the URL of a schema without tables. Its commits fail on demand; copies are in
    /// memory.
    Postgres(String),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Redb => "redb",
            Self::Log => "log",
            Self::Sqlite => "sqlite",
            Self::Postgres(_) => "postgres",
        })
    }
}

/// The store that verbs are about.
pub(crate) const MAIN: &str = "state";

/// Where the stores of a run lie.
#[derive(Debug)]
pub(crate) struct Site {
    kind: Kind,
    disk: FaultDisk,
    /// Stores in memory that nobody has open.
    memory: BTreeMap<String, AnyStore>,
    /// The first operation of the disk that goes wrong.
    fault: Option<u64>,
}

const CACHE_BYTES: usize = 64 << 10;

impl Site {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, disk: FaultDisk::new(), memory: BTreeMap::new(), fault: None }
    }

    /// Whether it is on a disk that fails.
    pub(crate) const fn has_disk(&self) -> bool {
        matches!(self.kind, Kind::Redb | Kind::Log | Kind::Sqlite)
    }

    fn at(&self, name: &str) -> Option<Location> {
        match &self.kind {
            Kind::Redb => Some(Location::Redb(PathBuf::from("db").join(name))),
            Kind::Log => Some(Location::Log(PathBuf::from("db").join(name))),
            Kind::Sqlite => Some(Location::Sqlite(PathBuf::from("db").join(name))),
            Kind::Postgres(url) if name == MAIN => Some(Location::Postgres(url.clone().into())),
            Kind::Memory | Kind::Postgres(_) => None,
        }
    }

    pub(crate) fn open(&mut self, name: &str, what_for: OpenFor) -> Result<AnyStore, StoreError> {
        match (self.at(name), what_for) {
            (Some(at), _) if self.has_disk() => self.disk.open(&at, what_for, CACHE_BYTES),
            (Some(at), _) => at.open(what_for, CACHE_BYTES),
            (None, OpenFor::Filling) => {
                Ok(self.memory.remove(name).unwrap_or_else(AnyStore::memory))
            }
            (None, _) => {
                let missing = || StoreError::Missing { place: name.into() };
                self.memory.remove(name).ok_or_else(missing)
            }
        }
    }

    /// Makes a store, which is there once it is filled.
    pub(crate) fn create<E: From<StoreError>>(
        &mut self,
        name: &str,
        fill: impl FnOnce(&AnyStore) -> Result<(), E>,
    ) -> Result<AnyStore, E> {
        match self.at(name) {
            Some(at) if self.has_disk() => self.disk.create_filled(&at, CACHE_BYTES, fill),
            Some(at) => at.create_filled(CACHE_BYTES, fill),
            None => {
                let store = AnyStore::memory();
                fill(&store)?;
                Ok(store)
            }
        }
    }

    /// Closes a store; of one in memory it is kept what is in it.
    pub(crate) fn close(&mut self, name: &str, store: AnyStore) -> Result<(), StoreError> {
        match store {
            AnyStore::Memory(_) => drop(self.memory.insert(name.into(), store)),
            store => store.close()?,
        }
        Ok(())
    }

    /// Leaves a store as a process does that ends.
    pub(crate) fn leave(&mut self, name: &str, store: AnyStore) {
        if let AnyStore::Memory(_) = store {
            self.memory.insert(name.into(), store);
        }
    }

    pub(crate) fn publish(&mut self, from: &str, to: &str) -> Result<(), StoreError> {
        match (self.at(from), self.at(to)) {
            (Some(from), Some(to)) => self.disk.publish(&from, &to),
            _ => {
                let store = self.open(from, OpenFor::Writing)?;
                self.close(to, store)
            }
        }
    }

    /// Removes a store, if there is one.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), StoreError> {
        let removed = match self.at(name) {
            Some(at) => self.disk.remove(&at),
            None => {
                self.memory.remove(name).map(drop).ok_or(StoreError::Missing { place: name.into() })
            }
        };
        match removed {
            Err(StoreError::Missing { .. }) => Ok(()),
            other => other,
        }
    }

    /// Lets an operation of the disk go wrong that is soon to come.
    pub(crate) fn fault(&mut self, rng: &mut Rng) {
        let at = self.disk.operations() + rng.u64(0..40);
        match rng.u8(0..5) {
            0 => self.disk.stop_at(at, Stop::Fail),
            1 => self.disk.stop_at(at, Stop::Break),
            2 => self.disk.fault_at(at, Fault::Full),
            3 => self.disk.fault_at(at, Fault::Broken),
            _ => self.disk.fault_at(at, Fault::Short),
        }
        self.fault = Some(self.fault.map_or(at, |first| first.min(at)));
    }

    /// Bounds the disk to little more than what is on it.
    pub(crate) fn fill_up(&mut self, rng: &mut Rng) {
        let length = |name| self.disk.file(name).map_or(0, |file| file.len() as u64);
        let now: u64 = self.disk.names().iter().map(|name| length(name)).sum();
        self.disk.set_room(Some(now + rng.u64(0..300 << 10)));
        self.fault = Some(0);
    }

    /// Cuts the power soon: the process does not notice.
    pub(crate) fn freeze(&mut self, rng: &mut Rng) {
        self.disk.stop_at(self.disk.operations() + rng.u64(0..40), Stop::Freeze);
    }

    /// Lets nothing more go wrong.
    pub(crate) fn calm(&mut self) {
        self.disk.resume();
        self.disk.set_room(None);
        self.fault = None;
    }

    /// Whether something went wrong, or may have.
    pub(crate) fn has_failed(&self) -> bool {
        self.fault.is_some_and(|at| self.disk.operations() > at || at == 0)
    }

    /// What the next process finds.
    pub(crate) fn after(&mut self, survivors: Option<Survivors>) {
        self.disk = match survivors {
            Some(survivors) => self.disk.after_power_cut(survivors),
            None => self.disk.after_kill(),
        };
        self.disk.set_room(None);
        self.fault = None;
    }
}

/// How the next commit of a store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Trip {
    /// It does not.
    No = 0,
    /// Nothing is committed.
    Before = 1,
    /// It is committed, and the answer gets lost.
    After = 2,
}

/// Makes commits fail, whatever the store is.
#[derive(Debug, Default)]
pub(crate) struct Fuse {
    next: AtomicU8,
    tripped: AtomicU8,
}

impl Fuse {
    pub(crate) fn set(&self, trip: Trip) {
        self.next.store(trip as u8, Ordering::Relaxed);
    }

    /// What happened since this was asked last.
    pub(crate) fn take(&self) -> Trip {
        match self.tripped.swap(0, Ordering::Relaxed) {
            1 => Trip::Before,
            2 => Trip::After,
            _ => Trip::No,
        }
    }

    pub(crate) fn has_tripped(&self) -> bool {
        self.tripped.load(Ordering::Relaxed) != 0
    }
}

/// A store with a fuse.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tap<'s> {
    pub(crate) store: &'s AnyStore,
    pub(crate) fuse: &'s Fuse,
}

impl PageStore for Tap<'_> {
    type Snapshot<'a>
        = AnySnapshot<'a>
    where
        Self: 'a;

    fn snapshot(&self) -> Result<AnySnapshot<'_>, StoreError> {
        self.store.snapshot()
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        let trip = self.fuse.next.swap(0, Ordering::Relaxed);
        if trip == Trip::Before as u8 {
            self.fuse.tripped.store(trip, Ordering::Relaxed);
            return Err(blown("before"));
        }
        self.store.commit(set)?;
        if trip == Trip::After as u8 {
            self.fuse.tripped.store(trip, Ordering::Relaxed);
            return Err(blown("after"));
        }
        Ok(())
    }
}

fn blown(when: &str) -> StoreError {
    let source = format!("the commit fails, as it was to, {when} it is done").into();
    StoreError::Backend { place: "a store of the simulator".into(), source }
}
