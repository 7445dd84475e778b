//! The folder that a log lies in.

use std::any::Any;
use std::fmt::Debug;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A folder of files. Names are those in the folder.
pub trait Disk: Debug + Send + Sync {
    /// The folder, as messages name it.
    fn place(&self) -> String;

    /// The names of all files; none if there is no folder.
    ///
    /// # Errors
    /// If it cannot be read.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Opens a file that is there.
    ///
    /// # Errors
    /// If there is none, or it cannot be opened.
    fn open(&self, name: &str, writable: bool) -> io::Result<Box<dyn DiskFile>>;

    /// Makes a file that is not there.
    ///
    /// # Errors
    /// If there is one, or it cannot be made.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Removes a file.
    ///
    /// # Errors
    /// If it cannot be removed.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names durable.
    ///
    /// # Errors
    /// If the disk fails.
    fn sync_names(&self) -> io::Result<()>;

    /// Keeps other writers out for as long as the answer lives; `None` if there is one.
    ///
    /// # Errors
    /// If the lock cannot be made or taken.
    fn lock(&self) -> io::Result<Option<Box<dyn Any + Send + Sync>>>;
}

/// An open file.
pub trait DiskFile: Debug + Send + Sync {
    /// Its length.
    ///
    /// # Errors
    /// If the disk fails.
    fn length(&self) -> io::Result<u64>;

    /// Fills `out` from an offset on, as far as the file goes. Answers how many bytes there were.
    ///
    /// # Errors
    /// If the disk fails.
    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// If the disk fails, or is full.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// If the disk fails.
    fn sync(&self) -> io::Result<()>;

    /// Takes room for so many bytes.
    ///
    /// # Errors
    /// If there is no such room.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// Locks the file, for one alone or for readers, until it is unlocked or closed. Answers
    /// `false` if others keep it from that.
    ///
    /// # Errors
    /// If the system has no such locks here.
    fn try_lock(&self, shared: bool) -> io::Result<bool>;

    /// Unlocks the file.
    fn unlock(&self);

    /// Reads all of `out` if nobody has to wait for that. Else asks for these bytes, so that the
    /// wait for them is shorter, and answers `false`.
    fn read_at_hand(&self, _out: &mut [u8], _at: u64) -> bool {
        false
    }
}

/// A folder of the system.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    mode: u32,
}

impl Folder {
    /// The folder of this name.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned(), mode: 0o600 }
    }

    /// Who may use the files that are made, as `chmod` takes it; the user alone, unless this is
    /// called.
    #[must_use]
    pub const fn with_mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }
}

const LOCK: &str = "LOCK";

#[derive(Debug)]
struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        // A child process may still have the file open: closing it would not be enough.
        let _ = self.0.unlock();
    }
}

impl Disk for Folder {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn open(&self, name: &str, writable: bool) -> io::Result<Box<dyn DiskFile>> {
        let file = File::options().read(true).write(writable).open(self.path.join(name))?;
        Ok(Box::new(file))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, self.mode);
        let file = options.open(self.path.join(name))?;
        #[cfg(unix)]
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(self.mode))?;
        Ok(Box::new(file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        if cfg!(unix) { File::open(&self.path)?.sync_all() } else { Ok(()) }
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let path = self.path.join(LOCK);
        if let Err(error) = self.create(LOCK)
            && error.kind() != ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        let file = File::options().write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(Locked(file)))),
            Err(TryLockError::WouldBlock) => Ok(None),
            // Without locks, as on some network file systems, it is for the user to keep others
            // away.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                Ok(Some(Box::new(Locked(file))))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < out.len() {
            match read_some(self, &mut out[done..], at + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    #[cfg(unix)]
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, at)
    }

    #[cfg(not(unix))]
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        use std::io::{Seek as _, SeekFrom, Write as _};
        let mut file = self;
        file.seek(SeekFrom::Start(at))?;
        file.write_all(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        match rustix::fs::fallocate(self, rustix::fs::FallocateFlags::empty(), 0, bytes) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        self.set_len(bytes)
    }

    fn try_lock(&self, shared: bool) -> io::Result<bool> {
        match if shared { self.try_lock_shared() } else { Self::try_lock(self) } {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn unlock(&self) {
        let _ = Self::unlock(self);
    }

    #[cfg(target_os = "linux")]
    fn read_at_hand(&self, out: &mut [u8], at: u64) -> bool {
        use rustix::{fs, io};
        let (len, flags) = (out.len(), io::ReadWriteFlags::NOWAIT);
        if io::preadv2(self, &mut [std::io::IoSliceMut::new(out)], at, flags) == Ok(len) {
            return true;
        }
        if let Some(bytes) = std::num::NonZero::new(len as u64) {
            let _ = fs::fadvise(self, at, Some(bytes), fs::Advice::WillNeed);
        }
        false
    }
}

#[cfg(unix)]
fn read_some(file: &File, out: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, out, at)
}

#[cfg(windows)]
fn read_some(file: &File, out: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, out, at)
}
