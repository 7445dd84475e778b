//! A process: verbs on the state, one after the other, until it ends.

use std::rc::Rc;

use alloy_primitives::B256;
use fastrand::Rng;
use spinney_state::{Changes, ChunkBuild, ChunkOptions, Chunks, KeepHistory, State, StateError};
use spinney_tree::BlockId;

use crate::changes::changes;
use crate::model::{Block, mpt_root};
use crate::site::{Tap, Trip};
use crate::textbook::Accounts;
use crate::world::{Done, Stop, World, keep, open, same, wrong};
use crate::{copies, looks, sums};

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Close,
    Kill,
    Cut,
}

/// What a step may be, and up to which of 1,000 rolls it is.
const VERBS: [(&str, u16); 23] = [
    ("apply", 260),
    ("seal", 430),
    ("commit", 520),
    ("undo", 560),
    ("unwind", 580),
    ("look", 660),
    ("read", 700),
    ("batch", 760),
    ("sums", 800),
    ("chunk", 820),
    ("convert", 826),
    ("follow", 856),
    ("files", 860),
    ("back", 863),
    ("check", 870),
    ("keep", 880),
    ("trip", 900),
    ("fault", 930),
    ("fill up", 935),
    ("cut within", 950),
    ("close", 960),
    ("kill", 968),
    ("cut", 974),
];

/// More layers are not stacked on a commit.
const LAYERS_MAX: usize = 24;
/// Blocks back that an unwinding goes.
const BACK_MAX: u64 = 8;

pub(crate) struct Live<'w, 's> {
    pub(crate) world: &'w mut World,
    pub(crate) tap: Tap<'s>,
    /// Gone where a chunk has failed.
    state: Option<State<Tap<'s>>>,
    /// What was applied since the last commit, and the accounts after it.
    layers: Vec<(Changes, Rc<Accounts>)>,
    /// Blocks that end at so many layers.
    sealed: Vec<(usize, Rc<Block>)>,
}

impl<'w, 's> Live<'w, 's> {
    pub(crate) fn open(world: &'w mut World, tap: Tap<'s>) -> Done<Self> {
        let state = open(tap, world.habits).map_err(|error| world.failed("opening", error))?;
        let mut live =
            Self { world, tap, state: Some(state), layers: Vec::new(), sealed: Vec::new() };
        live.set_keep();
        Ok(live)
    }

    fn set_keep(&mut self) {
        let keep = self.world.keep;
        if let Some(state) = &mut self.state {
            state.keep_history(keep);
        }
    }

