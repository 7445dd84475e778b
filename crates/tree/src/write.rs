//! Writing touched nodes into pages.
//!
//! Pages are cut by path bit: a virtual binary tree runs through the children of every branch. Bottom up, the
//! residual image of a bit prefix is the residuals of its two halves; where it exceeds [`Scheme::CUT_BYTES`] it
//! becomes a page and leaves a reference. The cut depends only on what lies below, so pages are a function of the
//! entries.
//!
//! First each touched node is *planned*, those below before those above: how many bytes its item takes, and whether
//! its body is a page of its own. The lengths of what is stored are known from indexes, so only what is touched is
//! looked at. Then each page is written once, from its start to its end: stretches of the row that was, and what
//! changed between them. Where no length changed that is a copy with changes laid over it.
//! Only a branch whose children lie in groups, or are to, is laid out when it is planned, if a length changed.
//!
//! Invariants:
//! - the item of a node is written into one page, when that is written;
//! - nothing goes deeper than a page's items do: the body of a branch that has a page of its own is written by
//!   itself.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt, HashSet};

use crate::cut::{Cutter, Emitted, Part, Put, may_cut};
use crate::digits::{Run, Width};
use crate::error::TreeError;
use crate::image::{
    Codec, FORK_VALUE_BYTES_MAX, FRAME_BYTES, INLINE_BYTES_MAX, MEMBER_COMMIT_AT, Member, PageKind,
    PutBranch, PutTerminal, SKIP_BYTES_MAX, length_bytes, seal_framed,
};
use crate::node::{
    Arena, Chain, ForkValue, Link, Made, NONE, Node, PageRef, TouchedChild, hangs_below_owner,
};
use crate::page::{Entry, Kind, Page, Within};
use crate::page_key::{PageKey, RowKind, Space};
use crate::scheme::Scheme;

/// Of a row, what terminals in it commit to, by their entries or by where they lie.
pub(crate) type Known<C> = Vec<(u16, C)>;

/// A page that is written.
#[derive(Debug)]
pub(crate) struct Written<C> {
    pub(crate) put: Put,
    /// The page that it differs from in values and commitments alone.
    pub(crate) like: Option<Arc<Page<C>>>,
    /// What is known of it, among all that is.
    pub(crate) known: Range<usize>,
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
    apart: bool,
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

struct Writer<'a, S: Scheme> {
    codec: Codec<'a, S>,
    chain: Chain<'a, S::Commit>,
    emitted: Emitted,
    plans: Vec<Plan>,
    bodies: Vec<u8>,
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

/// The rows of all nodes reachable from `top`. None of the arenas is committed yet, but for the first, which is the
/// last commit's own.
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
    let Buffers { mut plans, mut todo, mut bodies, mut row, head, parts, mut copies } =
        std::mem::take(buffers);
    plans.clear();
    bodies.clear();
    copies.clear();
    let mut writer = Writer {
        codec,
        chain: Chain::of(arenas),
        emitted: Emitted::new(space),
        plans,
        bodies,
        head,
        parts,
        puts: Vec::new(),
        known: Vec::new(),
        copies,
        like: None,
        page_known: 0,
        left: Vec::new(),
        same: Vec::new(),
        cleared: arenas.iter().any(|arena| !arena.dropped.is_empty()),
    };
    if let Some(Link::Made(made)) = top {
        writer.order(made, &mut todo);
        for number in (0..writer.plans.len()).rev() {
            writer.plan(number)?;
        }
        writer.write_pages(&mut row)?;
    }
    let rows = writer.difference(arenas);
    let Writer { plans, bodies, head, parts, copies, .. } = writer;
    *buffers = Buffers { plans, todo, bodies, row, head, parts, copies };
    Ok(rows)
}

impl<'a, S: Scheme> Writer<'a, S> {
    const WIDTH: Width = Codec::<S>::WIDTH;

