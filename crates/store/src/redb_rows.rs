//! The rows of one commit into a table of redb.
//!
//! Rows that exist are replaced one by one. A run of new rows that all lie between two rows of the
//! table is inserted through a cursor: redb looks for their place once, and packs its leaves full,
//! where one by one, in rising order, small rows would split every leaf in its middle. Pages of
//! some 2 KB have a leaf of redb's to themselves either way; what they gain is the tenth of a
//! rebuild's CPU time that went into finding places.

use std::ops::Bound;

use redb::{CursorError, CursorMut, TableDefinition, WriteTransaction};
use spinney_tree::Table;

use crate::seal::{self, SEAL_BYTES};

/// Fewer rows are no run.
const RUN_MIN: usize = 16;

/// A row of a write set.
pub(crate) type RowChange<'a> = (Table, &'a [u8], Option<&'a [u8]>);

/// What redb's tables have for keys and values.
pub(crate) type Bytes = &'static [u8];

type WritableTable<'txn> = redb::Table<'txn, Bytes, Bytes>;

/// The table of redb that has the rows of a table.
pub(crate) const fn definition(table: Table) -> TableDefinition<'static, Bytes, Bytes> {
    TableDefinition::new(table.name())
}

/// Applies what a write set has for one table. `rows` are sorted; of equal keys the last counts.
pub(crate) fn apply<'a>(
    transaction: &WriteTransaction,
    table: Table,
    drops: impl Iterator<Item = (Table, &'a [u8], &'a [u8])>,
    rows: &[RowChange<'_>],
) -> Result<(), redb::Error> {
    let mut drops = drops.filter(|(_, low, high)| low < high).peekable();
    if drops.peek().is_none() && rows.is_empty() {
        return Ok(());
    }
    let mut opened = transaction.open_table(definition(table))?;
    for (_, low, high) in drops {
        let range = (Bound::Excluded(low), Bound::Excluded(high));
        opened.retain_in::<&[u8], _>(range, |_, _| false)?;
    }
    // Where rows change here and there, runs are looked for less and less often: that costs a
    // handful of descents.
    let (mut at, mut look, mut pause) = (0, 0, RUN_MIN);
    while at < rows.len() {
        let run = if at >= look { put_run(&mut opened, &rows[at..])? } else { 0 };
        if at >= look {
            pause = if run == 0 { 2 * pause } else { RUN_MIN };
            look = at + run + pause;
        }
        if run == 0 {
            put_one(&mut opened, &rows[at..])?;
        }
        at += run.max(1);
    }
    Ok(())
}

/// Applies the first of `rows`, if the next one does not undo that.
fn put_one(opened: &mut WritableTable<'_>, rows: &[RowChange<'_>]) -> Result<(), redb::Error> {
    let (table, key, value) = rows[0];
    if rows.get(1).is_some_and(|next| next.1 == key) {
        return Ok(());
    }
    match value {
        Some(value) => {
            let mut row = opened.insert_reserve(key, value.len() + SEAL_BYTES)?;
            seal::write(table as u64, key, value, row.as_mut());
        }
        None => drop(opened.remove(key)?),
    }
    Ok(())
}

/// Inserts the first of `rows` if they are a run; answers how many it took.
fn put_run(opened: &mut WritableTable<'_>, rows: &[RowChange<'_>]) -> Result<usize, redb::Error> {
    if rows.len() < RUN_MIN {
        return Ok(0);
    }
    let mut cursor = opened.lower_bound_mut(Bound::Included(rows[0].1))?;
    let new = match cursor.peek_next()? {
        Some((next, _)) => rows.partition_point(|row| row.1 < next.value()),
        None => rows.len(),
    };
    let ends = |at: &usize| {
        rows[*at].2.is_none() || rows.get(at + 1).is_some_and(|next| next.1 == rows[*at].1)
    };
    let run = (0..new).find(ends).unwrap_or(new);
    if run < RUN_MIN {
        cursor.close()?;
        return Ok(0);
    }
    let mut sealed = Vec::new();
    for (table, key, value) in &rows[..run] {
        let value = value.expect("a deletion ends a run");
        sealed.resize(value.len() + SEAL_BYTES, 0);
        seal::write(*table as u64, key, value, &mut sealed);
        insert(&mut cursor, key, &sealed)?;
    }
    cursor.close()?;
    Ok(run)
}

fn insert(
    cursor: &mut CursorMut<'_, Bytes, Bytes>,
    key: &[u8],
    value: &[u8],
) -> Result<(), redb::Error> {
    cursor.insert_before(key, value).map_err(|error| match error {
        CursorError::Storage(error) => error.into(),
        // The rows are sorted and lie between two of the table: it is the table's that are not.
        other => redb::Error::Corrupted(other.to_string()),
    })
}
