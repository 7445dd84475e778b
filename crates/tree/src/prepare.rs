//! Preparing states: a batch on top of a commit or of another prepared state.

use std::borrow::BorrowMut;
use std::sync::Arc;
use std::time::Instant;

use rayon::prelude::*;

use crate::batch::Batch;
use crate::error::TreeError;
use crate::node::{Arena, Link, NONE, Top};
use crate::page::corrupt;
use crate::page_key::PageKey;
use crate::rows::ReadRows;
use crate::scheme::Scheme;
use crate::store::Snapshot;
use crate::tree::{Arenas, Pending, Tree, next_batch};
use crate::update::{
    Batched, Loaded, Missing, OPS_TOGETHER, Ops, Outcome, Source, Update, Visit, Workspace,
};

/// Less than this of what is committed already is carried along without a thought.
const REBASE_BYTES_MIN: usize = 8 << 20;

/// Visits that one thread goes down from, in an arena of its own.
struct Share<S: Scheme> {
    visits: Vec<Visit>,
    arena: Arc<Arena<S::Commit>>,
    work: Box<Workspace<S>>,
    outcomes: Vec<Outcome>,
    done: bool,
}

impl<S: Scheme> Tree<S> {
    /// Applies a batch on top of `parent`, or of the last commit, and computes the root. Nothing is
    /// written: the answer is committed, built upon or dropped.
    ///
    /// `snapshot` is a view of the last commit. A batch that is lent (`&mut batch`) comes back
    /// empty, with memory to be used again: so a steady state allocates nothing.
    ///
    /// # Errors
    /// If the tree refuses an operation, `parent` stands on an older commit, or pages are damaged.
    pub fn prepare<N: Snapshot>(
        &self,
        snapshot: &N,
        parent: Option<&Pending<S>>,
        mut batch: impl BorrowMut<Batch>,
    ) -> Result<Pending<S>, TreeError> {
        self.prepare_in(snapshot, parent, batch.borrow_mut())
    }

    /// As [`Tree::prepare`].
    pub(crate) fn prepare_in(
        &self,
        snapshot: &dyn ReadRows,
        parent: Option<&Pending<S>>,
        batch: &mut Batch,
    ) -> Result<Pending<S>, TreeError> {
        S::engine().parts().prepare(self, snapshot, parent, batch)
    }

    pub(crate) fn prepare_here(
        &self,
        snapshot: &dyn ReadRows,
        parent: Option<&Pending<S>>,
        batch: &mut Batch,
    ) -> Result<Pending<S>, TreeError> {
        let answer = self.prepare_sorted(snapshot, parent, batch);
        batch.clear();
        answer
    }

    fn prepare_sorted(
        &self,
        snapshot: &dyn ReadRows,
        parent: Option<&Pending<S>>,
        batch: &mut Batch,
    ) -> Result<Pending<S>, TreeError> {
        batch.sort(&self.scheme)?;
        let mut pending = self.fork(snapshot, parent)?;
        if !batch.is_empty() {
            let mut input = self.pool.arena();
            let arena = alone(&mut input);
            let bytes = Arc::get_mut(&mut arena.bytes).expect("nobody reads what the pool gives");
            batch.swap(bytes, &mut arena.ops);
            if let Some(batch) = Arc::get_mut(&mut arena.batch) {
                batch.id = next_batch();
            }
            let verified = self.verify_ops(snapshot, &pending, &input);
            let weighed = verified.and_then(|()| self.weigh(snapshot, &pending, &input));
            if let Err(refused) = weighed {
                self.pool.recycle(std::iter::once(input));
                return Err(refused);
            }
            self.add(snapshot, &mut pending, input)?;
        }
        Ok(pending)
    }

