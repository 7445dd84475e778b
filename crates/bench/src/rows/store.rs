//! A store of the kind that is measured, with a row a node.

use spinney_store::AnyStore;
use spinney_tree::{Operation, PageStore as _, Table, WriteSet};

use super::layout::Layout;
use super::nodes::{NodeRows, Rows, Step};

/// Bytes of rows put in one commit while the first state is written.
const FILL_BYTES: usize = 16 << 20;

/// The rows of a tree's nodes, and a store that has them; none in memory, where nothing is written.
pub(crate) struct RowStore {
    rows: Rows,
    store: Option<AnyStore>,
    /// What nodes are made of: another byte each commit.
    stamp: u8,
}

/// What a commit wrote as rows of nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowsWritten {
    pub(crate) rows: u64,
    /// Keys and nodes.
    pub(crate) bytes: u64,
    /// Bytes handed to write calls, where there is a store.
    pub(crate) written_bytes: Option<u64>,
}

impl RowStore {
    pub(crate) const fn new(layout: Layout, store: Option<AnyStore>) -> Self {
        Self { rows: Rows::new(layout), store, stamp: 0 }
    }

    /// Follows what was done to the tree, and writes nothing yet.
    pub(crate) fn fill(&mut self, operations: &mut dyn Iterator<Item = Operation<'_>>) {
        self.rows.fill(operations);
    }

    /// Writes all that was followed.
    pub(crate) fn write_all(&self) -> anyhow::Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        let (mut part, mut bytes) = (NodeRows::new(), 0);
        self.rows.all(&mut |row, len| {
            bytes += row.len() + len as usize;
            part.insert(row, len);
            if bytes >= FILL_BYTES {
                bytes = 0;
                self.commit(store, &Step { put: std::mem::take(&mut part), ..Step::default() })?;
            }
            Ok(())
        })?;
        self.commit(store, &Step { put: part, ..Step::default() })
    }

    /// Follows what was done to the tree in a commit.
    pub(crate) fn step(&mut self, operations: &mut dyn Iterator<Item = Operation<'_>>) -> Step {
        self.rows.step(operations)
    }

    /// Writes the rows of a commit.
    pub(crate) fn write(&mut self, step: &Step) -> anyhow::Result<RowsWritten> {
        self.stamp = self.stamp.wrapping_add(1);
        let written_bytes = match &self.store {
            Some(store) => {
                let before = store.io();
                self.commit(store, step)?;
                Some((store.io() - before).bytes_written)
            }
            None => None,
        };
        Ok(RowsWritten { rows: step.put.len() as u64, bytes: step.bytes(), written_bytes })
    }

    fn commit(&self, store: &AnyStore, step: &Step) -> anyhow::Result<()> {
        let mut set = WriteSet::new();
        for (row, len) in &step.put {
            set.put(Table::Pages, row, vec![self.stamp; *len as usize]);
        }
        step.removed.iter().for_each(|row| set.delete(Table::Pages, row));
        set.sort();
        Ok(store.commit(&set)?)
    }
}
