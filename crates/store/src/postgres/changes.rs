//! A write set as PostgreSQL takes it: arrays of columns.

use postgres::types::{ToSql, Type};
use spinney_tree::{Table, WriteSet};

use super::connection::{Connection, Failed};
use crate::metered::Meter;
use crate::seal::{self, SEAL_BYTES};

/// Bytes of rows that one statement takes to the server; PostgreSQL's messages end at 1 GiB.
const STATEMENT_BYTES: usize = 64 << 20;

/// A write set, its rows sealed, each key once.
pub(super) struct Changes<'a> {
    drops: (Vec<i16>, Vec<&'a [u8]>, Vec<&'a [u8]>),
    deletes: (Vec<i16>, Vec<&'a [u8]>),
    puts: Vec<Put<'a>>,
}

/// A row to write: its table, key and sealed value.
pub(super) struct Put<'a> {
    tab: i16,
    key: &'a [u8],
    row: Vec<u8>,
}

/// Rows to write as columns.
struct Columns<'c> {
    tabs: Vec<i16>,
    keys: Vec<&'c [u8]>,
    rows: Vec<&'c [u8]>,
    bytes: usize,
}

impl<'c> Columns<'c> {
    fn of(puts: &'c [Put<'_>]) -> Self {
        Self {
            tabs: puts.iter().map(|put| put.tab).collect(),
            keys: puts.iter().map(|put| put.key).collect(),
            rows: puts.iter().map(|put| &put.row[..]).collect(),
            bytes: puts.iter().map(Put::bytes).sum(),
        }
    }
}

impl Put<'_> {
    fn bytes(&self) -> usize {
        self.key.len() + self.row.len()
    }
}

type Column<'c> = (&'c (dyn ToSql + Sync), Type);

impl<'a> Changes<'a> {
    pub(super) fn of(set: &'a WriteSet) -> Self {
        let puts = Vec::with_capacity(set.rows().len());
        let mut changes = Self { drops: Default::default(), deletes: Default::default(), puts };
        for (table, low, high) in set.drops().filter(|(_, low, high)| low < high) {
            changes.drops.0.push(table as i16);
            changes.drops.1.push(low);
            changes.drops.2.push(high);
        }
        let mut rows: Vec<_> = set.rows().collect();
        // One statement may touch a row once. Sets come sorted as a rule, and then this is one
        // pass; equal keys keep their order.
        rows.sort_by_key(|(table, key, _)| (*table, *key));
        for (at, (table, key, value)) in rows.iter().enumerate() {
            if rows.get(at + 1).is_some_and(|next| (next.0, next.1) == (*table, *key)) {
                continue;
            }
            let tab = *table as i16;
            match value {
                Some(value) => {
                    let mut row = vec![0; value.len() + SEAL_BYTES];
                    seal::write(*table as u64, key, value, &mut row);
                    changes.puts.push(Put { tab, key, row });
                }
                None => {
                    changes.deletes.0.push(tab);
                    changes.deletes.1.push(key);
                }
            }
        }
        changes
    }

    /// The rows of the last statement, and of those before it, if all are too many for one.
    pub(super) fn parts(&self) -> (&[Put<'a>], Vec<&[Put<'a>]>) {
        let (mut parts, mut start, mut bytes) = (Vec::new(), 0, 0);
        for (at, put) in self.puts.iter().enumerate() {
            if at > start && bytes + put.bytes() > STATEMENT_BYTES {
                parts.push(&self.puts[start..at]);
                (start, bytes) = (at, 0);
            }
            bytes += put.bytes();
        }
        (&self.puts[start..], parts)
    }

    pub(super) fn drops_ranges(&self) -> bool {
        !self.drops.0.is_empty()
    }

