//! nomt as it is meant to be used: a session is told which keys it will change, finished, and
//! committed.

use std::path::Path;

use nomt::hasher::Blake3Hasher;
use nomt::{KeyReadWrite, Options, SessionParams};

use crate::Error;
use crate::inputs::Leaf;

/// Pages of the hash table at least. The file is sparse.
const BUCKETS_MIN: usize = 1_000_000;

pub struct Nomt {
    store: nomt::Nomt<Blake3Hasher>,
    value_bytes: usize,
}

impl Nomt {
    /// For so many keys, which take about a quarter as many pages.
    pub fn open(
        folder: &Path,
        cache_mib: usize,
        (leaves, value_bytes): (usize, usize),
    ) -> Result<Self, Error> {
        let mut options = Options::new();
        options.path(folder);
        options.hashtable_buckets(u32::try_from(leaves.max(BUCKETS_MIN))?);
        options.preallocate_ht(false);
        options.commit_concurrency(std::thread::available_parallelism().map_or(1, usize::from));
        options.page_cache_size(cache_mib / 2);
        options.leaf_cache_size(cache_mib / 2);
        options.bitbox_seed([7; 16]);
        Ok(Self { store: nomt::Nomt::open(options)?, value_bytes })
    }
}

impl crate::worker::Subject for Nomt {
    fn commit(&mut self, changes: &[Leaf]) -> Result<(), Error> {
        let session = self.store.begin_session(SessionParams::default());
        let mut actuals: Vec<_> = changes
            .iter()
            .map(|(key, value)| (*key, KeyReadWrite::Write(Some(value[..self.value_bytes].into()))))
            .collect();
        actuals.sort_unstable_by_key(|(key, _)| *key);
        actuals.iter().for_each(|(key, _)| session.warm_up(*key));
        session.finish(actuals)?.commit(&self.store)?;
        Ok(())
    }

    fn value(&self, key: &[u8; 32]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.store.read(*key)?)
    }
}
