//! One tree in one store: what each block cost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use alloy_primitives::B256;
use serde::Serialize;
use spinney_store::{AnyStore, Location};
use spinney_tree::{StoreError, Table};

use crate::clock::Clock;
use crate::error::BenchError;
use crate::input::{Block, Input};
use crate::rows::{Layout, RowStore, RowsWritten, Step};
use crate::subject::{self, Spent, StateTree, Subject};

/// How runs are measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Settings {
    /// Blocks a commit.
    pub commit_every: u64,
    /// One block of so many is proven, after and before; none with 0.
    pub prove_every: u64,
    /// Whether a store with a row a node is counted, too.
    pub node_rows: bool,
    /// Memory for pages, the store's included.
    pub cache_bytes: usize,
}

/// What a block cost. Times are microseconds. Fields: a line of figures a block, and each is one.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct BlockCost {
    pub(crate) number: u64,
    /// Accounts and slots touched.
    pub(crate) touched: u64,
    pub(crate) execution_us: f64,
    pub(crate) read_us: f64,
    /// Deriving keys, and looking up what changes do to leaves.
    pub(crate) keys_us: f64,
    /// Applying the batch, without hashing.
    pub(crate) apply_us: f64,
    /// Committing to nodes; summed over the threads.
    pub(crate) hash_us: f64,
    /// Of a commit, all of its blocks: zero for those that did not end one.
    pub(crate) encode_us: f64,
    pub(crate) store_us: f64,
    pub(crate) pages_read: u64,
    pub(crate) pages_written: u64,
    /// Keys and values of the pages written: their logical size.
    pub(crate) page_bytes: u64,
    /// Bytes handed to write calls.
    pub(crate) written_bytes: u64,
    /// Rows of a store that has one for each node, written for the same commit; their keys and
    /// nodes; and what a store of this kind hands to write calls for them.
    pub(crate) node_rows: Option<u64>,
    pub(crate) node_row_bytes: Option<u64>,
    pub(crate) node_row_written_bytes: Option<u64>,
    /// A proof of all that was touched, after the commit.
    pub(crate) proof_bytes: Option<u64>,
    pub(crate) proof_us: Option<f64>,
    /// What it takes to execute the block without a state: a proof of all that it touches, before
    /// it, and the codes that it read, where it was executed. Not the nodes that only a deletion
    /// needs.
    pub(crate) witness_bytes: Option<u64>,
    /// The codes among them.
    pub(crate) code_bytes: Option<u64>,
}

impl BlockCost {
    /// From the batch to the root.
    pub(crate) fn root_us(&self) -> f64 {
        self.keys_us + self.apply_us + self.hash_us
    }
}

/// What the tree takes at some size.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct SizePoint {
    /// Accounts and slots.
    pub(crate) entries: u64,
    /// Pages with their keys.
    pub(crate) pages: u64,
    pub(crate) page_bytes: u64,
}

/// One tree in one store.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub(crate) tree: String,
    pub(crate) store: &'static str,
    pub(crate) root: B256,
    /// Wall and CPU time of the blocks, without proofs and rows of nodes.
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) fill_seconds: f64,
    pub(crate) file_bytes: u64,
    pub(crate) sizes: Vec<SizePoint>,
    pub(crate) blocks: Vec<BlockCost>,
}

/// A tree and a store: what they are called, and where the store is made and removed again.
#[derive(Clone, Debug)]
pub struct Site {
    /// The tree.
    pub tree: StateTree,
    /// Its name.
    pub tree_name: String,
    /// The name of the store's kind.
    pub store_name: &'static str,
    /// Where nothing is yet; none for a store in memory.
    pub location: Option<Location>,
    /// The same for a store with a row a node, if it is of files.
    pub rows: Option<Location>,
}

