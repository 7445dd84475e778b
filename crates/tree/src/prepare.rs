//! Preparing states: a batch on top of a commit or of another prepared state.

use std::borrow::BorrowMut;
use std::cell::RefCell;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rayon::prelude::*;

use crate::apply::{Apply, Ops, Outcome, Spot, Start};
use crate::batch::Batch;
use crate::edit::{self, Desk, Edited, Walk, may_edit};
use crate::error::TreeError;
use crate::node::{Chain, Child, Layer, Link, Segment, Top};
use crate::open::{Opener, corrupt};
use crate::page_key::PageKey;
use crate::pool::Tools;
use crate::row::Row;
use crate::scheme::Scheme;
use crate::split::{Tasks, sizes};
use crate::store::Snapshot;
use crate::tree::{Pending, Segments, Tree, next_layer};

/// Pages read for a batch: what the cache may have evicted again.
type Loaded = foldhash::HashMap<PageKey, Row>;

/// Less than this of what is committed already is carried along without a thought.
const REBASE_BYTES_MIN: usize = 8 << 20;

/// A range of a batch that one thread applies.
struct Part<C> {
    start: Start,
    segment: Arc<Segment<C>>,
    outcome: Option<Outcome>,
    missing: Vec<PageKey>,
}

impl<S: Scheme> Tree<S> {
    /// Applies a batch on top of `parent`, or of the last commit, and computes the root. Nothing is
    /// written: the answer is committed, built upon or dropped.
    ///
    /// `snapshot` is a view of the last commit. A batch that is lent (`&mut batch`) comes back empty,
    /// with memory to be used again: so a steady state allocates nothing.
    ///
    /// # Errors
    /// If the tree refuses an operation, `parent` stands on an older commit, or pages are damaged.
    pub fn prepare<N: Snapshot>(
        &self,
        snapshot: &N,
        parent: Option<&Pending<S>>,
        mut batch: impl BorrowMut<Batch>,
    ) -> Result<Pending<S>, TreeError> {
        let batch = batch.borrow_mut();
        let answer = self.prepare_sorted(snapshot, parent, batch);
        batch.clear();
        answer
    }

    fn prepare_sorted<N: Snapshot>(
        &self,
        snapshot: &N,
        parent: Option<&Pending<S>>,
        batch: &mut Batch,
    ) -> Result<Pending<S>, TreeError> {
        batch.sort(&self.scheme)?;
        let mut pending = self.fork(snapshot, parent)?;
        if !batch.is_empty() {
            let mut input = self.pool.segment();
            batch.swap(alone(&mut input));
            if let Err(refused) = self.weigh(snapshot, &pending, &input) {
                self.pool.recycle(std::iter::once(input));
                return Err(refused);
            }
            let (rest, loaded) = self.edit(snapshot, &mut pending, input)?;
            if let Some(rest) = rest {
                self.add(snapshot, &mut pending, rest, None, loaded)?;
            }
        }
        Ok(pending)
    }

    /// Applies those operations of a batch's first segment to the last commit that are edits of its pages.
    /// Answers the segment of the others, all of them if it is not a batch for that, and the edited pages.
    #[expect(clippy::type_complexity, reason = "what is left, and the pages to apply it to")]
    fn edit<N: Snapshot>(
        &self,
        snapshot: &N,
        pending: &mut Pending<S>,
        mut input: Arc<Segment<S::Commit>>,
    ) -> Result<(Option<Arc<Segment<S::Commit>>>, Loaded), TreeError> {
        // States that stand on others, and those that others stand on, need nodes.
        let on_head = pending.segments.len() == 1 && pending.position() == self.head.layer;
        let one_thread = input.ops.len() < self.split_ops || rayon::current_num_threads() <= 2;
        let top = pending.top.filter(|_| on_head && one_thread && may_edit::<S>(&input));
        let Some(Top { child: Child { link: Link::Stored { page, at, .. }, .. }, .. }) = top else {
            return Ok((Some(input), Loaded::default()));
        };
        if snapshot.is_far() || !self.trial.is_due() {
            return Ok((Some(input), Loaded::default()));
        }
        let mut rest = None;
        let edited = self.pool.with_tools(|tools| {
            self.walk_apart(snapshot, alone(&mut input), &mut rest, &mut tools.desk)
        })?;
        self.trial.note(!matches!(edited, Edited::Not));
        let commit = match edited {
            Edited::Top(commit) => commit,
            Edited::Same => {
                self.pool.recycle(std::iter::once(input));
                return Ok((rest, Loaded::default()));
            }
            Edited::Not => return Ok((Some(input), Loaded::default())),
            Edited::Yet | Edited::Missing(_) => unreachable!("a walk goes on until it is done"),
        };
        self.meter.edited();
        let segment = alone(&mut input);
        let layer = Arc::get_mut(&mut segment.layer);
        layer.expect("a segment from the pool has a layer of its own").id = next_layer();
        let mut child = top.expect("it was just looked at").child;
        let mut loaded = Loaded::default();
        if rest.is_some() {
            self.current(snapshot)?;
            // Above damaged pages it may have said already what it commits to now.
            let mut root = self.head.segment.pages[page as usize].clone();
            let rewritten = segment.rewritten.iter().find(|(key, _)| *key == root.key);
            if let Some((_, row)) = rewritten {
                root.row = Arc::clone(row.own());
            }
            segment.pages.push(root);
            child.link = Link::Stored { segment: 1, page: 0, at };
            loaded.extend(segment.rewritten.iter().cloned());
        }
        pending.top = Some(Top { child, commit });
        pending.root = self.scheme.root(Some(&commit));
        pending.segments.push(input);
        pending.edited = true;
        Ok((rest, loaded))
    }

