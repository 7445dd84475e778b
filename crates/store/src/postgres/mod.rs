//! The PostgreSQL store: opening, committing, closing.
//!
//! ```text
//! spinney_store   one row: format int4, finished bool, commits int8, roots int8
//! spinney_rows    tab int2, key bytea, value bytea (sealed); primary key (tab, key)
//! ```
//!
//! `tab` is the number of a [`Table`], `commits` counts write sets, `roots` root records. All
//! tables are one table here, so that a write set is one insertion. Values are neither compressed
//! (`EXTERNAL`: pages are hashes for the most part) nor moved out of their row below 8 KiB
//! (`toast_tuple_target`).
//!
//! | format | what is new |
//! |---|---|
//! | 1 | the tables above |
//!
//! Invariants:
//! - a store whose row is not `finished` is being created, or its creation was cut off: there is no
//!   store;
//! - who writes holds an advisory lock of the session, named after the schema, and moves `commits`
//!   on by one from where it knows it to be. So two writers never mix, even if the lock is lost
//!   with its connection: then the statement that writes finds nothing to move on, and writes
//!   nothing;
//! - all writers move the same row on, so transactions conflict whenever they overlap: that makes
//!   REPEATABLE READ as good as SERIALIZABLE here;
//! - a portable store has no such lock. Who opens it for writing moves `commits` on, too, and who
//!   makes it begins with a number by chance: so whoever wrote before finds nothing to move on. The
//!   last one who opens it writes, and the others are told.

mod changes;
mod connection;
mod snapshot;

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use postgres::types::{ToSql, Type};
use spinney_postgres::{Access, Address};
use spinney_tree::{PageStore, Snapshot, StoreError, Table, WriteSet};

use crate::guard::{backend, corrupt, foreign};
use crate::metered::Meter;
use crate::stats::{IoCounts, StoreStats};
use changes::Changes;
use connection::{Connection, Failed};
pub use snapshot::PostgresSnapshot;

/// The newest format described above.
const FORMAT: i32 = 1;
/// What a writer is told whose store another one moved on.
const OVERTAKEN: &str = "another process wrote to it meanwhile; close the store and open it again";
/// How often a transaction that PostgreSQL gave up for another's sake is tried.
const ATTEMPTS_MAX: u32 = 10;
const FIRST_WAIT: Duration = Duration::from_millis(10);
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Connections for readers that are kept open.
const IDLE_READERS_MAX: usize = 4;

/// A store in a schema of a PostgreSQL database: the first one of the `search_path`.
///
/// The [`Address`] is a URL, as `postgres://user@host:5432/database`, or libpq's pairs; to keep
/// several stores in one database, give each a schema: `?options=-csearch_path%3Dmy_schema`. The
/// schema has to be there. Passwords and TLS are as `spinney_postgres` says: by default connections
/// to other hosts are encrypted where the server can, with a warning where it cannot.
///
/// Each commit is durable when it returns, as far as the server's settings make it so
/// (`synchronous_commit=off` is overruled). Any number of threads may read and commit; commits take
/// turns. Nothing is cached on this side. Not to be called from within an async runtime.
///
/// # Round trips
/// A snapshot takes one when it is taken and one when it goes, [`read_many`](Snapshot::read_many)
/// one for 4,096 keys, a commit one; or three, where it drops ranges, and one more for each further
/// 64 MiB of rows. [`io`](Self::io) counts them.
///
/// # Other processes
/// One process has a store open for writing; a second one gets [`StoreError::Busy`]. Any number may
/// open it [read-only](Self::open_read_only) meanwhile. After a writer was killed the store is
/// `Busy` until the server notices. A snapshot held for long keeps PostgreSQL from clearing old
/// rows away.
///
/// # Other engines
/// With `portable=true` in the address a store keeps to what engines that speak PostgreSQL's
/// protocol share: no locks of a session, no settings of the planner or of how rows are stored, one
/// statement at a time where tables are made. What such an engine gives up for another's sake
/// (40001) is tried again. Two processes that open it for writing are not told by
/// [`StoreError::Busy`]: the later one writes, and the earlier one's next commit is refused.
///
/// # After a failure
/// A commit that fails has changed nothing, and the next one may succeed; unless the connection is
/// lost: then all further commits fail until the store is opened again, which also shows whether
/// the last one was done. Snapshots make new connections.
///
/// # Damage
/// Rows carry checksums, and root records are counted at each opening.
///
/// ```no_run
/// use spinney_store::PostgresStore;
/// use spinney_tree::{PageStore, Snapshot, Table, WriteSet};
///
/// let store = PostgresStore::open_or_create(&"postgres://me@localhost/state".into())?;
/// let mut set = WriteSet::new();
/// set.put(Table::Meta, b"head", *b"12");
/// store.commit(&set)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct PostgresStore {
    access: Box<Access>,
    place: String,
    writer: Option<Mutex<Writer>>,
    /// Readers that nobody uses.
    idle: Mutex<Vec<Connection>>,
    meter: Meter,
}

