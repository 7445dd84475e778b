//! Sorted leaves to commitments, without a tree: what a bulk root is made of.
//!
//! A *reduction* takes items in order of keys, leaves or subtrees that are committed already, and
//! commits to every subtree that lies among them whole. What is left is the subtrees and leaves
//! along the two edges, in order: items again. So a stream is reduced piece by piece, pieces by
//! different threads, and their remains are reduced like any other items until one is left: the
//! root.
//!
//! One pass finds the shape, with a stack of the forks that are open; then the nodes are committed
//! to by height, as everywhere, so that hashing fills its lanes.
//!
//! Invariants:
//! - *positions* order what can be open between two leaves: a fork at digit `f` has position `2 f`;
//!   an owner, which its subtree hangs below without a digit, the odd one before that of the next
//!   digit;
//! - an item's `edge` is the position of what its first leaf shares with the leaf before that, be
//!   it reduced away. It is all that a reduction knows of its neighbours;
//! - a node hangs below the deeper of the edges at its two sides: known before either neighbour is
//!   reduced.

mod pages;

pub(crate) use pages::Pages;

use crate::image::Codec;
use crate::levels::Ranks;
use crate::scheme::{BranchJob, ChildList, JobKey, LeafJob, Owned, Owner, Scheme};
use spinney_proof::digits::{Run, Width};

/// How many nodes a scheme commits to in one call.
const CHUNK: usize = 512;
const NONE: u32 = u32::MAX;
/// The edge where the leaves begin and end: above the top of the tree.
pub(crate) const NO_EDGE: i32 = -2;

/// The position of the node whose key ends with `key`: what a key that begins with it shares with
/// it.
pub(crate) fn end_position<S: Scheme>(key: &[u8]) -> i32 {
    let owns = S::LAYOUT.owner.is_some_and(|owner| owner.bytes == key.len());
    2 * Codec::<S>::WIDTH.count(key) as i32 - i32::from(owns)
}

