//! A store in memory: for tests, and for roots that nobody keeps.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

use crate::store::{PageStore, Snapshot, StoreError, Table, WriteSet};

type TableRows = BTreeMap<Box<[u8]>, Arc<[u8]>>;

/// A store that forgets everything when it is dropped.
#[derive(Debug, Default)]
pub struct MemoryStore {
    tables: RwLock<Arc<Tables>>,
}

type Tables = [TableRows; Table::ALL.len()];

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

/// A view of a [`MemoryStore`], which later commits leave alone.
#[derive(Clone, Debug)]
pub struct MemorySnapshot {
    tables: Arc<Tables>,
}

impl PageStore for MemoryStore {
    type Snapshot<'a> = MemorySnapshot;

    fn snapshot(&self) -> Result<MemorySnapshot, StoreError> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        Ok(MemorySnapshot { tables: Arc::clone(&tables) })
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        // A snapshot that is still open keeps the old tables; else they are changed in place.
        let tables = Arc::make_mut(&mut tables);
        for (table, low, high) in set.drops() {
            if low >= high {
                continue;
            }
            let rows = &mut tables[table as usize];
            let range = (Bound::Excluded(low), Bound::Excluded(high));
            let keys: Vec<_> = rows.range::<[u8], _>(range).map(|(key, _)| key.clone()).collect();
            for key in keys {
                rows.remove(&key);
            }
        }
        for (table, key, row) in set.changes() {
            let rows = &mut tables[table as usize];
            match row {
                // Most rows take the place of an older one, whose key is there.
                Some(row) => match rows.get_mut(key) {
                    Some(there) => *there = Arc::clone(row),
                    None => drop(rows.insert(key.into(), Arc::clone(row))),
                },
                None => drop(rows.remove(key)),
            }
        }
        Ok(())
    }
}

impl Snapshot for MemorySnapshot {
    type Row<'s> = &'s [u8];

    fn read<'s>(&'s self, table: Table, key: &[u8]) -> Result<Option<&'s [u8]>, StoreError> {
        Ok(self.tables[table as usize].get(key).map(|row| &**row))
    }

    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        if high.is_some_and(|high| high <= low) {
            return Ok(());
        }
        let high = high.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = &self.tables[table as usize];
        for (key, row) in rows.range::<[u8], _>((Bound::Included(low), high)) {
            if !visit(key, row) {
                break;
            }
        }
        Ok(())
    }
}
