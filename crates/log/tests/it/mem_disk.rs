//! A disk in memory that loses what was not synced, sector by sector, and fails on demand.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

use spinney_log::{Disk, DiskFile};

const SECTOR: usize = 512;

#[derive(Clone, Debug, Default)]
struct Bytes {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors that were written and not synced.
    dirty: Vec<usize>,
    readers: usize,
    is_locked: bool,
    /// Whether its name is certain.
    is_named: bool,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, Arc<Mutex<Bytes>>>,
    is_locked: bool,
    operations: u64,
    fail_at: Option<u64>,
    fails_once: bool,
}

impl State {
    /// Counts an operation that changes the disk.
    fn operate(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.fail_at {
            Some(at) if self.operations == at || (self.operations > at && !self.fails_once) => {
                Err(ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct MemDisk(Arc<Mutex<State>>);

/// xorshift64
#[derive(Clone, Debug)]
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }
}

impl MemDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Lets the operation after so many more fail; and all that follow, or not.
    pub(crate) fn fail_after(&self, operations: u64, once: bool) {
        let mut state = self.state();
        state.fail_at = Some(state.operations + 1 + operations);
        state.fails_once = once;
    }

    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state();
        state
            .files
            .iter()
            .map(|(name, file)| (name.clone(), file.lock().unwrap().live.clone()))
            .collect()
    }

    pub(crate) fn of(files: BTreeMap<String, Vec<u8>>) -> Self {
        let file = |bytes: Vec<u8>| {
            let (live, durable) = (bytes.clone(), bytes);
            Arc::new(Mutex::new(Bytes { live, durable, is_named: true, ..Bytes::default() }))
        };
        let files = files.into_iter().map(|(name, bytes)| (name, file(bytes))).collect();
        Self(Arc::new(Mutex::new(State { files, ..State::default() })))
    }

    /// What the next process finds if this one is killed.
    pub(crate) fn after_kill(&self) -> Self {
        Self::of(self.files())
    }

    /// What is found when the power comes back: of each sector that was not synced the old bytes or
    /// the new ones.
    pub(crate) fn after_power_cut(&self, draw: &mut Draw) -> Self {
        let state = self.state();
        let mut files = BTreeMap::new();
        let chance = draw.below(4);
        for (name, file) in &state.files {
            let file = file.lock().unwrap();
            if !file.is_named && draw.below(2) == 0 {
                continue;
            }
            let mut bytes = file.durable.clone();
            if draw.below(2) == 0 {
                bytes.resize(file.live.len().max(bytes.len()), 0);
            }
            for &sector in &file.dirty {
                if draw.below(4) < chance {
                    let from = sector * SECTOR;
                    let end = (from + SECTOR).min(file.live.len()).min(bytes.len());
                    if from < end {
                        bytes[from..end].copy_from_slice(&file.live[from..end]);
                    }
                }
            }
            files.insert(name.clone(), bytes);
        }
        Self::of(files)
    }
}

#[derive(Debug)]
struct MemFile {
    disk: MemDisk,
    file: Arc<Mutex<Bytes>>,
    /// 1 for a reader's lock, 2 for a writer's.
    lock: Mutex<u8>,
}

impl Disk for MemDisk {
    fn place(&self) -> String {
        "the disk".into()
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.state().files.keys().cloned().collect())
    }

    fn open(&self, name: &str, _: bool) -> io::Result<Box<dyn DiskFile>> {
        let file = self.state().files.get(name).cloned().ok_or(ErrorKind::NotFound)?;
        Ok(Box::new(MemFile { disk: self.clone(), file, lock: Mutex::default() }))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.operate()?;
        assert!(!state.files.contains_key(name));
        let file: Arc<Mutex<Bytes>> = Arc::default();
        state.files.insert(name.into(), Arc::clone(&file));
        Ok(Box::new(MemFile { disk: self.clone(), file, lock: Mutex::default() }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.operate()?;
        state.files.remove(name).map(drop).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state();
        state.operate()?;
        state.files.values().for_each(|file| file.lock().unwrap().is_named = true);
        Ok(())
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let taken = std::mem::replace(&mut self.state().is_locked, true);
        Ok((!taken).then(|| Box::new(Held(self.clone())) as _))
    }
}

struct Held(MemDisk);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.state().is_locked = false;
    }
}

impl DiskFile for MemFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.lock().unwrap().live.len() as u64)
    }

    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        let file = self.file.lock().unwrap();
        let found = file.live.get(at as usize..).unwrap_or_default();
        let read = found.len().min(out.len());
        out[..read].copy_from_slice(&found[..read]);
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let done = self.disk.state().operate();
        let bytes = if done.is_err() { &bytes[..bytes.len() / 2] } else { bytes };
        let mut file = self.file.lock().unwrap();
        let (at, end) = (at as usize, at as usize + bytes.len());
        if file.live.len() < end {
            file.live.resize(end, 0);
        }
        file.live[at..end].copy_from_slice(bytes);
        file.dirty.extend(at / SECTOR..end.div_ceil(SECTOR));
        done
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.state().operate()?;
        let file = &mut *self.file.lock().unwrap();
        file.durable.resize(file.live.len(), 0);
        for sector in file.dirty.drain(..) {
            let from = sector * SECTOR;
            let end = (from + SECTOR).min(file.live.len());
            file.durable[from..end].copy_from_slice(&file.live[from..end]);
        }
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.disk.state().operate()?;
        let mut file = self.file.lock().unwrap();
        let bytes = file.live.len().max(bytes as usize);
        file.live.resize(bytes, 0);
        Ok(())
    }

    fn try_lock(&self, shared: bool) -> io::Result<bool> {
        let (mut own, mut file) = (self.lock.lock().unwrap(), self.file.lock().unwrap());
        assert_eq!(*own, 0);
        if file.is_locked || (!shared && file.readers > 0) {
            return Ok(false);
        }
        if shared {
            file.readers += 1;
        } else {
            file.is_locked = true;
        }
        *own = 1 + u8::from(!shared);
        Ok(true)
    }

    fn unlock(&self) {
        let (mut own, mut file) = (self.lock.lock().unwrap(), self.file.lock().unwrap());
        match std::mem::take(&mut *own) {
            1 => file.readers -= 1,
            2 => file.is_locked = false,
            _ => {}
        }
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        self.unlock();
    }
}
