//! A store whose commits stay in memory, upon one that is only read.
//!
//! Invariants:
//! - what lies below is never written;
//! - each commit leaves behind what it made of which rows, until somebody takes that.

use std::collections::BTreeMap;
use std::mem;
use std::ops::{Bound, Deref};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spinney_tree::{PageStore, RowOver, Snapshot, StoreError, Table, WriteSet};

use crate::window::is_archived;

/// Rows that were written, and those that were removed.
type Rows = BTreeMap<(Table, Vec<u8>), Option<Arc<[u8]>>>;

/// A row before and after a commit.
type Pair = [Option<Arc<[u8]>>; 2];

/// What a commit made of a row: before and after.
pub(crate) type Noted = (Table, Vec<u8>, Option<Arc<[u8]>>, Option<Arc<[u8]>>);

/// A store upon a snapshot of another one: it takes commits, and keeps them in memory.
#[derive(Debug)]
pub(crate) struct Overlay<N>(Arc<Layers<N>>);

#[derive(Debug)]
struct Layers<N> {
    below: N,
    state: Mutex<State>,
}

impl<N> Clone for Overlay<N> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug, Default)]
struct State {
    rows: Arc<Rows>,
    noted: Vec<Noted>,
}

/// A view of an [`Overlay`].
#[derive(Debug)]
pub(crate) struct OverlaySnapshot<'a, N> {
    below: &'a N,
    rows: Arc<Rows>,
}

/// A row of an [`Overlay`].
#[derive(Debug)]
pub(crate) enum OverlayRow<R> {
    /// One that was written to it.
    Own(Arc<[u8]>),
    /// One of the store below.
    Below(R),
}

impl<R: Deref<Target = [u8]>> Deref for OverlayRow<R> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(row) => row,
            Self::Below(row) => row,
        }
    }
}

impl<N> Overlay<N> {
    pub(crate) fn new(below: N) -> Self {
        Self(Arc::new(Layers { below, state: Mutex::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What commits made of rows since this was asked last.
    pub(crate) fn take_noted(&self) -> Vec<Noted> {
        mem::take(&mut self.state().noted)
    }
}

impl<N: Snapshot + Send + Sync> PageStore for Overlay<N> {
    type Snapshot<'a>
        = OverlaySnapshot<'a, N>
    where
        Self: 'a;

    fn snapshot(&self) -> Result<OverlaySnapshot<'_, N>, StoreError> {
        Ok(OverlaySnapshot { below: &self.0.below, rows: Arc::clone(&self.state().rows) })
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        let view = self.snapshot()?;
        // All is read before anything is changed.
        let mut changed: BTreeMap<(Table, Vec<u8>), Pair> = BTreeMap::new();
        for (table, low, high) in set.drops() {
            view.scan(table, low, Some(high), &mut |key, row| {
                if key != low {
                    changed.insert((table, key.to_vec()), [Some(Arc::from(row)), None]);
                }
                true
            })?;
        }
        for RowOver { table, key, row, before, .. } in set.rows_over() {
            let after = row.map(Arc::from);
            let place = (table, key.to_vec());
            if let Some(pair) = changed.get_mut(&place) {
                pair[1] = after;
                continue;
            }
            let before = match before {
                Some(before) => Some(Arc::from(before)),
                None => view.read(table, key)?.map(|row| Arc::from(&*row)),
            };
            changed.insert(place, [before, after]);
        }
        drop(view);
        let mut state = self.state();
        let State { rows, noted } = &mut *state;
        let rows = Arc::make_mut(rows);
        for ((table, key), [before, after]) in changed {
            if is_archived(table, &key) {
                noted.push((table, key.clone(), before, after.clone()));
            }
            rows.insert((table, key), after);
        }
        Ok(())
    }
}

impl<N: Snapshot> Snapshot for OverlaySnapshot<'_, N> {
    type Row<'s>
        = OverlayRow<N::Row<'s>>
    where
        Self: 's;

    fn read<'s>(&'s self, table: Table, key: &[u8]) -> Result<Option<Self::Row<'s>>, StoreError> {
        match self.rows.get(&(table, key.to_vec())) {
            Some(row) => Ok(row.clone().map(OverlayRow::Own)),
            None => Ok(self.below.read(table, key)?.map(OverlayRow::Below)),
        }
    }

