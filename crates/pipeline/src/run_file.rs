//! Sorted leaves in a file: a durable run of an external sort.
//!
//! ```text
//! file   = File record: name of the run (32), number of the file (u32)
//!        | Block record*: count (u32), (key length (u16), key, value length (u32), value)*
//!        | Index record: count (u32), (offset of a block (u64), first key: length (u16), key)*
//!        | offset of the index (u64), leaves (u64), xxh3-64 of both (u64)
//! ```
//! A file is made under another name, synced and renamed: what has the name is whole.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::fs::{self, File};
use std::io::{BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use spinney_tree::KEY_BYTES_MAX;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{PipelineError, at};
use crate::options::RunName;
use crate::private;
use crate::record::{Fields, Kind, PEEK_BYTES, put, put_key, take, whole_len};

/// A block ends when its leaves take so many bytes.
const BLOCK_BYTES: usize = 32 << 10;
const FOOTER_BYTES: usize = 24;

pub(crate) fn path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("run-{number:06}"))
}

/// Makes what was created or renamed in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), PipelineError> {
    File::open(dir).and_then(|file| file.sync_all()).map_err(at(dir))
}

/// Writes leaves that come sorted; answers the bytes of the file. Only a `durable` one survives a
/// power cut.
pub(crate) fn write<'a>(
    dir: &Path,
    (name, number): (RunName, u32),
    durable: bool,
    leaves: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<u64, PipelineError> {
    let (path, fresh) = (path(dir, number), dir.join(format!("run-{number:06}.new")));
    let mut file = BufWriter::new(private::create(&fresh).map_err(at(&fresh))?);
    let mut offset = 0u64;
    let (mut record, mut index, mut blocks) = (Vec::new(), vec![0; 4], 0u32);
    let mut write = |kind, body: &[u8]| {
        record.clear();
        put(kind, body, &mut record);
        file.write_all(&record).map_err(at(&fresh))?;
        offset = offset.saturating_add(record.len() as u64);
        Ok::<_, PipelineError>(offset)
    };
    let mut offset = write(Kind::File, &[&name.0[..], &number.to_be_bytes()].concat())?;
    let (mut block, mut count, mut total) = (vec![0; 4], 0u32, 0u64);
    let mut leaves = leaves.peekable();
    while let Some((key, value)) = leaves.next() {
        if count == 0 {
            index.extend_from_slice(&offset.to_be_bytes());
            put_key(key, &mut index);
            blocks = blocks.saturating_add(1);
        }
        put_key(key, &mut block);
        // Trees take no value of 4 GiB.
        let value_bytes = u32::try_from(value.len()).unwrap_or(u32::MAX);
        block.extend_from_slice(&value_bytes.to_be_bytes());
        block.extend_from_slice(value);
        (count, total) = (count.saturating_add(1), total.saturating_add(1));
        if block.len() >= BLOCK_BYTES || leaves.peek().is_none() {
            set_count(&mut block, count);
            offset = write(Kind::Block, &block)?;
            block.truncate(4);
            count = 0;
        }
    }
    set_count(&mut index, blocks);
    let end = write(Kind::Index, &index)?;
    let mut footer = [offset.to_be_bytes(), total.to_be_bytes()].concat();
    footer.extend_from_slice(&xxh3_64(&footer).to_be_bytes());
    file.write_all(&footer).map_err(at(&fresh))?;
    let file = file.into_inner().map_err(|error| at(&fresh)(error.into_error()))?;
    if durable {
        file.sync_all().map_err(at(&fresh))?;
    }
    fs::rename(&fresh, &path).map_err(at(&path))?;
    if durable {
        sync_dir(dir)?;
    }
    Ok(end.saturating_add(footer.len() as u64))
}

/// Writes what stands in front of a block, or of an index.
fn set_count(bytes: &mut [u8], count: u32) {
    if let Some(place) = bytes.first_chunk_mut() {
        *place = count.to_be_bytes();
    }
}

