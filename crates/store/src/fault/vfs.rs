//! The disk as SQLite uses one: a VFS for all disks of the process.
//!
//! A database's name is `/N/PATH`: file PATH of disk N. What SQLite makes without a name lies on a
//! disk of its own, on which nothing goes wrong.
//!
//! Each connection has a copy of the log's index (the crate of the VFS wants it so), brought up to
//! date when it takes a lock and given to the others when it lets go of one. So connections take
//! turns: see `FaultDisk`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use sqlite_vfs::wip::{WalIndex, WalIndexLock};
use sqlite_vfs::{DatabaseHandle, LockKind, OpenAccess, OpenOptions, Vfs};

use super::disk::{Disk, NodeId};
use super::handle::FaultDisk;
use super::redb_file::FaultFile;
use redb::StorageBackend as _;

/// The name of the VFS.
pub(crate) const VFS: &str = "spinney-faults";

/// Bytes of a part of a log's index.
const REGION_BYTES: usize = 32_768;
const NAMELESS: &str = "nameless";

type Region = [u8; REGION_BYTES];

/// A disk and whose turn it is, as long as somebody has it.
type KnownDisk = (Weak<Mutex<Disk>>, Weak<Mutex<()>>);

/// Disks that SQLite knows.
#[derive(Default)]
struct Known {
    next: u64,
    disks: BTreeMap<u64, KnownDisk>,
    /// What connections share, by disk and file.
    shared: BTreeMap<(u64, PathBuf), Weak<Mutex<Shared>>>,
}

static KNOWN: OnceLock<Mutex<Known>> = OnceLock::new();
static NEXT: AtomicU64 = AtomicU64::new(0);

fn known() -> MutexGuard<'static, Known> {
    let known = KNOWN.get_or_init(|| {
        // It fails if the name is taken, and then every opening says so.
        let _ = sqlite_vfs::register(VFS, Disks { nameless: FaultDisk::new() }, false);
        Mutex::default()
    });
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What SQLite calls a file of a disk.
pub(crate) fn name_of(disk: &FaultDisk, path: &Path) -> String {
    let mut known = known();
    known.disks.retain(|_, (disk, _)| disk.strong_count() > 0);
    let here = Arc::downgrade(&disk.disk);
    let found = known.disks.iter().find(|(_, (other, _))| other.ptr_eq(&here));
    let number = match found {
        Some((number, _)) => *number,
        None => {
            let number = known.next;
            known.next += 1;
            known.disks.insert(number, (here, Arc::downgrade(&disk.turn)));
            number
        }
    };
    format!("/{number}/{}", path.display())
}

/// What the connections to one file share.
#[derive(Default)]
struct Shared {
    readers: BTreeSet<u64>,
    reserved: Option<u64>,
    exclusive: Option<u64>,
    regions: Vec<Box<Region>>,
    /// Who holds the locks of the index, by their numbers.
    index_readers: BTreeMap<u8, BTreeSet<u64>>,
    index_writers: BTreeMap<u8, u64>,
}

impl Shared {
    fn release(&mut self, who: u64) {
        self.readers.remove(&who);
        self.reserved = self.reserved.filter(|other| *other != who);
        self.exclusive = self.exclusive.filter(|other| *other != who);
    }

    fn release_index(&mut self, who: u64) {
        for readers in self.index_readers.values_mut() {
            readers.remove(&who);
        }
        self.index_writers.retain(|_, writer| *writer != who);
    }

    fn lock(&mut self, who: u64, kind: LockKind) -> bool {
        let others = self.readers.iter().any(|reader| *reader != who);
        let theirs = |holder: Option<u64>| holder.is_some_and(|holder| holder != who);
        match kind {
            LockKind::None => {
                self.release(who);
                true
            }
            LockKind::Shared => {
                if theirs(self.exclusive) {
                    return false;
                }
                self.release(who);
                self.readers.insert(who)
            }
            LockKind::Reserved => {
                if theirs(self.reserved) || theirs(self.exclusive) {
                    return false;
                }
                self.reserved = Some(who);
                true
            }
            LockKind::Pending | LockKind::Exclusive => {
                if others || theirs(self.reserved) || theirs(self.exclusive) {
                    return false;
                }
                (self.reserved, self.exclusive) = (Some(who), Some(who));
                true
            }
        }
    }

