//! Writing touched nodes into pages.
//!
//! Pages are cut by path bit: a virtual binary tree runs through the children of every branch.
//! Bottom up, the residual image of a bit prefix is the residuals of its two halves; where it
//! exceeds [`crate::Layout::cut_bytes`] it becomes a page and leaves a reference. The cut depends
//! only on what lies below, so pages are a function of the entries.
//!
//! First each touched node is *planned*, those below before those above: how many bytes its item
//! takes, and whether its body is a page of its own. The lengths of what is stored are known from
//! indexes, so only what is touched is looked at. Then each page is written once, from its start to
//! its end: stretches of the row that was, and what changed between them. Where no length changed
//! that is a copy with changes laid over it. Only a branch whose children lie in buckets, or are
//! to, is laid out when it is planned, if a length changed.
//!
//! Invariants:
//! - the item of a node is written into one page, when that is written;
//! - nothing goes deeper than a page's items do: the body of a branch that has a page of its own is
//!   written by itself.

mod lay;
mod pages;
mod plan;

use std::ops::Range;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt, HashSet};
use spinney_hash::prefetch;

use crate::cut::{Emitted, Part, Put};
use crate::error::TreeError;
use crate::image::{Codec, PageKind};
use crate::node::{Arena, Chain, Link, Made, NONE, Node, PageRef, TouchedChild};
use crate::page::Page;
use crate::page_key::{PageKey, RowKind, Space};
use crate::scheme::Scheme;
use spinney_proof::digits::Width;

/// So many nodes ahead a node is asked for that is to be planned, what says where the parts of its
/// page are, and its index.
const NODES_AHEAD: usize = 16;
const PAGES_AHEAD: usize = 10;
const ENTRIES_AHEAD: usize = 5;
/// So many nodes ahead the row is asked for that a page takes the place of.
const ROWS_AHEAD: usize = 6;

/// Of a row, what leaves in it commit to, by their entries or by where they lie.
pub(crate) type Known<C> = Vec<(u16, C)>;

/// A page that is written.
#[derive(Debug)]
pub(crate) struct Written<C> {
    pub(crate) put: Put,
    /// The page that it takes the place of, where the writer stood on that.
    pub(crate) old: Option<Arc<Page<C>>>,
    /// Whether it differs from that in values and commitments alone.
    pub(crate) is_like: bool,
    /// What is known of it, among all that is.
    pub(crate) known: Range<usize>,
}

impl<C> Written<C> {
    /// Of whose place nothing is known.
    const fn new(put: Put) -> Self {
        Self { put, old: None, is_like: false, known: 0..0 }
    }
}

/// The rows of a pending state that differ from the store's.
#[derive(Debug)]
pub(crate) struct Rows<C> {
    /// Pages and overflow rows to write.
    pub(crate) puts: Vec<Written<C>>,
    pub(crate) known: Known<C>,
    /// Rows to remove.
    pub(crate) deletes: Vec<PageKey>,
    /// Ranges to drop first: exclusive bounds.
    pub(crate) drops: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<C> Default for Rows<C> {
    fn default() -> Self {
        let (puts, known, deletes, drops) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { puts, known, deletes, drops }
    }
}

/// Memory that is used for one write set after another.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    plans: Vec<Plan>,
    todo: Vec<(Made, u32)>,
    bodies: Vec<u8>,
    items: Vec<u8>,
    row: Vec<u8>,
    head: Vec<u8>,
    parts: Vec<Part>,
    copies: Vec<Copied>,
}

/// How a touched node is to be written.
#[derive(Clone, Copy, Debug)]
struct Plan {
    made: Made,
    parent: u32,
    /// The plan behind those of all nodes below it.
    end: u32,
    /// The length of its item.
    len: u32,
    /// The length of its body.
    body: u32,
    /// Where the items of its body are among the bodies, if they were laid out.
    laid: (u32, u32),
    /// Whether its body is a page of its own.
    out_of_line: bool,
    is_laid: bool,
}

/// A stretch of a row that was copied: the page, from where to where, and where to.
#[derive(Clone, Copy, Debug)]
struct Copied {
    page: PageRef,
    from: u16,
    end: u16,
    to: u16,
}

/// Listed children that are still to come, and the plan of the first that was made.
#[derive(Clone, Copy, Debug)]
struct ListedChildren<'a> {
    changes: &'a [TouchedChild],
    plan: usize,
}

impl<'a> ListedChildren<'a> {
    fn next(&mut self, plans: &[Plan]) -> Option<(&'a TouchedChild, usize)> {
        let (change, rest) = self.changes.split_first()?;
        let plan = self.plan;
        if change.made.is_something() {
            self.plan = plans[plan].end as usize;
        }
        self.changes = rest;
        Some((change, plan))
    }