    /// Lists the touched nodes, each before those below it.
    fn order(&mut self, top: Made, todo: &mut Vec<(Made, u32)>) {
        todo.clear();
        todo.push((top, NONE));
        while let Some((made, parent)) = todo.pop() {
            let number = self.plans.len() as u32;
            let (end, laid) = (number + 1, (0, 0));
            let plan =
                Plan { made, parent, end, len: 0, body: 0, laid, apart: false, is_laid: false };
            self.plans.push(plan);
            let node = self.chain.node(made);
            let kids = self.chain.kids(made.arena, node).iter().rev();
            todo.extend(kids.filter(|kid| kid.made.is_something()).map(|kid| (kid.made, number)));
        }
        for number in (1..self.plans.len()).rev() {
            let Plan { parent, end, .. } = self.plans[number];
            let above = &mut self.plans[parent as usize];
            above.end = above.end.max(end);
        }
    }

    fn node(&self, number: usize) -> (&'a Node, Made) {
        let made = self.plans[number].made;
        (self.chain.node(made), made)
    }

    /// The listed children of a node, each with its plan, if it was made.
    fn kids(
        &self,
        number: usize,
    ) -> impl Iterator<Item = (&'a TouchedChild, usize)> + use<'_, 'a, S> {
        let (node, made) = self.node(number);
        let mut next = number + 1;
        self.chain.kids(made.arena, node).iter().map(move |kid| {
            let plan = next;
            if kid.made.is_something() {
                next = self.plans[plan].end as usize;
            }
            (kid, plan)
        })
    }

    fn commit(&self, number: usize) -> S::Commit {
        self.chain.commit(self.plans[number].made)
    }

    /// Finds how long a node's item is. Those below it are planned.
    fn plan(&mut self, number: usize) -> Result<(), TreeError> {
        let (node, _) = self.node(number);
        if !node.is_branch() {
            self.plans[number].len = self.terminal_len(number) as u32;
            return Ok(());
        }
        let (kept, items) = self.body_len(number)?;
        let mut body = items;
        if let Some(kept) = kept {
            body += kept;
        }
        let laid = S::DIGIT_BITS > 1 && self.is_to_be_laid(number, items);
        if laid {
            let from = self.bodies.len();
            self.lay_out(number)?;
            let end = self.bodies.len();
            self.plans[number].laid = (from as u32, end as u32);
            self.plans[number].is_laid = true;
            body = end - from + kept.unwrap_or(0);
        }
        let limit = match hangs_below_owner::<S>(node.depth) && node.owned {
            true => S::OWNED_BODY_BYTES,
            false => S::CUT_BYTES,
        };
        let apart = number > 0 && body > limit;
        let skip = self.chain.run(node, Self::WIDTH);
        let mut len = 2 + self.codec.scheme.encoded_bytes(&self.commit(number));
        len += match skip.aligned().len() > SKIP_BYTES_MAX {
            true => length_bytes(skip.len()) + 1 + 8,
            false => length_bytes(skip.len()) + skip.aligned().len(),
        };
        if !apart {
            len += length_bytes(body) + body;
        }
        let plan = &mut self.plans[number];
        (plan.len, plan.body, plan.apart) = (len as u32, body as u32, apart);
        if self.has_own_page(node) && !apart {
            self.left.push(node.base);
        }
        if laid {
            let made = self.plans[number].made;
            self.left.extend(self.chain.groups(made.arena, node));
        }
        Ok(())
    }

    fn has_own_page(&self, node: &Node) -> bool {
        node.base != PageRef::NOWHERE && {
            let page = self.chain.page(node.base);
            page.kind == PageKind::Body && page.top() == node.within
        }
    }

    /// Whether a terminal says what it commits to.
    fn carries(&self, number: usize, node: &Node, owns: bool, overflows: bool) -> bool {
        let is_owned = node.owned && hangs_below_owner::<S>(node.depth);
        number == 0
            || overflows
            || is_owned && S::KEEP_OWNED_VALUES
            || owns && S::DELTAS
            || S::KEEP_TERMINALS
    }

