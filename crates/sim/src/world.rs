//! A run: processes that come and go, each with its verbs, over one model of what has to be there.
//!
//! Invariants:
//! - what a verb reports as done is durable; what fails is as before or as after, whichever it is;
//! - each process begins with a look at all that is there: it is what the model says.

use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::ops::AddAssign;
use std::path::PathBuf;
use std::rc::Rc;

use alloy_primitives::{B256, keccak256};
use fastrand::Rng;
use spinney_state::sum::{SumTree, namespaces};
use spinney_state::{KeepHistory, State};
use spinney_store::fault::Survivors;
use spinney_store::{AnyStore, OpenFor};
use spinney_tree::{BlockId, PageStore as _};
use tempfile::TempDir;

use crate::changes::changes;
use crate::live::{End, Live};
use crate::model::{Block, Durable, PBT, UBT};
use crate::site::{Fuse, Kind, MAIN, Site, Tap};
use crate::{looks, sums};

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
    maybe: Vec<Durable>,
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

    /// Takes all steps.
    pub(crate) fn run(&mut self, steps: &[u64], at: &mut usize) -> Done {
        while *at < steps.len() {
            let Some(mut store) = self.begin_process(steps[*at])? else {
                *at += 1;
                continue;
            };
            self.look(&mut store)?;
            let fuse = Rc::clone(&self.fuse);
            let end = {
                let tap = Tap { store: &store, fuse: &fuse };
                Live::open(self, tap)?.run(steps, at)?
            };
            self.end_process(store, end, steps[(*at).min(steps.len() - 1)])?;
        }
        let store = self.site.open(MAIN, OpenFor::Writing);
        let Ok(mut store) = store else { return Ok(()) };
        self.look(&mut store)?;
        self.site.close(MAIN, store).map_err(|error| self.failed("closing in the end", error))
    }

    /// Opens the store, or makes it of a first block.
    fn begin_process(&mut self, step: u64) -> Done<Option<AnyStore>> {
        self.fuse.take();
        let mut rng = self.rng(step ^ (1 << 40));
        match self.site.open(MAIN, OpenFor::Writing) {
            Ok(store) => return Ok(Some(store)),
            Err(error) if !self.durable.chain.is_empty() => {
                return Err(self.failed("opening the store", error));
            }
            Err(_) => {}
        }
        if self.site.has_disk() && rng.u8(0..2) == 0 {
            self.site.fault(&mut rng);
        }
        let genesis = changes(&mut rng);
        let id = BlockId { number: 0, hash: self.hash() };
        let block = Rc::new(Block::new(id, None, vec![genesis.clone()]));
        let mut after = self.durable.clone();
        after.chain.push(Rc::clone(&block));
        self.begin(after);
        let habits = self.habits;
        let made = self.site.create(MAIN, |store| {
            let mut state = open(store, habits)?;
            state.apply(&genesis)?;
            state.set_genesis(id.hash.into());
            state.seal(id)?;
            state.commit().map(drop)
        });
        match made {
            Ok(store) => {
                self.done();
                self.site.calm();
                Ok(Some(store))
            }
            Err(error) => match self.failed("making the store", error) {
                Stop::Down => {
                    self.tally.failed += 1;
                    self.site.after(survivors(&mut rng));
                    Ok(None)
                }
                wrong @ Stop::Wrong(_) => Err(wrong),
            },
        }
    }

    fn end_process(&mut self, mut store: AnyStore, end: End, step: u64) -> Done {
        let mut rng = self.rng(step ^ (1 << 41));
        self.tally.ends += 1;
        self.note(format!("{end:?}"));
        match end {
            End::Close => {
                let compacted = if rng.u8(0..4) == 0 { store.compact() } else { Ok(()) };
                let closed = compacted.and_then(|()| self.site.close(MAIN, store));
                if let Err(error) = closed.map_err(|error| self.failed("closing", error)) {
                    let Stop::Down = error else { return Err(error) };
                    self.site.after(survivors(&mut rng));
                }
                self.site.calm();
            }
            End::Kill => {
                self.tally.kills += 1;
                self.site.leave(MAIN, store);
                self.site.after(None);
            }
            End::Cut => {
                self.tally.cuts += 1;
                if self.site.has_disk() {
                    // What the process does last is after the cut.
                    let cut = survivors(&mut rng).unwrap_or(Survivors::Nothing);
                    self.note(format!("{cut:?}"));
                    self.site.after(Some(cut));
                } else {
                    self.site.leave(MAIN, store);
                }
            }
        }
        self.is_going = false;
        Ok(())
    }

    /// Looks at all that is there, and finds out what became of a verb that was cut off.
    fn look(&mut self, store: &mut AnyStore) -> Done {
        store.check().map_err(|error| self.failed("checking the store", error))?;
        let before = std::mem::take(&mut self.durable);
        let candidates = std::iter::once(before).chain(std::mem::take(&mut self.maybe));
        let mut misfits = Vec::new();
        for (at, candidate) in candidates.enumerate() {
            match self.fits(store, &candidate) {
                Ok(()) => {
                    self.tally.found_done += u64::from(at > 0);
                    self.durable = candidate;
                    return self.check(store);
                }
                Err(Stop::Wrong(misfit)) => misfits.push(misfit),
                Err(Stop::Down) => return wrong("a look fails"),
            }
        }
        wrong(format!("the store is neither as before nor as after: {}", misfits.join("; or ")))
    }

    /// Whether the store is at this state, by its blocks and roots.
    fn fits(&mut self, store: &AnyStore, durable: &Durable) -> Done {
        let state = open(store, self.habits).map_err(|error| self.failed("opening", error))?;
        let head = durable.head();
        same("block", state.block(), head.map(|head| head.id))?;
        if let Some(head) = head {
            same("root of mpt", state.root(), head.after.mpt_root())?;
        }
        let kept = state.kept().map_err(|error| self.failed("kept", error))?;
        same("oldest block", kept.map(|kept| kept.oldest.number), head.map(|_| durable.oldest))?;
        self.fit_sums(store, durable)?;
        let copy = match self.site.open("copy", OpenFor::Writing) {
            Ok(copy) => copy,
            Err(error) if durable.copy.is_some() => return wrong(format!("the copy: {error}")),
            Err(_) => return Ok(()),
        };
        let found = spinney_state::embed::BinaryState::open(PBT, &copy, 1);
        let found = found.map(|state| (state.tree().block(), state.root()));
        self.site.close("copy", copy).map_err(|error| self.failed("closing the copy", error))?;
        let found = found.map_err(|error| self.failed("the copy", error))?;
        let Some(head) = durable.copy.as_ref().and_then(|copy| copy.last()) else {
            return wrong("a copy that was removed is there");
        };
        same("copy", found, (Some(head.id), head.after.pbt_root()))
    }

    fn fit_sums(&self, store: &AnyStore, durable: &Durable) -> Done {
        let snapshot = store.snapshot().map_err(|error| self.failed("a snapshot", error))?;
        let found = namespaces(&snapshot).map_err(|error| self.failed("namespaces", error))?;
        drop(snapshot);
        let names: Vec<_> = found.iter().map(|found| (found.name.clone(), found.profile)).collect();
        let sums = durable.sums.iter();
        same("namespaces", names, sums.map(|(name, sums)| (name.clone(), sums.profile)).collect())?;
        for (name, sums) in &durable.sums {
            let tree = SumTree::open(store, name, 1).map_err(|error| self.failed(name, error))?;
            same(name, tree.map(|tree| tree.root()), Some(sums.root))?;
        }
        Ok(())
    }

    /// Whether the store is sound, and everything in it is as the model has it.
    fn check(&self, store: &AnyStore) -> Done {
        let state = open(store, self.habits).map_err(|error| self.failed("opening", error))?;
        looks::check(self, &state)?;
        drop(state);
        looks::check_beside(self, store)?;
        for name in self.durable.sums.keys() {
            let tree = SumTree::open(store, name, 1).map_err(|error| self.failed(name, error))?;
            let Some(tree) = tree else { return wrong(format!("{name} is gone")) };
            sums::check(self, &tree)?;
        }
        Ok(())
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

fn survivors(rng: &mut Rng) -> Option<Survivors> {
    match rng.u8(0..4) {
        0 => None,
        1 => Some(Survivors::Nothing),
        2 => Some(Survivors::All),
        _ => Some(Survivors::Some(rng.u64(..))),
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
