//! `db stats`.

use serde::Serialize;
use serde_json::json;
use spinney_store::{AnyStore, StoreStats};
use spinney_tree::names;
use spinney_tree::{KeptCommits, PageStore as _, Snapshot, StoreError, Table};

use crate::commits::{self, described};
use crate::trees;
use crate::ui::{Answer, Grid, counted, human_bytes};

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

/// The pages of a tree.
#[derive(Debug, Serialize)]
struct TreePages {
    id: u32,
    tree: String,
    /// The name that it has in the store.
    #[serde(skip)]
    name: Option<String>,
    rows: u64,
    /// Bytes of keys and of values.
    bytes: u64,
}

fn pages_of(snapshot: &impl Snapshot) -> anyhow::Result<Vec<TreePages>> {
    let mut trees = Vec::new();
    // Damaged names are for `db check` to tell.
    let names = names::list(snapshot).unwrap_or_default();
    for (id, record) in trees::records(snapshot)? {
        let name = names.iter().find(|named| named.id == id).map(|named| named.name.clone());
        let mut pages = TreePages { id: id.0, tree: String::new(), name, rows: 0, bytes: 0 };
        pages.tree =
            record.map_or_else(|_| "damaged".into(), |record| trees::name_of(record.scheme));
        let high = id.0.checked_add(1).map(u32::to_be_bytes);
        let high = high.as_ref().map(|high| &high[..]);
        snapshot.scan(Table::Pages, &id.0.to_be_bytes(), high, &mut |key, value| {
            pages.rows += 1;
            pages.bytes += (key.len() + value.len()) as u64;
            true
        })?;
        trees.push(pages);
    }
    Ok(trees)
}

pub(super) fn run(store: &AnyStore) -> anyhow::Result<Answer> {
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
    answer(&tables, &pages_of(&snapshot)?, &stats, log_of(store)?.as_ref())
}

/// What a store that is a log has besides.
#[derive(Debug, Serialize)]
struct LogReport {
    commit: u64,
    oldest_commit: u64,
    /// Bytes of whole rows and deltas, of the segments that they are in, and of those above which
    /// rows are moved.
    live_bytes: u64,
    used_bytes: u64,
    allowed_bytes: u64,
    deltas_per_row: f64,
    files: u64,
    oldest_segment: u64,
    newest_segment: u64,
    held_segments: u64,
    index_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "commits::tell")]
    kept_commits: Option<KeptCommits>,
}

fn log_of(store: &AnyStore) -> Result<Option<LogReport>, StoreError> {
    let AnyStore::Log(log) = store else { return Ok(None) };
    let (stats, kept) = (log.log_stats()?, store.kept_commits()?);
    Ok(Some(LogReport {
        commit: stats.commit,
        oldest_commit: stats.oldest_commit,
        live_bytes: stats.live_bytes,
        used_bytes: stats.used_bytes,
        allowed_bytes: stats.allowed_bytes,
        deltas_per_row: stats.deltas as f64 / stats.rows.max(1) as f64,
        files: stats.files,
        oldest_segment: stats.segments.0,
        newest_segment: stats.segments.1,
        held_segments: stats.held_segments,
        index_bytes: stats.index_bytes,
        kept_commits: kept,
    }))
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

fn answer(
    tables: &[TableReport],
    trees: &[TreePages],
    stats: &StoreStats,
    log: Option<&LogReport>,
) -> anyhow::Result<Answer> {
    let (file_bytes, unused_bytes) = (stats.file_bytes, stats.unused_bytes());
    let mut data = json!({
        "tables": tables, "trees": trees, "file_bytes": file_bytes, "unused_bytes": unused_bytes,
    });
    if let Some(log) = log {
        data["log"] = json!(log);
    }
    let pages = trees.iter().map(|TreePages { tree, name, rows, bytes, .. }| {
        let name = name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        format!(
            "{tree}{name}: {}, {} ({bytes} bytes)",
            counted(*rows, "page", "pages"),
            human_bytes(*bytes)
        )
    });
    let of_file = [("file", file_bytes), ("in no table", unused_bytes)]
        .map(|(what, bytes)| format!("{what}: {} ({bytes} bytes)", human_bytes(bytes)));
    Ok(Answer::of(&data)?
        .csv(grid(tables, |bytes| bytes.to_string()))
        .table(grid(tables, human_bytes))
        .lines(pages.chain(of_file))
        .lines(log.into_iter().flat_map(LogReport::lines)))
}

fn grid(tables: &[TableReport], bytes: fn(u64) -> String) -> Grid {
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
    grid
}

impl LogReport {
    fn lines(&self) -> Vec<String> {
        let (live, used) = (human_bytes(self.live_bytes), human_bytes(self.used_bytes));
        let (files, oldest, last) =
            (counted(self.files, "file", "files"), self.oldest_commit, self.commit);
        let kept = self.kept_commits.as_ref().map(|kept| format!("{} kept", described(kept)));
        [format!("{files}, with records of commits {oldest} to {last}")]
            .into_iter()
            .chain(kept)
            .chain([
                format!("{live} alive in {used} of segments"),
                format!("{:.2} deltas a row", self.deltas_per_row),
                format!("index of {} in memory", human_bytes(self.index_bytes)),
            ])
            .map(|line| format!("log: {line}"))
            .collect()
    }
}