    /// The length of what a terminal owns, if it owns anything.
    fn owned_len(&self, number: usize, node: &Node) -> Option<usize> {
        match self.kids(number).next() {
            Some((kid, plan)) if kid.made.is_something() => Some(self.plans[plan].len as usize),
            Some(_) => None,
            None if node.within.len() > 0 => {
                Some(self.chain.page(node.base).entry(node.within.from).len())
            }
            None => None,
        }
    }

    fn terminal_len(&self, number: usize) -> usize {
        let (node, _) = self.node(number);
        let suffix = self.chain.run(node, Self::WIDTH);
        let (run, payload) = (suffix.aligned().len(), self.chain.bytes(node.payload).len());
        let overflows = run + payload > INLINE_BYTES_MAX;
        let owned = self.owned_len(number, node);
        let mut len = 2 + owned.unwrap_or(0) + length_bytes(suffix.len()) + length_bytes(payload);
        len += if overflows { 8 } else { run + payload };
        if self.carries(number, node, owned.is_some(), overflows) {
            len += self.codec.scheme.encoded_bytes(&self.commit(number));
        }
        len
    }

    /// The lengths of a branch's value and of the items of its children, as they are now, if no group comes or goes.
    fn body_len(&mut self, number: usize) -> Result<(Option<usize>, usize), TreeError> {
        let (node, _) = self.node(number);
        let mut items = usize::from(node.body.1 - node.body.0);
        let mut value = None;
        if let Some(stored) = self.stored_value(node)? {
            items -= stored.len();
            if node.value == ForkValue::Stored {
                value = Some(stored.len());
            }
        }
        if node.value == ForkValue::Put {
            let rows = self.emitted.rows.len();
            self.put_fork_value(node);
            // They are written with the item.
            self.emitted.rows.truncate(rows);
            value = Some(self.head.len());
        }
        let (mut more, mut less) = (0, 0);
        for (kid, plan) in self.kids(number) {
            if kid.stands() {
                less += self.chain.page(kid.page).entry(kid.entry).len();
            }
            if kid.made.is_something() {
                more += self.plans[plan].len as usize;
            }
        }
        Ok((value, (items + more).saturating_sub(less)))
    }

    /// Where the value in front of the stored body of a branch lies.
    fn stored_value(&self, node: &Node) -> Result<Option<Range<usize>>, TreeError> {
        if node.base == PageRef::NOWHERE || node.within.len() == 0 {
            return Ok(None);
        }
        let page = self.chain.page(node.base);
        let from = usize::from(node.body.0);
        let first = page.entry(node.within.from);
        let at = usize::from(first.at) - if first.kind.is_in_group() { GROUP_HEAD } else { 0 };
        Ok((from < at).then_some(from..at))
    }

    /// Whether the children of a branch are to be laid out anew, and not where they are stored: some lie in groups,
    /// or might, and a length changed.
    fn is_to_be_laid(&self, number: usize, items: usize) -> bool {
        let (node, _) = self.node(number);
        let grouped = node.base != PageRef::NOWHERE
            && self.chain.page(node.base).entries(node.within).iter().any(|e| e.kind.is_in_group());
        if !grouped {
            return may_cut::<S>(node.fork, items);
        }
        let stays = |(kid, plan): (&TouchedChild, usize)| {
            kid.made.is_something() && kid.stands() && {
                let entry = self.chain.page(kid.page).entry(kid.entry);
                let is_terminal = !self.chain.node(kid.made).is_branch();
                entry.len() == self.plans[plan].len as usize
                    && entry.kind.is_terminal() == is_terminal
                    && self.member_stays(node, kid, plan)
            }
        };
        !self.kids(number).all(stays)
    }

    /// Whether what a page says of a member of a group takes as many bytes as before.
    fn member_stays(&self, node: &Node, kid: &TouchedChild, plan: usize) -> bool {
        if S::DELTAS || kid.page == node.base {
            return true;
        }
        let page = self.chain.page(node.base);
        let member = page.find(node.within, kid.digit, Self::WIDTH.mask());
        let bytes = MEMBER_COMMIT_AT + self.codec.scheme.encoded_bytes(&self.commit(plan));
        member.is_some_and(|member| page.entry(member).len() == bytes)
    }

