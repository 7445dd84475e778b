//! Where verbs sort what memory does not hold.

use std::path::{Path, PathBuf};

use clap::Args;
use spinney_pipeline::{PipelineError, Scratch};
use spinney_store::Location;

/// Where leaves are sorted.
#[derive(Clone, Debug, Args)]
pub(crate) struct ScratchArgs {
    /// Where leaves are sorted: a folder that is the user's alone, and is made if need be. Without
    /// it, one beside a store of files, from which an interrupted run goes on; for a store on a
    /// server, a new one of a random name that goes with the run.
    #[arg(long, alias = "spill", value_name = "DIR")]
    scratch: Option<PathBuf>,
}

impl ScratchArgs {
    /// The folder that was asked for.
    pub(crate) fn asked(&self) -> Option<&Path> {
        self.scratch.as_deref()
    }

    /// The folder for work on the store of a place.
    pub(crate) fn at(&self, location: Option<&Location>) -> Result<Scratch, PipelineError> {
        Ok(match (&self.scratch, location) {
            (Some(dir), _) => Scratch::at(dir),
            (None, Some(Location::Redb(path) | Location::Log(path) | Location::Sqlite(path))) => {
                Scratch::at(with_suffix(path, ".leaves"))
            }
            (None, _) => Scratch::new()?,
        })
    }
}

/// A path with something added to its last name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