/// Runs all blocks into a new store.
///
/// # Errors
/// Of stores and trees, and a [`BenchError`] where the run was stopped or came to another root.
pub fn measure(
    site: &Site,
    input: &Input,
    settings: Settings,
    stop: &AtomicBool,
    mut progress: impl FnMut(u64),
) -> anyhow::Result<Cell> {
    let cache = settings.cache_bytes / 2;
    // On a server it stays unfinished, so that nobody takes it for a store.
    let store = match &site.location {
        None => AnyStore::memory(),
        Some(location) => location.begin(cache)?,
    };
    let rows = settings.node_rows.then(|| {
        let beside = site.rows.as_ref().map(|location| location.begin(cache)).transpose()?;
        Ok::<_, StoreError>(RowStore::new(Layout::of(site.tree), beside))
    });
    let rows = rows.transpose()?;
    let cell = cell(site, input, settings, (&store, rows), stop, &mut progress);
    if let Some(server @ Location::Postgres(_)) = &site.location {
        // What is in a folder goes with it.
        store.finish()?;
        store.close()?;
        server.remove()?;
    } else {
        store.close()?;
    }
    cell
}

fn cell(
    site: &Site,
    input: &Input,
    settings: Settings,
    (store, rows): (&AnyStore, Option<RowStore>),
    stop: &AtomicBool,
    progress: &mut impl FnMut(u64),
) -> anyhow::Result<Cell> {
    let cache = settings.cache_bytes / 2;
    let tree = subject::open(site.tree, store, cache)?;
    let mut run = Run { site, store, tree, rows, sizes: Vec::new(), settings, aside: (0.0, 0.0) };
    let started = Instant::now();
    run.fill(input)?;
    let fill_seconds = started.elapsed().as_secs_f64();
    let clock = Clock::start();
    let mut blocks = Vec::with_capacity(input.blocks.len());
    for index in 0..input.blocks.len() {
        if stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted.into());
        }
        let ends = (index as u64 + 1).is_multiple_of(settings.commit_every)
            || index + 1 == input.blocks.len();
        blocks.push(run.block(index, input, ends)?);
        progress(index as u64 + 1);
    }
    let (seconds, cpu_seconds) = (clock.seconds(), clock.cpu_seconds());
    if let Some(last) = input.blocks.last() {
        run.size(last.entries)?;
    }
    let (root, sizes) = (run.tree.root(), std::mem::take(&mut run.sizes));
    let aside = run.aside;
    drop(run);
    let file_bytes = store.stats()?.file_bytes;
    Ok(Cell {
        tree: site.tree_name.clone(),
        store: site.store_name,
        root,
        seconds: seconds - aside.0,
        cpu_seconds: cpu_seconds.map(|seconds| seconds - aside.1),
        fill_seconds,
        file_bytes,
        sizes,
        blocks,
    })
}

struct Run<'s> {
    site: &'s Site,
    store: &'s AnyStore,
    tree: Box<dyn Subject + 's>,
    sizes: Vec<SizePoint>,
    /// What a store with a row a node is given.
    rows: Option<RowStore>,
    settings: Settings,
    /// Seconds of what is no part of a block, on the wall and on the processors.
    aside: (f64, f64),
}