    /// Walks the operations of a segment over the pages of the last commit. Those that led astray are moved to `rest`,
    /// and if there are any, the rows of the edited pages are made.
    fn walk_apart<N: Snapshot>(
        &self,
        snapshot: &N,
        segment: &mut Segment<S::Commit>,
        rest: &mut Option<Arc<Segment<S::Commit>>>,
        desk: &mut Desk<S>,
    ) -> Result<Edited<S::Commit>, TreeError> {
        desk.clear();
        let mut edited = self.walk_all(snapshot, segment, desk)?;
        if matches!(edited, Edited::Top(_)) && desk.is_part() {
            let mut block = Arc::default();
            match edit::rewritten(self.codec(), self.space, &self.cache, segment, &mut block) {
                Some((rows, _)) => segment.rewritten = rows,
                None => edited = Edited::Not,
            }
        }
        if matches!(edited, Edited::Not) {
            segment.edits.clear();
            segment.commits.clear();
        } else if desk.is_part() {
            edit::set_apart(desk, segment, alone(rest.insert(self.pool.segment())));
        }
        Ok(edited)
    }

    fn walk_all<N: Snapshot>(
        &self,
        snapshot: &N,
        segment: &mut Segment<S::Commit>,
        desk: &mut Desk<S>,
    ) -> Result<Edited<S::Commit>, TreeError> {
        let (mut gone, mut unlooked) = (None, true);
        loop {
            let pages = self.cache.pages();
            // Where pages go while it walks, memory is too small for it.
            if *gone.get_or_insert(pages.gone()) != pages.gone() {
                return Ok(Edited::Not);
            }
            let of = (self.codec(), self.space, &*self.head.segment);
            match Walk::new(of, &pages, segment, desk, &self.meter).turn() {
                Edited::Yet => {}
                Edited::Missing(key) => {
                    drop(pages);
                    self.read_one(snapshot, std::mem::take(&mut unlooked), &key)?;
                }
                done => return Ok(done),
            }
        }
    }

    /// Applies the operations of a batch's first segment on top of a state. `layer` is the batch's, if it
    /// has a name already, and `loaded` has pages that are not as the last commit left them.
    fn add<N: Snapshot>(
        &self,
        snapshot: &N,
        pending: &mut Pending<S>,
        input: Arc<Segment<S::Commit>>,
        layer: Option<&Arc<Layer>>,
        loaded: Loaded,
    ) -> Result<(), TreeError> {
        let known = pending.segments.len();
        pending.segments.push(Arc::clone(&input));
        let ops = Ops { list: &input.ops, bytes: &input.bytes, home: known as u32 };
        let outcome = self.apply(snapshot, pending, ops, layer, loaded)?;
        // What only the state holds can be recycled.
        drop(input);
        match outcome {
            // Nothing of it stays.
            Outcome::Same => self.pool.recycle(pending.segments.drain(known..)),
            Outcome::Gone => (pending.top, pending.root) = (None, self.scheme.root(None)),
            Outcome::Now(child) => {
                let home = pending.segments.len() as u32 - 1;
                let commit = Chain::of(&pending.segments).commit(self.codec(), home, &child);
                pending.top = Some(Top { child, commit });
                pending.root = self.scheme.root(Some(&commit));
            }
        }
        Ok(())
    }