/// A leaf, or a subtree that is committed to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SortedItem<'a, C> {
    /// The key of the leaf, or of the subtree's first leaf.
    pub(crate) key: &'a [u8],
    /// The position of what it shares with the leaf before it; [`NO_EDGE`] if there is none.
    pub(crate) edge: i32,
    pub(crate) what: What<'a, C>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What<'a, C> {
    Leaf(&'a [u8]),
    Done(C),
}

/// A fork or an owner whose children are still coming.
#[derive(Clone, Copy, Debug)]
struct Open {
    position: i32,
    /// Its children wait from here on.
    from: usize,
    /// The item that owns, or whose key ends at the fork.
    item: u32,
}

/// A node that waits for its parent.
#[derive(Clone, Copy, Debug)]
struct Unparented {
    node: Grown,
    /// The first item below it.
    item: u32,
    height: u32,
}

#[derive(Clone, Copy, Debug)]
enum Grown {
    Item,
    Leaf(u32),
    Owner(u32),
    Branch(u32),
}

#[derive(Clone, Copy, Debug)]
struct Leaf {
    item: u32,
    depth: u32,
    /// Where its parent looks for its commitment.
    slot: u32,
}

#[derive(Clone, Copy, Debug)]
struct MadeOwner {
    leaf: Leaf,
    height: u32,
    /// Where the commitment of what it owns is.
    owned: u32,
}

#[derive(Clone, Copy, Debug)]
struct Branch {
    item: u32,
    depth: u32,
    fork: u32,
    height: u32,
    children: (u32, u32),
    /// The item whose key ends at the fork.
    value: u32,
    slot: u32,
}

/// Reduces items. Its buffers serve one reduction after another.
#[derive(Debug)]
pub(crate) struct Reducer<S: Scheme> {
    open: Vec<Open>,
    waiting: Vec<Unparented>,
    leaves: Vec<Leaf>,
    owners: Vec<MadeOwner>,
    branches: Vec<Branch>,
    /// Digits and commitments of children; those of a branch lie side by side.
    slots: Vec<(u8, Option<S::Commit>)>,
    /// Slots of items that are subtrees, and those items.
    settled: Vec<(u32, u32)>,
    /// What is left: an item as it was, or one committed to, by slot.
    left: Vec<(u32, u32)>,
    owner_ranks: Ranks,
    branch_ranks: Ranks,
    out: Vec<S::Commit>,
    scratch: S::Scratch,
}

impl<S: Scheme> Default for Reducer<S> {
    fn default() -> Self {
        Self {
            open: Vec::new(),
            waiting: Vec::new(),
            leaves: Vec::new(),
            owners: Vec::new(),
            branches: Vec::new(),
            slots: Vec::new(),
            settled: Vec::new(),
            left: Vec::new(),
            owner_ranks: Ranks::default(),
            branch_ranks: Ranks::default(),
            out: Vec::new(),
            scratch: S::Scratch::default(),
        }
    }
}

impl<S: Scheme> Reducer<S> {
    const WIDTH: Width = Codec::<S>::WIDTH;

    /// Reduces items; `edge` is that of the item behind them, or [`NO_EDGE`].
    /// Appends what is left.
    pub(crate) fn reduce<'a>(
        &mut self,
        scheme: &S,
        items: &[SortedItem<'a, S::Commit>],
        edge: i32,
        left: &mut Vec<SortedItem<'a, S::Commit>>,
    ) {
        self.clear();
        let Some(first) = items.first() else { return };
        // Whatever is open to the left of the items: it never closes here.
        self.open.push(Open { position: first.edge, from: 0, item: NONE });
        for (index, item) in (0..).zip(items) {
            let next = items.get(index as usize + 1).map_or(edge, |next| next.edge);
            self.open_implicit(item, next);
            if let What::Leaf(_) = item.what {
                if next == end_position::<S>(item.key) {
                    // What follows begins with this key: it owns that, or is a value at its fork.
                    self.open.push(Open { position: next, from: self.waiting.len(), item: index });
                    continue;
                }
                let depth = self.depth(next);
                let node = Grown::Leaf(self.leaves.len() as u32);
                self.leaves.push(Leaf { item: index, depth, slot: NONE });
                self.waiting.push(Unparented { node, item: index, height: 0 });
            } else {
                self.waiting.push(Unparented { node: Grown::Item, item: index, height: 0 });
            }
            self.close(items, next);
        }
        self.leave_open();
        self.commit(scheme, items);
        left.extend(self.left.iter().map(|&(index, slot)| {
            let item = items[index as usize];
            let commit =
                |slot: u32| self.slots[slot as usize].1.expect("all nodes are committed to");
            let what = if slot == NONE { item.what } else { What::Done(commit(slot)) };
            SortedItem { what, ..item }
        }));
    }

    fn clear(&mut self) {
        self.open.clear();
        self.waiting.clear();
        self.leaves.clear();
        self.owners.clear();
        self.branches.clear();
        self.slots.clear();
        self.settled.clear();
        self.left.clear();
    }

    /// Opens the implicit owner that an item is the first to belong to. A subtree that was reduced
    /// with its owner shares nothing below that with what follows.
    fn open_implicit(&mut self, item: &SortedItem<'_, S::Commit>, next: i32) {
        let Some(Owner { bytes, implicit: true }) = S::LAYOUT.owner else { return };
        let position = 2 * (bytes * Self::WIDTH.per_byte()) as i32 - 1;
        if item.edge < position && (next > position || matches!(item.what, What::Leaf(_))) {
            self.open.push(Open { position, from: self.waiting.len(), item: NONE });
        }
    }

    /// The depth at which a node hangs whose right edge is `next`.
    fn depth(&self, next: i32) -> u32 {
        let open = self.open.last().expect("the first one stays").position;
        let above = open.max(next);
        // Below an owner, no digit leads to what it owns.
        (if above % 2 == 0 { above / 2 + 1 } else { (above + 1) / 2 }) as u32
    }

    /// Closes what ends at the edge `next`, and opens the fork there.
    fn close(&mut self, items: &[SortedItem<'_, S::Commit>], next: i32) {
        while let Some(&open) = self.open.last()
            && open.position > next
        {
            if self.open.len() == 1 {
                // Its children lie beyond the left edge, too.
                self.leave(0);
                self.open[0].position = next;
                break;
            }
            self.open.pop();
            let depth = self.depth(next);
            let made = if open.position % 2 == 0 {
                self.branch(items, open, depth)
            } else {
                self.owner(items, open, depth)
            };
            self.waiting.truncate(open.from);
            self.waiting.push(made);
        }
        if self.open.last().is_some_and(|open| open.position < next) {
            let from = self.waiting.len() - 1;
            self.open.push(Open { position: next, from, item: NONE });
        }
    }

    fn branch(
        &mut self,
        items: &[SortedItem<'_, S::Commit>],
        open: Open,
        depth: u32,
    ) -> Unparented {
        let fork = (open.position / 2) as u32;
        let from = self.slots.len() as u32;
        let mut height = 0;
        for index in open.from..self.waiting.len() {
            let child = self.waiting[index];
            let digit = Self::WIDTH.digit(items[child.item as usize].key, fork as usize);
            self.settle(child, digit, items);
            height = height.max(child.height + 1);
        }
        let item = self.waiting[open.from].item;
        let children = (from, self.slots.len() as u32);
        let node = Grown::Branch(self.branches.len() as u32);
        let value = open.item;
        self.branches.push(Branch { item, depth, fork, height, children, value, slot: NONE });
        Unparented { node, item: item.min(value), height }
    }

    fn owner(&mut self, items: &[SortedItem<'_, S::Commit>], open: Open, depth: u32) -> Unparented {
        debug_assert_eq!(self.waiting.len(), open.from + 1, "an owner owns one subtree");
        let owned = self.waiting[open.from];
        let slot = self.slots.len() as u32;
        self.settle(owned, 0, items);
        let height = owned.height + 1;
        // An implicit owner has no item of its own.
        let item = open.item.min(owned.item);
        let leaf = Leaf { item, depth, slot: NONE };
        let node = Grown::Owner(self.owners.len() as u32);
        self.owners.push(MadeOwner { leaf, height, owned: slot });
        Unparented { node, item, height }
    }

    /// Gives a child its place beside its siblings.
    fn settle(&mut self, child: Unparented, digit: u8, items: &[SortedItem<'_, S::Commit>]) {
        self.place(child, digit);
        if let (Grown::Item, What::Done(commit)) = (child.node, &items[child.item as usize].what) {
            self.slots.last_mut().expect("just placed").1 = Some(*commit);
            self.settled.push((self.slots.len() as u32 - 1, child.item));
        }
    }

    fn place(&mut self, child: Unparented, digit: u8) {
        let slot = self.slots.len() as u32;
        self.slots.push((digit, None));
        match child.node {
            Grown::Item => {}
            Grown::Leaf(index) => self.leaves[index as usize].slot = slot,
            Grown::Owner(index) => self.owners[index as usize].leaf.slot = slot,
            Grown::Branch(index) => self.branches[index as usize].slot = slot,
        }
    }

    /// Leaves what waits from `from` on to a later reduction.
    fn leave(&mut self, from: usize) {
        for index in from..self.waiting.len() {
            let waiting = self.waiting[index];
            let slot = if matches!(waiting.node, Grown::Item) {
                NONE
            } else {
                self.place(waiting, 0);
                self.slots.len() as u32 - 1
            };
            self.left.push((waiting.item, slot));
        }
        self.waiting.truncate(from);
    }

    /// Leaves what is open at the right edge, in order.
    fn leave_open(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for index in 0..self.open.len() {
            let open = self.open[index];
            if open.item != NONE {
                self.left.push((open.item, NONE));
            }
            let end = self.open.get(index + 1).map_or(waiting.len(), |next| next.from);
            self.waiting.extend_from_slice(&waiting[open.from..end]);
            self.leave(0);
        }
        self.waiting = waiting;
    }

    fn commit(&mut self, scheme: &S, items: &[SortedItem<'_, S::Commit>]) {
        self.commit_leaves(scheme, items);
        self.owner_ranks.sort(self.owners.iter().map(|owner| owner.height as usize));
        self.branch_ranks.sort(self.branches.iter().map(|branch| branch.height as usize));
        for height in 0..self.owner_ranks.count().max(self.branch_ranks.count()) {
            if height < self.owner_ranks.count() {
                self.commit_owners(scheme, items, height);
            }
            if height < self.branch_ranks.count() {
                self.commit_branches(scheme, items, height);
            }
        }
    }

    fn commit_leaves(&mut self, scheme: &S, items: &[SortedItem<'_, S::Commit>]) {
        let Self { leaves, slots, out, scratch, .. } = self;
        for part in leaves.chunks(CHUNK) {
            out.clear();
            let jobs = part.iter().map(|leaf| leaf_job::<S>(items, leaf, None));
            scheme.commit_leaves(jobs, scratch, out);
            for (leaf, commit) in part.iter().zip(&*out) {
                slots[leaf.slot as usize].1 = Some(*commit);
            }
        }
    }

    fn commit_owners(&mut self, scheme: &S, items: &[SortedItem<'_, S::Commit>], height: usize) {
        let Self { owners, owner_ranks, slots, out, scratch, .. } = self;
        out.clear();
        let level = owner_ranks.of(height);
        let jobs = level.iter().map(|&index| {
            let owner = &owners[index as usize];
            leaf_job::<S>(items, &owner.leaf, slots[owner.owned as usize].1)
        });
        scheme.commit_leaves(jobs, scratch, out);
        for (&index, commit) in level.iter().zip(&*out) {
            slots[owners[index as usize].leaf.slot as usize].1 = Some(*commit);
        }
    }

    fn commit_branches(&mut self, scheme: &S, items: &[SortedItem<'_, S::Commit>], height: usize) {
        let Self { branches, branch_ranks, slots, out, scratch, .. } = self;
        out.clear();
        let level = branch_ranks.of(height);
        let jobs = level.iter().map(|&index| {
            let branch = &branches[index as usize];
            let path = items[branch.item as usize].key;
            BranchJob {
                prefix: Run::of(path, branch.depth as usize, branch.fork as usize, Self::WIDTH),
                children: ChildList(&slots[branch.children.0 as usize..branch.children.1 as usize]),
                value: (branch.value != NONE).then(|| value_of(&items[branch.value as usize])),
            }
        });
        scheme.commit_branches(jobs, scratch, out);
        for (&index, commit) in level.iter().zip(&*out) {
            slots[branches[index as usize].slot as usize].1 = Some(*commit);
        }
    }
}

fn leaf_job<'a, S: Scheme>(
    items: &[SortedItem<'a, S::Commit>],
    leaf: &Leaf,
    owned: Option<S::Commit>,
) -> LeafJob<'a, S::Commit> {
    let item = &items[leaf.item as usize];
    let (key, value) = match S::LAYOUT.owner {
        Some(Owner { bytes, implicit: true }) if owned.is_some() => (&item.key[..bytes], &[][..]),
        _ => (item.key, value_of(item)),
    };
    let (width, depth) = (Codec::<S>::WIDTH, leaf.depth as usize);
    let suffix = Run::of(key, depth, width.count(key), width);
    let owned = owned.map(Owned::Commit);
    LeafJob { key: JobKey::Whole(key), suffix, value, owned, previous: None }
}

fn value_of<'a, C>(item: &SortedItem<'a, C>) -> &'a [u8] {
    match item.what {
        What::Leaf(value) => value,
        What::Done(_) => unreachable!("only leaves are leaves and values"),
    }
}