    /// Applies the operations of a batch's first arena on top of a state.
    fn add(
        &self,
        snapshot: &dyn ReadRows,
        pending: &mut Pending<S>,
        input: Arc<Arena<S::Commit>>,
    ) -> Result<(), TreeError> {
        let known = pending.arenas.len();
        pending.arenas.push(Arc::clone(&input));
        let outcome = self.apply(snapshot, pending, &input);
        // What only the state holds can be recycled.
        drop(input);
        match outcome? {
            // Nothing of it stays.
            Outcome::Same => self.pool.recycle(pending.arenas.drain(known..)),
            Outcome::Gone => (pending.top, pending.root) = (None, self.scheme.root(None)),
            Outcome::Made(made) => {
                let commit = crate::node::Chain::of(&pending.arenas).commit(made);
                pending.top = Some(Top { link: Link::Made(made), commit });
                pending.root = self.scheme.root(Some(&commit));
            }
        }
        Ok(())
    }

    /// Applies operations and commits to what they make, in arenas behind those of `pending`.
    fn apply(
        &self,
        snapshot: &dyn ReadRows,
        pending: &mut Pending<S>,
        input: &Arena<S::Commit>,
    ) -> Result<Outcome, TreeError> {
        let (count, mut work) = (input.ops.len(), self.pool.workspace());
        let splits = count >= self.split_ops && rayon::current_num_threads() > 1;
        let limit = match splits {
            true => part_ops(count, self.split_ops, S::LAYOUT.ranges_per_thread),
            false if count > OPS_TOGETHER as usize => OPS_TOGETHER,
            false => 0,
        };
        let mut descent = Descent {
            tree: self,
            snapshot,
            loaded: Loaded::default(),
            looked: false,
            batch: Batched {
                list: &input.ops,
                bytes: &input.bytes,
                home: pending.arenas.len() as u32 - 1,
            },
        };
        let mut arena = self.pool.arena();
        let here = pending.arenas.len();
        let mut outcomes = [Outcome::Same];
        let all = Ops { from: 0, end: count as u32 };
        let link = pending.top.map(|top| top.link);
        let (parent, change) = (NONE, 0);
        let first =
            Visit { link, ops: all, depth: 0, hung: 0, parent, change, digit: 0, owned: false };
        let top = &mut (alone(&mut arena), &mut *work, &mut outcomes[..]);
        descent.run(&pending.arenas, here, top, (&[first], limit), None)?;
        let later = std::mem::take(&mut top.1.later);
        if splits && later.len() > 1 {
            pending.arenas.push(arena);
            let parts = descent.parts(&pending.arenas, &later, limit)?;
            // What is above the parts is finished in the arena in which it was begun.
            let stand_in = Arc::clone(&pending.arenas[0]);
            arena = std::mem::replace(&mut pending.arenas[here], stand_in);
            for part in parts {
                for (visit, outcome) in part.visits.iter().zip(&part.outcomes) {
                    work.set_outcome(visit.change, *outcome);
                }
                pending.arenas.push(part.arena);
                self.pool.put_back(part.work);
            }
        } else {
            let mut left = &later[..];
            while !left.is_empty() {
                let visits = together(&mut left, limit.max(1));
                let top = &mut (alone(&mut arena), &mut *work, &mut outcomes[..]);
                let from = top.0.nodes.len() as u32;
                descent.run(&pending.arenas, here, top, (visits, 0), Some(from))?;
            }
        }
        work.later = later;
        work.later.clear();
        let top = &mut (alone(&mut arena), &mut *work, &mut outcomes[..]);
        descent.run(&pending.arenas, here, top, (&[], 0), Some(0))?;
        let outcome = outcomes[0];
        match pending.arenas.get_mut(here) {
            Some(place) => *place = arena,
            None => pending.arenas.push(arena),
        }
        self.pool.put_back(work);
        Ok(outcome)
    }

    /// A pending state equal to its parent.
    fn fork(
        &self,
        snapshot: &dyn ReadRows,
        parent: Option<&Pending<S>>,
    ) -> Result<Pending<S>, TreeError> {
        let Some(parent) = parent else { return Ok(self.head_state()) };
        self.standing(parent)?;
        // What is committed is read from its pages: its arenas need not be carried along.
        if parent.position() == self.head.batch {
            return Ok(self.head_state());
        }
        let (committed, fresh) = parent.sizes();
        if committed <= REBASE_BYTES_MIN.max(4 * fresh) {
            return Ok(parent.clone());
        }
        self.rebase(snapshot, parent)
    }

