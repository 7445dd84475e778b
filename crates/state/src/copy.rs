//! Copies of all rows of a store.

use alloy_primitives::B256;
use sha2::{Digest as _, Sha256};
use spinney_tree::{PageStore, Snapshot, StoreError, Table, WriteSet};

/// Bytes of rows that are committed at once.
const PART_BYTES: usize = 8 << 20;

/// Rows that were copied, and read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopiedRows {
    /// How many.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Of all of them, in order.
    pub digest: B256,
}

/// Why rows could not be copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was written is not what is read.
    #[error("the copy has {rows} rows that are not those of the source")]
    Differs {
        /// How many it has.
        rows: u64,
    },
}

/// Hands over all rows of a snapshot, in order.
fn visit_all(
    snapshot: &impl Snapshot,
    mut take: impl FnMut(Table, &[u8], &[u8]) -> Result<(), StoreError>,
) -> Result<CopiedRows, StoreError> {
    let mut passed = CopiedRows::default();
    let mut digest = Sha256::new();
    for table in Table::ALL {
        let mut failure = None;
        snapshot.scan(table, &[], None, &mut |key, row| {
            passed.rows += 1;
            passed.bytes += (key.len() + row.len()) as u64;
            for part in [&[table as u8], &(key.len() as u64).to_le_bytes()[..], key, row] {
                digest.update(part);
            }
            failure = take(table, key, row).err();
            failure.is_none()
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
    }
    passed.digest = <[u8; 32]>::from(digest.finalize()).into();
    Ok(passed)
}

/// Copies the rows of one table into a store: of codes or preimages, which are true of any state.
///
/// # Errors
/// If a store fails.
pub fn copy_table(
    source: &impl Snapshot,
    table: Table,
    target: &impl PageStore,
) -> Result<(), StoreError> {
    let mut from: Vec<u8> = Vec::new();
    loop {
        let (mut set, mut bytes, mut last) = (WriteSet::new(), 0, None);
        source.scan(table, &from, None, &mut |key, row| {
            bytes += key.len() + row.len();
            set.put(table, key, row.to_vec());
            last = Some(key.to_vec());
            bytes < PART_BYTES
        })?;
        let Some(mut next) = last else { return Ok(()) };
        target.commit(&set)?;
        // The first key behind it.
        next.push(0);
        from = next;
    }
}

/// Copies all rows of a snapshot into a store that has none, and reads them again.
///
/// # Errors
/// If a store fails, or gives other rows than it was given.
pub fn copy_rows(source: &impl Snapshot, target: &impl PageStore) -> Result<CopiedRows, CopyError> {
    let (mut set, mut bytes) = (WriteSet::new(), 0);
    let passed = visit_all(source, |table, key, row| {
        set.put(table, key, row);
        bytes += key.len() + row.len();
        if bytes >= PART_BYTES {
            target.commit(&std::mem::take(&mut set))?;
            bytes = 0;
        }
        Ok(())
    })?;
    target.commit(&set)?;
    let copied = visit_all(&target.snapshot()?, |_, _, _| Ok(()))?;
    match copied == passed {
        true => Ok(passed),
        false => Err(CopyError::Differs { rows: copied.rows }),
    }
}
