//! What can go wrong.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use spinney_tree::{StoreError, TreeError};

/// Why a run failed. The tree is what it was, and nothing of the run is seen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// A key came twice.
    #[error("key 0x{} comes twice: each leaf may come once", hex(.key))]
    Twice {
        /// The key.
        key: Vec<u8>,
    },
    /// The source has fewer leaves than it had when the run began.
    #[error(
        "the source ends after {found} leaves, and the run holds {held} of it: it has \
         changed; begin a new run"
    )]
    SourceChanged {
        /// How many leaves were pushed.
        found: u64,
        /// How many leaves are in runs already.
        held: u64,
    },
    /// The root is not the one that was asked for.
    #[error(
        "state root: expected 0x{}, got 0x{}; nothing was made of the leaves",
        hex(.expected),
        hex(.found)
    )]
    Root {
        /// The root that the leaves should have.
        expected: Vec<u8>,
        /// The root that they have.
        found: Vec<u8>,
    },
    /// Somebody asked the run to stop. It can go on.
    #[error("stopped; the same run goes on where it stood")]
    Stopped,
    /// A thread of the run panicked.
    #[error("a worker failed: {what}")]
    Worker {
        /// What the panic said.
        what: String,
    },
    /// A file of the run could not be read or written.
    #[error("{}: {source}", .path.display())]
    Spill {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A folder for files of the run is not the user's alone.
    #[error(
        "{} is not used: {what}; name a folder of your own that only you may write",
        .path.display()
    )]
    NotOurs {
        /// The folder.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// A file of the run is damaged.
    #[error("{} is damaged: {what}; remove it, or begin a new run", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A file there is of another run.
    #[error(
        "{} is of another run: of other leaves, of another tree, or with other options",
        .path.display()
    )]
    OtherRun {
        /// The file.
        path: PathBuf,
    },
    /// The tree refused a leaf or failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl From<StoreError> for PipelineError {
    fn from(error: StoreError) -> Self {
        Self::Tree(error.into())
    }
}

/// Names the file that an operation failed on.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> PipelineError + '_ {
    |source| PipelineError::Spill { path: path.to_path_buf(), source }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A panic as an error: no thread takes the run along.
pub(crate) fn guarded<T>(
    work: impl FnOnce() -> Result<T, PipelineError>,
) -> Result<T, PipelineError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(worker_failed(&*panic)))
}

fn worker_failed(panic: &(dyn Any + Send)) -> PipelineError {
    let said = panic.downcast_ref::<&str>().map(ToString::to_string);
    let what = said.or_else(|| panic.downcast_ref::<String>().cloned());
    PipelineError::Worker { what: what.unwrap_or_else(|| "it panicked".into()) }
}
