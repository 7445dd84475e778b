//! Leaves into sorted runs: an external sort that survives its process.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::slice::ParallelSliceMut as _;
use spinney_tree::WriteSet;

use crate::error::{PipelineError, at};
use crate::journal::Journal;
use crate::merge::prefix;
use crate::options::{Options, RunName};
use crate::record::{Fields, Kind, put, take};
use crate::run_file::{self, RunFile};

/// That all leaves are in runs: a record with their number (u64) and that of the files (u32).
const SORTED: &str = "sorted";

/// Takes the leaves of a run, in any order: see the crate's documentation.
#[derive(Debug)]
pub struct Gather {
    pub(crate) dir: PathBuf,
    pub(crate) name: RunName,
    pub(crate) options: Options,
    pub(crate) notes: Vec<String>,
    files: u32,
    /// Leaves in run files, and their bytes.
    held: u64,
    pub(crate) spilled: u64,
    /// Leaves that were pushed.
    seen: u64,
    sorted: bool,
    bytes: Vec<u8>,
    leaves: Vec<Leaf>,
    /// What the last commit takes along.
    pub(crate) along: WriteSet,
}

/// A leaf in the buffer: the first bytes of its key, where it is, how long its key and value are.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    prefix: u64,
    at: u64,
    value_bytes: u32,
    key_bytes: u16,
}

impl Leaf {
    fn key<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.at as usize..][..usize::from(self.key_bytes)]
    }

    fn value<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.at as usize + usize::from(self.key_bytes)..][..self.value_bytes as usize]
    }
}

impl Gather {
    /// Begins a run whose files lie in `dir`, or goes on with the one that they belong to. Files of
    /// another run there are removed. One process at a time may use a directory; who holds the store
    /// open for writing may.
    ///
    /// # Errors
    /// If a file cannot be read, made or removed.
    pub fn open(dir: &Path, name: RunName, options: Options) -> Result<Self, PipelineError> {
        fs::create_dir_all(dir).map_err(at(dir))?;
        let mut gather = Self {
            dir: dir.to_path_buf(),
            name,
            options,
            notes: Vec::new(),
            files: 0,
            held: 0,
            spilled: 0,
            seen: 0,
            sorted: false,
            bytes: Vec::new(),
            leaves: Vec::new(),
            along: WriteSet::new(),
        };
        if let Err(why) = gather.find() {
            gather.notes.push(format!("{why}: the leaves are gathered anew"));
            tracing::warn!(target: "spinney::pipeline", %why, "runs discarded");
            gather.discard()?;
        }
        Ok(gather)
    }

    /// Finds the files of an earlier process.
    fn find(&mut self) -> Result<(), PipelineError> {
        while run_file::path(&self.dir, self.files).exists() {
            let run = RunFile::open(&self.dir, self.name, self.files)?;
            self.held += run.leaves;
            self.spilled += run.bytes;
            self.files += 1;
        }
        let path = self.dir.join(SORTED);
        if path.exists() {
            let bytes = fs::read(&path).map_err(at(&path))?;
            let damaged = |what| PipelineError::Damaged { path: path.clone(), what };
            let (body, _) = take(Kind::Sorted, &bytes).map_err(|error| damaged(error.what()))?;
            let mut fields = Fields(body);
            let (name, leaves, files) = (fields.array(), fields.u64(), fields.u32());
            if name.is_some_and(|name| name != self.name.0) {
                return Err(PipelineError::OtherRun { path });
            }
            if (name, leaves, files) != (Some(self.name.0), Some(self.held), Some(self.files)) {
                return Err(damaged("files of its run are missing"));
            }
            self.sorted = true;
        }
        Ok(())
    }

