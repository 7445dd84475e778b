//! All that was measured, and its sums.

use serde::Serialize;

use crate::input::Input;
use crate::machine::Machine;
use crate::measure::{BlockCost, Cell, Settings};
use crate::stages::Stages;

/// What `bench` answers.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub(crate) version: &'static str,
    pub(crate) command: String,
    pub(crate) machine: Machine,
    pub(crate) input: String,
    pub(crate) settings: Settings,
    pub(crate) blocks: usize,
    pub(crate) transactions: u64,
    /// Executing all blocks, once for all trees.
    pub(crate) execution_seconds: f64,
    /// Whether the roots of the Merkle Patricia trie were compared with those of the headers.
    pub(crate) roots_checked: bool,
    pub(crate) cells: Vec<Cell>,
    /// A replay of the same blocks by stages, for a page.
    pub stages: Option<Stages>,
}

/// A figure of a cell a block, in the middle and near the end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (values.len() as f64 * share).ceil() as usize;
            values.get(index.saturating_sub(1)).copied().unwrap_or_default()
        };
        Self { p50: at(0.5), p99: at(0.99) }
    }
}

impl Cell {
    pub(crate) fn name(&self) -> String {
        format!("{} in {}", self.tree, self.store)
    }

    pub(crate) fn sum(&self, figure: impl Fn(&BlockCost) -> f64) -> f64 {
        self.blocks.iter().map(figure).sum()
    }

    /// A figure a block, on average.
    pub(crate) fn mean(&self, figure: impl Fn(&BlockCost) -> f64) -> f64 {
        self.sum(figure) / (self.blocks.len().max(1) as f64)
    }

    pub(crate) fn spread(&self, figure: impl Fn(&BlockCost) -> f64) -> Spread {
        Spread::of(self.blocks.iter().map(figure).collect())
    }

    /// Bytes of a proof of what one block touched, on average over those that were proven.
    pub(crate) fn proof_bytes(&self) -> Option<f64> {
        self.mean_of(|block| block.proof_bytes)
    }

    /// Bytes of what one block takes to be executed without a state, on average over those that
    /// were proven.
    pub(crate) fn witness_bytes(&self) -> Option<f64> {
        self.mean_of(|block| block.witness_bytes)
    }

    /// A figure of a store with a row a node, a block, if it was counted: commits have it for all
    /// of their blocks.
    pub(crate) fn node_rows(&self, figure: impl Fn(&BlockCost) -> Option<u64>) -> Option<f64> {
        let figure = |block: &BlockCost| figure(block).map(|value| value as f64);
        let is_known = self.blocks.iter().any(|block| figure(block).is_some());
        is_known.then(|| self.mean(|block| figure(block).unwrap_or_default()))
    }

    fn mean_of(&self, bytes: impl Fn(&BlockCost) -> Option<u64>) -> Option<f64> {
        let known: Vec<_> = self.blocks.iter().filter_map(bytes).collect();
        (!known.is_empty()).then(|| known.iter().sum::<u64>() as f64 / known.len() as f64)
    }
}

impl Report {
    /// Of all that was measured, and the command that had it measured.
    #[must_use]
    pub fn new(input: &Input, settings: Settings, cells: Vec<Cell>, command: String) -> Self {
        let execution = input.blocks.iter().map(|block| block.execution.as_secs_f64()).sum();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            command,
            machine: Machine::this(),
            input: input.name.clone(),
            settings,
            blocks: input.blocks.len(),
            transactions: input.blocks.iter().map(|block| block.transactions).sum(),
            execution_seconds: execution,
            roots_checked: input.checked,
            cells,
            stages: None,
        }
    }

    /// A line a tree and store.
    #[must_use]
    pub fn table(&self) -> Listing {
        let mut header = vec![
            "tree",
            "store",
            "root, p50",
            "root, p99",
            "commit, p50",
            "pages read",
            "pages written",
            "page bytes",
            "to write calls",
            "proof",
            "witness",
            "size",
        ];
        if self.settings.node_rows {
            header.extend(["node rows", "node bytes", "nodes to write calls"]);
        }
        let mut rows = Vec::new();
        for cell in &self.cells {
            let root = cell.spread(BlockCost::root_us);
            let commit = cell.spread(|block| block.encode_us + block.store_us);
            let bytes = |value: f64| human_bytes(value.round() as u64);
            let known = |value: Option<f64>| value.map_or_else(String::new, bytes);
            let mut row = vec![
                cell.tree.clone(),
                cell.store.to_owned(),
                human_micros(root.p50),
                human_micros(root.p99),
                human_micros(commit.p50),
                format!("{:.1}", cell.mean(|block| block.pages_read as f64)),
                format!("{:.1}", cell.mean(|block| block.pages_written as f64)),
                bytes(cell.mean(|block| block.page_bytes as f64)),
                bytes(cell.mean(|block| block.written_bytes as f64)),
                known(cell.proof_bytes()),
                known(cell.witness_bytes()),
                human_bytes(cell.file_bytes),
            ];
            if self.settings.node_rows {
                let rows = cell.node_rows(|block| block.node_rows);
                row.push(rows.map_or_else(String::new, |rows| format!("{rows:.1}")));
                row.push(known(cell.node_rows(|block| block.node_row_bytes)));
                row.push(known(cell.node_rows(|block| block.node_row_written_bytes)));
            }
            rows.push(row);
        }
        Listing { header, rows }
    }

    /// A line a block, tree and store.
    #[must_use]
    pub fn lines(&self) -> Listing {
        let line = |cell: &Cell, block: &BlockCost| {
            let places = [cell.tree.clone(), cell.store.to_owned()];
            places.into_iter().chain(block.cells()).collect()
        };
        let lines = |cell| move |block| line(cell, block);
        let rows = self.cells.iter().flat_map(|cell| cell.blocks.iter().map(lines(cell)));
        let header = ["tree", "store"].into_iter().chain(BLOCK_COLUMNS).collect();
        Listing { header, rows: rows.collect() }
    }

    /// The same as CSV: no cell has a comma.
    #[must_use]
    pub fn csv(&self) -> String {
        let Listing { header, rows } = self.lines();
        let rows = rows.iter().map(|row| row.join(","));
        [header.join(",")].into_iter().chain(rows).map(|line| line + "\n").collect()
    }
}

