//! What a replay says at its end.

use std::time::Duration;

use alloy_primitives::B256;
use serde::{Serialize, Serializer};
use serde_json::json;
use spinney_replay::Summary;
use spinney_state::StateTimes;

use super::watch::FirstCommit;
use crate::trees;
use crate::ui::{Answer, Grid, Output, human_bytes};

/// One tree in one store.
// Fields: what the envelope holds is flat.
#[derive(Debug, Serialize)]
pub(super) struct RunReport {
    pub(super) tree: String,
    pub(super) store: &'static str,
    pub(super) db: Option<String>,
    /// The node whose state the blocks were executed on, in place of a store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state_from: Option<StateFrom>,
    pub(super) blocks: u64,
    pub(super) transactions: u64,
    pub(super) gas_used: u64,
    pub(super) roots_checked: u64,
    /// After transactions, by way of receipts from before Byzantium.
    pub(super) receipt_roots_checked: u64,
    /// What headers and bodies say, and nobody looked at.
    pub(super) not_checked: Vec<&'static str>,
    pub(super) head: Option<u64>,
    pub(super) head_hash: Option<B256>,
    pub(super) root: B256,
    pub(super) trees: Vec<TreeReport>,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: Option<f64>,
    /// Handed to write calls; of a store in memory, bytes of the pages it was given.
    pub(super) bytes_written: u64,
    pub(super) store_bytes: u64,
    pub(super) commits: u64,
    pub(super) first_commit: Option<FirstCommit>,
    pub(super) stopped: bool,
    /// Seconds. Sender recovery goes on beside the rest.
    pub(super) times: Times,
}

/// A state that was read from a node, each value proven under the root.
#[derive(Debug, Serialize)]
pub(super) struct StateFrom {
    pub(super) url: String,
    pub(super) block: u64,
    pub(super) hash: B256,
    pub(super) root: B256,
    /// Requests that the node got.
    pub(super) asks: u64,
}

/// One of the trees.
#[derive(Debug, Serialize)]
pub(super) struct TreeReport {
    tree: String,
    root: B256,
    /// Batches, roots and pages.
    seconds: f64,
    /// Pages written by the commits of this run, and their bytes with their keys.
    pages_written: u64,
    page_bytes: u64,
}

impl TreeReport {
    pub(super) fn of(tree: spinney_state::TreeReport) -> Self {
        Self {
            tree: trees::name_of(tree.scheme),
            root: tree.root,
            seconds: (tree.apply + tree.encode).as_secs_f64(),
            pages_written: tree.written.rows_written,
            page_bytes: tree.written.bytes,
        }
    }
}

/// Where the time went, in seconds: by the names that programs read, and by those for people.
#[derive(Debug)]
pub(super) struct Times([(&'static str, &'static str, f64); 9]);

impl Times {
    /// `beside` is what other trees took while blocks were executed.
    pub(super) fn of(summary: &Summary, state: StateTimes, beside: Duration) -> Self {
        // Executing reads the state, which is counted apart.
        let read = state.read + summary.times.state_read;
        let execution = summary.times.execute.saturating_sub(read + beside);
        let parts = [
            ("reading", "blocks read", summary.times.read),
            ("execution", "execution", execution),
            ("sender_recovery", "sender recovery", summary.times.recover),
            ("key_hashing", "key hashing", state.key_hashing),
            ("tree", "tree", state.tree),
            ("encode", "encode", state.encode),
            ("store", "store", state.store),
            ("read", "state read", read),
            ("history", "history", state.history),
        ];
        Self(parts.map(|(name, words, time)| (name, words, time.as_secs_f64())))
    }
}

impl Serialize for Times {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, _, seconds)| (name, seconds)))
    }
}

impl RunReport {
    pub(super) fn answer(&self) -> anyhow::Result<Answer> {
        let answer = Answer::of(&json!({ "runs": [self] }))?.stopped(self.stopped);
        Ok(answer.csv(self.csv()).table(self.table()))
    }

    /// Says what somebody may not have meant: no block at all, or fewer than were asked for.
    pub(super) fn warn_of_little(&self, to: Option<u64>, output: &Output) {
        if self.stopped {
            return;
        }
        let head = self.head.unwrap_or_default();
        if let Some(to) = to.filter(|to| head < *to) {
            output.warn(format!("the blocks end at block {head}, before block {to} (--to)"));
        } else if self.blocks == 0 {
            output.warn(format!("no block was replayed: none comes after block {head}"));
        }
    }

    fn csv(&self) -> Grid {
        let mut grid = Grid::new(&[
            "tree",
            "store",
            "blocks",
            "transactions",
            "roots_checked",
            "head",
            "root",
            "seconds",
            "cpu_seconds",
            "bytes_written",
            "store_bytes",
        ]);
        grid.row(vec![
            self.tree.clone(),
            self.store.to_owned(),
            self.blocks.to_string(),
            self.transactions.to_string(),
            self.roots_checked.to_string(),
            self.head.map(|head| head.to_string()).unwrap_or_default(),
            self.root.to_string(),
            format!("{:.3}", self.seconds),
            self.cpu_seconds.map(|seconds| format!("{seconds:.3}")).unwrap_or_default(),
            self.bytes_written.to_string(),
            self.store_bytes.to_string(),
        ]);
        grid
    }

    fn table(&self) -> Grid {
        let mut grid = Grid::new(&["replay", ""]);
        let mut row = |name: &str, value: String| grid.row(vec![name.to_owned(), value]);
        let place = self.db.as_ref().map(|db| format!(" ({db})")).unwrap_or_default();
        row("tree", self.tree.clone());
        row("store", format!("{}{place}", self.store));
        if let Some(StateFrom { url, block, root, asks, .. }) = &self.state_from {
            row("state from", format!("block {block} of {url}"));
            row("proven under", format!("{root}, in {asks} requests"));
        }
        row("blocks", self.blocks.to_string());
        row("transactions", self.transactions.to_string());
        row("roots checked", self.roots_checked.to_string());
        if self.receipt_roots_checked > 0 {
            row("roots in receipts", self.receipt_roots_checked.to_string());
        }
        if !self.not_checked.is_empty() {
            row("not checked", self.not_checked.join(", "));
        }
        if let Some(head) = self.head {
            let hash = self.head_hash.map(|hash| format!(" {hash}")).unwrap_or_default();
            row("head", format!("{head}{hash}"));
        }
        row("root", self.root.to_string());
        for tree in self.trees.iter().skip(1) {
            row(&format!("root of {}", tree.tree), tree.root.to_string());
        }
        row("time", format!("{:.3} s", self.seconds));
        if let Some(seconds) = self.cpu_seconds {
            row("CPU time", format!("{seconds:.3} s"));
        }
        row("bytes written", human_bytes(self.bytes_written));
        row("store bytes", human_bytes(self.store_bytes));
        row("commits", self.commits.to_string());
        if self.trees.len() > 1 {
            for tree in &self.trees {
                let TreeReport { tree, seconds, pages_written, page_bytes, .. } = tree;
                let bytes = human_bytes(*page_bytes);
                let value = format!("{seconds:.3} s, {pages_written} pages, {bytes}");
                row(&format!("  {tree}"), value);
            }
        }
        for (_, name, seconds) in &self.times.0 {
            row(&format!("  {name}"), format!("{seconds:.3} s"));
        }
        grid
    }
}