    /// Gives up the run: removes its files, and their directory if nothing else lies in it.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn forget(dir: &Path) -> Result<(), PipelineError> {
        if dir.is_dir() {
            remove_runs(dir)?;
            // Others may keep files there.
            let _ = fs::remove_dir(dir);
        }
        Ok(())
    }

    /// Removes the files of the run.
    pub(crate) fn discard(&mut self) -> Result<(), PipelineError> {
        remove_runs(&self.dir)?;
        (self.files, self.held, self.spilled, self.sorted) = (0, 0, 0, false);
        Ok(())
    }

    /// Whether all leaves are in runs already: then nothing has to be pushed again.
    pub const fn is_sorted(&self) -> bool {
        self.sorted
    }

    /// How many leaves are in runs. They are pushed again by a source that cannot pass over them, and
    /// ignored.
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// Takes the next leaf of the source. The source has to give the same leaves in the same order
    /// whenever the run goes on; the order of their keys is of no meaning.
    ///
    /// # Errors
    /// If the key came before among the leaves in memory, is too long, or a run cannot be written.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), PipelineError> {
        self.seen += 1;
        if self.sorted || self.seen <= self.held {
            return Ok(());
        }
        let too_long = |limit| spinney_tree::TreeError::KeyTooLong {
            key: key.to_vec(),
            got: key.len(),
            limit,
        };
        let key_bytes = u16::try_from(key.len()).map_err(|_| too_long(usize::from(u16::MAX)))?;
        let value_bytes = u32::try_from(value.len()).map_err(|_| {
            let (got, limit) = (value.len(), spinney_tree::VALUE_BYTES_MAX);
            spinney_tree::TreeError::ValueTooLong { key: key.to_vec(), got, limit }
        })?;
        let at = self.bytes.len() as u64;
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.leaves.push(Leaf { prefix: prefix(key), at, value_bytes, key_bytes });
        let memory = self.bytes.len() + self.leaves.len() * size_of::<Leaf>();
        // The rest is for what the buffers grow by.
        if memory >= self.options.memory / 4 * 3 { self.spill() } else { Ok(()) }
    }

    /// What the run's last commit takes along: rows that belong to the tree's new state.
    pub fn take_along(&mut self, set: WriteSet) {
        self.along = set;
    }

    /// Bytes of leaves in memory.
    pub fn memory(&self) -> usize {
        self.bytes.len() + self.leaves.len() * size_of::<Leaf>()
    }

    fn spill(&mut self) -> Result<(), PipelineError> {
        let bytes = &self.bytes;
        let order = |a: &Leaf, b: &Leaf| {
            a.prefix.cmp(&b.prefix).then_with(|| a.key(bytes).cmp(b.key(bytes)))
        };
        self.leaves.par_sort_unstable_by(order);
        let twice = self.leaves.windows(2).find(|pair| order(&pair[0], &pair[1]).is_eq());
        if let Some(pair) = twice {
            return Err(PipelineError::Twice { key: pair[0].key(bytes).to_vec() });
        }
        let leaves = self.leaves.iter().map(|leaf| (leaf.key(bytes), leaf.value(bytes)));
        self.spilled += run_file::write(&self.dir, (self.name, self.files), true, leaves)?;
        tracing::info!(
            target: "spinney::pipeline",
            run = self.files, leaves = self.leaves.len(), bytes = self.bytes.len(), "run written"
        );
        self.files += 1;
        self.held += self.leaves.len() as u64;
        self.bytes.clear();
        self.leaves.clear();
        Ok(())
    }

    /// Writes what is in memory; answers the files and how many leaves they hold.
    pub(crate) fn runs(&mut self) -> Result<(Vec<Arc<RunFile>>, u64), PipelineError> {
        if !self.sorted {
            if self.seen < self.held {
                return Err(PipelineError::SourceChanged { found: self.seen, held: self.held });
            }
            if !self.leaves.is_empty() {
                self.spill()?;
            }
            let path = self.dir.join(SORTED);
            let mut body = self.name.0.to_vec();
            body.extend_from_slice(&self.held.to_be_bytes());
            body.extend_from_slice(&self.files.to_be_bytes());
            let mut record = Vec::new();
            put(Kind::Sorted, &body, &mut record);
            let fresh = self.dir.join("sorted.new");
            fs::write(&fresh, record).map_err(at(&fresh))?;
            fs::rename(&fresh, &path).map_err(at(&path))?;
            run_file::sync_dir(&self.dir)?;
            self.sorted = true;
        }
        (self.bytes, self.leaves) = (Vec::new(), Vec::new());
        let open = |number| RunFile::open(&self.dir, self.name, number).map(Arc::new);
        let runs: Result<Vec<_>, _> = (0..self.files).map(open).collect();
        Ok((runs?, self.held))
    }
}

/// Removes all files of runs in a directory.
pub(crate) fn remove_runs(dir: &Path) -> Result<(), PipelineError> {
    let mut ours = Vec::new();
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let path = entry.map_err(at(dir))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("run-") || name.starts_with(SORTED) || path == Journal::path(dir) {
            ours.push(path);
        }
    }
    // The last name first: the notes of ranges, that all leaves are sorted, then runs from the last one
    // down. So wherever this ends, what is left is the beginning of a run.
    ours.sort_unstable();
    for path in ours.iter().rev() {
        fs::remove_file(path).map_err(at(path))?;
    }
    Ok(())
}
