//! What a run keeps in the store: a row for the run, and one for each range that is built.
//!
//! ```text
//! rows of `meta`
//! "pipeline", tree id (u32)               -> Run record
//! "pipeline", tree id (u32), range (u32)  -> Range record
//! Run   = name (32), leaves (u64), leaves hashed (u64), state (u8), root length (u16), root
//! Range = name (32), leaves (u64), bytes (u64), last key, 0 | 1 next key, summary
//! ```
//! A key stands behind its length (u16). A summary's bytes are those of
//! [`spinney_tree::ranges::Summary`].
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use spinney_tree::ranges::Summary;
use spinney_tree::{PageStore, Scheme, Snapshot, Table, TreeId, WriteSet};

use crate::error::PipelineError;
use crate::options::RunName;
use crate::record::{Fields, Kind, put, put_key, take};

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It can go on.
    UnderWay = 0,
    /// Its tree is in place.
    Finished = 1,
}

/// What the store says of its last run: see [`Checkpoint::read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub(crate) name: [u8; 32],
    /// Leaves of the run.
    pub leaves: u64,
    /// Leaves that were given to threads, those of ranges that a crash undid included.
    pub hashed: u64,
    /// How far it is.
    pub state: State,
    /// The root, once it is finished.
    pub root: Vec<u8>,
    /// Leaves of the ranges that are built; all of them once it is finished.
    pub built: u64,
    /// How many ranges are built, and not yet part of a tree.
    pub ranges: u32,
}

impl Checkpoint {
    /// The checkpoint of the tree's last run; `None` if there is none, or none that this version
    /// reads.
    ///
    /// # Errors
    /// If the store fails.
    pub fn read<N: Snapshot>(snapshot: &N, tree: TreeId) -> Result<Option<Self>, PipelineError> {
        let Some(row) = snapshot.read(Table::Meta, &run_key(tree))? else { return Ok(None) };
        let Ok((body, [])) = take(Kind::Run, &row) else { return Ok(None) };
        let Some(mut found) = Self::decode(body) else { return Ok(None) };
        let (mut built, mut ranges) = (0_u64, 0_u32);
        let name = found.name;
        snapshot.scan(Table::Meta, &range_key(tree, 0), Some(&behind(tree)), &mut |_, row| {
            if let Some(range) = Range::read(row, name) {
                built = built.saturating_add(range.leaves);
                ranges = ranges.saturating_add(1);
            }
            true
        })?;
        found.built = if found.state == State::Finished { found.leaves } else { built };
        found.ranges = ranges;
        Ok(Some(found))
    }

    /// Whether it is of the run with this name.
    pub fn is_of(&self, name: RunName) -> bool {
        self.name == name.0
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let (name, leaves, hashed) = (fields.array()?, fields.u64()?, fields.u64()?);
        let state = match fields.array()? {
            [0] => State::UnderWay,
            [1] => State::Finished,
            _ => return None,
        };
        let root = fields.key()?.to_vec();
        let found = Self { name, leaves, hashed, state, root, built: 0, ranges: 0 };
        fields.0.is_empty().then_some(found)
    }

    pub(crate) fn put(&self, tree: TreeId, set: &mut WriteSet) {
        let mut body = self.name.to_vec();
        body.extend_from_slice(&self.leaves.to_be_bytes());
        body.extend_from_slice(&self.hashed.to_be_bytes());
        body.push(self.state as u8);
        put_key(&self.root, &mut body);
        let mut row = Vec::new();
        put(Kind::Run, &body, &mut row);
        set.put(Table::Meta, &run_key(tree), row);
    }
}

/// Ranges that are built, by number.
pub(crate) type Found = Vec<(u32, Range)>;

/// A range that is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) leaves: u64,
    pub(crate) bytes: u64,
    pub(crate) last: Vec<u8>,
    /// The first key behind it; none where it is the last range.
    pub(crate) next: Option<Vec<u8>>,
}

impl Range {
    /// Puts the row of range `index` into a write set.
    pub(crate) fn put<S: Scheme>(
        &self,
        (tree, index, name): (TreeId, u32, RunName),
        summary: &Summary<S>,
        set: &mut WriteSet,
    ) {
        let mut body = name.0.to_vec();
        body.extend_from_slice(&self.leaves.to_be_bytes());
        body.extend_from_slice(&self.bytes.to_be_bytes());
        put_key(&self.last, &mut body);
        match &self.next {
            None => body.push(0),
            Some(next) => {
                body.push(1);
                put_key(next, &mut body);
            }
        }
        summary.encode(&mut body);
        let mut row = Vec::with_capacity(body.len().saturating_add(16));
        put(Kind::Range, &body, &mut row);
        set.put(Table::Meta, &range_key(tree, index), row);
    }

    /// What a row says, its summary apart.
    pub(crate) fn read(row: &[u8], name: [u8; 32]) -> Option<Self> {
        Some(Self::split(row, name)?.0)
    }

    /// What a row says, and the bytes of its summary.
    fn split(row: &[u8], name: [u8; 32]) -> Option<(Self, &[u8])> {
        let (body, []) = take(Kind::Range, row).ok()? else { return None };
        let mut fields = Fields(body);
        if fields.array()? != name {
            return None;
        }
        let (leaves, bytes, last) = (fields.u64()?, fields.u64()?, fields.key()?.to_vec());
        let next = match fields.array()? {
            [0] => None,
            [1] => Some(fields.key()?.to_vec()),
            _ => return None,
        };
        Some((Self { leaves, bytes, last, next }, fields.0))
    }

    /// The summary of a row.
    pub(crate) fn summary<S: Scheme>(scheme: &S, row: &[u8], name: RunName) -> Option<Summary<S>> {
        let (summary, []) = Summary::decode(scheme, Self::split(row, name.0)?.1)? else {
            return None;
        };
        Some(summary)
    }
}

pub(crate) fn run_key(tree: TreeId) -> Vec<u8> {
    [b"pipeline", &tree.0.to_be_bytes()[..]].concat()
}

pub(crate) fn range_key(tree: TreeId, range: u32) -> Vec<u8> {
    [run_key(tree), range.to_be_bytes().to_vec()].concat()
}

/// A key behind those of all ranges.
pub(crate) fn behind(tree: TreeId) -> Vec<u8> {
    [run_key(tree), vec![0xff; 5]].concat()
}

/// Removes the rows of all ranges.
pub(crate) fn drop_ranges(tree: TreeId, set: &mut WriteSet) {
    set.drop_range(Table::Meta, run_key(tree), behind(tree));
}

/// The ranges that are built, by number: `Err` where a row makes no sense.
pub(crate) fn ranges<P: PageStore>(
    store: &P,
    tree: TreeId,
    name: RunName,
) -> Result<Result<Found, &'static str>, PipelineError> {
    let (mut found, mut wrong) = (Vec::new(), false);
    let snapshot = store.snapshot()?;
    let prefix = run_key(tree).len();
    snapshot.scan(Table::Meta, &range_key(tree, 0), Some(&behind(tree)), &mut |key, row| {
        let index = key.get(prefix..).and_then(<[u8]>::first_chunk);
        let index = index.map(|index| u32::from_be_bytes(*index));
        match (index, Range::read(row, name.0)) {
            (Some(index), Some(range)) => found.push((index, range)),
            _ => wrong = true,
        }
        !wrong
    })?;
    Ok(if wrong { Err("a checkpoint of a range cannot be read") } else { Ok(found) })
}