    pub(super) fn drop_ranges(
        &self,
        connection: &mut Connection,
        meter: &Meter,
    ) -> Result<(), Failed> {
        let (tabs, lows, highs) = &self.drops;
        if tabs.is_empty() {
            return Ok(());
        }
        let sql = "DELETE FROM spinney_rows AS r USING unnest($1, $2, $3) AS d(tab, low, high) \
                   WHERE r.tab = d.tab AND r.key > d.low AND r.key < d.high";
        meter.wrote(1, lows.iter().chain(highs).map(|key| key.len() as u64).sum());
        let columns: [Column<'_>; 3] =
            [(tabs, Type::INT2_ARRAY), (lows, Type::BYTEA_ARRAY), (highs, Type::BYTEA_ARRAY)];
        connection.query(meter, sql, &columns)?;
        Ok(())
    }

    /// Writes rows that are not the last ones.
    pub(super) fn put(
        &self,
        puts: &[Put<'_>],
        connection: &mut Connection,
        meter: &Meter,
    ) -> Result<(), Failed> {
        let Columns { tabs, keys, rows, bytes } = &Columns::of(puts);
        let sql = "INSERT INTO spinney_rows(tab, key, value) SELECT * FROM unnest($1, $2, $3) \
                   ON CONFLICT (tab, key) DO UPDATE SET value = excluded.value";
        meter.wrote(1, *bytes as u64);
        let columns: [Column<'_>; 3] =
            [(tabs, Type::INT2_ARRAY), (keys, Type::BYTEA_ARRAY), (rows, Type::BYTEA_ARRAY)];
        connection.query(meter, sql, &columns)?;
        Ok(())
    }

    /// Moves the store on from so many commits, removes rows and writes the last ones. Answers
    /// `false`, and writes nothing, if the store has another number of commits.
    pub(super) fn finish(
        &self,
        puts: &[Put<'_>],
        commits: i64,
        connection: &mut Connection,
        meter: &Meter,
    ) -> Result<bool, Failed> {
        let Columns { tabs, keys, rows, bytes } = &Columns::of(puts);
        let (deleted_tabs, deleted_keys) = &self.deletes;
        // All parts of one statement see the rows as they were before it: so root records are
        // counted then, and what comes and goes is added.
        let sql = format!(
            "WITH moved AS ( \
               UPDATE spinney_store SET commits = commits + 1, roots = \
                 (SELECT count(*) FROM spinney_rows WHERE tab = {roots}) \
                 + (SELECT count(*) FROM unnest($4, $5) AS p(tab, key) WHERE p.tab = {roots} \
                    AND NOT EXISTS (SELECT FROM spinney_rows AS r \
                                    WHERE r.tab = {roots} AND r.key = p.key)) \
                 - (SELECT count(*) FROM unnest($2, $3) AS d(tab, key) WHERE d.tab = {roots} \
                    AND EXISTS (SELECT FROM spinney_rows AS r \
                                WHERE r.tab = {roots} AND r.key = d.key)) \
               WHERE commits = $1 RETURNING true), \
             gone AS ( \
               DELETE FROM spinney_rows AS r USING unnest($2, $3) AS d(tab, key) \
               WHERE r.tab = d.tab AND r.key = d.key AND EXISTS (SELECT FROM moved)), \
             put AS ( \
               INSERT INTO spinney_rows(tab, key, value) \
               SELECT * FROM unnest($4, $5, $6) WHERE EXISTS (SELECT FROM moved) \
               ON CONFLICT (tab, key) DO UPDATE SET value = excluded.value) \
             SELECT true FROM moved",
            roots = Table::Roots as i16,
        );
        let columns: [Column<'_>; 6] = [
            (&commits, Type::INT8),
            (deleted_tabs, Type::INT2_ARRAY),
            (deleted_keys, Type::BYTEA_ARRAY),
            (tabs, Type::INT2_ARRAY),
            (keys, Type::BYTEA_ARRAY),
            (rows, Type::BYTEA_ARRAY),
        ];
        meter.wrote(1, (*bytes + deleted_keys.iter().map(|key| key.len()).sum::<usize>()) as u64);
        Ok(connection.query(meter, &sql, &columns)?.len() == 1)
    }
}
