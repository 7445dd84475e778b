//! What a run has in hand, between and during its processes: the store, the model of what has to be
//! there, the chance, and the tally.

use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::ops::AddAssign;
use std::path::PathBuf;
use std::rc::Rc;

use alloy_primitives::{B256, keccak256};
use fastrand::Rng;
use spinney_state::{KeepHistory, State};
use tempfile::TempDir;

use crate::model::{Durable, PBT, UBT};
use crate::site::{Fuse, Kind, Site};

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Steps taken.
    pub steps: u64,
    /// Blocks that became durable.
    pub blocks: u64,
    /// Commits and other verbs that were done.
    pub done: u64,
    /// Verbs that failed, as they were to.
    pub failed: u64,
    /// Of these and of cuts, how many were found done all the same.
    pub found_done: u64,
    /// Processes that ended, of which so many were killed or lost their power.
    pub ends: u64,
    /// Processes that were killed.
    pub kills: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Proofs that were made and verified.
    pub proofs: u64,
    /// Earlier blocks that were looked at.
    pub looks: u64,
    /// Blocks that copies followed by access lists.
    pub followed: u64,
}

impl Tally {
    /// Its counts, with their names.
    pub fn counts(&self) -> [(&'static str, u64); 11] {
        [
            ("steps", self.steps),
            ("blocks", self.blocks),
            ("verbs done", self.done),
            ("verbs failed", self.failed),
            ("found done all the same", self.found_done),
            ("processes", self.ends),
            ("kills", self.kills),
            ("power cuts", self.cuts),
            ("proofs", self.proofs),
            ("looks at earlier blocks", self.looks),
            ("blocks followed by access lists", self.followed),
        ]
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.steps += other.steps;
        self.blocks += other.blocks;
        self.done += other.done;
        self.failed += other.failed;
        self.found_done += other.found_done;
        self.ends += other.ends;
        self.kills += other.kills;
        self.cuts += other.cuts;
        self.proofs += other.proofs;
        self.looks += other.looks;
        self.followed += other.followed;
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts().map(|(name, count)| format!("{count} {name}"));
        f.write_str(&counts.join(", "))
    }
}

/// Why a verb ends.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Something is not as it has to be.
    Wrong(String),
    /// It failed, as it was to.
    Down,
}

pub(crate) type Done<T = ()> = Result<T, Stop>;

/// What there has to be is not.
pub(crate) fn wrong<T>(what: impl Into<String>) -> Done<T> {
    Err(Stop::Wrong(what.into()))
}

/// Compares what is there with what there has to be.
pub(crate) fn same<T: PartialEq + fmt::Debug>(what: &str, found: T, expected: T) -> Done {
    if found == expected {
        return Ok(());
    }
    wrong(format!("{what}: found {found:?}, expected {expected:?}"))
}

/// How much of what happened a failure tells.
const JOURNAL: usize = 24;

/// Which trees the store has beside the trie, and how it is used: the same for a whole run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    pub(crate) pbt: bool,
    pub(crate) ubt: bool,
    /// Pages that stay in memory.
    pub(crate) cache: usize,
}

/// A run, between and during its processes.
// Fields: what a run goes on with after a crash.
pub(crate) struct World {
    seed: u64,
    pub(crate) site: Site,
    pub(crate) fuse: Rc<Fuse>,
    pub(crate) habits: Habits,
    pub(crate) keep: KeepHistory,
    pub(crate) durable: Durable,
    /// What else may be durable.
    pub(crate) maybe: Vec<Durable>,
    /// The power is going: nothing that is done now is certain.
    pub(crate) is_going: bool,
    /// The source of a copy that was begun, and not finished.
    pub(crate) begun: Option<B256>,
    pub(crate) tally: Tally,
    /// What was done last, for a failure.
    pub(crate) journal: VecDeque<String>,
    pub(crate) scratch: TempDir,
    next_hash: u64,
}

impl World {
    pub(crate) fn new(seed: u64, kind: Kind) -> std::io::Result<Self> {
        let mut rng = Rng::with_seed(mix(seed, u64::MAX));
        let habits = Habits {
            pbt: rng.bool(),
            ubt: rng.bool(),
            cache: if rng.bool() { 1 } else { 1 << 20 },
        };
        let memory = PathBuf::from("/dev/shm");
        let scratch = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }?;
        Ok(Self {
            seed,
            site: Site::new(kind),
            fuse: Rc::default(),
            habits,
            keep: keep(&mut rng),
            durable: Durable::default(),
            maybe: Vec::new(),
            is_going: false,
            begun: None,
            tally: Tally::default(),
            journal: VecDeque::new(),
            scratch,
            next_hash: 0,
        })
    }

    /// Chance of a step, whatever other steps are taken.
    pub(crate) fn rng(&self, step: u64) -> Rng {
        Rng::with_seed(mix(self.seed, step))
    }

    /// A hash that no other block has.
    pub(crate) fn hash(&mut self) -> [u8; 32] {
        self.next_hash += 1;
        keccak256([self.seed.to_be_bytes(), self.next_hash.to_be_bytes()].concat()).0
    }

    /// Where leaves are sorted.
    pub(crate) fn spill(&self) -> PathBuf {
        self.scratch.path().join("leaves")
    }

    /// What an error is: of a fault, or wrong.
    pub(crate) fn failed(&self, what: &str, error: impl Display) -> Stop {
        if self.site.has_failed() || self.is_going || self.fuse.has_tripped() {
            return Stop::Down;
        }
        Stop::Wrong(format!("{what}: {error}"))
    }

    /// Notes what happens.
    pub(crate) fn note(&mut self, what: impl Into<String>) {
        if self.journal.len() == JOURNAL {
            self.journal.pop_front();
        }
        self.journal.push_back(what.into());
    }

    /// Says what there will be if the verb at hand is done.
    pub(crate) fn begin(&mut self, after: Durable) {
        self.maybe.push(after);
    }

    /// The verb at hand is done.
    pub(crate) fn done(&mut self) {
        self.tally.done += 1;
        if self.is_going {
            return;
        }
        if let Some(after) = self.maybe.pop() {
            self.durable = after;
        }
        self.maybe.clear();
    }

    /// The verb at hand was refused before anything was written.
    pub(crate) fn refused(&mut self) {
        self.maybe.clear();
    }
}

/// Opens the state with the trees of the run.
pub(crate) fn open<P: spinney_tree::PageStore>(
    store: P,
    habits: Habits,
) -> Result<State<P>, spinney_state::StateError> {
    let mut state = State::open(store, habits.cache)?;
    if habits.pbt {
        state.add_tree(PBT, habits.cache)?;
    }
    if habits.ubt {
        state.add_tree(UBT, habits.cache)?;
    }
    Ok(state)
}

pub(crate) fn keep(rng: &mut Rng) -> KeepHistory {
    match rng.u8(0..6) {
        0 | 1 => KeepHistory::All,
        2 => KeepHistory::default(),
        _ => KeepHistory::Blocks(rng.u64(0..6)),
    }
}

/// Mixes a seed with the number of a step.
fn mix(seed: u64, step: u64) -> u64 {
    let mut mixed = seed ^ step.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..2 {
        mixed = (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    mixed ^ mixed >> 29
}