    /// The next one, if there is one and it is as is asked.
    fn next_if(
        &mut self,
        plans: &[Plan],
        is: impl FnOnce(&TouchedChild) -> bool,
    ) -> Option<(&'a TouchedChild, usize)> {
        is(self.changes.first()?).then(|| self.next(plans))?
    }
}

// Fields: the tree, and the lists that one pass over it fills.
struct Writer<'a, S: Scheme> {
    codec: Codec<'a, S>,
    chain: Chain<'a, S::Commit>,
    emitted: Emitted,
    plans: Vec<Plan>,
    bodies: Vec<u8>,
    /// Those of the branch being laid out.
    items: Vec<u8>,
    head: Vec<u8>,
    parts: Vec<Part>,
    puts: Vec<Written<S::Commit>>,
    known: Known<S::Commit>,
    /// Of the page being written, the stretches copied.
    copies: Vec<Copied>,
    /// The page that it is like so far, and its entries that commit to something else.
    like: Option<PageRef>,
    /// Where what is known of it begins.
    page_known: usize,
    /// Pages whose branches have none any more, or other ones.
    left: Vec<PageRef>,
    /// Keys whose rows stay as they are.
    same: Vec<PageKey>,
    /// Whether rows that are the same are written, too: what is stored may be dropped before.
    cleared: bool,
}

/// The rows of all nodes reachable from `top`. None of the arenas is committed yet, but for the
/// first, which is the last commit's own.
pub(crate) fn rows<S: Scheme>(
    codec: Codec<'_, S>,
    space: Space,
    arenas: &[Arc<Arena<S::Commit>>],
    top: Option<Link>,
    buffers: &mut Buffers,
) -> Result<Rows<S::Commit>, TreeError> {
    if matches!(top, Some(Link::Stored { .. })) {
        return Ok(Rows::default());
    }
    let mut kept = std::mem::take(buffers);
    kept.plans.clear();
    kept.bodies.clear();
    let (mut todo, mut row) = (std::mem::take(&mut kept.todo), std::mem::take(&mut kept.row));
    let cleared = arenas.iter().any(|arena| !arena.dropped.is_empty());
    let mut writer = Writer::new(codec, Chain::of(arenas), (space, cleared), kept);
    if let Some(Link::Made(made)) = top {
        writer.order(made, &mut todo);
        for number in (0..writer.plans.len()).rev() {
            writer.fetch_ahead(number);
            writer.plan(number)?;
        }
        writer.write_pages(&mut row)?;
    }
    let rows = writer.difference(arenas);
    let Writer { plans, bodies, items, head, parts, copies, .. } = writer;
    *buffers = Buffers { plans, todo, bodies, items, row, head, parts, copies };
    Ok(rows)
}

impl<'a, S: Scheme> Writer<'a, S> {
    const WIDTH: Width = Codec::<S>::WIDTH;

    fn new(
        codec: Codec<'a, S>,
        chain: Chain<'a, S::Commit>,
        (space, cleared): (Space, bool),
        kept: Buffers,
    ) -> Self {
        let Buffers { plans, bodies, items, head, parts, copies, .. } = kept;
        Self {
            codec,
            chain,
            emitted: Emitted::new(space),
            plans,
            bodies,
            items,
            head,
            parts,
            puts: Vec::new(),
            known: Vec::new(),
            copies,
            like: None,
            page_known: 0,
            left: Vec::new(),
            same: Vec::new(),
            cleared,
        }
    }

    /// Another writer of the same plans.
    fn beside(&self) -> Self {
        let (plans, bodies) = (self.plans.clone(), self.bodies.clone());
        let kept = Buffers { plans, bodies, ..Buffers::default() };
        Self::new(self.codec, self.chain, (self.emitted.space, self.cleared), kept)
    }

    /// Takes over what another writer wrote.
    fn take_in(&mut self, other: Self) {
        let before = self.known.len();
        self.known.extend(other.known);
        self.puts.extend(other.puts.into_iter().map(|mut written| {
            written.known = written.known.start + before..written.known.end + before;
            written
        }));
        self.emitted.rows.extend(other.emitted.rows);
        self.same.extend(other.same);
    }

