//! What stores over SQL share: rows that are read, and scans in steps.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::Arc;

use spinney_tree::StoreError;

/// A row read by SQL, which owns its bytes together with the other rows of its read.
///
/// It goes before its snapshot does, as any store's rows do:
///
/// ```compile_fail,E0505
/// # use spinney_store::SqliteStore;
/// # use spinney_tree::{PageStore, Snapshot, Table};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = SqliteStore::create(folder.path().join("file"), 1 << 20).unwrap();
/// let snapshot = store.snapshot().unwrap();
/// let row = snapshot.read(Table::Meta, b"head").unwrap();
/// drop(snapshot);
/// assert_eq!(row.as_deref(), None);
/// ```
pub struct SqlRow<'s> {
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
    snapshot: PhantomData<&'s ()>,
}

impl SqlRow<'_> {
    /// The rows at these ranges of what one statement answered.
    pub(crate) fn share(bytes: Vec<u8>, found: Vec<Option<Range<usize>>>) -> Vec<Option<Self>> {
        let bytes = Arc::new(bytes);
        let row = |range| Self { bytes: Arc::clone(&bytes), range, snapshot: PhantomData };
        found.into_iter().map(|range| range.map(row)).collect()
    }
}

impl Deref for SqlRow<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        part(&self.bytes, &self.range)
    }
}

impl fmt::Debug for SqlRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqlRow").field(&&**self).finish()
    }
}

/// A part of bytes whose bounds were noted when it was put there.
fn part<'b>(bytes: &'b [u8], range: &Range<usize>) -> &'b [u8] {
    bytes.get(range.clone()).unwrap_or_default()
}

/// Rows of one step of a scan: keys and values in a buffer.
#[derive(Debug, Default)]
pub(crate) struct Step {
    bytes: Vec<u8>,
    rows: Vec<(Range<usize>, Range<usize>)>,
}

impl Step {
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.rows.push((start..middle, middle..self.bytes.len()));
    }
}

const FIRST_STEP_ROWS: usize = 16;
const STEP_ROWS_MAX: usize = 4_096;
const STEP_BYTES: usize = 1 << 20;

/// Where a step of a scan begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'k> {
    pub(crate) key: &'k [u8],
    /// Whether a row of that very key is wanted.
    pub(crate) inclusive: bool,
}

/// Scans in steps of about [`STEP_BYTES`], so that neither all rows are in memory, nor is a
/// connection held while a visitor works. `fetch` reads so many rows from there on; fewer are the
/// last ones.
pub(crate) fn scan_in_steps(
    low: &[u8],
    high: Option<&[u8]>,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    mut fetch: impl FnMut(Start<'_>, usize, &mut Step) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    if high.is_some_and(|high| high <= low) {
        return Ok(());
    }
    let (mut start, mut inclusive, mut rows) = (low.to_vec(), true, FIRST_STEP_ROWS);
    let mut step = Step::default();
    loop {
        step.bytes.clear();
        step.rows.clear();
        fetch(Start { key: &start, inclusive }, rows, &mut step)?;
        for (key, value) in &step.rows {
            if !visit(part(&step.bytes, key), part(&step.bytes, value)) {
                return Ok(());
            }
        }
        let Some((last, _)) = step.rows.last().filter(|_| step.rows.len() == rows) else {
            return Ok(());
        };
        start.clear();
        start.extend_from_slice(part(&step.bytes, last));
        inclusive = false;
        let average = step.bytes.len().checked_div(step.rows.len()).unwrap_or(0).max(1);
        rows = STEP_BYTES.checked_div(average).unwrap_or(0).clamp(1, STEP_ROWS_MAX);
    }
}
