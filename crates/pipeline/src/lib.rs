//! A tree rebuilt from a stream of leaves that may be far larger than memory.
//!
//! A [`Gather`] takes the leaves in any order and sorts them into durable runs. [`Gather::rebuild`]
//! merges the runs, cuts the leaves into ranges, has them built by any number of threads
//! ([`spinney_tree::ranges`]), and commits each with a checkpoint in one transaction. The tree
//! appears with the last commit. A stop or a crash at any moment costs the ranges that were under
//! way: the same call goes on with the rest.
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use spinney_pipeline::{Gather, Options, RunName, Scratch};
//! use spinney_tree::{MemoryStore, PageStore, Tree, TreeId, mpt::Mpt};
//!
//! let scratch = Scratch::new()?;
//! let store = MemoryStore::new();
//! let mut tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 1 << 20)?;
//! let options = Options::default();
//! // The name says what the leaves are: a run of another name begins anew.
//! let name = RunName::of(&tree, b"three words", &options);
//! let mut gather = Gather::open(scratch.path(), name, options)?;
//! for (key, value) in [("dog", "puppy"), ("dogglesworth", "cat"), ("doe", "reindeer")] {
//!     gather.push(key.as_bytes(), value.as_bytes())?;
//! }
//! let report = gather.rebuild(&mut tree, &store, None, None, &mut |_| ControlFlow::Continue(()))?;
//! assert_eq!(report.leaves, 3);
//! assert_eq!(tree.root()[..4], [0x8a, 0xad, 0x78, 0x9d]);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants:
//! - pages do not depend on memory, threads, or how many ranges may be under way, nor on how leaves
//!   are cut into ranges or where a run was stopped;
//! - nothing of a rebuild is seen before its last commit;
//! - at most [`Options::in_flight`] ranges are read, built and not yet committed:
//!   [`Report::peak_in_flight`];
//! - what a checkpoint or a run file holds is only used if its checksum, its version and its run's
//!   name are right: else that is told in [`Report::notes`], and the run begins anew.
#![forbid(unsafe_code)]

mod build;
mod checkpoint;
mod error;
mod gather;
mod gauge;
mod journal;
mod latest;
mod merge;
mod options;
mod private;
mod record;
mod run_file;
mod scratch;
mod sorted;

pub use build::{Phase, Progress, Report};
pub use checkpoint::{Checkpoint, State};
pub use error::PipelineError;
pub use gather::Gather;
pub use latest::Latest;
pub use options::{Options, RunName};
pub use scratch::Scratch;
pub use sorted::SortedLeaves;