    /// Lists the touched nodes, each before those below it.
    fn order(&mut self, top: Made, todo: &mut Vec<(Made, u32)>) {
        todo.clear();
        todo.push((top, NONE));
        while let Some((made, parent)) = todo.pop() {
            let number = self.plans.len() as u32;
            let (end, laid) = (number + 1, (0, 0));
            let plan = Plan {
                made,
                parent,
                end,
                len: 0,
                body: 0,
                laid,
                out_of_line: false,
                is_laid: false,
            };
            self.plans.push(plan);
            let node = self.chain.node(made);
            let changes = self.chain.changes(made.arena, node).iter().rev();
            let (chain, changes) =
                (self.chain, changes.filter(|change| change.made.is_something()));
            todo.extend(changes.map(|change| {
                prefetch(std::slice::from_ref(chain.node(change.made)));
                (change.made, number)
            }));
        }
        for number in (1..self.plans.len()).rev() {
            let Plan { parent, end, .. } = self.plans[number];
            let above = &mut self.plans[parent as usize];
            above.end = above.end.max(end);
        }
    }

    /// Asks for what the plans after this one need: nodes, what says where the parts of their pages
    /// are, and indexes.
    fn fetch_ahead(&self, number: usize) {
        let ahead = |ahead: usize| Some(self.plans[number.checked_sub(ahead)?].made);
        if let Some(made) = ahead(NODES_AHEAD) {
            prefetch(std::slice::from_ref(self.chain.node(made)));
        }
        if let Some(page) = ahead(PAGES_AHEAD).and_then(|made| self.base(made)) {
            prefetch(std::slice::from_ref(&**self.chain.page(page)));
        }
        if let Some(made) = ahead(ENTRIES_AHEAD)
            && let Some(page) = self.base(made)
        {
            self.chain.page(page).fetch(self.chain.node(made).within);
        }
    }

    /// The page that a node stands on.
    fn base(&self, made: Made) -> Option<PageRef> {
        Some(self.chain.node(made).base).filter(|page| *page != PageRef::NOWHERE)
    }

    fn node(&self, number: usize) -> (&'a Node, Made) {
        let made = self.plans[number].made;
        (self.chain.node(made), made)
    }

    /// The listed children of a node, each with its plan, if it was made.
    fn changes(
        &self,
        number: usize,
    ) -> impl Iterator<Item = (&'a TouchedChild, usize)> + use<'_, 'a, S> {
        let mut changes = self.listed(number);
        std::iter::from_fn(move || changes.next(&self.plans))
    }

    /// The same, for who changes the writer between one and the next.
    fn listed(&self, number: usize) -> ListedChildren<'a> {
        let (node, made) = self.node(number);
        ListedChildren { changes: self.chain.changes(made.arena, node), plan: number + 1 }
    }

    fn commit(&self, number: usize) -> S::Commit {
        self.chain.commit(self.plans[number].made)
    }

    /// What differs between the rows written and those of the store.
    fn difference(&mut self, arenas: &[Arc<Arena<S::Commit>>]) -> Rows<S::Commit> {
        let mut rows = Rows { known: std::mem::take(&mut self.known), ..Rows::default() };
        let fresh = arenas.iter().skip(1);
        // Of an empty tree nothing is stored that could be dropped.
        let stored = arenas.first().is_some_and(|head| !head.pages.is_empty());
        for dropped in fresh.clone().flat_map(|arena| &arena.dropped).filter(|_| stored) {
            for kind in [RowKind::Page, RowKind::Overflow] {
                let (space, bits) = (self.emitted.space, dropped.bits);
                rows.drops.extend(PageKey::below(space, kind, &dropped.path, bits));
            }
        }
        let mut left: HashMap<&PageKey, Option<&Page<S::Commit>>> = HashMap::new();
        for page in fresh.clone().flat_map(|arena| &arena.left).chain(&self.left) {
            let page = self.chain.page(*page);
            left.insert(&page.key, Some(page));
        }
        for key in fresh.clone().flat_map(|arena| &arena.left_rows) {
            left.entry(key).or_insert(None);
        }
        let puts = std::mem::take(&mut self.puts);
        if left.is_empty() {
            rows.puts = puts;
            return rows;
        }
        for page in fresh.flat_map(|arena| &arena.pages) {
            if page.kind == PageKind::Overflow
                && let Some(old @ None) = left.get_mut(&page.key)
            {
                *old = Some(page);
            }
        }
        for key in &self.same {
            left.remove(key);
        }
        // An overflow row is made once to plan its node, and once to write it.
        let mut seen: HashSet<PageKey> = HashSet::default();
        for written in puts {
            let old = left.get(&written.put.key);
            let same = !self.cleared
                && old.is_some_and(|old| old.is_some_and(|old| *old.row == *written.put.row));
            if old.is_some() {
                seen.insert(written.put.key.clone());
            }
            if !same {
                rows.puts.push(written);
            }
        }
        // What is left was not written again.
        let gone = left.into_keys().filter(|key| !seen.contains(*key));
        rows.deletes.extend(gone.cloned());
        rows
    }
}
