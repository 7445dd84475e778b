//! `db stats`.

use serde::Serialize;
use serde_json::json;
use spinney_store::AnyStore;
use spinney_tree::{PageStore as _, Snapshot, StoreError, Table};

use crate::failure::Exit;
use crate::output::{Format, Grid, Output, human_bytes};

#[derive(Debug, Serialize)]
struct TableReport {
    table: &'static str,
    rows: u64,
    /// Bytes of keys and of values.
    key_bytes: u64,
    value_bytes: u64,
    average_row: u64,
    largest_row: u64,
    /// What the store takes for them: rows, what leads to them, and gaps.
    stored_bytes: u64,
    metadata_bytes: u64,
    fragmented_bytes: u64,
}

pub(super) fn run(store: &AnyStore, output: &Output) -> anyhow::Result<Exit> {
    let stats = store.stats()?;
    let snapshot = store.snapshot()?;
    let mut tables = Vec::new();
    for table in &stats.tables {
        let rows = measure(&snapshot, table.table)?;
        tables.push(TableReport {
            table: table.table.name(),
            rows: rows.count,
            key_bytes: rows.key_bytes,
            value_bytes: rows.value_bytes,
            average_row: rows.value_bytes.checked_div(rows.count).unwrap_or(0),
            largest_row: rows.largest,
            stored_bytes: table.stored_bytes,
            metadata_bytes: table.metadata_bytes,
            fragmented_bytes: table.fragmented_bytes,
        });
    }
    print(&tables, stats.file_bytes, output)?;
    Ok(Exit::Ok)
}

#[derive(Debug, Default)]
struct Rows {
    count: u64,
    key_bytes: u64,
    value_bytes: u64,
    largest: u64,
}

fn measure(snapshot: &impl Snapshot, table: Table) -> Result<Rows, StoreError> {
    let mut rows = Rows::default();
    snapshot.scan(table, &[], None, &mut |key, value| {
        rows.count += 1;
        rows.key_bytes += key.len() as u64;
        rows.value_bytes += value.len() as u64;
        rows.largest = rows.largest.max(value.len() as u64);
        true
    })?;
    Ok(rows)
}

fn print(tables: &[TableReport], file_bytes: u64, output: &Output) -> std::io::Result<()> {
    let format = output.format();
    if format == Format::Json {
        return output.envelope(&json!({ "tables": tables, "file_bytes": file_bytes }), &[]);
    }
    let bytes = |n: u64| if format == Format::Csv { n.to_string() } else { human_bytes(n) };
    let mut grid = Grid::new(&[
        "table",
        "rows",
        "key bytes",
        "value bytes",
        "average row",
        "largest row",
        "stored bytes",
        "metadata bytes",
        "fragmented bytes",
    ]);
    for table in tables {
        grid.row(vec![
            table.table.to_owned(),
            table.rows.to_string(),
            bytes(table.key_bytes),
            bytes(table.value_bytes),
            bytes(table.average_row),
            bytes(table.largest_row),
            bytes(table.stored_bytes),
            bytes(table.metadata_bytes),
            bytes(table.fragmented_bytes),
        ]);
    }
    output.grid(&grid)?;
    if format == Format::Table {
        output.line(&format!("file: {} ({file_bytes} bytes)", human_bytes(file_bytes)))?;
    }
    Ok(())
}
