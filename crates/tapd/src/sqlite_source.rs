//! tapd's database in SQLite.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::path::Path;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _};
use spinney_tree::sum::SumNode;

use crate::source::{Content, Row, Source, sum_of};
use crate::{Namespace, TapdError, VALUE_BYTES_MAX};

/// A database whose view stays as it is while this is open.
#[derive(Debug)]
pub(crate) struct Sqlite {
    connection: Connection,
    place: String,
}

impl Sqlite {
    pub(crate) fn open(file: &Path) -> Result<Self, TapdError> {
        let place = file.display().to_string();
        if !file.is_file() {
            return Err(TapdError::Missing(place));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(file, flags);
        let connection = opened.map_err(|error| failed(&place, &error))?;
        let source = Self { connection, place };
        // The first query begins the view.
        source.connection.execute_batch("BEGIN").map_err(|error| source.failed(&error))?;
        let sql = "SELECT count(*) FROM sqlite_schema \
                   WHERE type = 'table' AND name IN ('mssmt_nodes', 'mssmt_roots')";
        let tables: i64 = source.one(sql)?;
        if tables != 2 {
            let what = "it has no tables mssmt_nodes and mssmt_roots".into();
            return Err(TapdError::Foreign { place: source.place, what });
        }
        Ok(source)
    }

    fn one(&self, sql: &str) -> Result<i64, TapdError> {
        self.connection.query_row(sql, [], |row| row.get(0)).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &rusqlite::Error) -> TapdError {
        failed(&self.place, error)
    }
}

fn failed(place: &str, error: &rusqlite::Error) -> TapdError {
    let place = place.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            TapdError::Foreign { place, what: "it is not an SQLite database".into() }
        }
        _ => TapdError::Failed { place, what: error.to_string() },
    }
}

impl Source for Sqlite {
    fn place(&self) -> &str {
        &self.place
    }

    fn namespaces(&mut self) -> Result<Vec<Namespace>, TapdError> {
        let sql = "SELECT r.namespace, n.hash_key, n.sum, \
                     (SELECT count(*) FROM mssmt_nodes AS m WHERE m.namespace = r.namespace) \
                   FROM mssmt_roots AS r LEFT JOIN mssmt_nodes AS n \
                     ON n.hash_key = r.root_hash AND n.namespace = r.namespace \
                   ORDER BY r.namespace";
        let mut trees = Vec::new();
        let mut read = || {
            let mut query = self.connection.prepare(sql)?;
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                let (hash, sum) = (row.get::<_, Vec<u8>>(1).ok(), row.get::<_, i64>(2).ok());
                let hash = hash.and_then(|hash| hash.try_into().ok());
                let root = hash.zip(sum).map(|(hash, sum)| SumNode { hash, sum: sum_of(sum) });
                let rows = row.get::<_, i64>(3)?.max(0).cast_unsigned();
                trees.push(Namespace { name: row.get(0)?, root, rows });
            }
            Ok(())
        };
        read().map_err(|error| self.failed(&error))?;
        Ok(trees)
    }

    fn root(&mut self, namespace: &str) -> Result<Option<(Vec<u8>, u64)>, TapdError> {
        let sql = "SELECT root_hash, \
                     (SELECT count(*) FROM mssmt_nodes AS m WHERE m.namespace = r.namespace) \
                   FROM mssmt_roots AS r WHERE r.namespace = ?1";
        let read = |row: &rusqlite::Row<'_>| {
            // A hash of another type is no hash; it is found missing later.
            let hash = row.get(0).unwrap_or_default();
            Ok((hash, row.get::<_, i64>(1)?.max(0).cast_unsigned()))
        };
        let root = self.connection.query_row(sql, [namespace], read).optional();
        root.map_err(|error| self.failed(&error))
    }

    fn rows(
        &mut self,
        namespace: &str,
        hashes: &[&[u8]],
        row: &mut dyn FnMut(Row),
    ) -> Result<(), TapdError> {
        // Columns of a type that they should not have are told by the row, not by SQLite.
        let sql = "SELECT l_hash_key, r_hash_key, key, \
                     CASE WHEN octet_length(value) <= ?3 THEN value END, sum, \
                     ifnull(octet_length(value) > ?3, 0) \
                   FROM mssmt_nodes WHERE hash_key = ?1 AND namespace = ?2";
        let mut read = || {
            let mut query = self.connection.prepare_cached(sql)?;
            for hash in hashes {
                let parameters = (hash, namespace, VALUE_BYTES_MAX as i64);
                let found = query.query_row(parameters, |found| Ok(content(found))).optional()?;
                if let Some((content, sum)) = found {
                    row(Row { hash: hash.to_vec(), content, sum });
                }
            }
            Ok(())
        };
        read().map_err(|error| self.failed(&error))
    }
}

fn content(row: &rusqlite::Row<'_>) -> (Content, u64) {
    let read = || -> rusqlite::Result<_> {
        let sum = sum_of(row.get(4)?);
        if row.get(5)? {
            return Ok((Content::TooLong, sum));
        }
        Ok((Content::of((row.get(0)?, row.get(1)?), row.get(2)?, row.get(3)?), sum))
    };
    read().unwrap_or_else(|error| (Content::Malformed(error.to_string()), 0))
}
