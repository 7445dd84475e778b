//! What stores do with files, apart from what redb and SQLite do: on the system, or on a disk of a
//! test.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use redb::StorageBackend;
use redb::backends::FileBackend;
#[cfg(feature = "sqlite")]
use rusqlite::{Connection, OpenFlags};
use spinney_tree::StoreError;

#[cfg(feature = "faults")]
use crate::fault::handle::FaultDisk;
#[cfg(feature = "faults")]
use crate::fault::redb_file::FaultFile;
#[cfg(feature = "faults")]
use crate::fault::vfs::{VFS, name_of};
use crate::guard::{backend, guarded};

static FILE_MODE: AtomicU32 = AtomicU32::new(0o600);

/// Says who may use the files of stores that this process makes from now on, as `chmod` takes it.
/// Folders get the same, and may be entered by whoever may read. Before it is called that is the
/// user alone, `0o600`; it has no meaning where files have no such modes.
///
/// It is the process's, as a umask is: files that are there already stay as they are.
///
/// ```
/// spinney_store::set_file_mode(0o640);
/// ```
pub fn set_file_mode(mode: u32) {
    FILE_MODE.store(mode & 0o777, Ordering::Relaxed);
}

/// The file system that a store lies in.
#[derive(Clone, Debug, Default)]
pub(crate) enum Files {
    /// The system's.
    #[default]
    System,
    /// A test's.
    #[cfg(feature = "faults")]
    Fault(FaultDisk),
}

/// What has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Folder,
    /// A file of so many bytes.
    File(u64),
}

/// An open file.
#[derive(Debug)]
pub(crate) enum Opened {
    System(File),
    #[cfg(feature = "faults")]
    Fault(FaultFile),
}

impl Opened {
    /// The first bytes, as many as there are.
    pub(crate) fn start(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut start = Vec::with_capacity(bytes);
        match self {
            Self::System(file) => drop(file.take(bytes as u64).read_to_end(&mut start)?),
            #[cfg(feature = "faults")]
            Self::Fault(file) => {
                start.resize(bytes, 0);
                let read = file.read_at(0, &mut start);
                start.truncate(read);
            }
        }
        Ok(start)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        match self {
            Self::System(file) => file.sync_all(),
            #[cfg(feature = "faults")]
            Self::Fault(file) => file.sync_data(),
        }
    }

    /// The file, for redb.
    pub(crate) fn into_backend(self) -> Result<Box<dyn StorageBackend>, StoreError> {
        match self {
            Self::System(file) => {
                guarded("the file of a store", || Ok(Box::new(FileBackend::new(file)?) as _))
            }
            #[cfg(feature = "faults")]
            Self::Fault(file) => Ok(Box::new(file)),
        }
    }
}

/// A lock file that is locked.
///
/// It is unlocked by name and not by closing the file: a child process has the files of its parent
/// open for as long as it has not become another program, and would keep the lock that long.
#[derive(Debug)]
pub(crate) enum Lock {
    System(File),
    #[cfg(feature = "faults")]
    Fault(FaultDisk, std::path::PathBuf),
}

impl Drop for Lock {
    fn drop(&mut self) {
        match self {
            // If this fails, closing the file is what is left.
            Self::System(file) => drop(file.unlock()),
            #[cfg(feature = "faults")]
            Self::Fault(disk, path) => disk.unlock(path),
        }
    }
}

impl Files {
    /// What has this name; `None` for nothing.
    pub(crate) fn find(&self, path: &Path) -> io::Result<Option<Found>> {
        match self {
            Self::System => match fs::metadata(path) {
                Ok(found) if found.is_dir() => Ok(Some(Found::Folder)),
                Ok(found) => Ok(Some(Found::File(found.len()))),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            },
            #[cfg(feature = "faults")]
            Self::Fault(disk) => {
                let disk = disk.lock();
                Ok(match disk.find(path) {
                    Some(node) => Some(Found::File(disk.bytes(node).len() as u64)),
                    None => disk.exists(path).then_some(Found::Folder),
                })
            }
        }
    }

