//! Keys with the value that each was given last.
#![deny(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::PipelineError;
use crate::gather::remove_runs;
use crate::merge::Merge;
use crate::options::RunName;
use crate::private;
use crate::run_file::{self, RunFile};

/// What an entry in memory takes beside its bytes.
const ENTRY_BYTES: usize = 64;

/// A sorted map of any size: in memory up to a bound, and beyond it in sorted runs, of which the
/// newer hides the older. Nothing of it outlives the process.
///
/// ```
/// use spinney_pipeline::Latest;
///
/// let scratch = spinney_pipeline::Scratch::new()?;
/// // So little memory that every key goes to a run of its own.
/// let mut words = Latest::new(scratch.path(), 1);
/// for (key, value) in [("b", "1"), ("a", "2"), ("b", "3")] {
///     words.put(key.as_bytes(), value.as_bytes())?;
/// }
/// assert_eq!(words.get(b"b")?.as_deref(), Some(&b"3"[..]));
/// let mut seen = Vec::new();
/// words.each::<spinney_pipeline::PipelineError>(|key, value| {
///     seen.push((key.to_vec(), value.to_vec()));
///     Ok(())
/// })?;
/// assert_eq!(seen, [(b"a".to_vec(), b"2".to_vec()), (b"b".to_vec(), b"3".to_vec())]);
/// words.clear()?;
/// # Ok::<_, spinney_pipeline::PipelineError>(())
/// ```
#[derive(Debug)]
pub struct Latest {
    dir: PathBuf,
    memory: usize,
    recent: BTreeMap<Vec<u8>, Vec<u8>>,
    recent_bytes: usize,
    /// The newest last.
    runs: Vec<Arc<RunFile>>,
    run_keys: u64,
    run_bytes: u64,
}

/// Runs of this map: no checkpoint knows of them.
const NAME: RunName = RunName([0; 32]);

impl Latest {
    /// An empty map that keeps about `memory` bytes in memory, and the rest in files in `dir`,
    /// which is made when the first of them is. One map at a time may use a directory.
    pub fn new(dir: &Path, memory: usize) -> Self {
        Self {
            dir: dir.to_path_buf(),
            memory,
            recent: BTreeMap::new(),
            recent_bytes: 0,
            runs: Vec::new(),
            run_keys: 0,
            run_bytes: 0,
        }
    }

    /// Gives a key a value, in place of the one it had.
    ///
    /// # Errors
    /// If a run cannot be written; then the map is what it was, with the key.
    ///
    /// # Panics
    /// If a key has more than 65,535 bytes or a value 4 GiB.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), PipelineError> {
        match self.recent.get_mut(key) {
            Some(old) => {
                self.recent_bytes = self.recent_bytes - old.len() + value.len();
                value.clone_into(old);
            }
            None => {
                self.recent_bytes += key.len() + value.len() + ENTRY_BYTES;
                self.recent.insert(key.to_vec(), value.to_vec());
            }
        }
        if self.recent_bytes > self.memory { self.spill() } else { Ok(()) }
    }

    /// The value that a key was given last.
    ///
    /// # Errors
    /// If a run cannot be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, PipelineError> {
        if let Some(value) = self.recent.get(key) {
            return Ok(Some(value.clone()));
        }
        for run in self.runs.iter().rev() {
            if let Some(value) = run.get(key)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// The keys that begin with a prefix, and their values.
    ///
    /// # Errors
    /// If a run cannot be read.
    pub fn below(&self, prefix: &[u8]) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, PipelineError> {
        let mut found = BTreeMap::new();
        for run in &self.runs {
            let mut cursor = run.from(Some(prefix))?;
            while let Some((key, value)) = cursor.leaf() {
                if key.starts_with(prefix) {
                    found.insert(key.to_vec(), value.to_vec());
                } else if key > prefix {
                    break;
                }
                cursor.advance()?;
            }
        }
        let recent = self.recent.range(prefix.to_vec()..);
        let recent = recent.take_while(|(key, _)| key.starts_with(prefix));
        found.extend(recent.map(|(key, value)| (key.clone(), value.clone())));
        Ok(found)
    }

    /// Shows all keys with their values, in order of keys.
    ///
    /// # Errors
    /// What `see` answers; or if a run cannot be written or read.
    pub fn each<E: From<PipelineError>>(
        &mut self,
        mut see: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.runs.is_empty() {
            return self.recent.iter().try_for_each(|(key, value)| see(key, value));
        }
        self.spill()?;
        let mut merge = Merge::from(self.runs.iter().cloned(), None)?;
        let mut last: Option<Vec<u8>> = None;
        while let Some((key, value)) = merge.leaf() {
            // Of equal keys the newest comes first.
            if last.as_deref() != Some(key) {
                see(key, value)?;
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
            }
            merge.advance()?;
        }
        Ok(())
    }

    /// How many keys there are, those counted again that are in several runs.
    pub fn keys(&self) -> u64 {
        self.run_keys + self.recent.len() as u64
    }

    /// Bytes of keys and values, in memory and in runs.
    pub const fn bytes(&self) -> u64 {
        self.run_bytes + self.recent_bytes as u64
    }

    /// Bytes of the runs.
    pub const fn spilled(&self) -> u64 {
        self.run_bytes
    }

    /// Forgets everything, and removes the runs.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn clear(&mut self) -> Result<(), PipelineError> {
        self.recent.clear();
        self.recent_bytes = 0;
        if !self.runs.is_empty() {
            self.runs.clear();
            (self.run_keys, self.run_bytes) = (0, 0);
            remove_runs(&self.dir)?;
            // Others may keep files there.
            let _ = std::fs::remove_dir(&self.dir);
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<(), PipelineError> {
        if self.recent.is_empty() {
            return Ok(());
        }
        private::prepare(&self.dir)?;
        if self.runs.is_empty() {
            // What a process left that was killed.
            remove_runs(&self.dir)?;
        }
        let number = self.runs.len() as u32;
        let leaves = self.recent.iter().map(|(key, value)| (&key[..], &value[..]));
        self.run_bytes += run_file::write(&self.dir, (NAME, number), false, leaves)?;
        self.runs.push(Arc::new(RunFile::open(&self.dir, NAME, number)?));
        self.run_keys += self.recent.len() as u64;
        tracing::info!(
            target: "spinney::pipeline",
            run = number, keys = self.recent.len(), bytes = self.recent_bytes, "changes spilled"
        );
        self.recent.clear();
        self.recent_bytes = 0;
        Ok(())
    }
}

impl Drop for Latest {
    fn drop(&mut self) {
        // Runs that stay behind are of no use, and are replaced by the next ones.
        let _ = self.clear();
    }
}