struct Writer {
    /// None once it is lost, and the lock with it.
    connection: Option<Connection>,
    /// What `commits` says.
    commits: i64,
}

/// How the row of a store was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    format: i32,
    finished: bool,
    commits: i64,
    roots: i64,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Removes the tables of a store.
const DROP: &str = "DROP TABLE spinney_rows, spinney_store";
const DROP_IF_ANY: &str = "DROP TABLE IF EXISTS spinney_rows, spinney_store";
const CREATE_STORE: &str = "CREATE TABLE spinney_store(\
     one bool PRIMARY KEY DEFAULT true CHECK (one), format int4 NOT NULL, \
     finished bool NOT NULL, commits int8 NOT NULL, roots int8 NOT NULL)";
const CREATE_ROWS: &str = "CREATE TABLE spinney_rows(tab int2 NOT NULL, key bytea NOT NULL, \
     value bytea NOT NULL, PRIMARY KEY (tab, key))";

impl PostgresStore {
    /// Creates a store.
    ///
    /// # Errors
    /// If there is one already, or the server cannot be reached or allows no tables.
    pub fn create(address: &Address) -> Result<Self, StoreError> {
        Self::create_filled(address, |_| Ok(()))
    }

    /// Creates a store that `fill` puts rows into, in as many commits as it likes. Nobody sees it
    /// before `fill` is done: refused or cut off, there is no store, and nothing is left of it but
    /// tables that the next creation removes.
    ///
    /// # Errors
    /// As [`PostgresStore::create`], or if `fill` fails.
    pub fn create_filled<E: From<StoreError>>(
        address: &Address,
        fill: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<Self, E> {
        let store = Self::begin(address)?;
        if let Err(error) = fill(&store).and_then(|()| Ok(store.finish()?)) {
            // What is left the next creation removes; the first error says more.
            let _ = store.discard();
            return Err(error);
        }
        Ok(store)
    }

    /// Removes the tables of a store that is open for writing, finished or not.
    pub(crate) fn discard(&self) -> Result<(), StoreError> {
        let mut writer = self.writer()?;
        let commits = writer.commits;
        let connection = writer.alive(&self.place)?;
        if self.access.portable() && !self.is_ours(connection, commits)? {
            return Ok(());
        }
        self.run(|| connection.simple(&self.meter, DROP))?;
        Ok(())
    }

    /// Whether nobody else moved the store on.
    fn is_ours(&self, connection: &mut Connection, commits: i64) -> Result<bool, StoreError> {
        let sql = "SELECT true FROM spinney_store WHERE commits = $1";
        let columns: [(&(dyn ToSql + Sync), Type); 1] = [(&commits, Type::INT8)];
        Ok(self.run(|| tried(|| connection.query(&self.meter, sql, &columns)))?.len() == 1)
    }

    /// Makes a store that nobody sees until it is [finished](Self::finish).
    pub(crate) fn begin(address: &Address) -> Result<Self, StoreError> {
        let mut store = Self::at(address)?;
        let connection = store.lock(store.connect()?)?;
        let commits = store.first_commit();
        store.writer = Some(Mutex::new(Writer { connection: Some(connection), commits }));
        store.make()?;
        Ok(store)
    }

    /// Goes on with a store that was begun and not finished, or begins one: who is stopped while a
    /// store is filled comes back to what is committed. Nobody else sees it until it is
    /// [finished](Self::finish).
    ///
    /// # Errors
    /// If there is a finished store, somebody else has it open for writing, or as
    /// [`PostgresStore::create`].
    pub(crate) fn go_on(address: &Address) -> Result<Self, StoreError> {
        let mut store = Self::at(address)?;
        let mut connection = store.lock(store.connect()?)?;
        let begun = store.begun(&mut connection)?.filter(|header| !header.finished);
        let commits = match begun {
            Some(header) => store.fence(&mut connection, header)?,
            None => store.first_commit(),
        };
        store.writer = Some(Mutex::new(Writer { connection: Some(connection), commits }));
        if begun.is_some() {
            store.inspect()?;
        } else {
            store.make()?;
        }
        Ok(store)
    }

    /// Removes a store that nobody has open for writing.
    pub(crate) fn remove(address: &Address) -> Result<(), StoreError> {
        let mut store = Self::at(address)?;
        let mut connection = store.lock(store.connect()?)?;
        let removed = store
            .header(&mut connection)
            .and_then(|_| store.run(|| connection.simple(&store.meter, DROP)).map(drop));
        // A store with a writer gives its lock up before its connection goes.
        let commits = store.first_commit();
        store.writer = Some(Mutex::new(Writer { connection: Some(connection), commits }));
        removed
    }

    /// Opens a store for reading and writing.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is none, [`StoreError::Busy`] if another process, or this
    /// one, has it open for writing, [`StoreError::Foreign`] if it is of a newer format,
    /// [`StoreError::Corrupt`] if it is damaged, [`StoreError::Backend`] if the address cannot be
    /// read or the server cannot be reached: then its source is a `spinney_postgres::ServerError`.
    pub fn open(address: &Address) -> Result<Self, StoreError> {
        let mut store = Self::at(address)?;
        let mut connection = store.connect()?;
        // One that is not there is missing, not busy.
        store.header(&mut connection)?;
        let mut connection = store.lock(connection)?;
        let header = store.header(&mut connection)?;
        let commits = store.fence(&mut connection, header)?;
        store.writer = Some(Mutex::new(Writer { connection: Some(connection), commits }));
        store.inspect()?;
        Ok(store)
    }

    /// Opens a store for reading and writing, after creating it if there is none.
    ///
    /// # Errors
    /// As [`PostgresStore::open`] and [`PostgresStore::create`].
    pub fn open_or_create(address: &Address) -> Result<Self, StoreError> {
        match Self::open(address) {
            Err(StoreError::Missing { .. }) => Self::create(address),
            opened => opened,
        }
    }

    /// Opens a store for reading, also while another process writes it.
    ///
    /// # Errors
    /// As [`PostgresStore::open`].
    pub fn open_read_only(address: &Address) -> Result<Self, StoreError> {
        let store = Self::at(address)?;
        let mut connection = store.connect()?;
        store.header(&mut connection)?;
        store.give_back(connection);
        store.inspect()?;
        Ok(store)
    }

    fn at(address: &Address) -> Result<Self, StoreError> {
        let access = address.access("spinney").map_err(|error| backend(address, error))?;
        let place = access.place().to_owned();
        let (idle, meter) = (Mutex::default(), Meter::default());
        Ok(Self { access: Box::new(access), place, writer: None, idle, meter })
    }

    fn connect(&self) -> Result<Connection, StoreError> {
        self.run(|| Connection::open(&self.access, &self.meter))
    }

    /// Takes the lock of the one that may write; a portable store has none.
    fn lock(&self, mut connection: Connection) -> Result<Connection, StoreError> {
        if self.access.portable() {
            return Ok(connection);
        }
        let sql = format!("SELECT pg_try_advisory_lock({})", connection.lock_number());
        let taken = self.run(|| connection.query(&self.meter, &sql, &[]))?;
        match taken.first().and_then(|row| row.try_get(0).ok()) {
            Some(true) => Ok(connection),
            _ => Err(StoreError::Busy { place: self.place.clone() }),
        }
    }

    /// What `commits` says from now on to the one who writes. In a portable store it moves on, so
    /// that nobody else who has it open can.
    fn fence(&self, connection: &mut Connection, header: Header) -> Result<i64, StoreError> {
        if !self.access.portable() {
            return Ok(header.commits);
        }
        let sql = "UPDATE spinney_store SET commits = commits + 1 RETURNING commits";
        let moved = self.run(|| tried(|| connection.query(&self.meter, sql, &[])))?;
        let commits = moved.first().and_then(|row| row.try_get(0).ok());
        commits.ok_or_else(|| StoreError::Missing { place: self.place.clone() })
    }

    /// What `commits` says in a store that is made. In a portable one by chance: of two who make it
    /// at once the first one must not take the other's for its own.
    fn first_commit(&self) -> i64 {
        match self.access.portable() {
            true => (RandomState::new().build_hasher().finish() >> 2) as i64,
            false => 0,
        }
    }

    /// The row of the store, of a format that this program knows.
    fn header(&self, connection: &mut Connection) -> Result<Header, StoreError> {
        let finished = self.begun(connection)?.filter(|header| header.finished);
        finished.ok_or_else(|| StoreError::Missing { place: self.place.clone() })
    }

    /// The same, also of a store that is being created; nothing where none was begun.
    fn begun(&self, connection: &mut Connection) -> Result<Option<Header>, StoreError> {
        let sql = "SELECT to_regclass(format('%I.spinney_store', current_schema())) IS NOT NULL";
        let there = self.run(|| connection.query(&self.meter, sql, &[]))?;
        if !there.first().is_some_and(|row| row.try_get(0).unwrap_or(false)) {
            return Ok(None);
        }
        let sql = "SELECT format, finished, commits, roots FROM spinney_store";
        let rows = self.run(|| tried(|| connection.query(&self.meter, sql, &[])))?;
        if rows.is_empty() && self.access.portable() {
            // It is being made, one statement after the other.
            return Ok(None);
        }
        let [row] = &rows[..] else {
            let what = format!("its table spinney_store has {} rows instead of one", rows.len());
            return Err(corrupt(&self.place, what));
        };
        let header = || {
            Ok::<_, postgres::Error>(Header {
                format: row.try_get(0)?,
                finished: row.try_get(1)?,
                commits: row.try_get(2)?,
                roots: row.try_get(3)?,
            })
        };
        let header = header().map_err(|error| corrupt(&self.place, error.to_string()))?;
        match header {
            Header { format: ..=0, .. } => {
                Err(foreign(&self.place, format!("there is no store format {}", header.format)))
            }
            Header { format, .. } if format > FORMAT => {
                let what = format!(
                    "its store format is {format}, and this program knows formats up to {FORMAT}"
                );
                Err(foreign(&self.place, what))
            }
            header => Ok(Some(header)),
        }
    }

    /// A root record that cannot be found makes its tree look empty, and the next commit would make
    /// it so. There are as many as trees: all are read and counted.
    fn inspect(&self) -> Result<(), StoreError> {
        let snapshot = self.snapshot()?;
        let mut found = 0;
        snapshot.scan(Table::Roots, &[], None, &mut |_, _| {
            found += 1;
            true
        })?;
        let expected = snapshot.roots()?;
        if found == expected {
            return Ok(());
        }
        Err(corrupt(&self.place, format!("it has {found} of {expected} root records")))
    }

    /// Makes the tables, in place of those that were never finished.
    fn make(&self) -> Result<(), StoreError> {
        let mut writer = self.writer()?;
        let commits = writer.commits;
        let connection = writer.alive(&self.place)?;
        match self.header(connection) {
            Err(StoreError::Missing { .. }) => {}
            Ok(_) => {
                let there = std::io::Error::new(
                    std::io::ErrorKind::AlreadyExists,
                    "there is a store already",
                );
                return Err(backend(&self.place, there));
            }
            Err(error) => return Err(error),
        }
        let begun = format!(
            "INSERT INTO spinney_store(format, finished, commits, roots) \
                VALUES ({FORMAT}, false, {commits}, 0)"
        );
        if self.access.portable() {
            for sql in [DROP_IF_ANY, CREATE_STORE, CREATE_ROWS, &begun] {
                self.run(|| connection.simple(&self.meter, sql))?;
            }
            return Ok(());
        }
        let sql = format!(
            "BEGIN; {DROP_IF_ANY}; {CREATE_STORE}; {CREATE_ROWS} WITH (toast_tuple_target = 8160); \
             ALTER TABLE spinney_rows ALTER COLUMN key SET STORAGE PLAIN, \
                ALTER COLUMN value SET STORAGE EXTERNAL; \
             {begun}; COMMIT"
        );
        self.run(|| connection.simple(&self.meter, &sql))?;
        Ok(())
    }

    pub(crate) fn finish(&self) -> Result<(), StoreError> {
        let mut writer = self.writer()?;
        let commits = writer.commits;
        let connection = writer.alive(&self.place)?;
        let sql = "UPDATE spinney_store SET finished = true WHERE commits = $1 RETURNING true";
        let columns: [(&(dyn ToSql + Sync), Type); 1] = [(&commits, Type::INT8)];
        match self.run(|| tried(|| connection.query(&self.meter, sql, &columns)))?.len() {
            1 => Ok(()),
            _ => Err(backend(&self.place, OVERTAKEN)),
        }
    }

    /// What passed since the store was opened: statements and bytes of rows, commits, and round
    /// trips.
    pub fn io(&self) -> IoCounts {
        self.meter.counts()
    }

    /// What the store holds. This reads the whole table once, on the server.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn stats(&self) -> Result<StoreStats, StoreError> {
        self.snapshot()?.stats()
    }