    pub(crate) fn open(&self, path: &Path, writable: bool) -> io::Result<Opened> {
        match self {
            Self::System => {
                let options = &mut File::options();
                options.read(true).write(writable).open(path).map(Opened::System)
            }
            #[cfg(feature = "faults")]
            Self::Fault(disk) => FaultFile::open(disk, path).map(Opened::Fault),
        }
    }

    /// Makes a file that is not there yet.
    pub(crate) fn create(&self, path: &Path) -> io::Result<Opened> {
        match self {
            Self::System => make_file(path, FILE_MODE.load(Ordering::Relaxed)).map(Opened::System),
            #[cfg(feature = "faults")]
            Self::Fault(disk) => FaultFile::create(disk, path).map(Opened::Fault),
        }
    }

    pub(crate) fn create_folder(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::System => {
                let missing = |path: &&Path| *path != Path::new("") && !path.exists();
                let missing: Vec<_> = path.ancestors().take_while(missing).collect();
                missing.into_iter().rev().try_for_each(make_folder)
            }
            #[cfg(feature = "faults")]
            Self::Fault(_) => Ok(()),
        }
    }

    /// Removes a folder in which nothing is left.
    pub(crate) fn remove_folder(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::System => fs::remove_dir(path),
            #[cfg(feature = "faults")]
            Self::Fault(_) => Ok(()),
        }
    }

    /// Removes a file, if there is one.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = match self {
            Self::System => fs::remove_file(path),
            #[cfg(feature = "faults")]
            Self::Fault(disk) => disk.lock().remove(path),
        };
        match removed {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self {
            Self::System => fs::rename(from, to),
            #[cfg(feature = "faults")]
            Self::Fault(disk) => disk.lock().rename(from, to),
        }
    }

    /// Makes the names in a folder durable, where the system has a way to.
    pub(crate) fn sync_folder(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::System if cfg!(unix) => File::open(path)?.sync_all(),
            Self::System => Ok(()),
            #[cfg(feature = "faults")]
            Self::Fault(disk) => disk.lock().sync_folder(path),
        }
    }

    /// Makes a file durable, or the files of a folder and their names.
    pub(crate) fn sync(&self, path: &Path) -> io::Result<()> {
        match self.find(path)? {
            // Some systems sync only what may be written.
            Some(Found::File(_)) => return self.open(path, true)?.sync(),
            Some(Found::Folder) => {}
            None => return Err(ErrorKind::NotFound.into()),
        }
        for inside in self.list(path)? {
            self.sync(&inside)?;
        }
        self.sync_folder(path)
    }

    /// Removes a file, or a folder with the files in it, if there is one.
    pub(crate) fn remove_all(&self, path: &Path) -> io::Result<()> {
        if self.find(path)? != Some(Found::Folder) {
            return self.remove(path);
        }
        self.list(path)?.iter().try_for_each(|inside| self.remove_all(inside))?;
        self.remove_folder(path)
    }

    pub(crate) fn list(&self, folder: &Path) -> io::Result<Vec<std::path::PathBuf>> {
        match self {
            Self::System => fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect(),
            #[cfg(feature = "faults")]
            Self::Fault(disk) => {
                Ok(disk.names().into_iter().filter(|name| name.starts_with(folder)).collect())
            }
        }
    }

    /// Takes a lock file, which is made if need be, or says that the store at `place` is in use.
    pub(crate) fn lock(&self, path: &Path, place: &Path) -> Result<Lock, StoreError> {
        let busy = || StoreError::Busy { place: place.display().to_string() };
        #[cfg(feature = "faults")]
        if let Self::Fault(disk) = self {
            let locked = disk.try_lock(path);
            return locked.then(|| Lock::Fault(disk.clone(), path.into())).ok_or_else(busy);
        }
        let unlocked = |error| backend(path.display(), error);
        loop {
            let Some(lock) = open_lock(path, place).map_err(unlocked)? else { continue };
            match lock.try_lock() {
                // Who had it may have removed the file: then others lock the next one of its name.
                Ok(()) if !has_name(&lock, path) => {}
                Ok(()) => return Ok(Lock::System(lock)),
                Err(TryLockError::WouldBlock) => return Err(busy()),
                // Without locks, as on some network file systems, it is for the user to keep others
                // away.
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                    return Ok(Lock::System(lock));
                }
                Err(TryLockError::Error(error)) => return Err(unlocked(error)),
            }
        }
    }

    /// Whether a file lies in a file system that nobody can write here. The file is not opened:
    /// closing it would drop the locks that SQLite has on it.
    #[cfg(feature = "sqlite")]
    pub(crate) fn is_read_only(&self, path: &Path) -> bool {
        match self {
            #[cfg(unix)]
            Self::System => rustix::fs::statvfs(path)
                .is_ok_and(|found| found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY)),
            #[cfg(not(unix))]
            Self::System => false,
            #[cfg(feature = "faults")]
            Self::Fault(_) => false,
        }
    }

    /// Connects SQLite to a file; to one that nobody changes, without locks and without a file
    /// beside it.
    #[cfg(feature = "sqlite")]
    pub(crate) fn connect(
        &self,
        path: &Path,
        flags: OpenFlags,
        immutable: bool,
    ) -> rusqlite::Result<Connection> {
        match self {
            Self::System if immutable => {
                let flags = flags | OpenFlags::SQLITE_OPEN_URI;
                Connection::open_with_flags(uri(path), flags)
            }
            Self::System => Connection::open_with_flags(path, flags),
            #[cfg(feature = "faults")]
            Self::Fault(disk) => {
                Connection::open_with_flags_and_vfs(name_of(disk, path), flags, VFS)
            }
        }
    }

    /// Lets `work` use SQLite. On a test's disk one does so at a time.
    #[cfg(feature = "sqlite")]
    pub(crate) fn in_turn<T>(&self, work: impl FnOnce() -> T) -> T {
        match self {
            Self::System => work(),
            #[cfg(feature = "faults")]
            Self::Fault(disk) => disk.in_turn(work),
        }
    }
}