    fn is_far(&self) -> bool {
        self.below.is_far()
    }

    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let from = Bound::Included((table, low.to_vec()));
        let within =
            |(of, key): &(Table, Vec<u8>)| *of == table && high.is_none_or(|high| &key[..] < high);
        let own = self.rows.range((from, Bound::Unbounded));
        let mut own = own.take_while(|(key, _)| within(key)).peekable();
        let mut goes_on = true;
        self.below.scan(table, low, high, &mut |key, row| {
            while let Some(((_, other), written)) = own.next_if(|((_, other), _)| &other[..] < key)
            {
                if let Some(written) = written {
                    goes_on = visit(other, written);
                    if !goes_on {
                        return false;
                    }
                }
            }
            goes_on = match own.next_if(|((_, other), _)| other == key) {
                Some((_, Some(written))) => visit(key, written),
                Some((_, None)) => true,
                None => visit(key, row),
            };
            goes_on
        })?;
        for ((_, key), written) in own {
            if let Some(written) = written.as_ref().filter(|_| goes_on) {
                goes_on = visit(key, written);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use spinney_tree::{MemoryStore, PageStore, Snapshot, Table, WriteSet};

    use super::Overlay;

    type Op = (u8, u8, Option<u8>);

    fn set(ops: &[Op], drop: Option<(u8, u8)>) -> WriteSet {
        let mut set = WriteSet::new();
        if let Some((low, high)) = drop {
            set.drop_range(Table::Meta, vec![low], vec![high]);
        }
        for (table, key, value) in ops {
            let table = if *table == 0 { Table::Pages } else { Table::Meta };
            match value {
                Some(value) => set.put(table, &[*key], [*value]),
                None => set.delete(table, &[*key]),
            }
        }
        set.sort();
        set
    }

    fn rows(snapshot: &impl Snapshot) -> Vec<(Table, Vec<u8>, Vec<u8>)> {
        let mut rows = Vec::new();
        for table in [Table::Pages, Table::Meta] {
            for (low, high) in [(&[][..], None), (&[3][..], Some(&[7][..]))] {
                snapshot
                    .scan(table, low, high, &mut |key, row| {
                        rows.push((table, key.to_vec(), row.to_vec()));
                        rows.len() % 7 != 0
                    })
                    .unwrap();
            }
        }
        rows
    }

    proptest! {
        #[test]
        fn it_is_as_a_store_that_keeps_its_commits(
            commits in vec(
                (vec((0..2_u8, 0..10_u8, any::<Option<u8>>()), 0..6), any::<Option<(u8, u8)>>()),
                1..8,
            ),
        ) {
            let (plain, below) = (MemoryStore::new(), MemoryStore::new());
            let (first, rest) = commits.split_first().unwrap();
            for store in [&plain, &below] {
                store.commit(&set(&first.0, None)).unwrap();
            }
            let overlay = Overlay::new(below.snapshot().unwrap());
            for (ops, drop) in rest {
                let set = set(ops, drop.map(|(a, b)| (a % 10, b % 10)));
                plain.commit(&set).unwrap();
                let before = rows(&overlay.snapshot().unwrap());
                overlay.commit(&set).unwrap();
                let (snapshot, other) = (plain.snapshot().unwrap(), overlay.snapshot().unwrap());
                prop_assert_eq!(rows(&snapshot), rows(&other));
                for (table, key, was, is) in overlay.take_noted() {
                    let row = other.read(table, &key).unwrap();
                    prop_assert_eq!(row.as_deref(), is.as_deref());
                    let known = before.iter().find(|row| row.0 == table && row.1 == key);
                    if let Some(known) = known {
                        prop_assert_eq!(was.as_deref(), Some(&known.2[..]));
                    }
                }
            }
        }
    }
}