/// A run file, open for reading.
#[derive(Debug)]
pub(crate) struct RunFile {
    path: PathBuf,
    /// Whoever reads moves to the place first.
    file: Mutex<File>,
    /// Where each block is, and its first key.
    index: Vec<(u64, Box<[u8]>)>,
    pub(crate) leaves: u64,
    pub(crate) bytes: u64,
}

impl RunFile {
    /// Opens a file; another run's and a damaged one are refused.
    pub(crate) fn open(dir: &Path, name: RunName, number: u32) -> Result<Self, PipelineError> {
        let path = path(dir, number);
        let mut file = private::open(&path).map_err(at(&path))?;
        let bytes = file.metadata().map_err(at(&path))?.len();
        let damaged = |what| PipelineError::Damaged { path: path.clone(), what };
        let head = read_record(&mut file, &path, Kind::File, 0, bytes)?;
        let head = take(Kind::File, &head).map_err(|error| damaged(error.what()))?.0;
        let Some(found) = head.strip_prefix(&name.0) else {
            return Err(PipelineError::OtherRun { path });
        };
        if found != number.to_be_bytes() {
            return Err(damaged("it has another file's number"));
        }
        let end = bytes.checked_sub(FOOTER_BYTES as u64).ok_or(damaged("it is cut off"))?;
        let mut footer = [0; FOOTER_BYTES];
        file.seek(SeekFrom::Start(end)).map_err(at(&path))?;
        file.read_exact(&mut footer).map_err(at(&path))?;
        let mut fields = Fields(&footer);
        let (offset, leaves, sum) =
            (fields.u64().unwrap_or(0), fields.u64().unwrap_or(0), fields.u64());
        if sum != footer.first_chunk::<16>().map(|footer| xxh3_64(footer)) {
            return Err(damaged("the checksum at its end is wrong"));
        }
        let record = read_record(&mut file, &path, Kind::Index, offset, end)?;
        let body = take(Kind::Index, &record).map_err(|error| damaged(error.what()))?.0;
        let index = read_index(body).ok_or(damaged("its index is malformed"))?;
        Ok(Self { path, file: Mutex::new(file), index, leaves, bytes })
    }

    /// The leaves from the last one on whose key is below `key`; of all without a key.
    pub(crate) fn from(self: &Arc<Self>, key: Option<&[u8]>) -> Result<Cursor, PipelineError> {
        let block = key.map_or(0, |key| {
            // The block before the first one that begins at the key or behind it.
            self.index.partition_point(|(_, first)| &first[..] < key).saturating_sub(1)
        });
        self.cursor(block)
    }

    /// The value of a key, if the file has it: one block is read.
    pub(crate) fn get(self: &Arc<Self>, key: &[u8]) -> Result<Option<Vec<u8>>, PipelineError> {
        let behind = self.index.partition_point(|(_, first)| &first[..] <= key);
        let Some(block) = behind.checked_sub(1) else { return Ok(None) };
        let mut cursor = self.cursor(block)?;
        while let Some((found, value)) = cursor.leaf() {
            if found >= key {
                return Ok((found == key).then(|| value.to_vec()));
            }
            if cursor.at.left == 0 {
                break;
            }
            cursor.advance()?;
        }
        Ok(None)
    }

    fn cursor(self: &Arc<Self>, block: usize) -> Result<Cursor, PipelineError> {
        let run = Arc::clone(self);
        let mut cursor = Cursor { run, next: block, block: Vec::new(), at: Leaf::default() };
        cursor.load()?;
        Ok(cursor)
    }

    fn damaged(&self, what: &'static str) -> PipelineError {
        PipelineError::Damaged { path: self.path.clone(), what }
    }
}

fn read_index(body: &[u8]) -> Option<Vec<(u64, Box<[u8]>)>> {
    let mut fields = Fields(body);
    let count = fields.u32()?;
    let mut index = Vec::new();
    for _ in 0..count {
        index.push((fields.u64()?, fields.key()?.into()));
    }
    fields.0.is_empty().then_some(index)
}

