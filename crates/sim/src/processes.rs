//! A run: processes that come and go, each with its verbs, over one model of what has to be there.
//!
//! Invariants:
//! - what a verb reports as done is durable; what fails is as before or as after, whichever it is;
//! - each process begins with a look at all that is there: it is what the model says.

use std::rc::Rc;

use fastrand::Rng;
use spinney_state::sum::{SumTree, namespaces};
use spinney_store::fault::Survivors;
use spinney_store::{AnyStore, OpenFor};
use spinney_tree::{BlockId, PageStore as _};

use crate::changes::changes;
use crate::live::{End, Live};
use crate::model::{Block, Durable, PBT};
use crate::site::{MAIN, Tap};
use crate::world::{Done, Stop, World, open, same, wrong};
use crate::{looks, sums};

impl World {
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

fn survivors(rng: &mut Rng) -> Option<Survivors> {
    match rng.u8(0..4) {
        0 => None,
        1 => Some(Survivors::Nothing),
        2 => Some(Survivors::All),
        _ => Some(Survivors::Some(rng.u64(..))),
    }
}