    /// Reads everything and verifies the checksums of rows.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] at the first damage found.
    pub fn check(&self) -> Result<(), StoreError> {
        let snapshot = self.snapshot()?;
        for table in Table::ALL {
            snapshot.scan(table, &[], None, &mut |_, _| true)?;
        }
        drop(snapshot);
        self.inspect()
    }

    /// Gives space that no row uses back to the file system of the server.
    ///
    /// # Errors
    /// If the store was opened read-only, or others read it.
    pub fn compact(&mut self) -> Result<(), StoreError> {
        let mut writer = self.writer()?;
        let connection = writer.alive(&self.place)?;
        if self.access.portable() {
            // Such an engine does it by itself, or in words of its own.
            return Ok(());
        }
        self.run(|| connection.simple(&self.meter, "SET lock_timeout = '5s'"))?;
        self.run(|| connection.simple(&self.meter, "VACUUM FULL spinney_rows"))?;
        Ok(())
    }

    /// Closes the store and says whether that went well; dropping it does the same without saying
    /// so.
    ///
    /// # Errors
    /// If the server was gone already. No commit is lost.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.release()
    }

    /// Gives the lock up before the connection goes: the server notices that some time later.
    fn release(&mut self) -> Result<(), StoreError> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let writer = writer.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some(mut connection) = writer.connection else { return Ok(()) };
        self.run(|| {
            if !self.access.portable() {
                connection.simple(&self.meter, "SELECT pg_advisory_unlock_all()")?;
            }
            connection.close()
        })
    }

    fn writer(&self) -> Result<MutexGuard<'_, Writer>, StoreError> {
        match &self.writer {
            Some(writer) => Ok(writer.lock().unwrap_or_else(PoisonError::into_inner)),
            None => Err(backend(&self.place, "it was opened read-only")),
        }
    }

    fn idle(&self) -> Option<Connection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn give_back(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_READERS_MAX {
            idle.push(connection);
        }
    }

    fn run<T>(&self, work: impl FnOnce() -> Result<T, Failed>) -> Result<T, StoreError> {
        work().map_err(|error| error.into_store_error(&self.place))
    }

    /// One attempt at a commit: one statement, or a transaction of several.
    fn attempt(&self, writer: &mut Writer, changes: &Changes<'_>) -> Result<(), Failed> {
        let (meter, commits) = (&self.meter, writer.commits);
        let connection = writer.alive(&self.place)?;
        let (last, parts) = changes.parts();
        let several = !parts.is_empty() || changes.drops_ranges();
        if several {
            connection.simple(meter, "BEGIN")?;
            changes.drop_ranges(connection, meter)?;
            for part in parts {
                changes.put(part, connection, meter)?;
            }
        }
        if !changes.finish(last, commits, connection, meter)? {
            return Err(backend(&self.place, OVERTAKEN).into());
        }
        if several {
            connection.simple(meter, "COMMIT")?;
        }
        meter.synced(1);
        Ok(())
    }
}