    fn lock_index(&mut self, who: u64, locks: Range<u8>, kind: WalIndexLock) -> bool {
        let theirs = |at: u8| self.index_writers.get(&at).is_some_and(|writer| *writer != who);
        let read = |at: u8| {
            self.index_readers.get(&at).is_some_and(|readers| readers.iter().any(|r| *r != who))
        };
        let free = match kind {
            WalIndexLock::None => true,
            WalIndexLock::Shared => !locks.clone().any(theirs),
            WalIndexLock::Exclusive => !locks.clone().any(|at| theirs(at) || read(at)),
        };
        if !free {
            return false;
        }
        for at in locks {
            let readers = self.index_readers.entry(at).or_default();
            readers.remove(&who);
            if self.index_writers.get(&at) == Some(&who) {
                self.index_writers.remove(&at);
            }
            match kind {
                WalIndexLock::None => {}
                WalIndexLock::Shared => {
                    readers.insert(who);
                }
                WalIndexLock::Exclusive => {
                    self.index_writers.insert(at, who);
                }
            }
        }
        true
    }
}

struct Disks {
    nameless: FaultDisk,
}

impl Disks {
    /// The disk and the file that a name stands for.
    fn find(&self, name: &str) -> io::Result<(u64, FaultDisk, PathBuf)> {
        if name.starts_with(NAMELESS) {
            return Ok((u64::MAX, self.nameless.clone(), name.into()));
        }
        let parts = name.strip_prefix('/').and_then(|name| name.split_once('/'));
        let (number, path) = parts.ok_or(ErrorKind::NotFound)?;
        let number: u64 = number.parse().map_err(|_| ErrorKind::NotFound)?;
        let known = known();
        let (disk, turn) = known.disks.get(&number).ok_or(ErrorKind::NotFound)?;
        match (disk.upgrade(), turn.upgrade()) {
            (Some(disk), Some(turn)) => Ok((number, FaultDisk { disk, turn }, path.into())),
            _ => Err(ErrorKind::NotFound.into()),
        }
    }
}

impl Vfs for Disks {
    type Handle = VfsFile;

    fn open(&self, name: &str, options: OpenOptions) -> io::Result<VfsFile> {
        let (number, disk, path) = self.find(name)?;
        let node = open(&disk, &path, options.access)?;
        let shared = {
            let mut known = known();
            known.shared.retain(|_, shared| shared.strong_count() > 0);
            let entry = known.shared.entry((number, path.clone())).or_default();
            entry.upgrade().unwrap_or_else(|| {
                let fresh = Arc::default();
                *entry = Arc::downgrade(&fresh);
                fresh
            })
        };
        // SQLite's own VFS makes the name of a log certain with the first sync of what is in it.
        let names_it = is_log(&path);
        let file = FaultFile { disk, path, node };
        Ok(VfsFile { file, shared, who: self::number(), held: LockKind::None, names_it })
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let (_, disk, path) = self.find(name)?;
        disk.lock().remove(&path)?;
        // A rollback journal's end is the commit.
        if path.to_string_lossy().ends_with("-journal") {
            disk.lock().sync_folder(super::disk::parent(&path))?;
        }
        Ok(())
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        let (_, disk, path) = self.find(name)?;
        Ok(disk.lock().find(&path).is_some())
    }

    fn temporary_name(&self) -> String {
        format!("{NAMELESS}-{}", number())
    }

    /// The same numbers for everybody: so a run can be repeated. Salts of logs count up from them.
    fn random(&self, buffer: &mut [i8]) {
        for (at, byte) in buffer.iter_mut().enumerate() {
            *byte = (at as u8).wrapping_mul(37).wrapping_add(11).cast_signed();
        }
    }

    fn sleep(&self, duration: Duration) -> Duration {
        std::thread::yield_now();
        duration
    }
}