    /// Lays out the items of a branch's children behind all other bodies, large groups cut off.
    fn lay_out(&mut self, number: usize) -> Result<(), TreeError> {
        let (node, made) = self.node(number);
        let mut bytes = Vec::new();
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        let kids: Vec<(TouchedChild, usize)> =
            self.kids(number).map(|(kid, plan)| (*kid, plan)).collect();
        let mut kids = &kids[..];
        if node.base != PageRef::NOWHERE {
            self.lay_stored(
                number,
                (node.base, node.within),
                &mut kids,
                None,
                (&mut bytes, &mut parts),
            )?;
        }
        self.lay_kids(&mut kids, 256, (&mut bytes, &mut parts))?;
        let (codec, chain) = (self.codec, self.chain);
        let members = |digits: RangeInclusive<u8>| members(codec, chain, (made, node), digits);
        let path = chain.key(node, Self::WIDTH);
        let mut out = std::mem::take(&mut self.bodies);
        let emitted = &mut self.emitted;
        Cutter { codec, bytes: &bytes, members, fork: node.fork, path, emitted }
            .cut(&parts, 0, &mut out);
        self.bodies = out;
        self.parts = parts;
        let rows = std::mem::take(&mut self.emitted.rows);
        for put in rows {
            self.puts.push(Written { put, like: None, known: 0..0 });
        }
        Ok(())
    }

    /// Lays out the stored children among some entries of a page, with the listed children before and between them;
    /// those of groups that were opened one by one.
    fn lay_stored(
        &mut self,
        number: usize,
        (page, among): (PageRef, Within),
        kids: &mut &[(TouchedChild, usize)],
        above: Option<(u8, u8)>,
        out: (&mut Vec<u8>, &mut Vec<Part>),
    ) -> Result<(), TreeError> {
        let (bytes, parts) = out;
        let (node, made) = self.node(number);
        let opened = self.chain.page(page);
        let mut at = among.from;
        while at < among.end {
            let entry = *opened.entry(at);
            self.lay_kids(kids, u16::from(entry.digit), (&mut *bytes, &mut *parts))?;
            if !entry.kind.is_in_group() {
                at += 1;
                if let Some(((kid, plan), rest)) = kids.split_first()
                    && kid.digit == entry.digit
                    && kid.stands()
                {
                    let (kid, plan) = (*kid, *plan);
                    *kids = rest;
                    if kid.made.is_something() {
                        self.lay_kid(plan, bytes, parts)?;
                    }
                    continue;
                }
                let from = bytes.len();
                bytes.extend_from_slice(&opened.row[usize::from(entry.at)..usize::from(entry.end)]);
                parts.push(Part { digit: entry.digit, bytes: from..bytes.len() });
                continue;
            }
            let rest = S::DIGIT_BITS - entry.span;
            let prefix = entry.digit >> rest;
            let same = |e: &&Entry| {
                e.kind.is_in_group() && e.span == entry.span && e.digit >> rest == prefix
            };
            let left = Within { from: at, end: among.end };
            let count = opened.entries(left).iter().take_while(same).count() as u16;
            debug_assert!(above.is_none_or(|(bits, _)| bits < entry.span));
            let group = self.chain.groups(made.arena, node).find(|group| {
                let group = self.chain.page(*group);
                let first = group.entries(group.top()).first();
                group.bits == entry.span && first.is_some_and(|first| first.digit >> rest == prefix)
            });
            match group {
                Some(group) => {
                    let top = self.chain.page(group).top();
                    let above = Some((entry.span, prefix));
                    self.lay_stored(number, (group, top), kids, above, (&mut *bytes, &mut *parts))?;
                }
                None => {
                    let last = opened.entry(at + count - 1);
                    let range = usize::from(entry.at) - GROUP_HEAD..usize::from(last.end);
                    let from = bytes.len();
                    bytes.extend_from_slice(&opened.row[range]);
                    parts.push(Part { digit: entry.digit, bytes: from..bytes.len() });
                }
            }
            at += count;
        }
        Ok(())
    }

