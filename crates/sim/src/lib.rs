//! All crates together: random verbs and faults, drawn from one seed, against a model in memory.
//!
//! A [`run`] takes steps: blocks into several trees at once, candidates that are dropped, commits,
//! unwinding, chunks, rebuilds, sum batches, conversions, files, catching up, reads and proofs at
//! old blocks; and between them disks fail and fill up, processes are killed, and the power is cut.
//! After each step roots are compared with those of the textbooks, and at the start of each process
//! everything: rows with a rebuild's, history, accounts, leaves. Steps are drawn one by one, each
//! from the seed and its own number: so those that a failure does not need can be [left
//! out](shrink).
#![forbid(unsafe_code)]

mod changes;
mod copies;
mod live;
mod looks;
mod model;
mod processes;
mod site;
mod sums;
#[expect(dead_code, reason = "shared with the tests of spinney-state")]
#[path = "../../state/tests/it/embed/textbook.rs"]
mod textbook;
mod world;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use site::Kind;
pub use world::Tally;

use crate::world::{Stop, World};

/// What went wrong in a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The steps that were to be taken.
    pub steps: Vec<u64>,
    /// At how many of them it was.
    pub at: usize,
    /// What went wrong: what was found where something else has to be, or how the code panicked.
    pub what: String,
    /// What was done last.
    pub journal: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, at, what, .. } = self;
        writeln!(f, "seed {seed}, at step {at} of {}: {what}", self.steps.len())?;
        write!(f, "  last: {}", self.journal.join(", "))
    }
}

impl std::error::Error for Failure {}

/// Takes these steps of a seed.
///
/// # Errors
/// [`Failure`]: something was lost, was wrong, or panicked.
pub fn run(seed: u64, steps: &[u64], kind: &Kind) -> Result<Tally, Failure> {
    let (mut at, mut journal) = (0, Vec::new());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let world = World::new(seed, kind.clone());
        let mut world = world.map_err(|error| format!("no scratch folder: {error}"))?;
        let done = world.run(steps, &mut at);
        journal = world.journal.drain(..).collect();
        match done {
            Ok(()) => Ok(world.tally),
            Err(Stop::Wrong(what)) => Err(what),
            Err(Stop::Down) => Err("it failed where nothing was to fail".into()),
        }
    }));
    let what = match outcome {
        Ok(Ok(tally)) => return Ok(tally),
        Ok(Err(what)) => what,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            format!("panicked: {}", text.unwrap_or_default())
        }
    };
    Err(Failure { seed, steps: steps.to_vec(), at, what, journal })
}

/// Leaves out steps that the failure does not need: halves first, then single ones. `fresh` says
/// where the store of a run lies. Takes at most `tries` runs.
pub fn shrink(failure: Failure, tries: usize, mut fresh: impl FnMut() -> Kind) -> Failure {
    let mut smallest = failure;
    smallest.steps.truncate(smallest.at.max(1));
    let (mut tried, mut width) = (0, smallest.steps.len().div_ceil(2));
    while width > 0 {
        let mut start = 0;
        while start < smallest.steps.len() && tried < tries {
            let mut steps = smallest.steps.clone();
            steps.drain(start..(start + width).min(smallest.steps.len()));
            tried += 1;
            match run(smallest.seed, &steps, &fresh()) {
                Err(mut found) => {
                    found.steps.truncate(found.at.max(1));
                    smallest = found;
                }
                Ok(_) => start += width,
            }
        }
        width = if width == 1 { 0 } else { width.div_ceil(2) };
    }
    smallest
}
