#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]
use std::cell::OnceCell;
use std::sync::Arc;

use spinney_tree::{CommitOf, PageStore, Snapshot, StoreError, Table};

/// A snapshot that is taken when something is first read through it: reads of resident pages then
/// ask nothing of the store, which for a store on disk means no lock and no system call.
#[derive(Debug)]
pub(crate) struct LazySnapshot<'a, P: PageStore> {
    store: &'a P,
    snapshot: OnceCell<P::Snapshot<'a>>,
}

impl<'a, P: PageStore> LazySnapshot<'a, P> {
    pub(crate) const fn new(store: &'a P) -> Self {
        Self { store, snapshot: OnceCell::new() }
    }

    fn open(&self) -> Result<&P::Snapshot<'a>, StoreError> {
        if let Some(snapshot) = self.snapshot.get() {
            return Ok(snapshot);
        }
        let snapshot = self.store.snapshot()?;
        Ok(self.snapshot.get_or_init(|| snapshot))
    }
}

impl<'a, P: PageStore> Snapshot for LazySnapshot<'a, P> {
    type Row<'s>
        = <P::Snapshot<'a> as Snapshot>::Row<'s>
    where
        Self: 's;

    fn read<'s>(&'s self, table: Table, key: &[u8]) -> Result<Option<Self::Row<'s>>, StoreError> {
        self.open()?.read(table, key)
    }

    fn read_many<'s>(
        &'s self,
        table: Table,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Self::Row<'s>>>, StoreError> {
        if keys.is_empty() { Ok(Vec::new()) } else { self.open()?.read_many(table, keys) }
    }

    fn keep<'s>(row: Self::Row<'s>) -> Arc<[u8]>
    where
        Self: 's,
    {
        <P::Snapshot<'a> as Snapshot>::keep(row)
    }

    /// A snapshot that nobody asked for yet is worth asking for at once.
    fn is_far(&self) -> bool {
        self.open().is_ok_and(Snapshot::is_far)
    }

    fn shows(&self) -> Option<CommitOf> {
        self.open().ok()?.shows()
    }

    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.open()?.scan(table, low, high, visit)
    }
}