    /// Lays out the listed children of digits below one that stand for nothing stored.
    fn lay_kids(
        &mut self,
        kids: &mut &[(TouchedChild, usize)],
        below: u16,
        (bytes, parts): (&mut Vec<u8>, &mut Vec<Part>),
    ) -> Result<(), TreeError> {
        while let Some(((kid, plan), rest)) = kids.split_first()
            && u16::from(kid.digit) < below
        {
            let (kid, plan) = (*kid, *plan);
            *kids = rest;
            if kid.made.is_something() {
                self.lay_kid(plan, bytes, parts)?;
            }
        }
        Ok(())
    }

    fn lay_kid(
        &mut self,
        plan: usize,
        bytes: &mut Vec<u8>,
        parts: &mut Vec<Part>,
    ) -> Result<(), TreeError> {
        let from = bytes.len();
        self.put_item(plan, bytes)?;
        let digit = self.node(plan).0.digit;
        parts.push(Part { digit, bytes: from..bytes.len() });
        Ok(())
    }

    /// Writes all pages: of bodies, of groups whose branches are not laid out, and the root page.
    fn write_pages(&mut self, row: &mut Vec<u8>) -> Result<(), TreeError> {
        for number in 0..self.plans.len() {
            let plan = self.plans[number];
            let (node, made) = self.node(number);
            if !node.is_branch() {
                continue;
            }
            if plan.apart {
                let own = self.has_own_page(node).then_some(node.base);
                self.start_page(row, own);
                self.put_body(number, row)?;
                let path = self.chain.key(node, Self::WIDTH);
                let bits = node.fork as usize * Self::WIDTH.bits();
                let key = PageKey::page(self.emitted.space, path, bits);
                self.end_page((key, bits), PageKind::Body, own, row);
            }
            if S::DIGIT_BITS > 1 && !plan.is_laid {
                for group in self.chain.groups(made.arena, node) {
                    self.write_group(number, group, row)?;
                }
            }
        }
        let key = PageKey::page(self.emitted.space, &[], 0);
        // The last commit's own arena has nothing but its root page.
        let own = (!self.chain.arena(0).pages.is_empty()).then_some(PageRef { arena: 0, page: 0 });
        self.start_page(row, own);
        let is_like = own.is_some_and(|own| self.is_like(0, own, 0));
        self.like = self.like.filter(|_| is_like);
        if is_like {
            let commit = self.commit(0);
            self.known.push((0, commit));
        }
        self.put_item(0, row)?;
        self.end_page((key, 0), PageKind::Root, own, row);
        for put in std::mem::take(&mut self.emitted.rows) {
            self.puts.push(Written { put, like: None, known: 0..0 });
        }
        Ok(())
    }

    /// Writes the page of a group in which no length changed.
    fn write_group(
        &mut self,
        number: usize,
        group: PageRef,
        row: &mut Vec<u8>,
    ) -> Result<(), TreeError> {
        let page = self.chain.page(group);
        let (node, _) = self.node(number);
        self.start_page(row, Some(group));
        let kids: Vec<(TouchedChild, usize)> =
            self.kids(number).map(|(kid, plan)| (*kid, plan)).collect();
        let end = self.put_between(&kids, (group, page.top()), FRAME_BYTES, row)?;
        self.copy(group, end..page.row.len(), row);
        let bits = node.fork as usize * Self::WIDTH.bits() + usize::from(page.bits);
        self.end_page((page.key.clone(), bits), PageKind::Group, Some(group), row);
        Ok(())
    }

    fn start_page(&mut self, row: &mut Vec<u8>, like: Option<PageRef>) {
        row.clear();
        row.extend_from_slice(&[0; FRAME_BYTES]);
        self.copies.clear();
        self.like = like;
        self.page_known = self.known.len();
    }