    /// A pending state equal to its parent.
    fn fork<N: Snapshot>(
        &self,
        snapshot: &N,
        parent: Option<&Pending<S>>,
    ) -> Result<Pending<S>, TreeError> {
        let Some(parent) = parent else { return Ok(self.head_state()) };
        self.standing(parent)?;
        // What is committed is read from its pages: its segments need not be carried along.
        if parent.position() == self.head.layer {
            return Ok(self.head_state());
        }
        if parent.edited {
            let (segments, top) = self.nodes(snapshot, Some(parent))?;
            let mut pending = self.head_state();
            (pending.segments, pending.top) = (segments.into(), top.copied());
            pending.root = parent.root;
            return Ok(pending);
        }
        let (settled, fresh) = parent.sizes();
        if settled <= REBASE_BYTES_MIN.max(4 * fresh) {
            return Ok(parent.clone());
        }
        self.rebase(snapshot, parent)
    }

    /// The last commit as a pending state.
    fn head_state(&self) -> Pending<S> {
        let mut segments = Segments::<S>::new();
        segments.push(Arc::clone(&self.head.segment));
        Pending {
            segments,
            base: (self.head.layer, self.head.commit),
            top: self.head.top,
            root: self.head.root,
            pool: Arc::clone(&self.pool),
            edited: false,
            twin: OnceLock::new(),
        }
    }

    /// A state whose older batches are committed, made anew on the last commit from those that are not:
    /// so a state that is always prepared ahead of the commit does not carry all its ancestors along.
    pub(crate) fn rebase<N: Snapshot>(
        &self,
        snapshot: &N,
        state: &Pending<S>,
    ) -> Result<Pending<S>, TreeError> {
        let mut rebased = self.head_state();
        let fresh = state.segments.iter().rposition(|segment| segment.layer.is_settled());
        let mut input = None;
        for segment in &state.segments[fresh.map_or(1, |last| last + 1)..] {
            if !segment.ops.is_empty() {
                input = Some(segment);
            }
            if segment.layer.id != 0
                && let Some(input) = input.take()
            {
                let (input, layer) = (Arc::clone(input), Some(&segment.layer));
                self.add(snapshot, &mut rebased, input, layer, Loaded::default())?;
            }
        }
        if rebased.root == state.root {
            Ok(rebased)
        } else {
            let key = PageKey::page(self.space, &[], 0);
            Err(corrupt(&key, "what stands on it has another root than before the commit"))
        }
    }

    /// Whether a pending state stands on the last commit: was prepared on it, or on what it became of.
    pub(crate) fn standing(&self, pending: &Pending<S>) -> Result<(), TreeError> {
        let head = self.head.layer;
        if pending.base.0 == head || pending.layers().rev().any(|layer| layer == head) {
            Ok(())
        } else {
            Err(TreeError::Stale { base: pending.base.1, head: self.head.commit })
        }
    }

    /// Applies operations and commits to what they make, in segments behind those of `pending`.
    fn apply<N: Snapshot>(
        &self,
        snapshot: &N,
        pending: &mut Pending<S>,
        ops: Ops<'_>,
        layer: Option<&Arc<Layer>>,
        mut loaded: Loaded,
    ) -> Result<Outcome, TreeError> {
        let spot = Spot { depth: 0, digit: 0, owned: false };
        let old = pending.top.map(|top| top.child);
        let start = Start { old, spot, ops: 0..ops.list.len() };
        let mut tasks = Tasks::None;
        if ops.list.len() >= self.split_ops {
            if snapshot.is_far() {
                self.read_all(snapshot, pending, (ops, &start), &mut loaded)?;
            }
            tasks = self.split(snapshot, pending, ops, &start, &mut loaded)?;
        }
        let mut last = self.pool.segment();
        let segment = alone(&mut last);
        let outcome =
            self.descend(snapshot, pending, segment, (ops, &start), &mut loaded, &mut tasks)?;
        self.pool.with_tools(|tools| {
            self.commit_to(&pending.segments, pending.segments.len(), segment, tools)
        })?;
        match layer {
            // A batch of edits has its name in its first segment.
            Some(layer) if Arc::ptr_eq(layer, &pending.segments[ops.home as usize].layer) => {}
            Some(layer) => segment.layer = Arc::clone(layer),
            None => {
                let layer = Arc::get_mut(&mut segment.layer);
                layer.expect("a segment from the pool has a layer of its own").id = next_layer();
            }
        }
        pending.segments.push(last);
        Ok(outcome)
    }

