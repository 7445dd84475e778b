//! A store whose commits are written by a thread of its own.
//!
//! Invariants (`tests/it/behind.rs`):
//! - readers see a commit from the moment that it is taken: it lies over the store until it is
//!   there;
//! - commits reach the store in their order, one at a time, each of them whole; the next one is
//!   taken once the one before is durable, so that at most one waits in memory;
//! - after a commit that fails no other is taken, and none is written;
//! - whatever fails from then on is told by the reason of that commit: a store that could not write
//!   answers reads with an error, too, and that error says less.

use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use spinney_tree::{CommitOf, PageStore, Snapshot, StoreError, Table, WriteSet};

/// A store that takes a commit at once, and writes it behind its caller's back.
///
/// ```
/// use spinney_store::{AnyStore, WriteBehind};
/// use spinney_tree::{PageStore, Snapshot, StoreError, Table, WriteSet};
///
/// let store = AnyStore::memory();
/// WriteBehind::over(&store, |behind| {
///     let mut set = WriteSet::new();
///     set.put(Table::Meta, b"head", *b"block 1");
///     behind.commit(&set)?;
///     // It may not be durable yet, and is read all the same.
///     assert!(behind.snapshot()?.read(Table::Meta, b"head")?.is_some());
///     behind.settle()
/// })?;
/// assert!(store.snapshot()?.read(Table::Meta, b"head")?.is_some());
/// # Ok::<_, StoreError>(())
/// ```
#[derive(Debug)]
pub struct WriteBehind<'s, P> {
    store: &'s P,
    desk: Mutex<Desk>,
    /// Something on the desk has changed.
    changed: Condvar,
}

/// What the writer is to do, and what became of it.
#[derive(Debug, Default)]
struct Desk {
    /// The commit that is taken and not durable.
    waiting: Option<Arc<WriteSet>>,
    /// Why a commit could not be written.
    failed: Option<StoreError>,
    /// Nothing is written any more.
    broken: bool,
    /// Nobody will commit again.
    closed: bool,
}

impl<'s, P: PageStore> WriteBehind<'s, P> {
    /// Lends a store that writes behind to `work`, and waits until all that it committed is
    /// durable.
    ///
    /// # Errors
    /// What `work` answers; else that a commit could not be written.
    pub fn over<R, E: From<StoreError>>(
        store: &'s P,
        work: impl FnOnce(&Self) -> Result<R, E>,
    ) -> Result<R, E> {
        let behind = Self { store, desk: Mutex::default(), changed: Condvar::new() };
        let behind = &behind;
        std::thread::scope(|scope| {
            let writer = std::thread::Builder::new().name("commit".into());
            let writer = writer.spawn_scoped(scope, || {
                let _breaks = OnPanic(behind);
                behind.write();
            });
            if let Err(error) = writer {
                return Err(backend("no thread can be started", error).into());
            }
            // Also where `work` panics: the scope waits for the writer.
            let _closes = Close(behind);
            let answer = work(behind)?;
            behind.settle()?;
            Ok(answer)
        })
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Desk)) {
        change(&mut self.desk());
        self.changed.notify_all();
    }

    /// Waits while the desk is as `while_so` says.
    fn wait(&self, while_so: impl Fn(&Desk) -> bool) -> MutexGuard<'_, Desk> {
        self.changed
            .wait_while(self.desk(), |desk| while_so(desk))
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is taken, until nobody will commit again.
    fn write(&self) {
        loop {
            let desk = self.wait(|desk| desk.waiting.is_none() && !desk.closed);
            let Some(set) = desk.waiting.clone() else { return };
            drop(desk);
            let written = self.store.commit(&set);
            let is_over = written.is_err();
            self.change(|desk| match written {
                Ok(()) => desk.waiting = None,
                Err(error) => (desk.failed, desk.broken) = (Some(error), true),
            });
            if is_over {
                return;
            }
        }
    }

    /// The desk once nothing waits any more.
    fn settled(&self) -> Result<MutexGuard<'_, Desk>, StoreError> {
        let desk = self.wait(|desk| desk.waiting.is_some() && !desk.broken);
        match &desk.failed {
            Some(error) => Err(again(error)),
            None if desk.broken => {
                Err(backend("a commit failed before", "nothing more is written"))
            }
            None => Ok(desk),
        }
    }

    /// Why a view of the store failed: by the commit that failed, if one did. It may be failing
    /// right now, so this waits for what becomes of it.
    fn reason(&self, error: StoreError) -> StoreError {
        let desk = self.wait(|desk| desk.waiting.is_some() && !desk.broken);
        desk.failed.as_ref().map_or(error, again)
    }
}

