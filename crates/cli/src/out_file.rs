//! A file that is written whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::failure::Failure;

/// Where the answer of a verb goes: a file, or standard output.
///
/// A file gets its name, and what had the name before is replaced, only by
/// [`finish`](Self::finish); until then what is written lies beside it. Pipes and devices are
/// written as they are.
pub(crate) struct OutFile(BufWriter<Target>);

enum Target {
    Stream(StdoutLock<'static>),
    Device(File),
    Beside { file: NamedTempFile<File>, path: PathBuf },
}

impl OutFile {
    /// Begins; with no path, on standard output.
    pub(crate) fn begin(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self(BufWriter::new(Target::Stream(io::stdout().lock()))));
        };
        let target = Target::of(path).map_err(|error| {
            Failure::new(format!("cannot write {}", path.display()))
                .because(error)
                .hint("name a file in a folder that is there, and that can be written")
        })?;
        Ok(Self(BufWriter::new(target)))
    }

    /// Ends: now the file is there.
    pub(crate) fn finish(self) -> io::Result<()> {
        let mut target = self.0.into_inner().map_err(io::IntoInnerError::into_error)?;
        target.flush()?;
        let Target::Beside { file, path } = target else { return Ok(()) };
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    }
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Target {
    fn of(path: &Path) -> io::Result<Self> {
        // Opened as it is, untouched: what may not be written may not be replaced either.
        match File::options().write(true).open(path) {
            Ok(old) => {
                let metadata = old.metadata()?;
                if !metadata.is_file() {
                    return Ok(Self::Device(old));
                }
                // A link stays a link.
                let file = Self::beside(fs::canonicalize(path)?)?;
                if let Self::Beside { file, .. } = &file {
                    file.as_file().set_permissions(metadata.permissions())?;
                }
                Ok(file)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Self::beside(path.to_owned()),
            Err(error) => Err(error),
        }
    }

    fn beside(path: PathBuf) -> io::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut prefix = path.file_name().unwrap_or_default().to_owned();
        prefix.push(".");
        // The permissions of any new file, not those of a secret one.
        let make = |path: &Path| File::options().write(true).create_new(true).open(path);
        let file = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".new")
            .make_in(folder.unwrap_or(Path::new(".")), make)?;
        Ok(Self::Beside { file, path })
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Stream(stream) => stream,
            Self::Device(file) => file,
            Self::Beside { file, .. } => file,
        }
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }
}