    fn state(&mut self) -> Done<&mut State<Tap<'s>>> {
        self.state.as_mut().ok_or(Stop::Down)
    }

    pub(crate) fn run(mut self, steps: &[u64], at: &mut usize) -> Done<End> {
        while let Some(step) = steps.get(*at) {
            *at += 1;
            self.world.tally.steps += 1;
            let mut rng = self.world.rng(*step);
            match self.step(&mut rng) {
                Ok(None) => {}
                Ok(Some(end)) => return Ok(end),
                Err(Stop::Down) => {
                    self.world.tally.failed += 1;
                    self.world.note("(failed)");
                    let trip = self.world.fuse.take();
                    let is_as_before = trip == Trip::Before && !self.world.site.has_failed();
                    if !is_as_before || self.state.is_none() || rng.bool() {
                        return Ok(if rng.bool() { End::Kill } else { End::Cut });
                    }
                    self.world.refused();
                    self.is_as_applied()?;
                }
                Err(wrong) => return Err(wrong),
            }
        }
        Ok(End::Close)
    }

    fn step(&mut self, rng: &mut Rng) -> Done<Option<End>> {
        let has_disk = self.world.site.has_disk();
        let roll = rng.u16(0..1_000);
        let Some((name, _)) = VERBS.iter().find(|(_, end)| roll < *end) else { return Ok(None) };
        self.world.note(*name);
        match *name {
            "apply" => self.apply(rng)?,
            "seal" => self.seal(rng)?,
            "commit" => self.commit()?,
            "undo" => self.undo(rng)?,
            "unwind" => self.unwind(rng)?,
            "look" => self.look(rng)?,
            "read" => looks::reads(self.world, self.state.as_ref(), self.top(), rng)?,
            "batch" => sums::batch(self.world, self.tap, rng)?,
            "sums" => sums::other(self.world, self.tap, rng)?,
            "chunk" => self.chunk(rng)?,
            "convert" => copies::convert(self.world, self.tap, rng)?,
            "follow" => copies::follow(self.world, rng)?,
            "files" => copies::through_files(self.world, rng)?,
            "back" => copies::back(self.world, rng)?,
            "check" => self.check()?,
            "keep" => self.keep_otherwise(rng),
            "trip" => {
                let trip = if rng.u8(0..3) == 0 { Trip::After } else { Trip::Before };
                self.world.fuse.set(trip);
            }
            "fault" if has_disk => self.world.site.fault(rng),
            "fill up" if has_disk => self.world.site.fill_up(rng),
            "cut within" => return self.cut(rng).map(Some),
            "close" => return Ok(Some(End::Close)),
            "kill" => return Ok(Some(End::Kill)),
            "cut" => return Ok(Some(End::Cut)),
            _ => {}
        }
        Ok(None)
    }

    /// The power goes in the middle of a verb.
    fn cut(&mut self, rng: &mut Rng) -> Done<End> {
        if self.world.site.has_disk() {
            self.world.site.freeze(rng);
            self.world.is_going = true;
        }
        let cut = match rng.u8(0..8) {
            0..3 => self.seal(rng).and_then(|()| self.commit()),
            3 => self.unwind(rng),
            4 => self.chunk(rng),
            5 => sums::batch(self.world, self.tap, rng),
            6 => sums::other(self.world, self.tap, rng),
            _ => copies::follow(self.world, rng),
        };
        match cut {
            Ok(()) | Err(Stop::Down) => Ok(End::Cut),
            Err(wrong) => Err(wrong),
        }
    }

    /// The accounts after all that was applied.
    fn top(&self) -> Rc<Accounts> {
        match (self.layers.last(), self.world.durable.head()) {
            (Some((_, accounts)), _) => Rc::clone(accounts),
            (None, Some(head)) => Rc::new(head.after.accounts.clone()),
            (None, None) => Rc::default(),
        }
    }

    /// The last block, sealed or durable.
    fn last(&self) -> Option<&Rc<Block>> {
        self.sealed.last().map(|(_, block)| block).or_else(|| self.world.durable.head())
    }

    /// The state is that of all that was applied.
    fn is_as_applied(&mut self) -> Done {
        let (layers, root) = (self.layers.len(), mpt_root(&self.top()));
        let state = self.state()?;
        same("layers", state.layer_count(), layers)?;
        same("root", state.root(), root)
    }

    fn apply(&mut self, rng: &mut Rng) -> Done {
        if self.layers.len() >= LAYERS_MAX {
            return Ok(());
        }
        let changes = changes(rng);
        let root = self.state()?.apply(&changes);
        let root = root.map_err(|error| self.world.failed("apply", error))?;
        let mut accounts = (*self.top()).clone();
        accounts.apply(&changes);
        self.layers.push((changes, Rc::new(accounts)));
        if rng.u8(0..4) == 0 {
            same("root after changes", root, mpt_root(&self.top()))?;
        }
        Ok(())
    }

    fn seal(&mut self, rng: &mut Rng) -> Done {
        let first = self.sealed.last().map_or(0, |(layers, _)| *layers);
        // A block that does nothing is one in three of those that would.
        if self.layers.len() >= LAYERS_MAX || first == self.layers.len() && rng.u8(0..3) > 0 {
            return Ok(());
        }
        if first == self.layers.len() {
            self.layers.push((Changes::default(), self.top()));
        }
        let steps = self.layers[first..].iter().map(|(changes, _)| changes.clone()).collect();
        let number = self.last().map_or(0, |last| last.id.number + 1);
        let id = BlockId { number, hash: self.world.hash() };
        let block = Rc::new(Block::new(id, self.last().map(|last| &**last), steps));
        let sealed = self.state()?.seal(id);
        sealed.map_err(|error| self.world.failed("seal", error))?;
        self.sealed.push((self.layers.len(), Rc::clone(&block)));
        self.is_as_applied()?;
        let found = self.state()?.trees().iter().map(|tree| tree.root).collect::<Vec<_>>();
        same("roots of a block", found, self.roots(&block))
    }

    /// The roots that the trees have to have.
    fn roots(&self, block: &Block) -> Vec<B256> {
        let habits = self.world.habits;
        let beside = [
            habits.ubt.then(|| block.after.ubt_root()),
            habits.pbt.then(|| block.after.pbt_root()),
        ];
        std::iter::once(block.after.mpt_root()).chain(beside.into_iter().flatten()).collect()
    }

    /// The oldest block that is kept once another one is the last.
    fn oldest(&self, last: u64) -> u64 {
        match self.world.keep {
            KeepHistory::Blocks(keep) => self.world.durable.oldest.max(last.saturating_sub(keep)),
            KeepHistory::All => self.world.durable.oldest,
        }
    }

    fn commit(&mut self) -> Done {
        let Some((_, last)) = self.sealed.last() else { return Ok(()) };
        let oldest = self.oldest(last.id.number);
        let mut after = self.world.durable.clone();
        after.chain.extend(self.sealed.iter().map(|(_, block)| Rc::clone(block)));
        after.oldest = oldest;
        let last = Rc::clone(last);
        self.layers.truncate(self.sealed.last().map_or(0, |(layers, _)| *layers));
        self.world.begin(after);
        let committed = self.state()?.commit();
        committed.map_err(|error| self.world.failed("commit", error))?;
        self.world.tally.blocks += self.sealed.len() as u64;
        self.layers.clear();
        self.sealed.clear();
        self.world.done();
        let roots = self.roots(&last);
        let state = self.state()?;
        same("block after a commit", state.block(), Some(last.id))?;
        let found = state.trees().iter().map(|tree| tree.root).collect::<Vec<_>>();
        same("roots after a commit", found, roots)
    }

    /// Drops layers, and with them blocks that were sealed.
    fn undo(&mut self, rng: &mut Rng) -> Done {
        let layers = rng.usize(0..=self.layers.len());
        self.state()?.undo_to(layers);
        self.layers.truncate(layers);
        self.sealed.retain(|(end, _)| *end <= layers);
        self.is_as_applied()
    }

    fn unwind(&mut self, rng: &mut Rng) -> Done {
        let Some(head) = self.world.durable.head() else { return Ok(()) };
        let head = head.id.number;
        let number = rng.u64(head.saturating_sub(BACK_MAX)..=head);
        let mut after = self.world.durable.clone();
        after.chain.truncate(number as usize + 1);
        let target = Rc::clone(self.world.durable.block(number));
        self.world.begin(after);
        self.layers.clear();
        self.sealed.clear();
        match self.state()?.unwind_to(number) {
            Ok(found) if number >= self.world.durable.oldest => {
                self.world.done();
                same("block after an unwinding", found, target.id)?;
                let roots = self.roots(&target);
                let found = self.state()?.trees().iter().map(|tree| tree.root).collect::<Vec<_>>();
                same("roots after an unwinding", found, roots)
            }
            Ok(_) => wrong(format!("block {number} is kept no more, and was unwound to")),
            Err(StateError::NotKept { .. }) if number < self.world.durable.oldest => {
                self.world.refused();
                Ok(())
            }
            Err(error) => Err(self.world.failed("unwind", error)),
        }
    }

    fn look(&mut self, rng: &mut Rng) -> Done {
        let state = self.state.as_ref().ok_or(Stop::Down)?;
        looks::at(self.world, self.tap, state, rng)
    }

    fn check(&mut self) -> Done {
        let state = self.state.as_ref().ok_or(Stop::Down)?;
        looks::check(self.world, state)
    }

    fn keep_otherwise(&mut self, rng: &mut Rng) {
        if self.layers.is_empty() {
            self.world.keep = keep(rng);
            self.set_keep();
        }
    }

    /// Some blocks at once, also by a rebuild.
    fn chunk(&mut self, rng: &mut Rng) -> Done {
        if !self.layers.is_empty() {
            return Ok(());
        }
        let mut options = ChunkOptions::default();
        options.memory = [0, 400, 1 << 20][rng.usize(0..3)];
        options.build =
            [ChunkBuild::Auto, ChunkBuild::Incremental, ChunkBuild::Rebuild][rng.usize(0..3)];
        options.rebuild.threads = 1;
        options.rebuild.in_flight = 2;
        options.rebuild.range_leaves = Some(rng.u64(1..20));
        let state = self.state.take().ok_or(Stop::Down)?;
        let spill = self.world.scratch.path().join("chunk");
        let mut chunks = Chunks::new(state, &spill, options)
            .map_err(|error| self.world.failed("chunks", error))?;
        let mut after = self.world.durable.clone();
        for _ in 0..rng.u8(1..5) {
            let changes = changes(rng);
            let last = after.head();
            let id = BlockId {
                number: last.map_or(0, |last| last.id.number + 1),
                hash: self.world.hash(),
            };
            let block = Block::new(id, last.map(|last| &**last), vec![changes.clone()]);
            let root = block.after.mpt_root();
            let gathered = chunks.gather(&changes, Some(root)).and_then(|_| chunks.seal(id));
            gathered.map_err(|error| self.world.failed("gather", error))?;
            after.chain.push(Rc::new(block));
        }
        let blocks = after.chain.len() - self.world.durable.chain.len();
        after.oldest = self.oldest(after.chain.len() as u64 - 1);
        let head = after.head().cloned();
        self.world.begin(after);
        chunks.commit().map_err(|error| self.world.failed("a chunk", error))?;
        self.world.tally.blocks += blocks as u64;
        self.world.done();
        let state = chunks.into_state();
        same("block after a chunk", state.block(), head.as_ref().map(|head| head.id))?;
        let found = state.trees().iter().map(|tree| tree.root).collect::<Vec<_>>();
        self.state = Some(state);
        same("roots after a chunk", Some(found), head.map(|head| self.roots(&head)))
    }
}