/// The same error once more.
fn again(error: &StoreError) -> StoreError {
    match error {
        StoreError::Busy { place } => StoreError::Busy { place: place.clone() },
        StoreError::Corrupt { place, what } => {
            StoreError::Corrupt { place: place.clone(), what: what.clone() }
        }
        StoreError::Backend { place, source } => backend(place, same(source.as_ref())),
        StoreError::Foreign { place, what } => {
            StoreError::Foreign { place: place.clone(), what: what.clone() }
        }
        StoreError::Missing { place } => StoreError::Missing { place: place.clone() },
        other => backend("a commit failed before", other.to_string()),
    }
}

/// An error with the same words, and of the same kind where the system gave it.
fn same(error: &(dyn Error + Send + Sync + 'static)) -> Box<dyn Error + Send + Sync> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(one) = cause {
        if let Some(system) = one.downcast_ref::<io::Error>() {
            return io::Error::new(system.kind(), error.to_string()).into();
        }
        cause = one.source();
    }
    error.to_string().into()
}

fn backend(place: &str, what: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
    StoreError::Backend { place: place.into(), source: what.into() }
}

struct Close<'a, 's, P: PageStore>(&'a WriteBehind<'s, P>);

impl<P: PageStore> Drop for Close<'_, '_, P> {
    fn drop(&mut self) {
        self.0.change(|desk| desk.closed = true);
    }
}

/// Whoever waits for a writer that panicked is told.
struct OnPanic<'a, 's, P: PageStore>(&'a WriteBehind<'s, P>);

impl<P: PageStore> Drop for OnPanic<'_, '_, P> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.change(|desk| desk.broken = true);
        }
    }
}

impl<'s, P: PageStore> PageStore for WriteBehind<'s, P> {
    type Snapshot<'a>
        = BehindSnapshot<'a, 's, P>
    where
        Self: 'a;

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, StoreError> {
        // Held meanwhile: else the view could be older than the commit that lies over it, or two
        // newer.
        let desk = self.desk();
        if let Some(error) = &desk.failed {
            return Err(again(error));
        }
        match self.store.snapshot() {
            Ok(store) => Ok(BehindSnapshot { behind: self, over: desk.waiting.clone(), store }),
            Err(error) => {
                drop(desk);
                Err(self.reason(error))
            }
        }
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        self.commit_owned(set.clone())
    }

    fn commit_owned(&self, mut set: WriteSet) -> Result<(), StoreError> {
        set.sort();
        let mut desk = self.settled()?;
        desk.waiting = Some(Arc::new(set));
        drop(desk);
        self.changed.notify_all();
        Ok(())
    }

    fn unsettled(&self) -> usize {
        usize::from(self.desk().waiting.is_some())
    }

    fn settle(&self) -> Result<(), StoreError> {
        self.settled().map(drop)
    }
}

/// A view of a [`WriteBehind`]: of the store, and of the commit that lies over it.
pub struct BehindSnapshot<'a, 's, P: PageStore> {
    behind: &'a WriteBehind<'s, P>,
    over: Option<Arc<WriteSet>>,
    store: P::Snapshot<'a>,
}