    /// Reads all pages that the operations need, each level of them in one call: ranges that go down by
    /// themselves would ask for the same level again and again.
    fn read_all<N: Snapshot>(
        &self,
        snapshot: &N,
        pending: &Pending<S>,
        start: (Ops<'_>, &Start),
        loaded: &mut Loaded,
    ) -> Result<(), TreeError> {
        let mut thrown = self.pool.segment();
        self.descend(snapshot, pending, alone(&mut thrown), start, loaded, &mut Tasks::None)?;
        self.pool.recycle(std::iter::once(thrown));
        Ok(())
    }

    /// Lets all threads apply and commit to a range of the operations each.
    fn split<N: Snapshot>(
        &self,
        snapshot: &N,
        pending: &mut Pending<S>,
        ops: Ops<'_>,
        start: &Start,
        loaded: &mut Loaded,
    ) -> Result<Tasks, TreeError> {
        let threads = (rayon::current_num_threads(), S::RANGES_PER_THREAD);
        let sizes = sizes(ops.list.len(), self.split_ops, threads);
        let mut tasks = Tasks::Find { sizes: sizes.clone(), found: Vec::new() };
        let mut first = self.pool.segment();
        let segment = alone(&mut first);
        self.descend(snapshot, pending, segment, (ops, start), loaded, &mut tasks)?;
        // What this descent believes to be stale is not: it changes nothing.
        segment.dropped.clear();
        segment.pages.iter_mut().for_each(|page| page.stale = false);
        pending.segments.push(first);
        let Tasks::Find { found, .. } = tasks else { unreachable!("it was to find tasks") };
        let mut parts: Vec<Part<S::Commit>> = found
            .into_iter()
            .map(|start| {
                let (segment, outcome) = (self.pool.segment(), None);
                Part { start, segment, outcome, missing: Vec::new() }
            })
            .collect();
        loop {
            parts.par_iter_mut().enumerate().try_for_each(|(index, part)| {
                self.apply_part(&pending.segments, index, part, ops, loaded)
            })?;
            let mut missing: Vec<_> =
                parts.iter_mut().flat_map(|part| part.missing.drain(..)).collect();
            if missing.is_empty() {
                break;
            }
            self.read_missing(snapshot, &mut missing, loaded)?;
        }
        let outcome = |part: &Part<_>| part.outcome.expect("nothing is missing");
        let done = parts.iter().map(|part| (part.start.ops.start, outcome(part))).collect();
        pending.segments.extend(parts.into_iter().map(|part| part.segment));
        Ok(Tasks::Done { sizes, done })
    }

    /// Tries to apply one range; notes the pages that it misses.
    fn apply_part(
        &self,
        older: &[Arc<Segment<S::Commit>>],
        index: usize,
        part: &mut Part<S::Commit>,
        ops: Ops<'_>,
        loaded: &Loaded,
    ) -> Result<(), TreeError> {
        if part.outcome.is_some() {
            return Ok(());
        }
        let segment = alone(&mut part.segment);
        segment.clear();
        let here = older.len() + index;
        self.pool.with_tools(|tools| {
            let start = part.start.clone();
            let fetch = |key: &PageKey| self.at_hand(key, loaded);
            let outcome =
                self.descent(older, here, segment, (ops, start), &fetch, &mut Tasks::None, tools)?;
            part.missing.append(&mut tools.missing);
            if part.missing.is_empty() {
                self.commit_to(older, here, segment, tools)?;
                part.outcome = Some(outcome);
            }
            Ok(())
        })
    }

    /// Applies operations. Of a store from afar, pages that are missing are read level by level; of one at
    /// hand each where it is met, so that there is one descent.
    fn descend<N: Snapshot>(
        &self,
        snapshot: &N,
        pending: &Pending<S>,
        segment: &mut Segment<S::Commit>,
        (ops, start): (Ops<'_>, &Start),
        loaded: &mut Loaded,
        tasks: &mut Tasks,
    ) -> Result<Outcome, TreeError> {
        let older = &pending.segments;
        let (read, failed) = (RefCell::new(Loaded::default()), RefCell::new(None));
        self.pool.with_tools(|tools| {
            loop {
                let at_hand = |key: &PageKey| self.at_hand(key, loaded);
                let or_read = |key: &PageKey| {
                    let known = at_hand(key)
                        .or_else(|| read.borrow().get(key).map(|row| Arc::clone(row.own())));
                    known.or_else(|| {
                        // What comes of this pass is thrown away.
                        if failed.borrow().is_some() {
                            return None;
                        }
                        let unlooked = loaded.is_empty() && read.borrow().is_empty();
                        match self.read_one(snapshot, unlooked, key) {
                            Ok(row) => {
                                read.borrow_mut().insert(key.clone(), Arc::clone(&row).into());
                                Some(row)
                            }
                            Err(error) => {
                                *failed.borrow_mut() = Some(error);
                                None
                            }
                        }
                    })
                };
                let fetch: &dyn Fn(&PageKey) -> _ =
                    if snapshot.is_far() { &at_hand } else { &or_read };
                let from = (ops, start.clone());
                let outcome =
                    self.descent(older, older.len(), segment, from, fetch, tasks, tools)?;
                if let Some(error) = failed.take() {
                    return Err(error);
                }
                if tools.missing.is_empty() {
                    loaded.extend(read.take());
                    return Ok(outcome);
                }
                self.read_missing(snapshot, &mut tools.missing, loaded)?;
                segment.clear();
                tasks.reset();
            }
        })
    }

    /// A page that was read for the batch, or is resident.
    fn at_hand(&self, key: &PageKey, loaded: &Loaded) -> Option<Arc<[u8]>> {
        let loaded = if loaded.is_empty() { None } else { loaded.get(key) };
        loaded.map_or_else(|| self.cache.get(key), |row| Some(Arc::clone(row.own())))
    }

    /// Reads a page; that the snapshot is of the last commit is looked at before the first.
    fn read_one<N: Snapshot>(
        &self,
        snapshot: &N,
        unlooked: bool,
        key: &PageKey,
    ) -> Result<Arc<[u8]>, TreeError> {
        if unlooked {
            self.current(snapshot)?;
        }
        Ok(self.read_rows_of(snapshot, std::slice::from_ref(key))?.remove(0))
    }

    /// Tries to apply operations; the pages that it misses are in `tools`.
    #[expect(
        clippy::too_many_arguments,
        reason = "all of what a descent goes by; it has one caller a case"
    )]
    fn descent(
        &self,
        older: &[Arc<Segment<S::Commit>>],
        here: usize,
        seg: &mut Segment<S::Commit>,
        (ops, start): (Ops<'_>, Start),
        fetch: &dyn Fn(&PageKey) -> Option<Arc<[u8]>>,
        tasks: &mut Tasks,
        tools: &mut Tools<S>,
    ) -> Result<Outcome, TreeError> {
        tools.missing.clear();
        let open = Opener {
            codec: self.codec(),
            space: self.space,
            older,
            here: here as u32,
            seg,
            fetch,
            ahead: &|keys| self.cache.fetch(keys),
            missing: Vec::new(),
            path: Vec::new(),
        };
        Apply::run(open, ops, start, (tasks, &mut tools.stacks), &mut tools.missing)
    }

    fn commit_to(
        &self,
        older: &[Arc<Segment<S::Commit>>],
        here: usize,
        segment: &mut Segment<S::Commit>,
        tools: &mut Tools<S>,
    ) -> Result<(), TreeError> {
        let start = Instant::now();
        let outcome = tools.levels.run(self.codec(), older, here as u32, segment);
        self.meter.hashed_since(start);
        outcome
    }

    /// Reads pages that a descent missed.
    fn read_missing<N: Snapshot>(
        &self,
        snapshot: &N,
        missing: &mut Vec<PageKey>,
        loaded: &mut Loaded,
    ) -> Result<(), TreeError> {
        missing.sort_unstable();
        missing.dedup();
        // The same snapshot is looked at once.
        if loaded.is_empty() {
            self.current(snapshot)?;
        }
        let rows = self.read_rows_of(snapshot, missing)?;
        loaded.extend(missing.drain(..).zip(rows.into_iter().map(Row::Own)));
        Ok(())
    }
}

/// A segment that was just taken from the pool.
fn alone<C>(segment: &mut Arc<Segment<C>>) -> &mut Segment<C> {
    Arc::get_mut(segment).expect("nobody else holds a segment from the pool")
}
