//! Write sets as SQL.

use rusqlite::{CachedStatement, Connection};
use spinney_tree::{Table, WriteSet};

use super::error::StatementError;
use crate::seal::{self, SEAL_BYTES};

/// The header's row that says how many root records there are.
pub(super) const ROOTS_KEY: &[u8] = b"roots";
/// What the header's seals are seeded with, in place of a table.
pub(super) const HEADER_SEED: u64 = u64::MAX;

/// Applies a write set.
pub(super) fn apply(connection: &Connection, set: &WriteSet) -> Result<(), StatementError> {
    let mut roots = false;
    for (table, low, high) in set.drops().filter(|(_, low, high)| low < high) {
        let sql = format!("DELETE FROM {table} WHERE key > ?1 AND key < ?2");
        connection.prepare_cached(&sql)?.execute([low, high])?;
        roots |= table == Table::Roots;
    }
    let rows: Vec<_> = set.rows().collect();
    for rows in rows.chunk_by(|a, b| a.0 == b.0) {
        Puts::new(connection, rows[0].0).apply(rows)?;
        roots |= rows[0].0 == Table::Roots;
    }
    if roots {
        let sql = format!("SELECT count(*) FROM {}", Table::Roots);
        let count: i64 = connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
        put_header(connection, ROOTS_KEY, &(count as u64).to_le_bytes())?;
    }
    Ok(())
}

/// A row to write, or to remove where there is no value.
type Change<'a> = (Table, &'a [u8], Option<&'a [u8]>);

/// The statements that change the rows of one table.
struct Puts<'c> {
    connection: &'c Connection,
    table: Table,
    upsert: Option<CachedStatement<'c>>,
    update: Option<CachedStatement<'c>>,
    replace: Option<CachedStatement<'c>>,
    delete: Option<CachedStatement<'c>>,
    /// A row as it is stored.
    row: Vec<u8>,
}

impl<'c> Puts<'c> {
    const fn new(connection: &'c Connection, table: Table) -> Self {
        let (upsert, update, replace, delete) = (None, None, None, None);
        Self { connection, table, upsert, update, replace, delete, row: Vec::new() }
    }

    /// Applies changes of the table. A row that comes takes the place of one that goes, where there
    /// is one: else SQLite would empty a page, join its neighbours, and fill a page elsewhere.
    fn apply(&mut self, changes: &[Change<'_>]) -> Result<(), StatementError> {
        // Only where no key is named twice does their order not matter.
        let unique = changes.is_sorted_by(|a, b| a.1 < b.1);
        let gone = changes.iter().filter(|change| unique && change.2.is_none());
        // That nothing goes is found out once, and not with every row that comes.
        let mut gone = gone.peekable();
        for (_, key, value) in changes {
            let Some(value) = value else {
                if !unique {
                    self.delete(key)?;
                }
                continue;
            };
            self.row.resize(value.len() + SEAL_BYTES, 0);
            seal::write(self.table as u64, key, value, &mut self.row);
            if gone.peek().is_none() {
                self.upsert(key)?;
            } else if !self.update(key)? {
                // What is to be removed need not be there.
                let mut placed = false;
                while !placed && let Some((_, old, _)) = gone.next() {
                    placed = self.replace(old, key)?;
                }
                if !placed {
                    self.upsert(key)?;
                }
            }
        }
        gone.try_for_each(|(_, key, _)| self.delete(key))
    }

    fn upsert(&mut self, key: &[u8]) -> Result<(), StatementError> {
        let (table, row) = (self.table, &self.row);
        let statement = cached(self.connection, &mut self.upsert, || {
            format!(
                "INSERT INTO {table}(key, value) VALUES (?1, ?2) \
                 ON CONFLICT(key) DO UPDATE SET value = excluded.value"
            )
        })?;
        Ok(statement.execute([key, row]).map(drop)?)
    }

    /// Whether there was such a row.
    fn update(&mut self, key: &[u8]) -> Result<bool, StatementError> {
        let (table, row) = (self.table, &self.row);
        let statement = cached(self.connection, &mut self.update, || {
            format!("UPDATE {table} SET value = ?2 WHERE key = ?1")
        })?;
        Ok(statement.execute([key, row])? > 0)
    }

    /// Whether there was a row of the old key.
    fn replace(&mut self, old: &[u8], key: &[u8]) -> Result<bool, StatementError> {
        let (table, row) = (self.table, &self.row);
        let statement = cached(self.connection, &mut self.replace, || {
            format!("UPDATE {table} SET key = ?2, value = ?3 WHERE key = ?1")
        })?;
        Ok(statement.execute([old, key, row])? > 0)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), StatementError> {
        let table = self.table;
        let statement = cached(self.connection, &mut self.delete, || {
            format!("DELETE FROM {table} WHERE key = ?1")
        })?;
        Ok(statement.execute([key]).map(drop)?)
    }
}

/// A statement that is prepared when it is needed first.
fn cached<'s, 'c>(
    connection: &'c Connection,
    statement: &'s mut Option<CachedStatement<'c>>,
    sql: impl FnOnce() -> String,
) -> Result<&'s mut CachedStatement<'c>, StatementError> {
    match statement {
        Some(known) => Ok(known),
        none => Ok(none.insert(connection.prepare_cached(&sql())?)),
    }
}

/// Writes a row of the header, sealed.
pub(super) fn put_header(
    connection: &Connection,
    key: &[u8],
    value: &[u8],
) -> Result<(), StatementError> {
    let mut row = vec![0; value.len() + SEAL_BYTES];
    seal::write(HEADER_SEED, key, value, &mut row);
    let sql = "INSERT INTO spinney(key, value) VALUES (?1, ?2) \
               ON CONFLICT(key) DO UPDATE SET value = excluded.value";
    connection.prepare_cached(sql)?.execute([key, &row])?;
    Ok(())
}
