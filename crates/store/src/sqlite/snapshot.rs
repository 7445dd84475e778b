//! Views of a SQLite store.

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Row};
use spinney_tree::{Snapshot, StoreError, Table};

use super::SqliteStore;
use super::changes::HEADER_SEED;
use super::error::StatementError;
use crate::guard::{backend, corrupt};
use crate::seal::{self, SEAL_BYTES};
use crate::snapshot::{At, broken};
use crate::sql::{SqlRow, scan_in_steps};
use crate::stats::TableStats;

/// A view of a [`SqliteStore`], which later commits leave alone. It cannot outlive its store.
///
/// Threads that share one take turns.
pub struct SqliteSnapshot<'a> {
    /// In a read transaction. Empty only while it is dropped.
    connection: Mutex<Option<Connection>>,
    store: &'a SqliteStore,
}

impl fmt::Debug for SqliteSnapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteSnapshot").field("place", &self.store.place).finish_non_exhaustive()
    }
}

impl<'a> SqliteSnapshot<'a> {
    pub(super) const fn new(connection: Connection, store: &'a SqliteStore) -> Self {
        Self { connection: Mutex::new(Some(connection)), store }
    }

    fn run<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StatementError>,
    ) -> Result<T, StoreError> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        match &*connection {
            Some(connection) => self.store.run(|| work(connection)),
            None => Err(backend(&self.store.place, "the snapshot is closed")),
        }
    }

    /// A value of the header, whose seal holds.
    pub(super) fn header<const N: usize>(&self, key: &[u8]) -> Result<Option<[u8; N]>, StoreError> {
        let row = self.run(|connection| {
            let sql = "SELECT value FROM spinney WHERE key = ?1";
            let mut statement = connection.prepare_cached(sql)?;
            Ok(statement.query_row([key], |row| row.get::<_, Vec<u8>>(0)).optional()?)
        })?;
        let Some(row) = row else { return Ok(None) };
        match seal::read(HEADER_SEED, key, &row).map(<[u8; N]>::try_from) {
            Some(Ok(value)) => Ok(Some(value)),
            _ => {
                let what = format!("its {} row does not match its checksum", key.escape_ascii());
                Err(corrupt(&self.store.place, what))
            }
        }
    }

    /// Whether there is such a table.
    pub(super) fn has(&self, table: Table) -> Result<bool, StoreError> {
        self.run(|connection| {
            let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
            Ok(connection.prepare_cached(sql)?.exists([table.name()])?)
        })
    }

    pub(super) fn check_structure(&self) -> Result<(), StoreError> {
        let said: String = self.run(|connection| {
            Ok(connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?)
        })?;
        if said == "ok" { Ok(()) } else { Err(corrupt(&self.store.place, said.replace('\n', " "))) }
    }

    pub(super) fn table_stats(&self) -> Result<Vec<TableStats>, StoreError> {
        let mut tables = Vec::with_capacity(Table::ALL.len());
        for table in Table::ALL {
            tables.push(self.run(|connection| {
                let count = |row: &Row<'_>, at| row.get::<_, i64>(at).map(|n| n.max(0) as u64);
                let mut found = TableStats::new(table);
                let sql = format!(
                    "SELECT count(*), coalesce(sum(length(key) + length(value)), 0) FROM {table}"
                );
                (found.rows, found.stored_bytes) =
                    connection.query_row(&sql, [], |row| Ok((count(row, 0)?, count(row, 1)?)))?;
                // The table, and the index of its keys.
                let sql = "SELECT coalesce(sum(pgsize), 0), coalesce(sum(unused), 0) FROM dbstat \
                           WHERE aggregate = TRUE \
                           AND name IN (?1, 'sqlite_autoindex_' || ?1 || '_1')";
                let (bytes, unused) = connection
                    .query_row(sql, [table.name()], |row| Ok((count(row, 0)?, count(row, 1)?)))?;
                found.fragmented_bytes = unused;
                found.metadata_bytes = bytes.saturating_sub(found.stored_bytes + unused);
                Ok(found)
            })?);
        }
        Ok(tables)
    }

    fn count(&self, bytes: usize) {
        self.store.meter.read(1, bytes as u64);
    }
}

impl Drop for SqliteSnapshot<'_> {
    fn drop(&mut self) {
        let connection = self.connection.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(connection) = connection else { return };
        self.store.files.in_turn(|| {
            if connection.prepare_cached("ROLLBACK").is_ok_and(|mut s| s.execute([]).is_ok()) {
                self.store.give_back(connection);
            }
        });
    }
}

/// The bytes of a column; a table of ours holds nothing else.
fn blob<'r>(row: &'r Row<'_>, column: usize, place: &str) -> Result<&'r [u8], StatementError> {
    match row.get_ref(column)? {
        ValueRef::Blob(bytes) => Ok(bytes),
        other => {
            let what = format!("a row holds {} instead of bytes", other.data_type());
            Err(corrupt(place, what).into())
        }
    }
}

impl Snapshot for SqliteSnapshot<'_> {
    type Row<'s>
        = SqlRow<'s>
    where
        Self: 's;

    fn read<'s>(&'s self, table: Table, key: &[u8]) -> Result<Option<SqlRow<'s>>, StoreError> {
        Ok(self.read_many(table, &[key])?.pop().flatten())
    }

    /// One statement, run for each key in order of the keys: there is no round trip to save.
    fn read_many<'s>(
        &'s self,
        table: Table,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<SqlRow<'s>>>, StoreError> {
        let mut order: Vec<_> = (0..keys.len()).collect();
        order.sort_unstable_by_key(|at| keys[*at]);
        let mut found: Vec<Option<Range<usize>>> = vec![None; keys.len()];
        let mut bytes = Vec::new();
        self.run(|connection| {
            let sql = format!("SELECT value FROM {table} WHERE key = ?1");
            let mut statement = connection.prepare_cached(&sql)?;
            for at in order {
                let mut rows = statement.query([keys[at]])?;
                let Some(row) = rows.next()? else { continue };
                let stored = blob(row, 0, &self.store.place)?;
                let Some(value) = seal::read(table as u64, keys[at], stored) else {
                    return Err(broken(At(&self.store.place, table, keys[at])).into());
                };
                let start = bytes.len();
                bytes.extend_from_slice(value);
                found[at] = Some(start..bytes.len());
            }
            Ok(())
        })?;
        self.count(bytes.len());
        Ok(SqlRow::share(bytes, found))
    }

    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        scan_in_steps(low, high, visit, |from, rows, step| {
            let over = if from.inclusive { ">=" } else { ">" };
            let under = if high.is_some() { "AND key < ?2" } else { "" };
            let sql = format!(
                "SELECT key, value FROM {table} WHERE key {over} ?1 {under} ORDER BY key \
                 LIMIT {rows}"
            );
            let mut bytes = 0;
            self.run(|connection| {
                let mut statement = connection.prepare(&sql)?;
                let mut found = match high {
                    Some(high) => statement.query([from.key, high])?,
                    None => statement.query([from.key])?,
                };
                while let Some(row) = found.next()? {
                    let place = &self.store.place;
                    let (key, stored) = (blob(row, 0, place)?, blob(row, 1, place)?);
                    let Some(value) = seal::read(table as u64, key, stored) else {
                        return Err(broken(At(place, table, key)).into());
                    };
                    bytes += key.len() + stored.len() - SEAL_BYTES;
                    step.push(key, value);
                }
                Ok(())
            })?;
            self.count(bytes);
            Ok(())
        })
    }
}