impl<P: PageStore> fmt::Debug for BehindSnapshot<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BehindSnapshot").field("over", &self.over).finish_non_exhaustive()
    }
}

/// A row lent by a [`BehindSnapshot`].
#[derive(Debug)]
pub enum BehindRow<R> {
    /// Of the commit that waits.
    Waiting(Arc<[u8]>),
    /// Of the store.
    Stored(R),
}

impl<R: Deref<Target = [u8]>> Deref for BehindRow<R> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Waiting(row) => row,
            Self::Stored(row) => row,
        }
    }
}

impl<P: PageStore> BehindSnapshot<'_, '_, P> {
    /// What the commit that waits says of a row, if anything.
    fn waiting<R>(&self, table: Table, key: &[u8]) -> Option<Option<BehindRow<R>>> {
        let over = self.over.as_deref()?;
        if let Some(row) = over.row(table, key) {
            return Some(row.map(|row| BehindRow::Waiting(Arc::clone(row))));
        }
        is_dropped(over, table, key).then_some(None)
    }
}

fn is_dropped(set: &WriteSet, table: Table, key: &[u8]) -> bool {
    set.drops().any(|(of, low, high)| of == table && low < key && key < high)
}

impl<'a, P: PageStore> Snapshot for BehindSnapshot<'a, '_, P> {
    type Row<'s>
        = BehindRow<<P::Snapshot<'a> as Snapshot>::Row<'s>>
    where
        Self: 's;

    fn read<'s>(&'s self, table: Table, key: &[u8]) -> Result<Option<Self::Row<'s>>, StoreError> {
        match self.waiting(table, key) {
            Some(row) => Ok(row),
            None => {
                let row = self.store.read(table, key).map_err(|error| self.behind.reason(error))?;
                Ok(row.map(BehindRow::Stored))
            }
        }
    }

    fn read_many<'s>(
        &'s self,
        table: Table,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Self::Row<'s>>>, StoreError> {
        let known: Vec<_> = keys.iter().map(|key| self.waiting(table, key)).collect();
        let unknown = keys.iter().zip(&known).filter(|(_, known)| known.is_none());
        let unknown: Vec<&[u8]> = unknown.map(|(key, _)| *key).collect();
        let stored = self.store.read_many(table, &unknown);
        let mut stored = stored.map_err(|error| self.behind.reason(error))?.into_iter();
        let row = |known: Option<_>| {
            known.unwrap_or_else(|| stored.next().flatten().map(BehindRow::Stored))
        };
        Ok(known.into_iter().map(row).collect())
    }

    fn is_far(&self) -> bool {
        self.store.is_far()
    }

    /// Nothing while a commit waits: the store below still shows the commit before.
    fn shows(&self) -> Option<CommitOf> {
        if self.over.is_some() { None } else { self.store.shows() }
    }

    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let Some(over) = self.over.as_deref() else {
            let scanned = self.store.scan(table, low, high, visit);
            return scanned.map_err(|error| self.behind.reason(error));
        };
        let mut waiting = over.rows_between(table, low, high).peekable();
        let mut goes_on = true;
        let scanned = self.store.scan(table, low, high, &mut |key, row| {
            while goes_on && let Some((first, new)) = waiting.next_if(|(first, _)| *first < key) {
                goes_on = new.is_none_or(|new| visit(first, new));
            }
            if !goes_on {
                return false;
            }
            goes_on = match waiting.next_if(|(first, _)| *first == key) {
                Some((_, new)) => new.is_none_or(|new| visit(key, new)),
                None => is_dropped(over, table, key) || visit(key, row),
            };
            goes_on
        });
        scanned.map_err(|error| self.behind.reason(error))?;
        while goes_on && let Some((key, new)) = waiting.next() {
            goes_on = new.is_none_or(|new| visit(key, new));
        }
        Ok(())
    }
}