impl Run<'_> {
    /// Puts the first state in; its size is noted each time that it has doubled.
    fn fill(&mut self, input: &Input) -> anyhow::Result<()> {
        let mut entries = 0;
        for changes in (0..).map_while(|part| (input.start)(part)) {
            self.tree.fill(&changes)?;
            if let Some(rows) = &mut self.rows {
                self.tree.operations(&mut |operations| rows.fill(operations));
            }
            self.tree.keep()?;
            let slots = |change: &spinney_state::Change| match change {
                spinney_state::Change::Written(change) => change.storage.len() as u64,
                spinney_state::Change::Deleted => 0,
            };
            let accounts = changes.accounts.len() as u64;
            entries += accounts + changes.accounts.values().map(slots).sum::<u64>();
            if self.sizes.last().is_none_or(|last| entries >= 2 * last.entries) {
                self.size(entries)?;
            }
        }
        self.rows.iter().try_for_each(RowStore::write_all)
    }

    /// Notes what the tree takes.
    fn size(&mut self, entries: u64) -> anyhow::Result<()> {
        let stats = self.store.stats()?;
        let pages = stats.tables.iter().find(|found| found.table == Table::Pages);
        let (pages, page_bytes) = pages.map_or((0, 0), |found| (found.rows, found.stored_bytes));
        self.sizes.push(SizePoint { entries, pages, page_bytes });
        Ok(())
    }

    /// Reads, applies and, at the end of a commit, commits a block.
    fn block(&mut self, index: usize, input: &Input, ends: bool) -> anyhow::Result<BlockCost> {
        let block = &input.blocks[index];
        let (io, costs) = (self.store.io(), self.tree.costs());
        let start = Instant::now();
        self.tree.read(&block.touched)?;
        let read = start.elapsed();
        if self.store.io().bytes_written != io.bytes_written {
            let tree = self.site.tree_name.clone();
            return Err(BenchError::Wrote { tree, store: self.store.kind() }.into());
        }
        let before = (self.tree.spent(), self.tree.costs());
        let start = Instant::now();
        let root = self.tree.apply(block)?;
        let applied = start.elapsed();
        if let Some(expected) = block.root.filter(|expected| self.is_mpt() && *expected != root) {
            return Err(BenchError::Root { block: block.number, expected, got: root }.into());
        }
        let after = (self.tree.spent(), self.tree.costs());
        // The last commit is still what the block began with, if that ended one.
        let starts = (index as u64).is_multiple_of(self.settings.commit_every);
        let before_block = if starts { self.prove(index, block)? } else { None };
        let node_rows = if ends { self.node_rows()? } else { None };
        let after_proof = self.tree.costs();
        let written = if ends { self.tree.commit(block)? } else { Default::default() };
        let Spent { encode, store, .. } = self.tree.spent();
        let keys = after.0.keys.saturating_sub(before.0.keys);
        let hash = after.1.hashing.saturating_sub(before.1.hashing);
        let pages_read = after.1.pages_read - costs.pages_read + self.tree.costs().pages_read
            - after_proof.pages_read;
        let written_bytes = (self.store.io() - io).bytes_written;
        let after_block = if ends { self.prove(index, block)? } else { None };
        Ok(BlockCost {
            number: block.number,
            touched: block.touched.values().map(|slots| 1 + slots.len() as u64).sum(),
            execution_us: micros(block.execution),
            read_us: micros(read),
            keys_us: micros(keys),
            apply_us: micros(applied.saturating_sub(keys + hash)),
            hash_us: micros(hash),
            encode_us: micros(encode - after.0.encode),
            store_us: micros(store - after.0.store),
            pages_read,
            pages_written: written.rows_written,
            page_bytes: written.bytes,
            written_bytes,
            node_rows: node_rows.map(|done| done.rows),
            node_row_bytes: node_rows.map(|done| done.bytes),
            node_row_written_bytes: node_rows.and_then(|done| done.written_bytes),
            proof_bytes: after_block.map(|(bytes, _)| bytes),
            proof_us: after_block.map(|(_, made)| micros(made)),
            witness_bytes: before_block
                .map(|(bytes, _)| bytes + block.code_bytes.unwrap_or_default()),
            code_bytes: block.code_bytes,
        })
    }

    /// Proves what a block touches in the last commit, if it is its turn.
    fn prove(&mut self, index: usize, block: &Block) -> anyhow::Result<Option<(u64, Duration)>> {
        let every = self.settings.prove_every;
        if every == 0 || block.touched.is_empty() || !(index as u64).is_multiple_of(every) {
            return Ok(None);
        }
        let clock = Clock::start();
        let proof = self.tree.prove(&block.touched)?;
        self.set_aside(clock);
        Ok(Some(proof))
    }

    /// Writes the nodes that the next commit changes as rows, if that was asked for.
    fn node_rows(&mut self) -> anyhow::Result<Option<RowsWritten>> {
        let Some(rows) = &mut self.rows else { return Ok(None) };
        let clock = Clock::start();
        let mut step = Step::default();
        self.tree.operations(&mut |operations| step = rows.step(operations));
        let written = rows.write(&step)?;
        self.set_aside(clock);
        Ok(Some(written))
    }

    fn set_aside(&mut self, clock: Clock) {
        self.aside.0 += clock.seconds();
        self.aside.1 += clock.cpu_seconds().unwrap_or_default();
    }

    fn is_mpt(&self) -> bool {
        self.site.tree == StateTree::Mpt
    }
}

fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}
