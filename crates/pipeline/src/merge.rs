//! Run files as one sorted stream.

use std::sync::Arc;

use crate::error::PipelineError;
use crate::run_file::{Cursor, RunFile};

/// Merges runs with a heap of their first keys. Of equal keys the one of the last run comes first.
#[derive(Debug)]
pub(crate) struct Merge {
    runs: Vec<Cursor>,
    /// The first eight bytes of the key that a run stands on, and the run; the least key on top.
    heap: Vec<(u64, usize)>,
}

/// The first eight bytes of a key: what most keys differ in.
pub(crate) fn prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = key.len().min(8);
    bytes[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(bytes)
}

impl Merge {
    /// All leaves from the key `from` on.
    pub(crate) fn from(
        runs: impl IntoIterator<Item = Arc<RunFile>>,
        from: Option<&[u8]>,
    ) -> Result<Self, PipelineError> {
        let (mut cursors, mut heap) = (Vec::new(), Vec::new());
        for run in runs {
            let mut cursor = run.from(from)?;
            while let (Some((key, _)), Some(from)) = (cursor.leaf(), from)
                && key < from
            {
                cursor.advance()?;
            }
            if let Some((key, _)) = cursor.leaf() {
                heap.push((prefix(key), cursors.len()));
                cursors.push(cursor);
            }
        }
        let mut merge = Self { runs: cursors, heap };
        for index in (0..merge.heap.len() / 2).rev() {
            merge.sink(index);
        }
        Ok(merge)
    }

    /// The leaf it stands on.
    pub(crate) fn leaf(&self) -> Option<(&[u8], &[u8])> {
        self.runs[self.heap.first()?.1].leaf()
    }

    pub(crate) fn advance(&mut self) -> Result<(), PipelineError> {
        let Some(&(_, run)) = self.heap.first() else { return Ok(()) };
        self.runs[run].advance()?;
        match self.runs[run].leaf() {
            Some((key, _)) => self.heap[0].0 = prefix(key),
            None => {
                self.heap.swap_remove(0);
            }
        }
        self.sink(0);
        Ok(())
    }

    fn sink(&mut self, mut index: usize) {
        loop {
            let mut least = index;
            for child in [2 * index + 1, 2 * index + 2] {
                if child < self.heap.len() && self.below(child, least) {
                    least = child;
                }
            }
            if least == index {
                return;
            }
            self.heap.swap(index, least);
            index = least;
        }
    }

    fn below(&self, a: usize, b: usize) -> bool {
        let ((first, a), (second, b)) = (self.heap[a], self.heap[b]);
        first.cmp(&second).then_with(|| self.key(a).cmp(self.key(b))).then(b.cmp(&a)).is_lt()
    }

    fn key(&self, run: usize) -> &[u8] {
        self.runs[run].leaf().expect("runs in the heap stand on a leaf").0
    }
}
