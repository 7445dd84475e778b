//! Which blocks' states a store keeps: how many it is told to, which of them its history has, and
//! what takes it back to one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spinney_tree::{BlockId, RootRecord, Snapshot, Table, TreeError, TreeId};

use crate::error::StateError;
use crate::history_row::{Record, key};

/// How many blocks a state can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepHistory {
    /// The last so many; none with 0.
    Blocks(u64),
    /// All from now on.
    All,
}

impl Default for KeepHistory {
    /// The last 512 blocks.
    fn default() -> Self {
        Self::Blocks(512)
    }
}

impl fmt::Display for KeepHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocks(count) => count.fmt(f),
            Self::All => f.write_str("all"),
        }
    }
}

/// What a state keeps of its history.
#[derive(Debug, Default)]
pub(crate) struct Keep {
    /// What was asked for.
    pub(crate) history: KeepHistory,
    /// See [`State::keep_history_from`](crate::State::keep_history_from).
    pub(crate) from: Option<Arc<AtomicU64>>,
}

impl Keep {
    /// Whether the next commit is to be taken back.
    pub(crate) const fn is_any(&self) -> bool {
        !matches!(self.history, KeepHistory::Blocks(0)) || self.from.is_some()
    }

    /// How many blocks stay at most, where that is known.
    pub(crate) const fn most(&self) -> Option<u64> {
        match (self.history, &self.from) {
            (KeepHistory::Blocks(keep), None) => Some(keep),
            _ => None,
        }
    }

    /// The first block whose row stays, once this is the last block.
    pub(crate) fn oldest(&self, last: u64) -> u64 {
        let oldest = match self.history {
            KeepHistory::All => 0,
            KeepHistory::Blocks(keep) => last.saturating_add(1).saturating_sub(keep),
        };
        oldest.min(self.behind())
    }

    /// The first block whose row and witness stay whatever else is said.
    pub(crate) fn behind(&self) -> u64 {
        let from = self.from.as_ref().map_or(u64::MAX, |from| from.load(Ordering::Acquire));
        from.saturating_add(1)
    }
}

/// The blocks whose states a store has: see [`State::kept`](crate::State::kept).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// The oldest.
    pub oldest: BlockId,
    /// The newest: that of the last commit.
    pub newest: BlockId,
}

/// The blocks whose states a store has that stands at `newest`, oldest first, as its history names
/// them: what the rows say of the states is not read. `newest` is the last one.
///
/// ```
/// # use spinney_state::{Changes, State, kept_blocks};
/// # use spinney_tree::{BlockId, MemoryStore, PageStore};
/// let mut state = State::open(MemoryStore::new(), 1 << 20)?;
/// let blocks = [3, 4].map(|number| BlockId { number, hash: [number as u8; 32] });
/// for block in blocks {
///     state.apply(&Changes::default())?;
///     state.seal(block)?;
///     state.commit()?;
/// }
/// assert_eq!(kept_blocks(&state.store().snapshot()?, blocks[1])?, blocks);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the store fails, or a row does not follow the one before.
pub fn kept_blocks<N: Snapshot>(snapshot: &N, newest: BlockId) -> Result<Vec<BlockId>, StateError> {
    let mut blocks: Vec<BlockId> = Vec::new();
    let mut outcome = Ok(());
    let mut take = |key: &[u8], row: &[u8]| {
        outcome = read(key, row, Record::ids).and_then(|(block, parent)| {
            match blocks.last() {
                None => blocks.push(parent),
                Some(last) if *last == parent => {}
                Some(_) => return Err(fault(block.number, "it does not follow the one before")),
            }
            blocks.push(block);
            Ok(())
        });
        outcome.is_ok()
    };
    snapshot.scan(Table::History, &[], None, &mut take)?;
    outcome?;
    match blocks.last() {
        None => Ok(vec![newest]),
        Some(last) if *last == newest => Ok(blocks),
        Some(last) => Err(fault(last.number, "it is the last one, and not of the state's block")),
    }
}

