//! Views of a PostgreSQL store.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use postgres::types::{ToSql, Type};
use postgres::{Row, SimpleQueryMessage};
use spinney_tree::{Snapshot, StoreError, Table};

use super::PostgresStore;
use super::connection::{Connection, Failed};
use crate::guard::{backend, corrupt};
use crate::seal;
use crate::snapshot::{At, broken};
use crate::sql::{SqlRow, scan_in_steps};
use crate::stats::{StoreStats, TableStats};

/// Keys that one statement reads.
const KEYS_MAX: usize = 4_096;

/// A view of a [`PostgresStore`], which later commits leave alone. It cannot outlive its store.
///
/// Threads that share one take turns.
pub struct PostgresSnapshot<'a> {
    /// In a read transaction. Empty only while it is dropped.
    connection: Mutex<Option<Connection>>,
    store: &'a PostgresStore,
    /// The stored rows of all root records, where there are few: whoever reads pages reads one of
    /// them, too, and they came with the answer to the first statement.
    records: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
}

/// How many root records come along.
const RECORDS_MAX: usize = 64;

/// Begins a read transaction: its snapshot is that of the first statement in it.
pub(super) fn begin() -> String {
    format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
         SELECT encode(key, 'hex'), encode(value, 'hex') FROM spinney_rows WHERE tab = {} \
         ORDER BY key LIMIT {}",
        Table::Roots as i16,
        RECORDS_MAX + 1
    )
}

/// The root records in the answer to [`begin`], if they are all.
fn records(said: &[SimpleQueryMessage]) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
    let rows = said.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let rows: Option<BTreeMap<_, _>> =
        rows.map(|row| Some((bytes(row.get(0)?)?, bytes(row.get(1)?)?))).collect();
    rows.filter(|rows| rows.len() <= RECORDS_MAX)
}

/// Reads hex.
fn bytes(hex: &str) -> Option<Vec<u8>> {
    let byte = |at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    (0..hex.len()).step_by(2).map(byte).collect()
}

impl fmt::Debug for PostgresSnapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSnapshot").field("place", &self.store.place).finish_non_exhaustive()
    }
}

impl<'a> PostgresSnapshot<'a> {
    pub(super) fn new(
        connection: Connection,
        said: &[SimpleQueryMessage],
        store: &'a PostgresStore,
    ) -> Self {
        Self { connection: Mutex::new(Some(connection)), store, records: records(said) }
    }

    /// A root record, if they are known.
    fn record<'s>(&'s self, key: &[u8]) -> Result<Option<Option<SqlRow<'s>>>, StoreError> {
        let Some(records) = &self.records else { return Ok(None) };
        let Some(stored) = records.get(key) else { return Ok(Some(None)) };
        let Some(value) = seal::read(Table::Roots as u64, key, stored) else {
            return Err(broken(At(&self.store.place, Table::Roots, key)));
        };
        let found = vec![Some(0..value.len())];
        Ok(SqlRow::share(value.to_vec(), found).pop())
    }

    fn query(
        &self,
        sql: &str,
        columns: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, StoreError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *connection {
            Some(connection) => {
                self.store.run(|| connection.query(&self.store.meter, sql, columns))
            }
            None => Err(backend(&self.store.place, "the snapshot is closed")),
        }
    }

    /// A column of a row, of the type that it should have.
    fn get<'r, T: postgres::types::FromSql<'r>>(
        &self,
        row: &'r Row,
        at: usize,
    ) -> Result<T, StoreError> {
        row.try_get(at).map_err(|error| corrupt(&self.store.place, error.to_string()))
    }

    /// How many root records there should be.
    pub(super) fn roots(&self) -> Result<i64, StoreError> {
        let rows = self.query("SELECT roots FROM spinney_store", &[])?;
        rows.first().map_or(Ok(-1), |row| self.get(row, 0))
    }

    pub(super) fn stats(&self) -> Result<StoreStats, StoreError> {
        let mut tables = Table::ALL.map(TableStats::new);
        let sql = "SELECT tab, count(*), sum(octet_length(key) + octet_length(value))::int8, \
                   sum(count(*)) OVER ()::int8 FROM spinney_rows GROUP BY tab";
        let sizes =
            "SELECT pg_total_relation_size('spinney_rows'), pg_indexes_size('spinney_rows')";
        let sizes = match self.store.access.portable() {
            true => Vec::new(),
            false => self.query(sizes, &[])?,
        };
        let size = |at| sizes.first().map_or(Ok(0), |row| self.get::<i64>(row, at));
        let (file_bytes, index_bytes) = (size(0)?.max(0) as u64, size(1)?.max(0) as u64);
        for row in self.query(sql, &[])? {
            let tab = self.get::<i16>(&row, 0)?;
            let Some(table) = usize::try_from(tab).ok().and_then(|tab| tables.get_mut(tab)) else {
                return Err(corrupt(&self.store.place, format!("there is no table {tab}")));
            };
            let count = |at| self.get::<i64>(&row, at).map(|n| n.max(0) as u64);
            (table.rows, table.stored_bytes) = (count(1)?, count(2)?);
            // One index leads to the rows of all tables.
            let share = u128::from(index_bytes) * u128::from(table.rows);
            table.metadata_bytes = (share / u128::from(count(3)?.max(1))) as u64;
        }
        // A portable store does not say what its files take: its rows do.
        let rows_bytes = tables.iter().map(|table| table.stored_bytes).sum();
        Ok(StoreStats { tables: tables.to_vec(), file_bytes: file_bytes.max(rows_bytes) })
    }
}