/// Whether a file that is open still has a name, where the system tells.
fn has_name(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let id =
            |found: io::Result<fs::Metadata>| Some((found.as_ref().ok()?.dev(), found.ok()?.ino()));
        let own = id(file.metadata());
        own.is_none() || own == id(fs::metadata(path))
    }
    #[cfg(not(unix))]
    {
        let _ = (file, path);
        true
    }
}

/// The URI of a file that nobody changes.
#[cfg(feature = "sqlite")]
fn uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                uri.push(char::from(*byte));
            }
            other => uri.push_str(&format!("%{other:02x}")),
        }
    }
    uri + "?immutable=1"
}

/// Makes a file that is not there yet, with a mode that the umask does not change.
fn make_file(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    let file = options.open(path)?;
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    #[cfg(not(unix))]
    let _ = mode;
    Ok(file)
}

/// Makes a folder, unless somebody else just did.
fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    let mode = {
        let mode = FILE_MODE.load(Ordering::Relaxed);
        // Who may read a folder may enter it.
        mode | (mode & 0o444) >> 2
    };
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, mode);
    match builder.create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => return Ok(()),
        made => made?,
    }
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    Ok(())
}

/// Opens a lock file, which is made if need be: whoever may write the store may lock it. `None` if
/// it went just now.
fn open_lock(path: &Path, store: &Path) -> io::Result<Option<File>> {
    let mode = FILE_MODE.load(Ordering::Relaxed);
    #[cfg(unix)]
    let mode = match fs::metadata(store) {
        Ok(found) if found.is_file() => std::os::unix::fs::MetadataExt::mode(&found) & 0o666,
        _ => mode,
    };
    #[cfg(not(unix))]
    let _ = store;
    match make_file(path, mode) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => return made.map(Some),
    }
    match File::options().write(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

#[cfg(feature = "faults")]
impl From<FaultDisk> for Files {
    fn from(disk: FaultDisk) -> Self {
        Self::Fault(disk)
    }
}