    fn end_page(
        &mut self,
        (key, bits): (PageKey, usize),
        kind: PageKind,
        own: Option<PageRef>,
        row: &mut [u8],
    ) {
        assert!(row.len() <= crate::image::PAGE_BYTES_MAX, "a page of {} bytes", row.len());
        let old = own.map(|own| self.chain.page(own));
        seal_framed(key.as_bytes(), kind, row);
        if let Some(old) = old
            && kind != PageKind::Root
            && !self.cleared
            && *old.row == *row
        {
            self.known.truncate(self.page_known);
            self.same.push(key);
            return;
        }
        let like = self.like.map(|like| Arc::clone(self.chain.page(like)));
        // Of a page that is like another, they are named by entries.
        if like.is_none() {
            self.carry_over();
        }
        let known = self.page_known..self.known.len();
        let put = Put { key, row: Arc::from(&*row), bits: bits as u32 };
        self.puts.push(Written { put, like, known });
    }

    /// Takes along what terminals commit to in stretches that were copied.
    fn carry_over(&mut self) {
        let from = self.page_known;
        for copied in &self.copies {
            let page = self.chain.page(copied.page);
            let known = page.known_in(copied.from..copied.end);
            let moved = |at: u16| at - copied.from + copied.to;
            self.known.extend(known.map(|(at, commit)| (moved(at), commit)));
        }
        self.known[from..].sort_unstable_by_key(|known| known.0);
    }

    /// Copies a stretch of a row.
    fn copy(&mut self, page: PageRef, range: Range<usize>, out: &mut Vec<u8>) {
        if range.is_empty() {
            return;
        }
        let (from, end, to) = (range.start as u16, range.end as u16, out.len() as u16);
        self.copies.push(Copied { page, from, end, to });
        out.extend_from_slice(&self.chain.page(page).row[range]);
    }

    /// Whether a node stands where an entry does, as long and of the same kind.
    fn is_like(&self, number: usize, page: PageRef, entry: u16) -> bool {
        let (node, plan) = (self.node(number).0, &self.plans[number]);
        let opened = self.chain.page(page);
        let entry = opened.entry(entry);
        let kind = match (node.is_branch(), plan.apart) {
            (false, _) => Kind::Terminal,
            (true, false) => Kind::Branch,
            (true, true) => Kind::Apart,
        };
        let is_inner_same = match kind {
            Kind::Branch => node.base == page && node.within == entry.within() && !plan.is_laid,
            Kind::Terminal => {
                let owns = self.owned_len(number, node).is_some();
                owns == entry.owns()
                    && (!owns || node.base == page && node.within == entry.within())
            }
            _ => true,
        };
        entry.kind == kind && entry.len() == plan.len as usize && is_inner_same
    }

    /// Writes an item in place of a stored one.
    fn replace(
        &mut self,
        number: usize,
        (page, entry): (PageRef, u16),
        out: &mut Vec<u8>,
    ) -> Result<(), TreeError> {
        if self.like.is_some() {
            if self.like == Some(page) && self.is_like(number, page, entry) {
                let commit = self.commit(number);
                self.known.push((entry, commit));
            } else {
                self.unlike();
            }
        }
        self.put_item(number, out)
    }

    /// The page being written is not like another one: what is known of it is named by where that lies.
    fn unlike(&mut self) {
        let Some(page) = self.like.take() else { return };
        let opened = self.chain.page(page);
        let mut kept = self.page_known;
        for number in self.page_known..self.known.len() {
            let (entry, commit) = self.known[number];
            let entry = opened.entry(entry);
            if entry.kind == Kind::Terminal {
                // So far nothing moved.
                self.known[kept] = (entry.at, commit);
                kept += 1;
            }
        }
        self.known.truncate(kept);
    }

    /// Writes the item of a node.
    fn put_item(&mut self, number: usize, out: &mut Vec<u8>) -> Result<(), TreeError> {
        let (node, _) = self.node(number);
        match node.is_branch() {
            true => self.put_branch(number, node, out),
            false => self.put_terminal(number, node, out),
        }
    }

