//! A folder of files as a place for objects.

use std::error::Error as StdError;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::objects::{Listed, ObjectError, Objects, Upload};

/// What the names of files end with that are not whole yet.
const PART: &str = ".part";

/// A folder of the system. Files are made 0600, the folder 0700.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder of this name. It is made when the first object is written.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned() }
    }

    fn failed(&self, name: &str, error: impl Into<Box<dyn StdError + Send + Sync>>) -> ObjectError {
        let place = self.path.join(name).display().to_string();
        ObjectError::Failed { place, retryable: false, source: error.into() }
    }

    fn missing(&self, name: &str) -> ObjectError {
        ObjectError::Missing { place: self.path.join(name).display().to_string() }
    }

    /// A file of its own, until it is whole.
    fn begin(&self, name: &str) -> Result<FilePart, ObjectError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let make = || {
            make_folder(&self.path)?;
            loop {
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                let part = format!("{name}.{}-{number}{PART}", std::process::id());
                let path = self.path.join(part);
                match create(&path) {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                    made => return Ok((path, made?)),
                }
            }
        };
        let (path, file) = make().map_err(|error: io::Error| self.failed(name, error))?;
        Ok(FilePart { folder: self.clone(), name: name.to_owned(), path, file })
    }

    /// All files whose names begin like this.
    fn files(&self, prefix: &str) -> Result<Vec<Listed>, ObjectError> {
        let entries = match std::fs::read_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| self.failed("", error))?,
        };
        let mut listed = Vec::new();
        for entry in entries {
            let read = entry.map(|entry| (entry.file_name(), entry.metadata()));
            let (name, metadata) = read.map_err(|error| self.failed("", error))?;
            let Ok(name) = name.into_string() else { continue };
            if !name.starts_with(prefix) {
                continue;
            }
            match metadata {
                Ok(metadata) if metadata.is_file() => {
                    listed.push(Listed { name, bytes: metadata.len() });
                }
                Ok(_) => {}
                // It went meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(self.failed(&name, error)),
            }
        }
        listed.sort_unstable();
        Ok(listed)
    }

    fn sync(&self) -> io::Result<()> {
        if cfg!(unix) { File::open(&self.path)?.sync_all() } else { Ok(()) }
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

impl Objects for Folder {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, ObjectError> {
        let mut listed = self.files(prefix)?;
        listed.retain(|file| !file.name.ends_with(PART));
        Ok(listed)
    }

    fn unfinished(&self) -> Result<Vec<String>, ObjectError> {
        let parts = self.files("")?.into_iter().map(|file| file.name);
        Ok(parts.filter(|name| name.ends_with(PART)).collect())
    }

    fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, ObjectError> {
        let file = match File::open(self.path.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| self.failed(name, error))?,
        };
        let mut bytes = Vec::new();
        file.take(most.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| self.failed(name, error))?;
        if bytes.len() as u64 > most {
            return Err(self.failed(name, format!("it has more than {most} bytes")));
        }
        Ok(Some(bytes))
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, ObjectError> {
        let file = File::open(self.path.join(name)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => self.missing(name),
            _ => self.failed(name, error),
        })?;
        let len = range.end.saturating_sub(range.start);
        let length = file.metadata().map_err(|error| self.failed(name, error))?.len();
        if length < range.end {
            let place = self.path.join(name).display().to_string();
            return Err(ObjectError::Short { place, end: range.end });
        }
        let mut bytes = vec![0; len as usize];
        read_exact_at(&file, &mut bytes, range.start).map_err(|error| self.failed(name, error))?;
        Ok(bytes)
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        let mut part = self.begin(name)?;
        part.write(bytes)?;
        part.file.sync_all().map_err(|error| self.failed(name, error))?;
        // A link, unlike a rename, is refused where there is a file.
        match std::fs::hard_link(&part.path, self.path.join(name)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
            made => made.map_err(|error| self.failed(name, error))?,
        }
        self.sync().map_err(|error| self.failed(name, error))?;
        Ok(true)
    }

    fn upload(&self, name: &str) -> Result<Box<dyn Upload>, ObjectError> {
        Ok(Box::new(self.begin(name)?))
    }

    fn remove(&self, name: &str) -> Result<(), ObjectError> {
        match std::fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.failed(name, error)),
            _ => Ok(()),
        }
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(not(unix))]
fn read_exact_at(mut file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    use std::io::{Seek as _, SeekFrom};
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(bytes)
}

/// A file that is not whole yet; it goes with this.
#[derive(Debug)]
struct FilePart {
    folder: Folder,
    name: String,
    path: PathBuf,
    file: File,
}

impl Upload for FilePart {
    fn write(&mut self, bytes: &[u8]) -> Result<(), ObjectError> {
        self.file.write_all(bytes).map_err(|error| self.folder.failed(&self.name, error))
    }

    fn finish(self: Box<Self>) -> Result<(), ObjectError> {
        let done = self.file.sync_all().and_then(|()| {
            std::fs::rename(&self.path, self.folder.path.join(&self.name))?;
            self.folder.sync()
        });
        done.map_err(|error| self.folder.failed(&self.name, error))
    }
}

impl Drop for FilePart {
    fn drop(&mut self) {
        // Of one that was finished nothing has this name any more.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_whole_or_absent() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::new(parent.path().join("archive"));
        assert_eq!(folder.list("").unwrap(), []);
        assert_eq!(folder.get("a", 9).unwrap(), None);
        assert!(folder.create("a", b"first").unwrap());
        assert!(!folder.create("a", b"second").unwrap());
        assert_eq!(folder.get("a", 5).unwrap().unwrap(), b"first");
        assert!(matches!(folder.get("a", 4), Err(ObjectError::Failed { .. })));
        let mut upload = folder.upload("b").unwrap();
        upload.write(b"0123").unwrap();
        assert!(matches!(folder.read("b", 0..1), Err(ObjectError::Missing { .. })));
        assert_eq!(folder.list("b").unwrap(), []);
        drop(upload);
        let mut upload = folder.upload("b").unwrap();
        upload.write(b"0123").unwrap();
        upload.write(b"45").unwrap();
        upload.finish().unwrap();
        assert_eq!(folder.read("b", 3..6).unwrap(), b"345");
        assert!(matches!(folder.read("b", 3..7), Err(ObjectError::Short { end: 7, .. })));
        assert_eq!(folder.list("b").unwrap(), [Listed { name: "b".into(), bytes: 6 }]);
        folder.remove("b").unwrap();
        folder.remove("b").unwrap();
        assert_eq!(folder.list("").unwrap().len(), 1);
        assert_eq!(std::fs::read_dir(parent.path().join("archive")).unwrap().count(), 1);
    }
}