/// The bytes of a record at an offset, before `end`.
fn read_record(
    file: &mut File,
    path: &Path,
    kind: Kind,
    offset: u64,
    end: u64,
) -> Result<Vec<u8>, PipelineError> {
    let damaged = |what| PipelineError::Damaged { path: path.to_path_buf(), what };
    let room = end.checked_sub(offset).ok_or(damaged("an offset lies behind its end"))?;
    if room < PEEK_BYTES as u64 {
        return Err(damaged("a record is cut off"));
    }
    let mut bytes = vec![0; PEEK_BYTES];
    file.seek(SeekFrom::Start(offset)).map_err(at(path))?;
    file.read_exact(&mut bytes).map_err(at(path))?;
    let len = whole_len(kind, &bytes).map_err(|error| damaged(error.what()))?;
    if len as u64 > room {
        return Err(damaged("a record is cut off"));
    }
    bytes.resize(len, 0);
    file.read_exact(bytes.get_mut(PEEK_BYTES..).unwrap_or_default()).map_err(at(path))?;
    Ok(bytes)
}

/// Walks the leaves of a run, a block in memory.
#[derive(Debug)]
pub(crate) struct Cursor {
    run: Arc<RunFile>,
    /// The next block to read.
    next: usize,
    /// The record of the block in memory.
    block: Vec<u8>,
    at: Leaf,
}

/// Where a leaf is in its block, and how many are behind it.
#[derive(Clone, Copy, Debug, Default)]
struct Leaf {
    key: (usize, usize),
    value: (usize, usize),
    left: u32,
    /// The run is at its end.
    done: bool,
}

impl Cursor {
    /// The leaf it stands on: key and value.
    pub(crate) fn leaf(&self) -> Option<(&[u8], &[u8])> {
        let Leaf { key, value, done, .. } = self.at;
        let part = |(from, end): (usize, usize)| self.block.get(from..end);
        if done { None } else { part(key).zip(part(value)) }
    }

    pub(crate) fn advance(&mut self) -> Result<(), PipelineError> {
        if self.at.done {
            return Ok(());
        }
        if self.at.left == 0 { self.load() } else { self.parse(self.at.value.1, self.at.left) }
    }

    fn load(&mut self) -> Result<(), PipelineError> {
        let Some(&(offset, _)) = self.run.index.get(self.next) else {
            self.at.done = true;
            return Ok(());
        };
        self.next = self.next.saturating_add(1);
        let RunFile { path, file, bytes, .. } = &*self.run;
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        self.block = read_record(&mut file, path, Kind::Block, offset, *bytes)?;
        drop(file);
        let (body, _) =
            take(Kind::Block, &self.block).map_err(|error| self.run.damaged(error.what()))?;
        let count = Fields(body).u32().unwrap_or(0);
        if count == 0 {
            return Err(self.run.damaged("a block is empty"));
        }
        self.parse(PEEK_BYTES.saturating_add(4), count)
    }

    /// Stands on the leaf at `from`, the first of `count`.
    fn parse(&mut self, from: usize, count: u32) -> Result<(), PipelineError> {
        let mut fields = Fields(self.block.get(from..).unwrap_or_default());
        let key = fields.key().map(<[u8]>::len).filter(|len| *len <= KEY_BYTES_MAX);
        let value = fields.u32().and_then(|len| fields.bytes(len as usize)).map(<[u8]>::len);
        let (Some(key), Some(value)) = (key, value) else {
            return Err(self.run.damaged("a leaf is malformed"));
        };
        let behind = |at: usize, len: usize| (at, at.saturating_add(len));
        let key = behind(from.saturating_add(2), key);
        let value = behind(key.1.saturating_add(4), value);
        self.at = Leaf { key, value, left: count.saturating_sub(1), done: false };
        Ok(())
    }
}
