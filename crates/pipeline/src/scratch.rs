//! Folders for the leaves of a run on their way.
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

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{PipelineError, at};
use crate::gather::Gather;
#[cfg(unix)]
use crate::private::FOLDER;

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

#[cfg(all(test, unix))]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::Scratch;
    use crate::PipelineError;
    use crate::private::{create, open, prepare};

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