    /// The last commit as a pending state.
    fn head_state(&self) -> Pending<S> {
        let mut arenas = Arenas::<S>::new();
        arenas.push(Arc::clone(&self.head.arena));
        Pending {
            arenas,
            base: (self.head.batch, self.head.commit),
            top: self.head.top,
            root: self.head.root,
            pool: Arc::clone(&self.pool),
        }
    }

    /// A state whose older batches are committed, made anew on the last commit from those that are
    /// not: so a state that is always prepared ahead of the commit does not carry all its ancestors
    /// along.
    pub(crate) fn rebase(
        &self,
        snapshot: &dyn ReadRows,
        state: &Pending<S>,
    ) -> Result<Pending<S>, TreeError> {
        let mut rebased = self.head_state();
        for input in state.fresh().iter().filter(|arena| arena.batch.id != 0) {
            self.add(snapshot, &mut rebased, Arc::clone(input))?;
        }
        if rebased.root == state.root {
            Ok(rebased)
        } else {
            let key = PageKey::page(self.space, &[], 0);
            Err(corrupt(&key, "what stands on it has another root than before the commit"))
        }
    }

    /// Whether a pending state stands on the last commit: was prepared on it, or on what it became
    /// of.
    pub(crate) fn standing(&self, pending: &Pending<S>) -> Result<(), TreeError> {
        let head = self.head.batch;
        if pending.base.0 == head || pending.batches().rev().any(|batch| batch == head) {
            Ok(())
        } else {
            Err(TreeError::Stale { base: pending.base.1, head: self.head.commit })
        }
    }
}

/// How many operations a part has at most.
fn part_ops(ops: usize, split_ops: usize, each: usize) -> u32 {
    let parts = rayon::current_num_threads() * each.max(1);
    (ops / parts).min(OPS_TOGETHER as usize).max(split_ops / 8).max(1) as u32
}

/// The first of some visits, as many as have so many operations together.
fn together<'v>(left: &mut &'v [Visit], ops: u32) -> &'v [Visit] {
    let (mut count, mut sum) = (0, 0);
    while let Some(visit) = left.get(count)
        && (count == 0 || sum + visit.ops.len() <= ops)
    {
        sum += visit.ops.len();
        count += 1;
    }
    let (first, rest) = left.split_at(count);
    *left = rest;
    first
}

/// What one thread works with: an arena, a workspace, and what came of the visits at first.
type Hands<'h, S> = (&'h mut Arena<<S as Scheme>::Commit>, &'h mut Workspace<S>, &'h mut [Outcome]);

/// The descent of a batch.
struct Descent<'a, S: Scheme> {
    tree: &'a Tree<S>,
    snapshot: &'a dyn ReadRows,
    loaded: Loaded<S::Commit>,
    /// Whether the snapshot is known to be of the last commit.
    looked: bool,
    batch: Batched<'a>,
}

