//! Leaves into sorted runs: an external sort that survives its process.

use std::cmp::Ordering;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use rayon::slice::ParallelSliceMut as _;
use spinney_tree::WriteSet;

use crate::error::{PipelineError, at, guarded};
use crate::journal::Journal;
use crate::merge::prefix;
use crate::options::{Options, RunName};
use crate::private;
use crate::record::{Fields, Kind, put, take};
use crate::run_file::{self, RunFile};

/// That all leaves are in runs: a record with their number (u64) and that of the files (u32).
const SORTED: &str = "sorted";

/// Takes the leaves of a run, in any order: see the crate's documentation.
///
/// While one half of the memory fills, the other is sorted and written by a thread of its own.
// Fields: what a run was told, and both halves of its memory.
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
    /// Leaves that were in run files when it was opened: the source's first.
    passed: u64,
    sorted: bool,
    buffer: Buffer,
    writer: Writer,
    /// What the last commit takes along.
    pub(crate) along: WriteSet,
}

/// Leaves in memory.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    leaves: Vec<Held>,
}

/// A leaf in the buffer: the first bytes of its key, where it is, how long its key and value are.
#[derive(Clone, Copy, Debug)]
struct Held {
    prefix: u64,
    at: u64,
    value_bytes: u32,
    key_bytes: u16,
}

impl Held {
    fn key<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.at as usize..][..usize::from(self.key_bytes)]
    }

    fn compare(&self, other: &Self, bytes: &[u8]) -> Ordering {
        self.prefix.cmp(&other.prefix).then_with(|| self.key(bytes).cmp(other.key(bytes)))
    }

    fn value<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.at as usize + usize::from(self.key_bytes)..][..self.value_bytes as usize]
    }
}

impl Buffer {
    fn memory(&self) -> usize {
        self.bytes.len() + self.leaves.len() * size_of::<Held>()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.leaves.clear();
    }

    /// Sorts the leaves by their keys, on all cores or on one.
    fn sort(&mut self, all_cores: bool) {
        let Self { bytes, leaves } = self;
        let order = |a: &Held, b: &Held| a.compare(b, bytes);
        if all_cores {
            leaves.par_sort_unstable_by(order);
        } else {
            leaves.sort_unstable_by(order);
        }
    }

    /// The key and the value of a leaf.
    pub(crate) fn leaf(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let leaf = self.leaves.get(index)?;
        Some((leaf.key(&self.bytes), leaf.value(&self.bytes)))
    }

    /// Sorts the leaves, on all cores or on one, and writes them; answers the bytes of the file.
    fn write(
        &mut self,
        dir: &Path,
        (name, number): (RunName, u32),
        all_cores: bool,
    ) -> Result<u64, PipelineError> {
        self.sort(all_cores);
        let Self { bytes, leaves } = self;
        let same = |pair: &&[Held]| pair[0].compare(&pair[1], bytes).is_eq();
        if let Some(pair) = leaves.windows(2).find(same) {
            return Err(PipelineError::Twice { key: pair[0].key(bytes).to_vec() });
        }
        let sorted = leaves.iter().map(|leaf| (leaf.key(bytes), leaf.value(bytes)));
        let spilled = run_file::write(dir, (name, number), true, sorted)?;
        tracing::info!(
            target: "spinney::pipeline",
            run = number, leaves = leaves.len(), bytes = bytes.len(), "run written"
        );
        Ok(spilled)
    }
}

/// The other half of the memory.
#[derive(Debug)]
enum Writer {
    /// Empty.
    Idle(Buffer),
    /// On its way into a run file.
    Busy(JoinHandle<(Buffer, Result<u64, PipelineError>)>),
    /// It could not be written; whoever needs it written tries again.
    Failed(Buffer),
}