/// Whether a store that stands at `newest` has the state of a block, as its history says: what the
/// rows say of the states is not read.
///
/// # Errors
/// If the store fails, or the row that leads to the block is damaged.
pub fn keeps_block<N: Snapshot>(
    snapshot: &N,
    newest: BlockId,
    number: u64,
) -> Result<bool, StateError> {
    let Some(after) = number.checked_add(1).filter(|_| number < newest.number) else {
        return Ok(number == newest.number);
    };
    let mut found = Ok(false);
    let mut first = |key: &[u8], row: &[u8]| {
        found = read(key, row, Record::ids).map(|(_, parent)| parent.number == number);
        false
    };
    snapshot.scan(Table::History, &key(after), None, &mut first)?;
    found
}

/// The oldest and the newest of the blocks whose states a store has that stands at `newest`.
///
/// # Errors
/// If the store fails, or its first row is damaged.
pub fn kept_range<N: Snapshot>(snapshot: &N, newest: BlockId) -> Result<Kept, StateError> {
    let mut oldest = Ok(newest);
    let mut first = |key: &[u8], row: &[u8]| {
        oldest = decode(key, row).map(|record| record.parent);
        false
    };
    snapshot.scan(Table::History, &[], None, &mut first)?;
    Ok(Kept { oldest: oldest?, newest })
}

/// Refuses a view that shows another commit of a tree than the last one known here: another
/// writer's.
pub(crate) fn is_of_last_commit<N: Snapshot>(
    snapshot: &N,
    tree: TreeId,
    head: u64,
) -> Result<(), StateError> {
    let record = snapshot.read(Table::Roots, &RootRecord::key(tree))?;
    let record = record.map(|row| RootRecord::decode(tree, &row)).transpose()?;
    let found = record.map_or(0, |record| record.commit);
    if found == head { Ok(()) } else { Err(TreeError::OtherSnapshot { tree, found, head }.into()) }
}

/// What takes a state that stands at `head` back to a block, which is the record's parent.
pub(crate) fn undo_after<N: Snapshot>(
    snapshot: &N,
    head: BlockId,
    number: u64,
) -> Result<Record, StateError> {
    let mut found: Option<Record> = None;
    let mut outcome = Ok(());
    let mut take = |key: &[u8], row: &[u8]| {
        outcome = decode(key, row).and_then(|record| match &mut found {
            None => {
                found = Some(record);
                Ok(())
            }
            Some(found) => found.follow(record),
        });
        // Where the first row does not lead to the block, those after it do not either.
        outcome.is_ok() && found.as_ref().is_some_and(|found| found.parent.number == number)
    };
    if let Some(first) = number.checked_add(1) {
        snapshot.scan(Table::History, &key(first), None, &mut take)?;
    }
    outcome?;
    match found.filter(|found| found.parent.number == number) {
        Some(found) if found.block != head => Err(fault(head.number, "it is missing")),
        Some(found) => Ok(found),
        None => {
            let kept = kept_range(snapshot, head)?;
            let kept = Some((kept.oldest.number, kept.newest.number));
            Err(StateError::NotKept { block: number, kept })
        }
    }
}

impl Record {
    /// Takes up the record of the block after.
    fn follow(&mut self, next: Self) -> Result<(), StateError> {
        if self.block != next.parent {
            return Err(fault(next.block.number, "it does not follow the one before"));
        }
        self.block = next.block;
        self.undo.extend(next.undo);
        for (tree, undo) in next.trees {
            match self.trees.get_mut(&tree) {
                Some(older) => older.extend(undo),
                // What begins later cannot be taken back to this block.
                None => continue,
            }
        }
        Ok(())
    }
}

/// Reads a row of the history.
pub(crate) fn decode(key: &[u8], row: &[u8]) -> Result<Record, StateError> {
    read(key, row, Record::decode)
}

/// Reads a row, or what it begins with.
fn read<T>(
    key: &[u8],
    row: &[u8],
    parse: impl FnOnce(u64, &[u8]) -> Result<T, String>,
) -> Result<T, StateError> {
    let number = key.try_into().map(u64::from_be_bytes);
    let number = number.map_err(|_| fault(0, "a row of the history has an odd key"))?;
    parse(number, row).map_err(|what| StateError::History { block: number, what })
}

/// The history of a block is damaged.
pub(crate) fn fault(block: u64, what: &str) -> StateError {
    StateError::History { block, what: what.into() }
}