    fn put_terminal(
        &mut self,
        number: usize,
        node: &'a Node,
        out: &mut Vec<u8>,
    ) -> Result<(), TreeError> {
        let commit = self.commit(number);
        if self.like.is_none() && out.len() <= usize::from(u16::MAX) {
            self.known.push((out.len() as u16, commit));
        }
        let suffix = self.chain.run(node, Self::WIDTH);
        let payload = self.chain.bytes(node.payload);
        let key = self.chain.key(node, Self::WIDTH);
        let overflow =
            self.emitted.overflow::<S>(key, node.depth, suffix, payload, INLINE_BYTES_MAX);
        let owns = self.owned_len(number, node).is_some();
        let carries = self.carries(number, node, owns, overflow.is_some());
        let put = PutTerminal {
            digit: Some(node.digit),
            suffix,
            payload,
            overflow,
            commit: carries.then_some(commit),
            // Its item comes behind.
            owned: owns.then_some(&[]),
        };
        self.codec.put_terminal(out, &put);
        let kid = self.kids(number).next().map(|(kid, plan)| (*kid, plan));
        match kid {
            Some((kid, plan)) if kid.made.is_something() => match kid.stands() {
                true => self.replace(plan, (kid.page, kid.entry), out),
                false => self.put_item(plan, out),
            },
            None if node.within.len() > 0 => {
                let entry = self.chain.page(node.base).entry(node.within.from);
                let range = usize::from(entry.at)..usize::from(entry.end);
                self.copy(node.base, range, out);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn put_branch(
        &mut self,
        number: usize,
        node: &'a Node,
        out: &mut Vec<u8>,
    ) -> Result<(), TreeError> {
        let plan = self.plans[number];
        let path = self.chain.key(node, Self::WIDTH);
        let skip = self.chain.run(node, Self::WIDTH);
        let overflow = self.emitted.overflow::<S>(path, node.depth, skip, &[], SKIP_BYTES_MAX);
        let (commit, body) = (self.commit(number), None);
        let put = PutBranch { digit: node.digit, commit, skip, overflow, body };
        self.codec.put_branch_head(out, &put, (!plan.apart).then_some(plan.body as usize));
        if plan.apart { Ok(()) } else { self.put_body(number, out) }
    }

    /// Writes the body of a branch.
    fn put_body(&mut self, number: usize, out: &mut Vec<u8>) -> Result<(), TreeError> {
        let (node, _) = self.node(number);
        let plan = self.plans[number];
        let stored = self.stored_value(node)?;
        let mut from = usize::from(node.body.0);
        if let Some(stored) = &stored {
            from = stored.end;
        }
        match node.value {
            ForkValue::Stored => {
                let range = stored.unwrap_or_default();
                self.copy(node.base, range, out);
            }
            ForkValue::Put => {
                self.unlike();
                self.put_fork_value(node);
                out.extend_from_slice(&self.head);
            }
            ForkValue::None if stored.is_some() => self.unlike(),
            ForkValue::None => {}
        }
        if plan.is_laid {
            self.unlike();
            out.extend_from_slice(&self.bodies[plan.laid.0 as usize..plan.laid.1 as usize]);
            return Ok(());
        }
        let kids: Vec<(TouchedChild, usize)> =
            self.kids(number).map(|(kid, plan)| (*kid, plan)).collect();
        if node.base == PageRef::NOWHERE {
            for (_, plan) in kids.iter().filter(|(kid, _)| kid.made.is_something()) {
                self.put_item(*plan, out)?;
            }
            return Ok(());
        }
        let from = self.put_between(&kids, (node.base, node.within), from, out)?;
        self.copy(node.base, from..usize::from(node.body.1), out);
        Ok(())
    }

    /// Writes the listed children of a branch among stored ones, from a place in their page on. Answers what was
    /// copied up to.
    fn put_between(
        &mut self,
        kids: &[(TouchedChild, usize)],
        (page, among): (PageRef, Within),
        mut from: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, TreeError> {
        let opened = self.chain.page(page);
        for (kid, plan) in kids {
            let entries = opened.entries(among);
            let place = entries.partition_point(|entry| entry.digit < kid.digit);
            let number = among.from + place as u16;
            match entries.get(place) {
                Some(entry) if entry.digit == kid.digit && entry.kind.is_in_group() => {
                    if !S::DELTAS {
                        let at = usize::from(entry.at) + MEMBER_COMMIT_AT;
                        self.copy(page, from..at, out);
                        let commit = self.commit(*plan);
                        self.codec.scheme.encode_commit(&commit, out);
                        if self.like.is_some() {
                            self.known.push((number, commit));
                        }
                        from = entry.end.into();
                    }
                }
                Some(entry) if entry.digit == kid.digit => {
                    self.copy(page, from..usize::from(entry.at), out);
                    from = entry.end.into();
                    match kid.made.is_something() {
                        true => self.replace(*plan, (page, number), out)?,
                        false => self.unlike(),
                    }
                }
                // Of another part of the branch.
                _ if opened.kind == PageKind::Group && among == opened.top() => {}
                next => {
                    let at = next.map_or(from, |next| usize::from(next.at));
                    let at = match next {
                        None => entries.last().map_or(from, |last| usize::from(last.end)),
                        Some(_) => at,
                    };
                    self.copy(page, from..at.max(from), out);
                    from = from.max(at);
                    self.unlike();
                    if kid.made.is_something() {
                        self.put_item(*plan, out)?;
                    }
                }
            }
        }
        Ok(from)
    }

    /// Makes the item of the value of the key that ends at a branch's fork.
    fn put_fork_value(&mut self, node: &Node) {
        let fork = node.fork as usize;
        let path = self.chain.key(node, Self::WIDTH);
        let payload = self.chain.bytes(node.payload);
        let suffix = Run::cut(&[], fork, 0, Self::WIDTH);
        let limit = FORK_VALUE_BYTES_MAX;
        let overflow = self.emitted.overflow::<S>(path, node.fork, suffix, payload, limit);
        let (digit, commit, owned) = (None, None, None);
        let put = PutTerminal { digit, suffix, payload, overflow, commit, owned };
        self.head.clear();
        self.codec.put_terminal(&mut self.head, &put);
    }

    /// What differs between the rows written and those of the store.
    fn difference(&mut self, arenas: &[Arc<Arena<S::Commit>>]) -> Rows<S::Commit> {
        let mut rows = Rows { known: std::mem::take(&mut self.known), ..Rows::default() };
        let fresh = arenas.iter().skip(1);
        for dropped in fresh.clone().flat_map(|arena| &arena.dropped) {
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
        self.same.iter().for_each(|key| drop(left.remove(key)));
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

/// What stands in front of the members of a group.
const GROUP_HEAD: usize = 4;

/// The children of a branch whose digits lie in a range, as a group has them.
fn members<S: Scheme>(
    codec: Codec<'_, S>,
    chain: Chain<'_, S::Commit>,
    (made, node): (Made, &Node),
    digits: RangeInclusive<u8>,
) -> Vec<Member<S::Commit>> {
    let kids = chain.kids(made.arena, node);
    let listed = kids.iter().filter(|kid| digits.contains(&kid.digit) && kid.made.is_something());
    let mut all: Vec<Member<S::Commit>> = listed
        .map(|kid| Member {
            digit: kid.digit,
            terminal: !chain.node(kid.made).is_branch(),
            commit: (!S::DELTAS).then(|| chain.commit(kid.made)),
        })
        .collect();
    if node.base != PageRef::NOWHERE {
        let page = chain.page(node.base);
        let is_listed = |digit: u8| kids.iter().any(|kid| kid.digit == digit && kid.stands());
        for entry in page.entries(node.within) {
            if digits.contains(&entry.digit) && !is_listed(entry.digit) {
                let commit = match S::DELTAS {
                    true => None,
                    false => page.commit(codec, entry, node.fork as usize + 1),
                };
                let terminal = entry.kind.is_terminal();
                all.push(Member { digit: entry.digit, terminal, commit });
            }
        }
        all.sort_unstable_by_key(|member| member.digit);
    }
    all
}