impl Gather {
    /// Begins a run whose files lie in `dir`, or goes on with the one that they belong to. Files of
    /// another run there are removed. One process at a time may use a directory; who holds the
    /// store open for writing may. A directory that is there has to be the user's alone, and no
    /// link.
    ///
    /// # Errors
    /// If a file cannot be read, made or removed, or the directory is not the user's alone.
    pub fn open(dir: &Path, name: RunName, options: Options) -> Result<Self, PipelineError> {
        private::prepare(dir)?;
        let mut gather = Self {
            dir: dir.to_path_buf(),
            name,
            options,
            notes: Vec::new(),
            files: 0,
            held: 0,
            spilled: 0,
            seen: 0,
            passed: 0,
            sorted: false,
            buffer: Buffer::default(),
            writer: Writer::Idle(Buffer::default()),
            along: WriteSet::new(),
        };
        if let Err(why) = gather.find() {
            gather.notes.push(format!("{why}: the leaves are gathered anew"));
            tracing::warn!(target: "spinney::pipeline", %why, "runs discarded");
            gather.discard()?;
        }
        gather.passed = gather.held;
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
            let mut bytes = Vec::new();
            let read = private::open(&path).and_then(|mut file| file.read_to_end(&mut bytes));
            read.map_err(at(&path))?;
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

    /// The run that it gathers for.
    pub const fn run(&self) -> RunName {
        self.name
    }

    /// Whether all leaves are in runs already: then nothing has to be pushed again.
    pub const fn is_sorted(&self) -> bool {
        self.sorted
    }

    /// How many leaves were in runs when this was opened: a source that cannot pass over them
    /// pushes them again, and they are ignored.
    pub const fn passed(&self) -> u64 {
        self.passed
    }

    /// Takes the next leaf of the source. The source has to give the same leaves in the same order
    /// whenever the run goes on; the order of their keys is of no meaning.
    ///
    /// # Errors
    /// If the key is too long; if leaves that were pushed before cannot be written, or two of them
    /// have the same key. Then the leaf is not taken.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), PipelineError> {
        if self.sorted || self.seen < self.passed {
            self.seen += 1;
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
        // A quarter is for what the buffers grow by.
        let full = self.buffer.memory() >= self.options.memory / 8 * 3;
        if full && !self.buffer.leaves.is_empty() {
            self.spill()?;
        }
        let Buffer { bytes, leaves } = &mut self.buffer;
        let at = bytes.len() as u64;
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        leaves.push(Held { prefix: prefix(key), at, value_bytes, key_bytes });
        self.seen += 1;
        Ok(())
    }

    /// What the run's last commit takes along: rows that belong to the tree's new state.
    pub fn take_along(&mut self, set: WriteSet) {
        self.along = set;
    }

    /// Bytes of leaves in memory that no thread writes yet.
    pub fn memory(&self) -> usize {
        self.buffer.memory()
    }

    /// Gives the leaves in memory to the writer, once it is done with those before.
    fn spill(&mut self) -> Result<(), PipelineError> {
        self.settle()?;
        let Writer::Idle(empty) = &mut self.writer else { unreachable!("the writer has settled") };
        let mut full = std::mem::replace(&mut self.buffer, std::mem::take(empty));
        let (dir, run) = (self.dir.clone(), (self.name, self.files));
        // A worker of rayon's that waits for the writer is none that the writer may count on.
        let all_cores = rayon::current_thread_index().is_none();
        let write = move || {
            let written = guarded(|| full.write(&dir, run, all_cores));
            (full, written)
        };
        self.writer = Writer::Busy(std::thread::spawn(write));
        Ok(())
    }

    /// Waits until what the writer was given is in a run file. What could not be written is tried
    /// again.
    pub(crate) fn settle(&mut self) -> Result<(), PipelineError> {
        let idle = Writer::Idle(Buffer::default());
        let (mut buffer, written) = match std::mem::replace(&mut self.writer, idle) {
            Writer::Idle(buffer) => {
                self.writer = Writer::Idle(buffer);
                return Ok(());
            }
            Writer::Busy(thread) => thread.join().expect("the thread answers its panics"),
            Writer::Failed(mut buffer) => {
                let written = buffer.write(&self.dir, (self.name, self.files), true);
                (buffer, written)
            }
        };
        match written {
            Ok(spilled) => {
                self.files += 1;
                self.held += buffer.leaves.len() as u64;
                self.spilled += spilled;
                buffer.clear();
                self.writer = Writer::Idle(buffer);
                Ok(())
            }
            Err(error) => {
                self.writer = Writer::Failed(buffer);
                Err(error)
            }
        }
    }

    /// The leaves in order, and how many they are, where memory holds all of them. Two may have the
    /// same key.
    pub(crate) fn sorted_in_memory(&mut self) -> Option<(Buffer, u64)> {
        let is_all = !self.sorted && self.files == 0 && matches!(self.writer, Writer::Idle(_));
        if !is_all || self.seen < self.passed {
            return None;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.sort(rayon::current_thread_index().is_none());
        let count = buffer.leaves.len() as u64;
        Some((buffer, count))
    }

    /// Writes what is in memory; answers the files and how many leaves they hold.
    pub(crate) fn runs(&mut self) -> Result<(Vec<Arc<RunFile>>, u64), PipelineError> {
        if !self.sorted {
            if self.seen < self.passed {
                return Err(PipelineError::SourceChanged { found: self.seen, held: self.passed });
            }
            if !self.buffer.leaves.is_empty() {
                self.spill()?;
            }
            self.settle()?;
            let path = self.dir.join(SORTED);
            let mut body = self.name.0.to_vec();
            body.extend_from_slice(&self.held.to_be_bytes());
            body.extend_from_slice(&self.files.to_be_bytes());
            let mut record = Vec::new();
            put(Kind::Sorted, &body, &mut record);
            let fresh = self.dir.join("sorted.new");
            let made = private::create(&fresh).and_then(|mut file| {
                file.write_all(&record)?;
                file.sync_all()
            });
            made.map_err(at(&fresh))?;
            fs::rename(&fresh, &path).map_err(at(&path))?;
            run_file::sync_dir(&self.dir)?;
            self.sorted = true;
        }
        self.buffer = Buffer::default();
        self.writer = Writer::Idle(Buffer::default());
        let open = |number| RunFile::open(&self.dir, self.name, number).map(Arc::new);
        let runs: Result<Vec<_>, _> = (0..self.files).map(open).collect();
        Ok((runs?, self.held))
    }
}

impl Drop for Gather {
    /// Whoever opens the directory next finds nobody writing there.
    fn drop(&mut self) {
        let idle = Writer::Idle(Buffer::default());
        if let Writer::Busy(thread) = std::mem::replace(&mut self.writer, idle) {
            // What could not be written is gathered again.
            let _ = thread.join();
        }
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
    // The last name first: the notes of ranges, that all leaves are sorted, then runs from the last
    // one down. So wherever this ends, what is left is the beginning of a run.
    ours.sort_unstable();
    for path in ours.iter().rev() {
        fs::remove_file(path).map_err(at(path))?;
    }
    Ok(())
}