/// Rows under a header.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The names of the columns.
    pub header: Vec<&'static str>,
    /// As many cells each as there are columns.
    pub rows: Vec<Vec<String>>,
}

/// The columns of a block.
const BLOCK_COLUMNS: [&str; 20] = [
    "block",
    "touched",
    "execution_us",
    "read_us",
    "keys_us",
    "apply_us",
    "hash_us",
    "encode_us",
    "store_us",
    "pages_read",
    "pages_written",
    "page_bytes",
    "written_bytes",
    "proof_bytes",
    "proof_us",
    "witness_bytes",
    "code_bytes",
    "node_rows",
    "node_row_bytes",
    "node_row_written_bytes",
];

impl BlockCost {
    /// Its figures, in the order of the columns.
    fn cells(&self) -> [String; 20] {
        let whole = |value: Option<u64>| value.map_or_else(String::new, |v| v.to_string());
        [
            self.number.to_string(),
            self.touched.to_string(),
            self.execution_us.to_string(),
            self.read_us.to_string(),
            self.keys_us.to_string(),
            self.apply_us.to_string(),
            self.hash_us.to_string(),
            self.encode_us.to_string(),
            self.store_us.to_string(),
            self.pages_read.to_string(),
            self.pages_written.to_string(),
            self.page_bytes.to_string(),
            self.written_bytes.to_string(),
            whole(self.proof_bytes),
            self.proof_us.map_or_else(String::new, |v| v.to_string()),
            whole(self.witness_bytes),
            whole(self.code_bytes),
            whole(self.node_rows),
            whole(self.node_row_bytes),
            whole(self.node_row_written_bytes),
        ]
    }
}

/// Bytes for people: binary units.
#[must_use]
pub fn human_bytes(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1 << 10 {
        return format!("{bytes} B");
    }
    let mut scaled = bytes as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", units[unit])
}

/// Microseconds for people.
pub(crate) fn human_micros(micros: f64) -> String {
    match micros {
        _ if micros >= 1e6 => format!("{:.2} s", micros / 1e6),
        _ if micros >= 1e3 => format!("{:.1} ms", micros / 1e3),
        _ => format!("{micros:.0} us"),
    }
}

/// Bytes, as short as they can be said.
pub(crate) fn human_size(bytes: f64) -> String {
    human_bytes(bytes.round() as u64).replace(".0 ", " ")
}

#[cfg(test)]
mod tests {
    use super::{Spread, human_bytes, human_micros};

    #[test]
    fn bytes_are_scaled() {
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(3 << 40), "3.0 TiB");
    }

    #[test]
    fn spreads_are_by_rank() {
        let spread = Spread::of((1..=100).rev().map(f64::from).collect());
        assert_eq!((spread.p50, spread.p99), (50.0, 99.0));
        let spread = Spread::of(vec![7.0]);
        assert_eq!((spread.p50, spread.p99), (7.0, 7.0));
        assert_eq!(Spread::of(Vec::new()).p50, 0.0);
    }

    #[test]
    fn times_are_scaled() {
        let scaled = [12.4, 1_500.0, 2_340_000.0].map(human_micros);
        assert_eq!(scaled, ["12 us", "1.5 ms", "2.34 s"]);
    }
}