impl<S: Scheme> Descent<'_, S> {
    /// Goes down from some visits; then, if it is told from which number on nodes are to be
    /// finished, finishes them and commits to them.
    fn run(
        &mut self,
        older: &[Arc<Arena<S::Commit>>],
        here: usize,
        (arena, work, outcomes): &mut Hands<'_, S>,
        (visits, limit): (&[Visit], u32),
        finish: Option<u32>,
    ) -> Result<(), TreeError> {
        let mut begun = false;
        loop {
            let mut update = Update {
                codec: self.tree.codec(),
                space: self.tree.space,
                older,
                here: here as u32,
                arena,
                batch: self.batch,
                source: Source { cache: &self.tree.cache, loaded: &self.loaded },
                work,
                outcomes,
                limit,
            };
            if !std::mem::replace(&mut begun, true) {
                visits.iter().rev().for_each(|visit| update.work.begin(*visit));
            }
            let done = match finish {
                Some(from) => update.finish_from(from)?,
                None => update.go_down()?,
            };
            if done {
                break;
            }
            let mut missing = std::mem::take(&mut work.missing);
            self.load(&mut missing)?;
            work.missing = missing;
        }
        if let Some(from) = finish {
            self.tree.commit_to(older, here, (arena, work), (from, self.batch.list.len() == 1))?;
        }
        Ok(())
    }

    /// Lets all threads go down from some of the visits each, and commit to what they make.
    fn parts(
        &mut self,
        older: &[Arc<Arena<S::Commit>>],
        later: &[Visit],
        limit: u32,
    ) -> Result<Vec<Share<S>>, TreeError> {
        let (mut parts, mut left) = (Vec::new(), later);
        while !left.is_empty() {
            let visits = together(&mut left, limit);
            let mut work = self.tree.pool.workspace();
            for (change, visit) in (0..visits.len() as u32).zip(visits).rev() {
                work.begin(Visit { parent: NONE, change, ..*visit });
            }
            let (arena, outcomes) = (self.tree.pool.arena(), vec![Outcome::Same; visits.len()]);
            parts.push(Share { visits: visits.to_vec(), arena, work, outcomes, done: false });
        }
        loop {
            let (tree, batch) = (self.tree, self.batch);
            let source = Source { cache: &tree.cache, loaded: &self.loaded };
            let work = |(number, part): (usize, &mut Share<S>)| {
                part.advance(tree, older, number, batch, source)
            };
            parts.par_iter_mut().enumerate().filter(|(_, part)| !part.done).try_for_each(work)?;
            let mut missing: Vec<Missing> =
                parts.iter_mut().flat_map(|part| part.work.missing.drain(..)).collect();
            if parts.iter().all(|part| part.done) {
                return Ok(parts);
            }
            self.load(&mut missing)?;
        }
    }

    /// Reads pages that are missing.
    fn load(&mut self, missing: &mut Vec<Missing>) -> Result<(), TreeError> {
        // The same snapshot is looked at once.
        if !std::mem::replace(&mut self.looked, true) {
            self.tree.current(self.snapshot)?;
        }
        self.tree.load_missing(self.snapshot, missing, &mut self.loaded)
    }
}

impl<S: Scheme> Share<S> {
    /// Goes on as far as pages are at hand.
    fn advance(
        &mut self,
        tree: &Tree<S>,
        older: &[Arc<Arena<S::Commit>>],
        number: usize,
        batch: Batched<'_>,
        source: Source<'_, S::Commit>,
    ) -> Result<(), TreeError> {
        let here = older.len() + number;
        let (arena, work) = (alone(&mut self.arena), &mut *self.work);
        let mut update = Update {
            codec: tree.codec(),
            space: tree.space,
            older,
            here: here as u32,
            arena,
            batch,
            source,
            work,
            outcomes: &mut self.outcomes,
            limit: 0,
        };
        if update.finish_from(0)? {
            tree.commit_to(older, here, (arena, work), (0, false))?;
            self.done = true;
        }
        Ok(())
    }
}

impl<S: Scheme> Tree<S> {
    fn commit_to(
        &self,
        older: &[Arc<Arena<S::Commit>>],
        here: usize,
        (arena, work): (&mut Arena<S::Commit>, &mut Workspace<S>),
        (from, alone): (u32, bool),
    ) -> Result<(), TreeError> {
        if alone {
            // To read the clock takes longer than a node.
            return work.levels.run(self.codec(), older, (here as u32, arena), (from, alone));
        }
        let start = Instant::now();
        let outcome = work.levels.run(self.codec(), older, (here as u32, arena), (from, alone));
        self.meter.hashed_since(start);
        outcome
    }

    /// Reads pages that are missing, keeps them, and adds them to those that were read for a batch.
    pub(crate) fn load_missing(
        &self,
        snapshot: &dyn ReadRows,
        missing: &mut Vec<Missing>,
        loaded: &mut Loaded<S::Commit>,
    ) -> Result<(), TreeError> {
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return Ok(());
        }
        if loaded.is_empty() {
            self.current(snapshot)?;
        }
        let pages = self.read_pages(snapshot, missing)?;
        loaded.extend(missing.drain(..).map(|(key, _)| key).zip(pages));
        Ok(())
    }
}

/// An arena that was just taken from the pool.
fn alone<C>(arena: &mut Arc<Arena<C>>) -> &mut Arena<C> {
    Arc::get_mut(arena).expect("nobody else holds an arena from the pool")
}