impl Drop for PostgresSnapshot<'_> {
    fn drop(&mut self) {
        let connection = self.connection.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut connection) = connection {
            let ended: Result<_, Failed> = connection.simple(&self.store.meter, "ROLLBACK");
            if ended.is_ok() {
                self.store.give_back(connection);
            }
        }
    }
}

impl Snapshot for PostgresSnapshot<'_> {
    type Row<'s>
        = SqlRow<'s>
    where
        Self: 's;

    fn is_far(&self) -> bool {
        true
    }

    fn read<'s>(&'s self, table: Table, key: &[u8]) -> Result<Option<SqlRow<'s>>, StoreError> {
        if table == Table::Roots
            && let Some(known) = self.record(key)?
        {
            return Ok(known);
        }
        Ok(self.read_many(table, &[key])?.pop().flatten())
    }

    /// One round trip for 4,096 keys.
    fn read_many<'s>(
        &'s self,
        table: Table,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<SqlRow<'s>>>, StoreError> {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by_key(|at| keys[*at]);
        let mut wanted: Vec<&[u8]> = order.iter().map(|at| keys[*at]).collect();
        wanted.dedup();
        let mut found: Vec<Option<Range<usize>>> = vec![None; keys.len()];
        let mut bytes = Vec::new();
        for wanted in wanted.chunks(KEYS_MAX) {
            let sql = format!(
                "SELECT key, value FROM spinney_rows WHERE tab = {} AND key = any($1)",
                table as i16
            );
            let before = bytes.len();
            for row in self.query(&sql, &[(&wanted, Type::BYTEA_ARRAY)])? {
                let (key, stored) = (self.get::<&[u8]>(&row, 0)?, self.get::<&[u8]>(&row, 1)?);
                let Some(value) = seal::read(table as u64, key, stored) else {
                    return Err(broken(At(&self.store.place, table, key)));
                };
                let start = bytes.len();
                bytes.extend_from_slice(value);
                let first = order.partition_point(|at| keys[*at] < key);
                for at in order[first..].iter().take_while(|at| keys[**at] == key) {
                    found[*at] = Some(start..bytes.len());
                }
            }
            self.store.meter.read(1, (bytes.len() - before) as u64);
        }
        Ok(SqlRow::share(bytes, found))
    }

    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        scan_in_steps(low, high, visit, |start, rows, step| {
            let over = if start.inclusive { ">=" } else { ">" };
            let under = if high.is_some() { "AND key < $2" } else { "" };
            let sql = format!(
                "SELECT key, value FROM spinney_rows WHERE tab = {} AND key {over} $1 {under} \
                 ORDER BY key LIMIT {rows}",
                table as i16
            );
            let start: (&(dyn ToSql + Sync), Type) = (&start.key, Type::BYTEA);
            let found = match &high {
                Some(high) => self.query(&sql, &[start, (high, Type::BYTEA)])?,
                None => self.query(&sql, &[start])?,
            };
            let mut bytes = 0;
            for row in found {
                let (key, stored) = (self.get::<&[u8]>(&row, 0)?, self.get::<&[u8]>(&row, 1)?);
                let Some(value) = seal::read(table as u64, key, stored) else {
                    return Err(broken(At(&self.store.place, table, key)));
                };
                bytes += key.len() + value.len();
                step.push(key, value);
            }
            self.store.meter.read(1, bytes as u64);
            Ok(())
        })
    }
}