impl Writer {
    fn alive(&mut self, place: &str) -> Result<&mut Connection, StoreError> {
        let lost =
            "the connection was lost, and the lock with it; close the store and open it again";
        self.connection.as_mut().ok_or_else(|| backend(place, lost))
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        // Every commit is durable already.
        let _ = self.release();
    }
}

impl PageStore for PostgresStore {
    type Snapshot<'a> = PostgresSnapshot<'a>;

    fn snapshot(&self) -> Result<PostgresSnapshot<'_>, StoreError> {
        // The snapshot is that of the first statement in the transaction.
        let begin = |mut connection: Connection| {
            let said = tried(|| {
                let said = connection.simple(&self.meter, &snapshot::begin());
                if said.as_ref().is_err_and(Failed::is_transient) {
                    connection.simple(&self.meter, "ROLLBACK")?;
                }
                said
            })?;
            Ok((connection, said))
        };
        while let Some(connection) = self.idle() {
            // The server may have gone and come back since this one was used.
            match begin(connection) {
                Ok((connection, said)) => {
                    return Ok(PostgresSnapshot::new(connection, &said, self));
                }
                Err(Failed::Postgres(error)) if connection::is_lost(&error) => {}
                Err(error) => return Err(error.into_store_error(&self.place)),
            }
        }
        let connection = self.connect()?;
        let (connection, said) = self.run(|| begin(connection))?;
        Ok(PostgresSnapshot::new(connection, &said, self))
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        if set.is_empty() {
            return Ok(());
        }
        let mut writer = self.writer()?;
        let changes = Changes::of(set);
        let attempt = || {
            self.attempt(&mut writer, &changes).inspect_err(|error| {
                if error.is_lost() {
                    writer.connection = None;
                } else if let Some(connection) = &mut writer.connection
                    && connection.simple(&self.meter, "ROLLBACK").is_err()
                {
                    writer.connection = None;
                }
            })
        };
        self.run(|| tried(attempt))?;
        writer.commits += 1;
        Ok(())
    }
}

/// Tries again what the server gave up for another's sake.
fn tried<T>(mut work: impl FnMut() -> Result<T, Failed>) -> Result<T, Failed> {
    let mut wait = FIRST_WAIT;
    for _ in 1..ATTEMPTS_MAX {
        match work() {
            Err(error) if error.is_transient() => {}
            done => return done,
        }
        thread::sleep(wait);
        wait = (wait * 2).min(WAIT_MAX);
    }
    work()
}