fn is_log(path: &Path) -> bool {
    ["-wal", "-journal"].iter().any(|end| path.to_string_lossy().ends_with(end))
}

fn open(disk: &FaultDisk, path: &Path, access: OpenAccess) -> io::Result<NodeId> {
    let mut disk = disk.lock();
    match (disk.find(path), access) {
        (Some(_), OpenAccess::CreateNew) => Err(ErrorKind::AlreadyExists.into()),
        (Some(node), _) => Ok(node),
        (None, OpenAccess::Create | OpenAccess::CreateNew) => disk.create(path),
        (None, _) => Err(ErrorKind::NotFound.into()),
    }
}

/// A file that SQLite has open.
struct VfsFile {
    file: FaultFile,
    shared: Arc<Mutex<Shared>>,
    who: u64,
    held: LockKind,
    /// Whether the next sync makes its name certain, too.
    names_it: bool,
}

impl VfsFile {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for VfsFile {
    fn drop(&mut self) {
        self.shared().release(self.who);
    }
}

/// What SQLite takes for a full disk.
fn full_to_zero(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::StorageFull { ErrorKind::WriteZero.into() } else { error }
}

impl DatabaseHandle for VfsFile {
    type WalIndex = Index;

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.length())
    }

    fn read_exact_at(&mut self, out: &mut [u8], offset: u64) -> io::Result<()> {
        let read = self.file.read_at(offset, out);
        if read == out.len() {
            return Ok(());
        }
        // SQLite relies on zeros behind the end.
        out[read..].fill(0);
        Err(ErrorKind::UnexpectedEof.into())
    }

    fn write_all_at(&mut self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write(offset, data).map_err(full_to_zero)
    }

    fn sync(&mut self, _: bool) -> io::Result<()> {
        self.file.sync_data()?;
        if std::mem::take(&mut self.names_it) {
            let folder = super::disk::parent(&self.file.path).to_owned();
            self.file.disk.lock().sync_folder(&folder)?;
        }
        Ok(())
    }

    fn set_len(&mut self, length: u64) -> io::Result<()> {
        if length == self.file.length() {
            return Ok(());
        }
        self.file.set_len(length)
    }

    fn lock(&mut self, kind: LockKind) -> io::Result<bool> {
        let locked = self.shared().lock(self.who, kind);
        if locked {
            self.held = kind;
        }
        Ok(locked)
    }

    fn reserved(&mut self) -> io::Result<bool> {
        let shared = self.shared();
        Ok(shared.reserved.or(shared.exclusive).is_some())
    }

    fn current_lock(&self) -> io::Result<LockKind> {
        Ok(self.held)
    }

    fn wal_index(&self, _: bool) -> io::Result<Index> {
        Ok(Index { shared: Arc::clone(&self.shared), who: self.who })
    }
}

/// The index of a log, for one connection.
struct Index {
    shared: Arc<Mutex<Shared>>,
    who: u64,
}

impl Index {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.shared().release_index(self.who);
    }
}

impl WalIndex for Index {
    fn map(&mut self, region: u32) -> io::Result<Region> {
        let mut shared = self.shared();
        let wanted = region as usize + 1;
        if shared.regions.len() < wanted {
            shared.regions.resize_with(wanted, || Box::new([0; REGION_BYTES]));
        }
        Ok(*shared.regions[region as usize])
    }

    fn lock(&mut self, locks: Range<u8>, kind: WalIndexLock) -> io::Result<bool> {
        Ok(self.shared().lock_index(self.who, locks, kind))
    }

    fn delete(self) -> io::Result<()> {
        self.shared().regions.clear();
        Ok(())
    }

    fn pull(&mut self, region: u32, data: &mut Region) -> io::Result<()> {
        if let Some(found) = self.shared().regions.get(region as usize) {
            *data = **found;
        }
        Ok(())
    }

    fn push(&mut self, region: u32, data: &Region) -> io::Result<()> {
        if let Some(found) = self.shared().regions.get_mut(region as usize) {
            **found = *data;
        }
        Ok(())
    }
}
