//! Files of inputs and expected roots, run against the engine.
//!
//! A file's name says what is in it. Each root that a file gives is one check, each proof two: it
//! holds, and ours is the same. What this version cannot check is counted as skipped.
//!
//! ```
//! use spinney_vectors::{EMBEDDED, Options, run};
//!
//! for (name, json) in EMBEDDED {
//!     let outcome = run(name, json.as_bytes(), &Options::default())?.unwrap();
//!     assert_eq!(outcome.failures, Vec::<String>::new(), "{name}");
//! }
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod binary;
mod hex;
mod proofs;
mod published;
mod raw;
mod splitmix;
mod state;
mod subject;
mod sums;
mod trietests;
mod verkle;
mod workload;

use spinney_state::StateError;
use spinney_state::sum::SumError;
use spinney_store::Address;
use spinney_tree::{StoreError, TreeError};

/// Vectors that every build carries along.
pub const EMBEDDED: [(&str, &str); 5] = [
    ("raw.json", include_str!("../data/raw.json")),
    ("state.json", include_str!("../data/state.json")),
    ("ubt_pbt_crosscheck.json", include_str!("../data/ubt_pbt_crosscheck.json")),
    ("small_and_growing.json", include_str!("../data/small_and_growing.json")),
    ("trees.json", include_str!("../data/trees.json")),
];

/// How vectors are run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Cases with more keys are skipped.
    pub keys_max: u64,
    /// Where the trees are.
    pub over: Over,
}

impl Default for Options {
    fn default() -> Self {
        Self { keys_max: u64::MAX, over: Over::Memory }
    }
}

/// The store that vectors are run over. All but that in memory are closed and opened again after
/// every step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Over {
    /// A store in memory.
    Memory,
    /// A log in a temporary folder.
    Log,
    /// A redb store in a temporary folder.
    Redb,
    /// A SQLite file in a temporary folder.
    Sqlite,
    /// A PostgreSQL schema, in which there is no row; there are none afterwards either.
    Postgres(Address),
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
    /// The place named for them holds something.
    #[error("{0} is not empty: vectors are run in a store of their own")]
    Occupied(String),
    /// A sum tree refused an input, or failed.
    #[error(transparent)]
    Sum(#[from] SumError),
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
        "empty_tree.json" => sums::run_empty(json, options)?,
        "compacted_leaf.json" => sums::run_lone(json, options)?,
        "clustered.json" => sums::run_clustered(json, options)?,
        "overflow.json" => sums::run_overflow(json, options)?,
        "bip_deletion.json" | "bip_error_cases.json" => sums::run_bip(json, options)?,
        "random.json" => sums::run_random(json, options)?,
        "ubt_raw.json" => binary::run_geth(json, options)?,
        "ubt_published.json" => binary::run_ubt(json, options)?,
        "pbt_published.json" => binary::run_pbt(json, options)?,
        "ubt_pbt_crosscheck.json" => binary::run_cross_check(json, options)?,
        "trees.json" => verkle::run(json, options)?,
        _ => return Ok(None),
    }))
}
