//! Files of inputs and expected roots, run against the engine.
//!
//! A file's name says what is in it. Each root that a file gives is one check; what this version cannot
//! check, proofs above all, is counted as skipped.
//!
//! ```
//! use spinney_cli::vectors::{EMBEDDED, Options, run};
//!
//! for (name, json) in EMBEDDED {
//!     let outcome = run(name, json.as_bytes(), &Options::default())?.unwrap();
//!     assert_eq!(outcome.failures, Vec::<String>::new(), "{name}");
//! }
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod hex;
mod published;
mod raw;
mod state;
mod subject;
mod trietests;
mod workload;

use spinney_state::StateError;
use spinney_tree::{StoreError, TreeError};

/// Vectors that every build carries along.
pub const EMBEDDED: [(&str, &str); 3] = [
    ("raw.json", include_str!("../../../../testdata/mpt/raw.json")),
    ("state.json", include_str!("../../../../testdata/mpt/state.json")),
    ("small_and_growing.json", include_str!("../../../../testdata/mpt/small_and_growing.json")),
];

/// How vectors are run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Cases with more keys are skipped.
    pub keys_max: u64,
    /// Over redb, in a temporary folder, closed and opened again after every step; else in memory.
    pub redb: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { keys_max: u64::MAX, redb: false }
    }
}

/// What became of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// Values compared.
    pub checks: u64,
    /// Values that this version cannot compare, and cases that are too large.
    pub skipped: u64,
    /// What was not as expected.
    pub failures: Vec<String>,
}

impl Outcome {
    /// Compares a root; `what` names it.
    fn root(&mut self, what: impl FnOnce() -> String, got: [u8; 32], expected: &hex::Hash) {
        self.equal(what, &hex::Hash(got), expected);
    }

    fn equal<T: PartialEq + std::fmt::Display>(
        &mut self,
        what: impl FnOnce() -> String,
        got: &T,
        expected: &T,
    ) {
        self.checks += 1;
        if got != expected {
            self.failures.push(format!("{}: expected {expected}, got {got}", what()));
        }
    }
}

/// Why a file could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VectorError {
    /// It is no JSON, or not of such vectors.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// Pages are not those of a rebuild.
    #[error("after a step the pages are not those of a rebuild: {0}")]
    Unsound(String),
    /// There is no temporary folder.
    #[error("no temporary folder: {0}")]
    Folder(#[from] std::io::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The tree refused an input, or failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The state refused an input, or failed.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Runs a file by its name; `None` where the name is not known.
///
/// # Errors
/// If the file is malformed, or an input is refused.
pub fn run(name: &str, json: &[u8], options: &Options) -> Result<Option<Outcome>, VectorError> {
    Ok(Some(match name {
        "raw.json" => raw::run(json, options)?,
        "state.json" => state::run(json, options)?,
        "steps.json" | "small_and_growing.json" => state::run_steps(json, options)?,
        "published.json" => published::run(json, options)?,
        "bench_roots.json" => workload::run(json, options)?,
        "trietest.json" | "trieanyorder.json" => trietests::run(json, false, options)?,
        "trietest_secureTrie.json" => trietests::run(json, true, options)?,
        "trietestnextprev.json" => trietests::run_neighbours(json, options)?,
        _ => return Ok(None),
    }))
}
