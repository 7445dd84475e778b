//! Folders and files for leaves on their way: nobody else may read them, put files there, or lead
//! ours elsewhere.
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{PipelineError, at};
use crate::gather::Gather;

/// A folder for a run's files.
///
/// ```
/// use spinney_pipeline::Scratch;
///
/// let scratch = Scratch::new()?;
/// let above = scratch.path().parent().expect("it is in another one").to_owned();
/// assert!(above.is_dir());
/// drop(scratch);
/// assert!(!above.exists());
/// # Ok::<_, spinney_pipeline::PipelineError>(())
/// ```
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Removed in the end, with all that is in it.
    _passing: Option<TempDir>,
}

impl Scratch {
    /// A folder within a new one among the system's temporary files, of a name that nobody can
    /// guess. The new one goes with the value, so a run in it does not outlive its process.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new() -> Result<Self, PipelineError> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("spinney-");
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(FOLDER));
        let folder = builder.tempdir().map_err(at(&std::env::temp_dir()))?;
        // Folders of the same name with something added are within the new one, too.
        Ok(Self { path: folder.path().join("leaves"), _passing: Some(folder) })
    }

    /// A folder of this name, which is made when something is put there, and stays for a run to go
    /// on with.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), _passing: None }
    }

    /// The folder of this name with a dot and `what` added, for what is sorted beside the leaves of
    /// a run: `check` or `preimages`.
    pub fn beside(&self, what: &str) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push(".");
        path.push(what);
        path.into()
    }

    /// Removes the leaves of a run that cannot go on, since it was refused; and what it sorted
    /// [beside](Self::beside) them.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn forget(&self) -> Result<(), PipelineError> {
        let beside = ["check", "preimages"].map(|what| self.beside(what));
        Gather::forget(&self.path)?;
        beside.iter().try_for_each(|path| Gather::forget(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Only the user reads and writes there.
#[cfg(unix)]
const FOLDER: u32 = 0o700;
#[cfg(unix)]
const FILE: u32 = 0o600;

/// Makes a folder, or makes sure that the one that is there is the user's alone. A link is refused,
/// since others may lead it elsewhere; so is a folder of another user above it, who may put another
/// one in its place.
pub(crate) fn prepare(dir: &Path) -> Result<(), PipelineError> {
    if let Some(above) = dir.parent().filter(|above| *above != Path::new("")) {
        folder(true, above).map_err(at(above))?;
        let owner = owner(&fs::metadata(above).map_err(at(above))?);
        if owner.is_some_and(|owner| owner != ROOT && Some(owner) != user()) {
            let what = "it lies in a folder of another user";
            return Err(PipelineError::NotOurs { path: dir.to_owned(), what });
        }
    }
    match folder(false, dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => inspect(dir),
        made => made.map_err(at(dir)),
    }
}

fn folder(with_those_above: bool, dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(with_those_above);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, FOLDER);
    builder.create(dir)
}

fn inspect(dir: &Path) -> Result<(), PipelineError> {
    let found = fs::symlink_metadata(dir).map_err(at(dir))?;
    let refused = |what| Err(PipelineError::NotOurs { path: dir.to_owned(), what });
    if found.file_type().is_symlink() {
        return refused("it is a link");
    }
    if !found.is_dir() {
        return refused("it is no folder");
    }
    if owner(&found) != user() {
        return refused("it belongs to another user");
    }
    #[cfg(unix)]
    if std::os::unix::fs::MetadataExt::mode(&found) & 0o022 != 0 {
        return refused("other users may write there");
    }
    Ok(())
}

const ROOT: u32 = 0;

/// Whose a folder is, where users have numbers.
fn owner(found: &fs::Metadata) -> Option<u32> {
    #[cfg(unix)]
    return Some(std::os::unix::fs::MetadataExt::uid(found));
    #[cfg(not(unix))]
    return None.filter(|_: &u32| found.is_dir());
}

/// As whom the process acts.
fn user() -> Option<u32> {
    #[cfg(unix)]
    return Some(rustix::process::geteuid().as_raw());
    #[cfg(not(unix))]
    return None;
}

/// Makes a file, in place of what has its name; a link is replaced and not followed.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    private().write(true).create_new(true).open(path)
}

/// Opens a file to append to it, or makes it.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    private().append(true).create(true).open(path)
}

/// Opens a file to read it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    private().read(true).open(path)
}

/// Files are the user's alone, and names that are links lead nowhere.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        options.mode(FILE).custom_flags(no_link);
    }
    options
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::{Scratch, create, open, prepare};
    use crate::PipelineError;

    fn mode(path: &std::path::Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn refusal(path: &std::path::Path) -> &'static str {
        match prepare(path) {
            Err(PipelineError::NotOurs { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn folders_and_files_are_the_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("above/scratch");
        prepare(&dir).unwrap();
        prepare(&dir).unwrap();
        assert_eq!((mode(&dir), mode(dir.parent().unwrap())), (0o700, 0o700));
        drop(create(&dir.join("file")).unwrap());
        assert_eq!(mode(&dir.join("file")), 0o600);
        let passing = Scratch::new().unwrap();
        assert_eq!(mode(passing.path().parent().unwrap()), 0o700);
    }

    #[test]
    fn a_folder_that_others_made_or_may_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        assert_eq!(refusal(&link), "it is a link");
        fs::write(folder.path().join("file"), "").unwrap();
        assert_eq!(refusal(&folder.path().join("file")), "it is no folder");
        fs::set_permissions(&real, Permissions::from_mode(0o777)).unwrap();
        assert_eq!(refusal(&real), "other users may write there");
        fs::set_permissions(&real, Permissions::from_mode(0o700)).unwrap();
        prepare(&real).unwrap();
        // Only root may give its folders away.
        if std::os::unix::fs::chown(&real, Some(65_534), None).is_ok() {
            assert_eq!(refusal(&real), "it belongs to another user");
            assert_eq!(refusal(&real.join("below")), "it lies in a folder of another user");
        } else {
            println!("skipped: only root can make a folder of another user");
        }
    }

    #[test]
    fn links_in_the_place_of_files_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (precious, name) = (folder.path().join("precious"), folder.path().join("run-000000"));
        fs::write(&precious, "precious").unwrap();
        symlink(&precious, &name).unwrap();
        assert!(open(&name).is_err());
        drop(create(&name).unwrap());
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
        assert!(fs::symlink_metadata(&name).unwrap().is_file());
    }
}
